//! How hard workers may be used.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::policy::Tier;
use podium_domain::pool::Worker;
use podium_domain::run::TaskRef;

use crate::BoxError;
use crate::vendor::VendorError;

pub use podium_domain::limits::{Allowance, Outcome, Quota, Settlement, TokenEstimate, Why};

/// Anthropic's status for a service that has too much to do; others say 503.
const OVERLOADED: [u16; 2] = [503, 529];

/// Grants calls within the limits of workers and of their vendors' accounts.
///
/// What a call is expected to take is taken when it is granted. What it really took is settled afterwards, once, in the
/// background. Of a caller that is gone, its share of calls at once comes back, and what it had reserved comes back by time.
///
/// Where calls wait for each other, `mini` goes first and `ultra` is never starved, and within a tier tenants get equal shares,
/// as far as they ask often enough: whoever is refused is told when to ask again, and should.
#[async_trait]
pub trait Limiter: Send + Sync {
    /// Asks for one call. Never waits for the limit: a refusal says when to ask again.
    async fn acquire(&self, wish: &CallWish<'_>) -> Result<Grant, LimiterError>;
}

/// A call that somebody would make.
#[derive(Clone, Copy, Debug)]
pub struct CallWish<'a> {
    /// Of which worker. It comes with its limits.
    pub worker: &'a Worker,
    /// For whom.
    pub tenant: &'a TenantId,
    /// For which tier.
    pub tier: Tier,
    /// For which run's task. Who was refused asks again under the same name.
    pub run: RunId,
    /// The task.
    pub task: TaskRef,
    /// What it may take.
    pub estimate: TokenEstimate,
    /// Whether it is worth a place.
    pub patience: Patience,
}

/// Whether somebody who is refused comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// When told to: room that comes is kept for whoever goes before.
    #[default]
    Waits,
    /// Not for this call: no room is kept for it.
    Leaves,
}

impl CallWish<'_> {
    /// Under which name it waits; nothing if it does not.
    pub fn who(&self) -> String {
        match self.patience {
            Patience::Waits => format!("{}/{}", self.run, self.task),
            Patience::Leaves => String::new(),
        }
    }
}

/// The answer to a wish to call.
pub enum Grant {
    /// Go ahead.
    Permit(Box<dyn Permit>),
    /// Not now.
    AskAgain {
        /// When there may be room.
        after: Duration,
        /// What it is that there is no room in.
        why: Why,
    },
}

/// Room for one call, until settled. A permit that is dropped counts as settled with [`Outcome::Unknown`].
pub trait Permit: Send + Sync {
    /// Ends the call with what came of it. Waits for nothing.
    fn settle(self: Box<Self>, settlement: Settlement);
}

/// The limiter could not answer.
#[derive(Debug, thiserror::Error)]
#[error("the limiter failed")]
pub struct LimiterError(#[source] pub BoxError);

/// What an error says of how the vendor fares.
pub fn outcome_of(error: &VendorError) -> Outcome {
    match error {
        VendorError::Throttled { retry_after, .. } => Outcome::Limited { retry_after: *retry_after },
        VendorError::Failed { status, .. } if OVERLOADED.contains(status) => Outcome::Overloaded,
        VendorError::Timeout { .. } => Outcome::Overloaded,
        VendorError::Failed { .. } | VendorError::Unreachable { .. } | VendorError::Garbled { .. } => {
            Outcome::Failed
        }
        // The vendor answers. Were its circuit opened for want of money, steps that nobody may stand in for would wait for it to
        // close, and say nothing, where they now fail at once and say why.
        VendorError::Unpaid { .. } | VendorError::Rejected { .. } => Outcome::Refused,
        VendorError::Unsupported { .. } | VendorError::Misconfigured { .. } => Outcome::NotSent,
    }
}
