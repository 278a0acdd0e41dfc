//! Caches which streams and consumers exist.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_ports::queue::Lane;
use tokio::time::Instant;

/// The state of each lane. The number of lanes is bounded by the combinations of tiers and vendors.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lanes: HashMap<Lane, LaneState>,
}

#[derive(Debug, Default)]
struct LaneState {
    /// The connection over which the stream was confirmed. A server may have lost it before a later connection.
    stream: Option<u64>,
    /// Whether this process has updated the stream to its options.
    is_configured: bool,
    /// The connection over which the consumer was confirmed.
    consumer: Option<u64>,
    checked_at: Option<Instant>,
    /// Since when the consumer seems not to know the stream's oldest message, and that message's number.
    seems_wedged: Option<(Instant, u64)>,
}

impl Lanes {
    pub(super) fn has_stream(&self, lane: &Lane, connection: u64) -> bool {
        self.lock().lanes.get(lane).is_some_and(|lane| lane.stream == Some(connection))
    }

    pub(super) fn note_stream(&self, lane: &Lane, connection: u64) {
        let mut state = self.lock();
        let lane = state.lanes.entry(lane.clone()).or_default();
        (lane.stream, lane.is_configured) = (Some(connection), true);
    }

    /// Whether this process has ever updated the stream to its options.
    pub(super) fn is_configured(&self, lane: &Lane) -> bool {
        self.lock().lanes.get(lane).is_some_and(|lane| lane.is_configured)
    }

    /// Forgets a stream that was confirmed over `connection`, and its consumer. A later confirmation stays.
    pub(super) fn forget_stream(&self, lane: &Lane, connection: u64) {
        if let Some(lane) = self.lock().lanes.get_mut(lane)
            && lane.stream == Some(connection)
        {
            (lane.stream, lane.consumer) = (None, None);
        }
    }

    pub(super) fn has_consumer(&self, lane: &Lane, connection: u64) -> bool {
        self.lock().lanes.get(lane).is_some_and(|lane| lane.consumer == Some(connection))
    }

    pub(super) fn note_consumer(&self, lane: &Lane, connection: u64) {
        self.lock().lanes.entry(lane.clone()).or_default().consumer = Some(connection);
    }

    /// Forgets the consumer that was confirmed over `connection`, and the stream.
    pub(super) fn forget(&self, lane: &Lane, connection: u64) {
        self.forget_stream(lane, connection);
        self.forget_consumer(lane);
    }

    pub(super) fn forget_consumer(&self, lane: &Lane) {
        if let Some(lane) = self.lock().lanes.get_mut(lane) {
            lane.consumer = None;
        }
    }

    /// Whether the last check of the lane is older than half of `wedged_after`. The caller must then check it.
    pub(super) fn must_check(&self, lane: &Lane, wedged_after: Duration) -> bool {
        let mut state = self.lock();
        let lane = state.lanes.entry(lane.clone()).or_default();
        let is_due = lane.checked_at.is_none_or(|at| at.elapsed() >= wedged_after / 2);
        if is_due {
            lane.checked_at = Some(Instant::now());
        }
        is_due
    }

    /// Whether all checks for `wedged_after` found the lane wedged with the same oldest message. On a busy lane a check's
    /// two answers may differ repeatedly, but not about the same message.
    pub(super) fn is_wedged(&self, lane: &Lane, oldest: Option<u64>, wedged_after: Duration) -> bool {
        let mut state = self.lock();
        let lane = state.lanes.entry(lane.clone()).or_default();
        let before = lane.seems_wedged.filter(|(_, before)| oldest == Some(*before));
        lane.seems_wedged = oldest.map(|oldest| before.unwrap_or_else(|| (Instant::now(), oldest)));
        let is_wedged = lane.seems_wedged.is_some_and(|(since, _)| since.elapsed() >= wedged_after);
        if is_wedged {
            lane.seems_wedged = None;
        }
        is_wedged
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use podium_domain::policy::Tier;

    use super::*;

    const LANE: Lane = Lane::Plan(Tier::Mini);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_new_connection_or_a_loss_requires_a_new_confirmation() {
        let lanes = Lanes::default();
        let other = Lane::Plan(Tier::Ultra);
        for lane in [&LANE, &other] {
            lanes.note_stream(lane, 1);
            lanes.note_consumer(lane, 1);
            assert!(lanes.has_stream(lane, 1) && lanes.has_consumer(lane, 1));
            assert!(!lanes.has_stream(lane, 2) && !lanes.has_consumer(lane, 2));
        }
        lanes.note_stream(&LANE, 2);
        lanes.note_consumer(&LANE, 2);
        lanes.forget_stream(&LANE, 1);
        assert!(
            lanes.has_stream(&LANE, 2) && lanes.has_consumer(&LANE, 2),
            "the loss was on an earlier connection"
        );
        lanes.forget(&LANE, 2);
        assert!(!lanes.has_stream(&LANE, 2) && !lanes.has_consumer(&LANE, 2));
        assert!(
            lanes.has_stream(&other, 1) && lanes.has_consumer(&other, 1),
            "the other lane is not affected"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_is_wedged_if_it_seems_so_for_long_enough() {
        let lanes = Lanes::default();
        let seems = |oldest| lanes.is_wedged(&LANE, oldest, 4 * SECOND);
        for _ in 0..3 {
            assert!(!seems(Some(1)));
            tokio::time::advance(2 * SECOND).await;
            assert!(!seems(Some(1)));
            assert!(!seems(None), "the consumer knows the message");
        }
        for oldest in 1..9 {
            assert!(!seems(Some(oldest)), "the oldest message changes");
            tokio::time::advance(2 * SECOND).await;
        }
        assert!(!seems(Some(9)));
        tokio::time::advance(4 * SECOND).await;
        assert!(seems(Some(9)));
        assert!(!seems(Some(9)), "the consumer was recreated");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_is_checked_at_intervals() {
        let lanes = Lanes::default();
        let mut checks = 0;
        for _ in 0..10 {
            checks += u32::from(lanes.must_check(&LANE, 4 * SECOND));
            tokio::time::advance(SECOND).await;
        }
        assert_eq!(checks, 5);
    }
}
