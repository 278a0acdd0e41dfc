//! Clocks. Nodes use the store's time, as a cluster uses its database's. Each node also has a wall clock, which may be wrong.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::run::{FailReason, RunEvent, SequencedEvent};
use podium_domain::time::Timestamp;
use podium_ports::clock::{Clock, Skew};
use podium_testkit::TestClock;

use crate::checker::Invariant;
use crate::dice::Dice;
use crate::mutation::Mutation;
use crate::world::{Core, Link};

/// Largest error of a wall clock with which a process takes work, as in a cluster.
const SKEW_MAX: Duration = Duration::from_secs(30);
/// The errors of wrong wall clocks: ten minutes behind or ahead, or forty days ahead.
const OFF_MS: [i64; 3] = [-600_000, 600_000, 40 * 24 * 3_600_000];
/// Most that a node's estimate of the store's time is ahead.
pub(crate) const AHEAD_MS_MAX: u64 = 400;

/// A node whose wall clock is off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock {
    pub(crate) node: usize,
    pub(crate) ahead_ms: i64,
}

impl WallClock {
    pub(crate) fn draw(dice: &mut Dice, nodes: usize) -> Self {
        Self { node: dice.index(nodes), ahead_ms: OFF_MS[dice.index(OFF_MS.len())] }
    }
}

impl Core {
    /// The error of the node's wall clock, if it is wrong.
    fn wall_clock_off(&self, node: usize) -> Option<i64> {
        self.wall_clock.filter(|off| off.node == node).map(|off| off.ahead_ms)
    }

    /// Checks a commit that took effect: its node's wall clock must be right if it worked, and no run may miss its deadline early.
    pub(crate) fn check_clock(&mut self, node: usize, deadline_at: Timestamp, events: &[SequencedEvent]) {
        let now = TestClock::START.after(Duration::from_millis(self.now_ms + AHEAD_MS_MAX));
        for SequencedEvent { event, .. } in events {
            let is_early = now < deadline_at
                && matches!(event, RunEvent::Failed { reason: FailReason::DeadlineExceeded { .. } });
            if is_early {
                self.checker.violated(Invariant::Clock, "a run failed before its deadline");
            }
            let is_work = matches!(event, RunEvent::Claimed { .. } | RunEvent::LeaseExpired { .. });
            if let Some(off) = self.wall_clock_off(node).filter(|_| is_work) {
                let what = format!("node {node} works with a wall clock that is {off} ms ahead");
                self.checker.violated(Invariant::Clock, what);
            }
        }
    }
}

/// A node's clock: the store's time, a little ahead.
pub(crate) struct NodeClock(pub(crate) Link);

#[async_trait]
impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let core = self.0.world.lock();
        let ahead_ms = core.ahead_ms.get(self.0.node).copied().unwrap_or(0);
        let now_ms = core.now_ms + ahead_ms;
        let off = core.wall_clock_off(self.0.node).filter(|_| core.is_mutated(Mutation::TrustClock));
        let start_ms = TestClock::START.unix_ms();
        Timestamp::from_unix_ms((start_ms + now_ms).saturating_add_signed(off.unwrap_or(0)))
    }

    async fn sleep(&self, span: Duration) {
        self.0.pause(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)).await;
    }

    fn skew(&self) -> Option<Skew> {
        let core = self.0.world.lock();
        let ahead_ms = core.wall_clock_off(self.0.node)?;
        (!core.is_mutated(Mutation::TrustClock)).then_some(Skew { ahead_ms, max: SKEW_MAX })
    }
}
