//! The one task of a process that keeps its leases in Redis.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::leases::Batch;
use crate::limiter::Shared;

/// Keeps the leases of one [`RedisLimiter`](crate::RedisLimiter): extends what is held, takes back what was dropped, and finds
/// Redis again after it was away. Without it the limiter treats Redis as away.
#[must_use = "without its extender a limiter treats Redis as away"]
pub struct Extender {
    shared: Arc<Shared>,
}

/// What the extender woke for.
enum Woken {
    /// It is time to extend, or to look whether Redis is back.
    Beat,
    /// Something was dropped, or Redis went away.
    Call,
}

impl Extender {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Runs until `stop`, then gives back what was dropped until then. Stop it after everybody who holds permits: what is
    /// dropped later comes back by running out. It ends within one answer of Redis.
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
                Woken::Beat => self.keep(self.shared.leases.take_everything()).await,
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
            self.keep(batches).await;
        }
    }

    /// Tells Redis, and whoever watches whether it was there. What it was told in vain is told again.
    async fn keep(&self, batches: Vec<Batch>) {
        let shared = &self.shared;
        match shared.link.keep(&shared.leases, &batches).await {
            Ok(()) => {
                if shared.board.set_shared() {
                    info!("Redis is there: limits are shared");
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
    /// Nobody extends any more, so nothing may be granted by Redis: it would run out while it is held.
    fn drop(&mut self) {
        self.shared.board.set_away();
    }
}
