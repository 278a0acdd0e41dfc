//! The parameters of a request that shape a run, from the API to the stored run.

use serde::{Deserialize, Serialize};

use crate::answer::AnswerForm;
use crate::conversation::Conversation;
use crate::policy::Policy;
use crate::sampling::Sampling;
use crate::stops::Stops;

/// What a client requests of a run, except its model. The fields are stored with the run: a new one needs a serde default.
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
        }
    }

    /// Whether the final step gets a different request than the others: a token limit, a response format, or stop sequences.
    pub fn shapes_answer(&self) -> bool {
        self.answer_tokens_max.is_some() || !self.answer.is_text() || !self.stops.is_empty()
    }
}
