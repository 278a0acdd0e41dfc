//! The port to call workers, with one internal form of requests and responses. Each adapter translates it to one wire format.

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
use podium_domain::trace::TraceParent;
use podium_domain::usage::Usage;

use crate::BoxError;

pub use podium_domain::answer::{AnswerForm, JsonSchema};
pub use podium_domain::run::FinishReason;
pub use podium_domain::stops::STOPS_MAX;
pub use podium_domain::tools::{CallsAtOnce, TOOLS_MAX, Tool, ToolChoice, ToolUse};

/// The request to a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The turns of the conversation.
    pub messages: Vec<Message>,
    /// Most tokens of the completion, including reasoning.
    pub output_tokens_max: u32,
    /// 0 to 2; the vendor's default when absent.
    pub temperature: Option<f32>,
    /// 0 to 1: sample from the most likely tokens up to this probability mass; the vendor's default when absent.
    pub top_p: Option<f32>,
    /// Stop sequences: the answer ends before any of them; at most [`STOPS_MAX`].
    pub stops: Vec<String>,
    /// The same seed gives the same answer, as far as the vendor supports that.
    pub seed: Option<u32>,
    /// The effort of reasoning; the vendor's default when absent.
    pub effort: Option<Effort>,
    /// Whether to return the worker's reasoning. Ignored if the worker cannot.
    pub reasoning: ReasoningText,
    /// The tools that may be called.
    pub tools: Option<ToolUse>,
    /// The response format.
    pub answer: AnswerForm,
    /// Requests with the same hint begin with the same tools and `system` messages: the vendor may cache its work on them. Ignored
    /// if the worker cannot.
    pub cache_hint: Option<String>,
    /// The span of the call, for a vendor that continues the trace. `None`: the vendor learns of no trace.
    pub trace: Option<TraceParent>,
}

impl ChatRequest {
    /// A request with the default of every optional parameter.
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
            trace: None,
        }
    }
}

/// Whether the worker's reasoning is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningText {
    /// Not requested; a vendor may still return it.
    Hidden,
    /// Requested.
    Shown,
}

/// A part of a worker's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatEvent {
    /// The vendor accepted the call.
    Started {
        /// The vendor's request id, if it sent one.
        vendor_request_id: Option<String>,
    },
    /// The limits that the vendor reported, if any; at most once, before any text.
    Quota(Quota),
    /// A piece of the output.
    Delta(String),
    /// An answer that is not streamed broke off after this many bytes: the vendor had written it, and it cannot be parsed. An error
    /// follows.
    Unread(usize),
    /// A piece of the reasoning, as text.
    Reasoning(String),
    /// Ends the reasoning since the last event of this kind. To continue the conversation with the same worker, the caller sends
    /// both back.
    ReasoningSealed(Seal),
    /// A tool call begins.
    ToolCallBegun {
        /// Its position among the calls of the answer, from 0, without gaps.
        index: usize,
        /// The name of the tool.
        name: String,
    },
    /// A piece of the arguments of a tool call that has begun.
    ToolArguments {
        /// The position of the call.
        index: usize,
        /// The text. All pieces of a call together are the beginning of its arguments.
        text: String,
    },
    /// A complete tool call with all its arguments, as the worker wrote them. The calls come in their order, after all text. A
    /// caller that needs no live text may ignore the two events above.
    ToolCall(ToolCall),
    /// The vendor says that this stop sequence ended the answer; right before the end. Many vendors never say it.
    StopSequence(String),
    /// The end; always the last event of a stream without an error.
    Finished {
        /// Why the answer ended.
        reason: FinishReason,
        /// The tokens used; the caller estimates them if the vendor sends none.
        usage: Option<Usage>,
    },
}

/// The reason why an answer has no text although it ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoText {
    /// The model or the vendor's filter declined to answer. A repeated request would be declined too, and it is not sent to another
    /// vendor.
    Declined,
    /// Reasoning used up the token limit before any text. A repeated request would do the same.
    LimitUsedUp,
    /// The worker wrote nothing. A repeated request may succeed.
    Empty,
}

impl NoText {
    /// Derives the reason from the finish reason of an answer without text.
    pub const fn of(reason: FinishReason) -> Self {
        match reason {
            FinishReason::ContentFilter => Self::Declined,
            FinishReason::Length => Self::LimitUsedUp,
            FinishReason::Stop | FinishReason::ToolCalls => Self::Empty,
        }
    }
}

/// A worker's answer as it arrives. Dropping it aborts the call.
pub type ChatStream = BoxStream<'static, Result<ChatEvent, VendorError>>;

/// The adapters that call workers.
#[async_trait]
pub trait Vendors: Send + Sync {
    /// Begins a call. Returns once the vendor has accepted or refused it.
    async fn chat(&self, worker: &Worker, request: &ChatRequest) -> Result<ChatStream, VendorError>;
}

/// The timeout of a call that expired. Each is a setting of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The time to connect.
    Connect,
    /// The time to the first byte of the answer.
    FirstByte,
    /// The time between two pieces of the answer.
    Idle,
    /// The time to the end of the answer.
    Call,
}

impl Wait {
    /// The name of the setting in pool files.
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

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum VendorError {
    /// The vendor reports too many requests or tokens.
    #[error("vendor `{vendor}` asked to slow down")]
    Throttled {
        /// The vendor's id.
        vendor: String,
        /// The `Retry-After` that the vendor sent, if any.
        retry_after: Option<Duration>,
    },
    /// The account cannot pay for the call. The request itself is fine; another account may accept it.
    #[error("the account at vendor `{vendor}` cannot pay for the call (status {status}): {message}")]
    Unpaid {
        /// The vendor's id.
        vendor: String,
        /// The HTTP status; it differs between vendors.
        status: u16,
        /// The vendor's message, cut to a readable length.
        message: String,
    },
    /// The vendor rejected the request itself; repeating it does not help.
    #[error("vendor `{vendor}` rejected the request with status {status}: {message}")]
    Rejected {
        /// The vendor's id.
        vendor: String,
        /// The HTTP status.
        status: u16,
        /// The vendor's message, cut to a readable length.
        message: String,
    },
    /// The vendor has an internal failure.
    #[error("vendor `{vendor}` failed with status {status}: {message}")]
    Failed {
        /// The vendor's id.
        vendor: String,
        /// The HTTP status.
        status: u16,
        /// The vendor's message, cut to a readable length.
        message: String,
    },
    /// A timeout expired.
    #[error("vendor `{vendor}` was silent beyond {wait} of {} ms", limit.as_millis())]
    Timeout {
        /// The vendor's id.
        vendor: String,
        /// Which timeout.
        wait: Wait,
        /// Its length.
        limit: Duration,
    },
    /// The connection failed or broke.
    #[error("vendor `{vendor}` could not be reached, or cut the connection")]
    Unreachable {
        /// The vendor's id.
        vendor: String,
        /// The transport's error.
        #[source]
        source: BoxError,
    },
    /// The answer does not follow the wire format, or ended early.
    #[error("vendor `{vendor}` sent something that cannot be decoded: {message}")]
    Garbled {
        /// The vendor's id.
        vendor: String,
        /// The problem.
        message: String,
    },
    /// The worker does not support something in the request. It was not called.
    #[error("worker `{worker}` does not take {what}")]
    Unsupported {
        /// The worker's id.
        worker: WorkerId,
        /// The name of the unsupported feature, followed by details.
        what: String,
    },
    /// The pool file is incomplete for this call, or this machine does not trust the vendor's certificate.
    #[error("vendor `{vendor}` cannot be called: {message}")]
    Misconfigured {
        /// The vendor's id.
        vendor: String,
        /// The missing or wrong setting.
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

    /// Whether the worker would refuse any such request, so that another worker may succeed: no key, no money, an unknown model, or
    /// an unsupported feature.
    pub const fn is_workers_own(&self) -> bool {
        match self {
            Self::Rejected { status, .. } => matches!(status, 401 | 403 | 404),
            Self::Unpaid { .. } | Self::Unsupported { .. } | Self::Misconfigured { .. } => true,
            _ => false,
        }
    }

    /// The message for a tenant, without the vendor's own words, which may name the operator's account.
    pub fn for_tenant(&self) -> String {
        match self {
            // Status 200 means that the vendor blocked the question; its words are the reason.
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

    /// The back-off that the vendor asked for.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
