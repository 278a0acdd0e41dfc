//! The port of the limiter, which bounds the use of workers.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::policy::Tier;
use podium_domain::pool::Worker;
use podium_domain::run::TaskRef;

use crate::BoxError;
use crate::vendor::VendorError;

pub use podium_domain::limits::{Allowance, Outcome, Quota, RefusalReason, Settlement, TokenEstimate};

/// Statuses of an overloaded service: Anthropic sends 529, the others 503.
const OVERLOADED: [u16; 2] = [503, 529];

/// Grants calls within the limits of workers and of their vendors' accounts.
///
/// Granting a call reserves its estimate. The caller settles the actual usage afterwards, once, in the background. If a caller
/// dies, its share of concurrent calls is released, and its reservation expires with time.
///
/// Among waiting calls, `mini` has precedence, `ultra` is never starved, and tenants of a tier get equal shares. This holds for
/// callers that ask again as soon as a refusal allows it.
#[async_trait]
pub trait Limiter: Send + Sync {
    /// Requests a permit for one call. Never waits for capacity: a refusal says when to ask again.
    async fn acquire(&self, request: &CallRequest<'_>) -> Result<Grant, LimiterError>;
}

/// The description of a call that needs a permit.
#[derive(Clone, Copy, Debug)]
pub struct CallRequest<'a> {
    /// The worker to be called, with its limits.
    pub worker: &'a Worker,
    /// The tenant on whose behalf it is called.
    pub tenant: &'a TenantId,
    /// The tier of the run.
    pub tier: Tier,
    /// The run. A refused caller asks again with the same run and task.
    pub run: RunId,
    /// The task within the run.
    pub task: TaskRef,
    /// An upper estimate of the tokens.
    pub estimate: TokenEstimate,
    /// Whether the caller waits in the queue of turns.
    pub patience: Patience,
}

/// Whether a refused caller asks again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// It asks again after the given time; its place in the queue of turns is kept.
    #[default]
    Waits,
    /// It does not ask again for this call; no place is kept.
    Leaves,
}

impl CallRequest<'_> {
    /// The name under which the call waits for its turn; empty if it does not wait.
    pub fn who(&self) -> String {
        match self.patience {
            Patience::Waits => format!("{}/{}", self.run, self.task),
            Patience::Leaves => String::new(),
        }
    }
}

/// The answer to a request for a permit.
pub enum Grant {
    /// The call may be made.
    Permit(Box<dyn Permit>),
    /// No capacity now.
    AskAgain {
        /// How long to wait before asking again.
        after: Duration,
        /// The limit or condition that refused the call.
        why: RefusalReason,
    },
}

/// Capacity for one call, until settled. A dropped permit counts as settled with [`Outcome::Unknown`].
pub trait Permit: Send + Sync {
    /// Ends the call with its usage and outcome. Returns at once.
    fn settle(self: Box<Self>, settlement: Settlement);
}

/// The limiter failed or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the limiter failed")]
pub struct LimiterError(#[source] pub BoxError);

/// The outcome that an error means for the health of the vendor.
pub fn outcome_of(error: &VendorError) -> Outcome {
    match error {
        VendorError::Throttled { retry_after, .. } => Outcome::Limited { retry_after: *retry_after },
        VendorError::Failed { status, .. } if OVERLOADED.contains(status) => Outcome::Overloaded,
        VendorError::Timeout { .. } => Outcome::Overloaded,
        VendorError::Failed { .. } | VendorError::Unreachable { .. } | VendorError::Garbled { .. } => {
            Outcome::Failed
        }
        // The vendor is healthy. If this outcome opened its breaker, steps without a fallback would wait for the breaker instead of
        // failing at once with the reason.
        VendorError::Unpaid { .. } | VendorError::Rejected { .. } => Outcome::Refused,
        VendorError::Unsupported { .. } | VendorError::Misconfigured { .. } => Outcome::NotSent,
    }
}
