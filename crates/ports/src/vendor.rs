//! Calling a worker: one internal request and response form; each adapter speaks one vendor's.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use podium_domain::content::{Seal, ToolCall};
use podium_domain::conversation::Message;
use podium_domain::ids::WorkerId;
use podium_domain::limits::Quota;
use podium_domain::policy::Effort;
use podium_domain::pool::Worker;
use podium_domain::usage::Usage;
use serde_json::Value;

use crate::BoxError;

pub use podium_domain::answer::{AnswerForm, JsonSchema};
pub use podium_domain::run::FinishReason;
pub use podium_domain::stops::STOPS_MAX;

/// A call of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The turns.
    pub messages: Vec<Message>,
    /// Most tokens of the completion, reasoning included.
    pub output_tokens_max: u32,
    /// 0 to 2; the vendor's default when absent.
    pub temperature: Option<f32>,
    /// 0 to 1: sample from the likeliest tokens of that mass; the vendor's default when absent.
    pub top_p: Option<f32>,
    /// The answer ends before any of these; at most [`STOPS_MAX`].
    pub stops: Vec<String>,
    /// The same seed gives the same answer, as far as a vendor can promise that.
    pub seed: Option<u32>,
    /// How hard to reason; the vendor's default when absent.
    pub effort: Option<Effort>,
    /// Whether to show how the worker reasons. Heeded where the worker can.
    pub reasoning: ReasoningText,
    /// What may be called, if anything.
    pub tools: Option<ToolUse>,
    /// The form of the answer.
    pub answer: AnswerForm,
    /// Requests with the same hint begin alike: the vendor may keep what it computed of that beginning, which is the
    /// tools and the messages of role `system`. Heeded where the worker can.
    pub cache_hint: Option<String>,
}

impl ChatRequest {
    /// A request that asks for nothing special.
    pub fn new(messages: Vec<Message>, output_tokens_max: u32) -> Self {
        Self {
            messages,
            output_tokens_max,
            temperature: None,
            top_p: None,
            stops: Vec::new(),
            seed: None,
            effort: None,
            reasoning: ReasoningText::Hidden,
            tools: None,
            answer: AnswerForm::Text,
            cache_hint: None,
        }
    }
}

/// Most tools of a request.
pub const TOOLS_MAX: usize = 128;

/// Whether a worker's reasoning is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningText {
    /// Not asked for; a vendor may show it all the same.
    Hidden,
    /// Asked for.
    Shown,
}

/// The tools of a request, and how they may be used.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse {
    /// At least one and at most [`TOOLS_MAX`].
    pub tools: Vec<Tool>,
    /// Whether one has to be called.
    pub choice: ToolChoice,
    /// How many calls one answer may have.
    pub at_once: CallsAtOnce,
}

/// A tool that a worker may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments, which are an object.
    pub schema: Value,
}

/// Which tool has to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the worker sees fit.
    Auto,
    /// None; the tools are listed because earlier turns called them.
    None,
    /// At least one.
    Required,
    /// The one of that name.
    Named(String),
}

/// How many calls one answer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsAtOnce {
    /// As many as the worker likes.
    Several,
    /// At most one.
    One,
}

/// A part of a worker's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatEvent {
    /// The vendor took the call.
    Started {
        /// The vendor's id for it, if it gave one.
        vendor_request_id: Option<String>,
    },
    /// What the vendor said of its limits, if anything; at most once, before any text.
    Quota(Quota),
    /// More text.
    Delta(String),
    /// So many bytes came of an answer in one piece that broke off: the vendor had written it, and nobody can read it. An error
    /// follows.
    Unread(usize),
    /// More of how it reasoned, in words.
    Reasoning(String),
    /// Ends the reasoning since the last event of this kind: who continues the conversation with the same worker hands both
    /// back.
    ReasoningSealed(Seal),
    /// A tool that is to be called, with all its arguments.
    ToolCall(ToolCall),
    /// The end; always the last event of a stream without an error.
    Finished {
        /// Why.
        reason: FinishReason,
        /// What was consumed; the caller estimates when the vendor does not say.
        usage: Option<Usage>,
    },
}

/// Why an answer that ended without an error has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoText {
    /// The model or the vendor's filter declined to answer. The same request would be declined again, and it is not taken to
    /// another vendor.
    Declined,
    /// The token limit was used up before any text, by reasoning. The same request would use it up again.
    LimitUsedUp,
    /// The worker wrote nothing. The same request may be answered the next time.
    Empty,
}

impl NoText {
    /// What the reason of [`ChatEvent::Finished`] says of an answer without text.
    pub const fn of(reason: FinishReason) -> Self {
        match reason {
            FinishReason::ContentFilter => Self::Declined,
            FinishReason::Length => Self::LimitUsedUp,
            FinishReason::Stop | FinishReason::ToolCalls => Self::Empty,
        }
    }
}

/// A worker's answer as it comes. Dropping it aborts the call.
pub type ChatStream = BoxStream<'static, Result<ChatEvent, VendorError>>;

/// Calls workers.
#[async_trait]
pub trait Vendors: Send + Sync {
    /// Begins a call. Returns once the vendor took it or refused.
    async fn chat(&self, worker: &Worker, request: &ChatRequest) -> Result<ChatStream, VendorError>;
}

/// Which wait of a call was too long. Each is a limit of the worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// For the connection.
    Connect,
    /// For the first word of the answer.
    FirstByte,
    /// For more of an answer that has begun.
    Idle,
    /// For the end.
    Call,
}

impl Wait {
    /// The name of the limit in pool files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect_ms_max",
            Self::FirstByte => "first_byte_ms_max",
            Self::Idle => "idle_ms_max",
            Self::Call => "call_ms_max",
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
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
    /// The account that the worker is called with cannot pay. It is no fault of the request: another account may well take it.
    #[error("the account at vendor `{vendor}` cannot pay for the call (status {status}): {message}")]
    Unpaid {
        /// Which vendor.
        vendor: String,
        /// The HTTP status; each vendor has another one for it.
        status: u16,
        /// What the vendor said, cut to a readable length.
        message: String,
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
    #[error("vendor `{vendor}` was silent beyond {wait} of {} ms", limit.as_millis())]
    Timeout {
        /// Which vendor.
        vendor: String,
        /// Which limit.
        wait: Wait,
        /// How long it is.
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
    /// The worker does not take what the request asks for. It was not called.
    #[error("worker `{worker}` does not take {what}")]
    Unsupported {
        /// Which worker.
        worker: WorkerId,
        /// What it does not take: the name of a feature first.
        what: String,
    },
    /// The pool's configuration does not allow the call, or this machine does not trust the vendor's certificate.
    #[error("vendor `{vendor}` cannot be called: {message}")]
    Misconfigured {
        /// Which vendor.
        vendor: String,
        /// What is missing or wrong.
        message: String,
    },
}

impl VendorError {
    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        !matches!(
            self,
            Self::Unpaid { .. }
                | Self::Rejected { .. }
                | Self::Unsupported { .. }
                | Self::Misconfigured { .. }
        )
    }

    /// Whether the worker refuses whatever it is asked, so that another one may well do it: no key, no money, no such model,
    /// or nothing of the kind that was asked for.
    pub const fn is_workers_own(&self) -> bool {
        match self {
            Self::Rejected { status, .. } => matches!(status, 401 | 403 | 404),
            Self::Unpaid { .. } | Self::Unsupported { .. } | Self::Misconfigured { .. } => true,
            _ => false,
        }
    }

    /// The error with everything that caused it, for the operator.
    pub fn in_full(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(source) = cause {
            text = format!("{text}: {source}");
            cause = source.source();
        }
        text
    }

    /// The error for a tenant: what happened, without the vendor's own words, which may name the operator's account.
    pub fn for_tenant(&self) -> String {
        match self {
            // Status 200 refuses no call: the words are the reason for which the question was blocked.
            Self::Rejected { status: 200, .. }
            | Self::Throttled { .. }
            | Self::Timeout { .. }
            | Self::Unreachable { .. }
            | Self::Unsupported { .. } => self.to_string(),
            Self::Unpaid { vendor, status, .. } => {
                format!("the account at vendor `{vendor}` cannot pay for the call (status {status})")
            }
            Self::Rejected { vendor, status, .. } => {
                format!("vendor `{vendor}` rejected the request with status {status}")
            }
            Self::Failed { vendor, status, .. } => format!("vendor `{vendor}` failed with status {status}"),
            Self::Garbled { vendor, .. } => format!("vendor `{vendor}` sent an invalid answer"),
            Self::Misconfigured { vendor, .. } => format!("vendor `{vendor}` cannot be called"),
        }
    }

    /// How long the vendor wants to be left alone.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
