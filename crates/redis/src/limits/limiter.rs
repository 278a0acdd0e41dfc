//! The limiter: decides in Redis, or by the share of this process while Redis is unreachable.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use podium_domain::limits::{Ask, Drawn, Refusal, Share, scatter};
use podium_ports::clock::Clock;
use podium_ports::limiter::{CallRequest, Grant, Limiter, LimiterError, RefusalReason};
use redis::IntoConnectionInfo;
use tokio::sync::watch;
use tracing::warn;
use uuid::Uuid;

use crate::failure::Failure;
use crate::limits::batching::AcquireBatches;
use crate::limits::extender::Extender;
use crate::limits::keys::WorkerKeys;
use crate::limits::leases::{Lease, Leases};
use crate::limits::link::{Answer, Link};
use crate::limits::members::Members;
use crate::limits::options::{Away, OpenError, Options};
use crate::limits::redis_state::{State, StateCell};
use crate::limits::script::{AskedCall, milliseconds};

/// The state that the limiter shares with its extender.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) link: Link,
    pub(crate) leases: Arc<Leases>,
    pub(crate) members: Members,
    pub(crate) state: StateCell,
    /// Whether Redis may have lost leases, so that the extender has to name them all.
    pub(crate) may_have_lost: AtomicBool,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Grants calls within the limits of workers and accounts, over all processes that share a Redis server and a prefix. Each process
/// uses the limits of its own pool, also while a change of the pool is rolled out. Clones are the same limiter.
#[derive(Clone)]
pub struct RedisLimiter {
    shared: Arc<Shared>,
    batches: Arc<AcquireBatches>,
}

impl RedisLimiter {
    /// Creates a limiter and the task that keeps its leases, without connecting. Until the extender runs and has reached Redis,
    /// Redis counts as unreachable. Must be called on a Tokio runtime.
    ///
    /// `server` is a URL with credentials: `redis://`, `rediss://` (TLS, verified by the system's certificates) or `unix://`; or
    /// the connection information of a `redis::Client` with certificates.
    /// `instance` is a random id of this process; two processes with the same id would count as one.
    pub fn open(
        server: impl IntoConnectionInfo,
        options: Options,
        instance: Uuid,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Extender), OpenError> {
        options.check()?;
        let link = Link::open(server, &options)?;
        let members = Members::default();
        let state = StateCell::new(state_without_redis(options.away, &members));
        let leases = Leases::new(instance, Arc::clone(&clock));
        let may_have_lost = AtomicBool::new(false);
        let shared = Arc::new(Shared { options, link, leases, members, state, may_have_lost, clock });
        let limiter = Self { shared: Arc::clone(&shared), batches: Arc::default() };
        Ok((limiter, Extender::new(shared)))
    }

    /// The counts by which the limiter grants calls at present.
    pub fn state(&self) -> State {
        self.shared.state.get()
    }

    /// The state as a channel, to wait for a change.
    pub fn watch_state(&self) -> watch::Receiver<State> {
        self.shared.state.watch()
    }

    /// Grants from the share of this process, if it has one.
    fn grant_without_redis(&self, lease: Lease, request: &CallRequest<'_>) -> Grant {
        let shared = &self.shared;
        let seed = lease.seed();
        let refused = match shared.share() {
            None => {
                let half = float(shared.options.ask_again_max) / 2.0;
                Refusal { why: RefusalReason::Unreachable, after: half, spread: half }
            }
            Some(share) => {
                let who = request.who();
                match lease.hold_here(share, &self.ask(request, &who, Drawn::default())) {
                    Ok(permit) => return Grant::Permit(permit),
                    Err(refusal) => refusal,
                }
            }
        };
        Grant::AskAgain { after: scatter(refused, seed), why: refused.why }
    }

    fn ask<'a>(&self, request: &'a CallRequest<'_>, who: &'a str, takes: Drawn) -> Ask<'a> {
        let ask_again_ms_max = float(self.shared.options.ask_again_max);
        Ask { who, tier: request.tier, tenant: request.tenant.as_str(), takes, ask_again_ms_max }
    }
}

#[async_trait]
impl Limiter for RedisLimiter {
    async fn acquire(&self, request: &CallRequest<'_>) -> Result<Grant, LimiterError> {
        let shared = &self.shared;
        let lease =
            shared.leases.prepare(WorkerKeys::of(&shared.options.prefix, request.worker), request.estimate);
        if !shared.state.is_shared() {
            return Ok(self.grant_without_redis(lease, request));
        }
        let call = AskedCall::new(&lease.id(), request);
        let Some((lease, answer)) = self.batches.ask(shared, lease, call).await else {
            return Err(LimiterError("the request for a permit was abandoned".into()));
        };
        match answer {
            Ok(Answer::Granted { reserved, granted }) => {
                let who = request.who();
                let noted =
                    shared.keeps_meters().then(|| (shared.share(), self.ask(request, &who, reserved)));
                Ok(Grant::Permit(lease.hold(reserved, granted, noted)))
            }
            Ok(Answer::Refused(refusal)) => {
                let after = scatter(refusal, lease.seed());
                lease.refused();
                Ok(Grant::AskAgain { after, why: refusal.why })
            }
            Err(failure) if failure.is_unreachable() => {
                shared.lose(&failure);
                Ok(self.grant_without_redis(lease, request))
            }
            Err(failure) => Err(LimiterError(failure.into())),
        }
    }
}

impl Shared {
    /// Records that Redis is unreachable: logs it once and wakes the extender, which tries to reach it.
    pub(crate) fn lose(&self, failure: &Failure) {
        if failure.may_lose_data() {
            self.may_have_lost.store(true, Ordering::Relaxed);
        }
        if self.set_unreachable() {
            warn!(
                server = self.link.server(),
                error = failure as &dyn std::error::Error,
                state = ?self.state.get(),
                "Redis is unreachable: limits are not shared"
            );
            self.leases.wake();
        }
    }

    /// Records that Redis is unreachable. Returns whether the state has changed.
    pub(crate) fn set_unreachable(&self) -> bool {
        self.members.lost();
        self.state.set(state_without_redis(self.options.away, &self.members))
    }

    /// The share of the limits that this process may use without Redis, if any.
    fn share(&self) -> Option<Share> {
        share_without_redis(self.options.away, &self.members)
    }

    /// Whether there may ever be such a share.
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
        // The link contains the URL.
        f.debug_struct("RedisLimiter").field("state", &self.state()).finish_non_exhaustive()
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^53")]
fn float(span: std::time::Duration) -> f64 {
    milliseconds(span) as f64
}
