//! The task of a process that keeps its leases in Redis.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::limits::leases::Batch;
use crate::limits::limiter::Shared;

/// Keeps the leases of one [`RedisLimiter`](crate::limits::RedisLimiter): extends held leases, settles dropped ones, registers the process
/// among those that share the limits, and connects again after Redis was unreachable. A limiter without its extender treats Redis
/// as unreachable.
#[must_use = "without its extender a limiter treats Redis as unreachable"]
pub struct Extender {
    shared: Arc<Shared>,
}

/// What the extender woke for.
enum Woken {
    /// It is time to extend, or to look whether Redis is reachable again.
    Beat,
    /// Something was dropped, or Redis became unreachable.
    Call,
}

impl Extender {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Runs until `stop`, then settles what was dropped until then and unregisters the process. Stop it after everybody who holds
    /// permits: what is dropped later comes back by running out. It ends within two answers of Redis.
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
            // A beat that was set while Redis was there is too slow to look for it. One that looks for it stays as it is, or
            // steady drops would put it off for ever.
            let shared = self.shared.board.is_shared();
            if matches!(woken, Woken::Beat) || (extends && !shared) {
                extends = shared;
                beat = clock.sleep(self.pause());
            }
        }
        self.give_back().await;
        if self.shared.board.is_shared() {
            // If this fails, the others forget the process after a lease.
            let _left = self.shared.link.leave(&self.shared.leases).await;
        }
    }

    fn pause(&self) -> Duration {
        let options = &self.shared.options;
        if self.shared.board.is_shared() { options.extend_every } else { options.probe_every }
    }

    async fn give_back(&self) {
        if !self.shared.board.is_shared() {
            return;
        }
        let batches = self.shared.leases.take_ended();
        if !batches.is_empty() {
            self.keep(batches, false).await;
        }
    }

    /// Sends this to Redis, and notes whether Redis answered. What failed is sent again later.
    async fn keep(&self, batches: Vec<Batch>, joins: bool) {
        let shared = &self.shared;
        match shared.link.keep(&shared.leases, &batches, joins).await {
            Ok(look) => {
                if let Some(look) = look {
                    shared.members.saw(look);
                }
                if shared.board.set_shared() {
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
    /// Nobody extends any more, so nothing may be granted by Redis: its lease would run out while the call is under way.
    fn drop(&mut self) {
        self.shared.set_away();
    }
}
