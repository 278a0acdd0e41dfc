//! How hard workers may be used.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::pool::Worker;

use crate::BoxError;

/// Grants calls within the limits of workers.
#[async_trait]
pub trait Limiter: Send + Sync {
    /// Asks for one call of `worker`. Never waits for the limit: a refusal says when to ask again.
    async fn acquire(&self, worker: &Worker) -> Result<Grant, LimiterError>;
}

/// The answer to a wish to call.
pub enum Grant {
    /// Go ahead; the permit is given back when it is dropped.
    Permit(Box<dyn Permit>),
    /// Not now.
    AskAgain {
        /// When there may be room.
        after: Duration,
    },
}

/// Room for one call, until dropped.
pub trait Permit: Send + Sync {}

/// The limiter could not answer.
#[derive(Debug, thiserror::Error)]
#[error("the limiter failed")]
pub struct LimiterError(#[source] pub BoxError);
