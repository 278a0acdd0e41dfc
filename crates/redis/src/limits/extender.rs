//! The task of a process that extends and releases its leases in Redis.

use std::sync::Arc;
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

/// Keeps the leases of one [`RedisLimiter`](crate::limits::RedisLimiter): tells Redis that the process is alive while it holds leases,
/// settles dropped ones, registers the process among those that share the limits, and connects again after Redis was unreachable. A
/// limiter without its extender treats Redis as unreachable.
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
                    let each = beats.is_multiple_of(EACH_EVERY) || !self.shared.state.is_shared();
                    beats = if self.keep(each).await { beats.wrapping_add(1) } else { 0 };
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
        let batches = self.shared.leases.take_ended();
        if batches.is_empty() {
            return;
        }
        match self.shared.link.settle(&self.shared.leases, &batches).await {
            Ok(()) => self.reached(),
            Err(failure) => self.failed(batches, &failure),
        }
    }

    /// Keeps the leases and returns whether Redis answered. Batches that failed are sent again later.
    async fn keep(&self, each: bool) -> bool {
        let shared = &self.shared;
        let batches = shared.leases.take_everything();
        match shared.link.keep(&shared.leases, &batches, each).await {
            Ok(membership) => {
                if let Some(membership) = membership {
                    shared.members.saw(membership);
                }
                self.reached();
                true
            }
            Err(failure) => {
                self.failed(batches, &failure);
                false
            }
        }
    }

    fn reached(&self) {
        if self.shared.state.set(State::Shared) {
            info!(server = self.shared.link.server(), "Redis is reachable: limits are shared");
        }
    }

    fn failed(&self, batches: Vec<Batch>, failure: &Failure) {
        self.shared.leases.put_back(batches);
        if failure.needs_new_connection() {
            self.shared.link.connect_anew();
        }
        self.shared.lose(failure);
    }
}

impl Drop for Extender {
    /// Without an extender Redis may grant nothing: the lease would expire while the call is in flight.
    fn drop(&mut self) {
        self.shared.set_unreachable();
    }
}
