//! The parameters of a request that shape a run, from the API to the stored run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answer::AnswerForm;
use crate::conversation::Conversation;
use crate::policy::{Policy, StepTools};
use crate::sampling::Sampling;
use crate::stops::Stops;
use crate::tools::{CallsAtOnce, ToolChoice, ToolUse};
use crate::trace::TraceParent;

/// A client's request for a run, except the model. The fields are stored with the run: a new one needs a serde default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The client's messages.
    pub conversation: Conversation,
    /// The bounds.
    pub policy: Policy,
    /// Most tokens of the answer, if the client set a limit.
    pub answer_tokens_max: Option<u32>,
    /// The sampling parameters of the workers.
    #[serde(default, skip_serializing_if = "Sampling::is_none")]
    pub sampling: Sampling,
    /// The response format of the answer.
    #[serde(default, skip_serializing_if = "AnswerForm::is_text")]
    pub answer: AnswerForm,
    /// The stop sequences of the answer.
    #[serde(default, skip_serializing_if = "Stops::is_empty")]
    pub stops: Stops,
    /// The tools that the client executes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolUse>,
    /// Whether the client is shown the reasoning of the answer's worker, as far as its vendor shows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shows_reasoning: bool,
    /// The client's span, if the request named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
    /// The data that the API of the request needs to describe the run again, in its own form. Nothing else reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_record: Option<Value>,
}

impl RunRequest {
    /// A request without optional parameters.
    pub fn new(conversation: Conversation, policy: Policy) -> Self {
        Self {
            conversation,
            policy,
            answer_tokens_max: None,
            sampling: Sampling::NONE,
            answer: AnswerForm::Text,
            stops: Stops::default(),
            tools: None,
            shows_reasoning: false,
            trace: None,
            api_record: None,
        }
    }

    /// Whether the final step gets a different request than the others: a token limit, a response format, stop sequences, tools, or
    /// reasoning that is shown.
    pub fn shapes_answer(&self) -> bool {
        self.answer_tokens_max.is_some()
            || !self.answer.is_text()
            || !self.stops.is_empty()
            || self.tools.is_some()
            || self.shows_reasoning
    }

    /// Whether a step that calls tools waits for their results, and the run continues with them. Otherwise the run ends with the calls
    /// of its final step.
    pub fn suspends(&self) -> bool {
        self.policy.tools == StepTools::All
            && self.tools.as_ref().is_some_and(|tools| tools.choice == ToolChoice::Auto)
    }

    /// Whether only one step at a time may run, because the client forbids parallel calls and every step may call tools.
    pub fn runs_one_step_at_a_time(&self) -> bool {
        self.suspends() && self.tools.as_ref().is_some_and(|tools| tools.at_once == CallsAtOnce::One)
    }

    /// The tools to offer to the steps that may call them. Tools that must not be called are offered only because earlier turns called them.
    pub fn offered_tools(&self) -> Option<&ToolUse> {
        self.tools.as_ref().filter(|tools| tools.may_call() || self.conversation.has_tool_calls())
    }

    /// Whether its workers must be able to call tools, or to read earlier calls.
    pub fn needs_tools(&self) -> bool {
        self.offered_tools().is_some() || self.conversation.has_tool_calls()
    }
}
