//! The task of a process that extends and releases its leases in Redis.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::limits::leases::Batch;
use crate::limits::limiter::Shared;
use crate::limits::redis_state::State;

/// Keeps the leases of one [`RedisLimiter`](crate::limits::RedisLimiter): extends held leases, settles dropped ones, registers the process
/// among those that share the limits, and connects again after Redis was unreachable. A limiter without its extender treats Redis
/// as unreachable.
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
    /// leases that are dropped later have to expire. It ends within the time limit of two calls to Redis.
    pub async fn run(self, stop: CancellationToken) {
        let clock = Arc::clone(&self.shared.clock);
        let mut beat = clock.sleep(Duration::ZERO);
        let mut extends = true;
        loop {
            let woken = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = &mut beat => Woken::Beat,
                () = self.shared.leases.woken() => Woken::Call,
            };
            match woken {
                Woken::Beat => self.keep(self.shared.leases.take_everything(), true).await,
                Woken::Call => self.give_back().await,
            }
            // A beat that was set while Redis was reachable is too slow for probing. A beat for probing is not set again, or a
            // steady flow of dropped permits would postpone it for ever.
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
        let batches = self.shared.leases.take_ended();
        if !batches.is_empty() {
            self.keep(batches, false).await;
        }
    }

    /// Sends the batches to Redis and records whether it answered. Batches that failed are sent again later.
    async fn keep(&self, batches: Vec<Batch>, joins: bool) {
        let shared = &self.shared;
        match shared.link.keep(&shared.leases, &batches, joins).await {
            Ok(membership) => {
                if let Some(membership) = membership {
                    shared.members.saw(membership);
                }
                if shared.state.set(State::Shared) {
                    info!(server = shared.link.server(), "Redis is reachable: limits are shared");
                }
            }
            Err(failure) => {
                shared.leases.put_back(batches);
                if failure.needs_new_connection() {
                    shared.link.connect_anew();
                }
                shared.lose(&failure);
            }
        }
    }
}

impl Drop for Extender {
    /// Without an extender Redis may grant nothing: the lease would expire while the call is in flight.
    fn drop(&mut self) {
        self.shared.set_unreachable();
    }
}
