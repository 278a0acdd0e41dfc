//! The limiter: asks Redis, or does without.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use podium_domain::limits::{Ask, Drawn, Refusal, scatter};
use podium_domain::time::Timestamp;
use podium_ports::clock::Clock;
use podium_ports::limiter::{CallWish, Grant, Limiter, LimiterError, Why};
use redis::IntoConnectionInfo;
use tokio::sync::watch;
use tracing::warn;
use uuid::Uuid;

use crate::extender::Extender;
use crate::failure::Failure;
use crate::gathering::Gatherings;
use crate::leases::{Lease, Leases};
use crate::link::{Answer, Link};
use crate::options::{Away, OpenError, Options};
use crate::place::Place;
use crate::script::{AskedCall, milliseconds};
use crate::standing::{Board, Standing};

/// What the limiter and its extender have in common.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) link: Link,
    pub(crate) leases: Arc<Leases>,
    pub(crate) board: Board,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Grants calls as the limits of workers and accounts allow, over all processes that share a Redis and a prefix. The limits are
/// those that the asking process has: during a change of the pool each keeps its own. Clones are the same limiter.
#[derive(Clone)]
pub struct RedisLimiter {
    shared: Arc<Shared>,
    gatherings: Arc<Gatherings>,
}

impl RedisLimiter {
    /// Makes a limiter and the task that keeps its leases. Connects to nothing yet: until the extender runs and has reached
    /// Redis, Redis counts as away. Must be called on a Tokio runtime.
    ///
    /// `server` is `redis://`, `rediss://` (TLS, checked against the system's certificates) or `unix://`, with credentials; or the
    /// same with certificates, from a `redis::Client`.
    /// `instance` is a random name for this process; two that share it would count as one.
    pub fn open(
        server: impl IntoConnectionInfo,
        options: Options,
        instance: Uuid,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Extender), OpenError> {
        options.check()?;
        let link = Link::open(server, &options)?;
        let board = Board::new(options.away, Arc::clone(&clock));
        let shared = Arc::new(Shared { options, link, leases: Leases::new(instance), board, clock });
        let limiter = Self { shared: Arc::clone(&shared), gatherings: Arc::default() };
        Ok((limiter, Extender::new(shared)))
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
    fn grant_without_redis(&self, lease: Lease, wish: &CallWish<'_>) -> Grant {
        let shared = &self.shared;
        let (seed, ask_again_ms_max) = (lease.seed(), float(shared.options.ask_again_max));
        let refused = match shared.options.away {
            Away::Hold => {
                let half = ask_again_ms_max / 2.0;
                Refusal { why: Why::Away, after: half, spread: half }
            }
            Away::Local { share } => {
                let ask = Ask {
                    who: &wish.who(),
                    tier: wish.tier,
                    tenant: wish.tenant.as_str(),
                    takes: Drawn::default(),
                    ask_again_ms_max,
                };
                let now = float(shared.clock.now().since(Timestamp::default()));
                match lease.hold_here(now, share, ask) {
                    Ok(permit) => return Grant::Permit(permit),
                    Err(refusal) => refusal,
                }
            }
        };
        Grant::AskAgain { after: scatter(refused, seed), why: refused.why }
    }
}

#[async_trait]
impl Limiter for RedisLimiter {
    async fn acquire(&self, wish: &CallWish<'_>) -> Result<Grant, LimiterError> {
        let shared = &self.shared;
        let lease = shared.leases.prepare(Place::of(&shared.options.prefix, wish.worker), wish.estimate);
        if !shared.board.is_shared() {
            return Ok(self.grant_without_redis(lease, wish));
        }
        let call = AskedCall::new(&lease.id(), wish);
        let Some((lease, answer)) = self.gatherings.ask(shared, lease, call).await else {
            return Err(LimiterError("the question was given up".into()));
        };
        match answer {
            Ok(Answer::Granted { reserved, probes }) => Ok(Grant::Permit(lease.hold(reserved, probes))),
            Ok(Answer::Refused(refusal)) => {
                let after = scatter(refusal, lease.seed());
                lease.refused();
                Ok(Grant::AskAgain { after, why: refusal.why })
            }
            Err(failure) if failure.is_away() => {
                shared.lose(&failure);
                Ok(self.grant_without_redis(lease, wish))
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

#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^53")]
fn float(span: std::time::Duration) -> f64 {
    milliseconds(span) as f64
}
