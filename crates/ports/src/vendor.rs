//! Calling a worker: one internal request and response form; each adapter speaks one vendor's.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use podium_domain::conversation::Message;
use podium_domain::policy::Effort;
use podium_domain::pool::Worker;
use podium_domain::usage::Usage;

use crate::BoxError;

pub use podium_domain::run::FinishReason;

/// A call of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The turns.
    pub messages: Vec<Message>,
    /// Most tokens of the completion.
    pub output_tokens_max: u32,
    /// 0 to 2; the vendor's default when absent.
    pub temperature: Option<f32>,
    /// How hard to reason; the vendor's default when absent.
    pub effort: Option<Effort>,
}

/// A part of a worker's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatEvent {
    /// The vendor took the call.
    Started {
        /// The vendor's id for it, if it gave one.
        vendor_request_id: Option<String>,
    },
    /// More text.
    Delta(String),
    /// The end; always the last event of a stream without an error.
    Finished {
        /// Why.
        reason: FinishReason,
        /// What was consumed; the caller estimates when the vendor does not say.
        usage: Option<Usage>,
    },
}

/// A worker's answer as it comes. Dropping it aborts the call.
pub type ChatStream = BoxStream<'static, Result<ChatEvent, VendorError>>;

/// Calls workers.
#[async_trait]
pub trait Vendors: Send + Sync {
    /// Begins a call. Returns once the vendor took it or refused.
    async fn chat(&self, worker: &Worker, request: &ChatRequest) -> Result<ChatStream, VendorError>;
}

/// How a call went wrong.
#[derive(Debug, thiserror::Error)]
pub enum VendorError {
    /// Too many requests or tokens.
    #[error("vendor `{vendor}` asked to slow down")]
    Throttled {
        /// Which vendor.
        vendor: String,
        /// How long to wait, if it said.
        retry_after: Option<Duration>,
    },
    /// The request itself is refused; repeating it cannot help.
    #[error("vendor `{vendor}` rejected the request with status {status}: {message}")]
    Rejected {
        /// Which vendor.
        vendor: String,
        /// The HTTP status.
        status: u16,
        /// What the vendor said, cut to a readable length.
        message: String,
    },
    /// The vendor has trouble of its own.
    #[error("vendor `{vendor}` failed with status {status}: {message}")]
    Failed {
        /// Which vendor.
        vendor: String,
        /// The HTTP status.
        status: u16,
        /// What the vendor said, cut to a readable length.
        message: String,
    },
    /// No answer in time.
    #[error("vendor `{vendor}` did not answer within {} ms", limit.as_millis())]
    Timeout {
        /// Which vendor.
        vendor: String,
        /// The limit.
        limit: Duration,
    },
    /// The connection could not be made, or broke.
    #[error("vendor `{vendor}` could not be reached, or cut the connection")]
    Unreachable {
        /// Which vendor.
        vendor: String,
        /// What happened.
        #[source]
        source: BoxError,
    },
    /// The answer is not in the vendor's own format, or ended early.
    #[error("vendor `{vendor}` sent something that does not read: {message}")]
    Garbled {
        /// Which vendor.
        vendor: String,
        /// What is wrong with it.
        message: String,
    },
    /// The pool's configuration does not allow the call.
    #[error("vendor `{vendor}` cannot be called: {message}")]
    Misconfigured {
        /// Which vendor.
        vendor: String,
        /// What is missing.
        message: String,
    },
}

impl VendorError {
    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        !matches!(self, Self::Rejected { .. } | Self::Misconfigured { .. })
    }

    /// How long the vendor wants to be left alone.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
