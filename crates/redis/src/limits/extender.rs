//! The task of a process that extends and releases its leases in Redis.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::failure::Failure;
use crate::limits::leases::Batch;
use crate::limits::limiter::Shared;
use crate::limits::redis_state::State;

/// Beats after which a process names all its leases, although Redis knows that it is alive. Another server may have taken over that
/// did not receive the last ones, and Redis drops a lease that was not named for five times its time.
pub(crate) const EACH_EVERY: u32 = 8;

/// Most leases that one call names. Redis executes nothing else during a script, and the call must end in time.
const NAMED_MAX: usize = 500;

/// Most permits that one call settles.
const SETTLED_MAX: usize = 1_000;

/// Keeps the leases of one [`RedisLimiter`](crate::limits::RedisLimiter): tells Redis that the process is alive while it holds leases,
/// settles dropped ones, registers the process among those that share the limits, and connects again after Redis was unreachable. A
/// limiter without its extender treats Redis as unreachable.
///
/// Leases are named in portions, each in a call with a time limit of its own, and only those that Redis may not know. A call that is
/// late therefore costs one portion, and a process with many leases does not keep a slow Redis busy with their names.
#[must_use = "without its extender a limiter treats Redis as unreachable"]
pub struct Extender {
    shared: Arc<Shared>,
}

/// Why the extender woke.
enum Woken {
    /// It is time to extend leases, or to try whether Redis is reachable again.
    Beat,
    /// A permit was dropped, or Redis became unreachable.
    Call,
}

impl Extender {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Runs until `stop`, then settles the permits dropped so far and unregisters the process. Stop it after all holders of permits:
    /// leases that are dropped later have to expire. If Redis does not answer, it ends within the time limit of two calls.
    pub async fn run(self, stop: CancellationToken) {
        let clock = Arc::clone(&self.shared.clock);
        let mut beat = clock.sleep(Duration::ZERO);
        let (mut extends, mut beats) = (true, 0_u32);
        loop {
            let woken = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = &mut beat => Woken::Beat,
                () = self.shared.leases.woken() => Woken::Call,
            };
            match woken {
                Woken::Beat => {
                    // Probes do not count: one that fails halfway must not begin with all names again.
                    if self.shared.state.is_shared() {
                        beats = beats.wrapping_add(1);
                        if beats.is_multiple_of(EACH_EVERY) {
                            self.shared.may_have_lost.store(true, Ordering::Relaxed);
                        }
                    }
                    self.keep().await;
                }
                Woken::Call => self.give_back().await,
            }
            // A beat that was set while Redis was reachable is too slow for probing. A beat for probing is not set again, or a
            // steady flow of dropped permits would postpone it forever.
            let shared = self.shared.state.is_shared();
            if matches!(woken, Woken::Beat) || (extends && !shared) {
                extends = shared;
                beat = clock.sleep(self.pause());
            }
        }
        self.give_back().await;
        if self.shared.state.is_shared() {
            // If this fails, the registration expires.
            let _left = self.shared.link.leave(&self.shared.leases).await;
        }
    }

    fn pause(&self) -> Duration {
        let options = &self.shared.options;
        if self.shared.state.is_shared() { options.extend_every } else { options.probe_every }
    }

    async fn give_back(&self) {
        if !self.shared.state.is_shared() {
            return;
        }
        if let Err(failure) = self.settle().await {
            self.failed(&failure);
        }
    }

    async fn keep(&self) {
        match self.try_keep().await {
            Ok(()) => self.reached(),
            Err(failure) => self.failed(&failure),
        }
    }

    /// Gives the sign of life, settles what has ended, and names the leases that Redis may not know.
    async fn try_keep(&self) -> Result<(), Failure> {
        let Shared { leases, link, members, may_have_lost, .. } = &*self.shared;
        let beat = link.beat(leases, &leases.holding()).await?;
        let lost_all = may_have_lost.swap(false, Ordering::Relaxed);
        leases.doubt(|keys| lost_all || beat.lost.contains(keys.alive_key()));
        self.settle().await?;
        loop {
            let batches = leases.to_name(NAMED_MAX);
            if !batches.is_empty() {
                link.name(leases, &batches).await?;
                leases.named(&batches);
            }
            if count(&batches) < NAMED_MAX {
                break;
            }
        }
        if let Some(membership) = beat.membership {
            members.saw(membership);
        }
        Ok(())
    }

    /// Settles the leases that have ended. After an error, the others are settled later.
    async fn settle(&self) -> Result<(), Failure> {
        let Shared { leases, link, .. } = &*self.shared;
        loop {
            let batches = leases.take_ended(SETTLED_MAX);
            let taken = count(&batches);
            if taken > 0
                && let Err(failure) = link.settle(leases, &batches).await
            {
                leases.put_back(batches);
                return Err(failure);
            }
            // Leases that ended meanwhile wait for the next time, or a steady flow of them would hold up the names.
            if taken < SETTLED_MAX {
                return Ok(());
            }
        }
    }

    fn reached(&self) {
        if self.shared.state.set(State::Shared) {
            info!(server = self.shared.link.server(), "Redis is reachable: limits are shared");
        }
    }

    fn failed(&self, failure: &Failure) {
        if failure.needs_new_connection() {
            self.shared.link.connect_anew();
        }
        self.shared.lose(failure);
    }
}

fn count<T>(batches: &[Batch<T>]) -> usize {
    batches.iter().map(|batch| batch.leases.len()).sum()
}

impl Drop for Extender {
    /// Without an extender Redis may grant nothing: the lease would expire while the call is in flight.
    fn drop(&mut self) {
        self.shared.set_unreachable();
    }
}
