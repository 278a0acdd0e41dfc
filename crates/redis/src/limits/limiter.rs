//! The limiter: asks Redis, or does without.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use podium_domain::limits::{Ask, Drawn, Refusal, Share, scatter};
use podium_ports::clock::Clock;
use podium_ports::limiter::{CallWish, Grant, Limiter, LimiterError, Why};
use redis::IntoConnectionInfo;
use tokio::sync::watch;
use tracing::warn;
use uuid::Uuid;

use crate::failure::Failure;
use crate::limits::batching::Gatherings;
use crate::limits::extender::Extender;
use crate::limits::keys::Place;
use crate::limits::leases::{Lease, Leases};
use crate::limits::link::{Answer, Link};
use crate::limits::members::Members;
use crate::limits::options::{Away, OpenError, Options};
use crate::limits::redis_state::{Board, Standing, State};
use crate::limits::script::{AskedCall, milliseconds};

/// What the limiter and its extender have in common.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) link: Link,
    pub(crate) leases: Arc<Leases>,
    pub(crate) members: Members,
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
    /// Redis, Redis counts as unreachable. Must be called on a Tokio runtime.
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
        let members = Members::default();
        let board = Board::new(state_without_redis(options.away, &members), Arc::clone(&clock));
        let leases = Leases::new(instance, Arc::clone(&clock));
        let shared = Arc::new(Shared { options, link, leases, members, board, clock });
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

    /// Grants from the share of this process, if it has one.
    fn grant_without_redis(&self, lease: Lease, wish: &CallWish<'_>) -> Grant {
        let shared = &self.shared;
        let seed = lease.seed();
        let refused = match shared.share() {
            None => {
                let half = float(shared.options.ask_again_max) / 2.0;
                Refusal { why: Why::Away, after: half, spread: half }
            }
            Some(share) => {
                let who = wish.who();
                match lease.hold_here(share, &self.ask(wish, &who, Drawn::default())) {
                    Ok(permit) => return Grant::Permit(permit),
                    Err(refusal) => refusal,
                }
            }
        };
        Grant::AskAgain { after: scatter(refused, seed), why: refused.why }
    }

    fn ask<'a>(&self, wish: &'a CallWish<'_>, who: &'a str, takes: Drawn) -> Ask<'a> {
        let ask_again_ms_max = float(self.shared.options.ask_again_max);
        Ask { who, tier: wish.tier, tenant: wish.tenant.as_str(), takes, ask_again_ms_max }
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
            Ok(Answer::Granted { reserved, granted }) => {
                let who = wish.who();
                let noted = shared.keeps_meters().then(|| (shared.share(), self.ask(wish, &who, reserved)));
                Ok(Grant::Permit(lease.hold(reserved, granted, noted)))
            }
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
    /// Redis is unreachable. Logged once, and the extender tries to reach it.
    pub(crate) fn lose(&self, failure: &Failure) {
        if self.set_away() {
            warn!(
                server = self.link.server(),
                error = failure as &dyn std::error::Error,
                state = ?self.board.read().state,
                "Redis is unreachable: limits are not shared"
            );
            self.leases.wake();
        }
    }

    /// Returns whether it is news that Redis is unreachable.
    pub(crate) fn set_away(&self) -> bool {
        self.members.lost();
        self.board.set_away(state_without_redis(self.options.away, &self.members))
    }

    /// The part of all limits that this process may use by itself, if any.
    fn share(&self) -> Option<Share> {
        share_without_redis(self.options.away, &self.members)
    }

    /// Whether there may ever be such a part.
    fn keeps_meters(&self) -> bool {
        self.options.away != Away::Hold
    }
}

fn share_without_redis(away: Away, members: &Members) -> Option<Share> {
    match away {
        Away::Hold => None,
        Away::Local { share: Some(share) } => Some(Share::Fixed(share)),
        Away::Local { share: None } => members.share(),
    }
}

fn state_without_redis(away: Away, members: &Members) -> State {
    if share_without_redis(away, members).is_some() { State::Local } else { State::Holding }
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
