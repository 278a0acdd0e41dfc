//! The limiter: asks Redis, or does without.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use podium_domain::pool::Worker;
use podium_ports::clock::Clock;
use podium_ports::limiter::{Grant, Limiter, LimiterError};
use tokio::sync::watch;
use tracing::warn;
use uuid::Uuid;

use crate::extender::Extender;
use crate::failure::Failure;
use crate::leases::{Lease, Leases};
use crate::link::{Answer, Link};
use crate::options::{Away, OpenError, Options};
use crate::pause::ask_again;
use crate::standing::{Board, Standing};

/// What the limiter and its extender have in common.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) link: Link,
    pub(crate) leases: Arc<Leases>,
    pub(crate) board: Board,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Grants as many calls at once as each worker's `in_flight_max` says, over all processes that share a Redis and a prefix.
/// The bound is the one that the asking process has: during a change of the pool each keeps its own. Clones are the same
/// limiter.
#[derive(Clone)]
pub struct RedisLimiter {
    shared: Arc<Shared>,
}

impl RedisLimiter {
    /// Makes a limiter and the task that keeps its leases. Connects to nothing yet: until the extender runs and has reached
    /// Redis, Redis counts as away. Must be called on a Tokio runtime.
    ///
    /// `url` is `redis://`, `rediss://` (TLS, checked against the system's certificates) or `unix://`, with credentials.
    /// `instance` is a random name for this process; two that share it would count as one.
    pub fn open(
        url: &str,
        options: Options,
        instance: Uuid,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Extender), OpenError> {
        options.check()?;
        let link = Link::open(url, &options)?;
        let board = Board::new(options.away, Arc::clone(&clock));
        let shared = Arc::new(Shared { options, link, leases: Leases::new(instance), board, clock });
        Ok((Self { shared: Arc::clone(&shared) }, Extender::new(shared)))
    }

    /// By what the limiter grants now, and since when.
    pub fn standing(&self) -> Standing {
        self.shared.board.read()
    }

    /// The same, to wait for a change.
    pub fn watch_standing(&self) -> watch::Receiver<Standing> {
        self.shared.board.watch()
    }

    /// The share of this process, or nothing.
    fn grant_without_redis(&self, lease: Lease, worker: &Worker) -> Grant {
        let ask_again_max = self.shared.options.ask_again_max;
        let after = ask_again(ask_again_max, ask_again_max, lease.seed());
        match self.shared.options.away {
            Away::Hold => Grant::AskAgain { after },
            Away::Local { share } => lease
                .hold_below(local_bound(worker.limits.in_flight_max, share))
                .map_or_else(|_| Grant::AskAgain { after }, Grant::Permit),
        }
    }
}

#[async_trait]
impl Limiter for RedisLimiter {
    async fn acquire(&self, worker: &Worker) -> Result<Grant, LimiterError> {
        let shared = &self.shared;
        let mut lease = shared.leases.prepare(key(&shared.options.prefix, worker));
        if !shared.board.is_shared() {
            return Ok(self.grant_without_redis(lease, worker));
        }
        lease.asked();
        match shared.link.acquire(lease.key(), &lease.id(), worker.limits.in_flight_max).await {
            Ok(Answer::Granted) => Ok(Grant::Permit(lease.hold())),
            Ok(Answer::Full { first_out }) => {
                let after = ask_again(first_out, shared.options.ask_again_max, lease.seed());
                lease.refused();
                Ok(Grant::AskAgain { after })
            }
            Err(failure) if failure.is_away() => {
                shared.lose(&failure);
                Ok(self.grant_without_redis(lease, worker))
            }
            Err(failure) => Err(LimiterError(failure.into())),
        }
    }
}

impl Shared {
    /// Redis is away. Said once, and the extender looks for it.
    pub(crate) fn lose(&self, failure: &Failure) {
        if self.board.set_away() {
            warn!(
                error = failure as &dyn std::error::Error,
                state = ?self.board.read().state,
                "Redis is away: limits are not shared"
            );
            self.leases.wake();
        }
    }
}

impl fmt::Debug for RedisLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The link holds the URL.
        f.debug_struct("RedisLimiter").field("standing", &self.standing()).finish_non_exhaustive()
    }
}

/// Where the leases of a worker are. The vendor's account is the hash tag, so that all keys that one decision may need are on one
/// node of a cluster. No two workers have the same key: braces are in no name, and the end is fixed.
fn key(prefix: &str, worker: &Worker) -> String {
    format!("{prefix}:{{{}}}:{}:calls", worker.vendor, worker.id)
}

/// `in_flight_max` times `share`, rounded up; at least 1.
fn local_bound(in_flight_max: u32, share: f64) -> u32 {
    // A third of three is one, though the product of floats may be a little more.
    let exact = f64::from(in_flight_max) * share - 1e-6;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the share is at most 1, so it is between 1 and a u32"
    )]
    let bound = exact.ceil().max(1.0) as u32;
    bound
}

#[cfg(test)]
mod tests {
    use podium_testkit::a_pool;

    use super::*;

    #[test]
    fn a_local_bound_is_a_share_rounded_up_and_never_none() {
        assert_eq!(local_bound(10, 0.25), 3);
        assert_eq!(local_bound(70, 0.1), 7);
        assert_eq!(local_bound(3, 1.0 / 3.0), 1);
        assert_eq!(local_bound(1, 0.001), 1);
        assert_eq!(local_bound(u32::MAX, 1.0), u32::MAX);
    }

    #[test]
    fn the_vendor_is_the_hash_tag_of_its_workers_keys() {
        let pool = a_pool();
        assert_eq!(key("p", &pool.workers()[1]), "p:{south}:careful:calls");
        assert_eq!(key("p", &pool.workers()[2]), "p:{south}:checker:calls");
    }
}
