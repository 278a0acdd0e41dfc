//! The response object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use podium_domain::answer::AnswerForm;
use podium_domain::policy::Effort;
use podium_domain::run::{FinishReason, Run, RunState};
use podium_domain::sampling::Sampling;
use podium_domain::tools::{CallsAtOnce, ToolUse};
use serde::Serialize;
use serde_json::{Value, json};

use super::id::{ResponseId, reasoning_id};
use super::items::{Item, output};
use super::record::Record;
use super::sealed::{Turn, TurnKey};
use super::tools::{ToolBody, tool_choice, tools_of};
use super::usage::ResponseUsage;
use crate::ErrorCode;
use crate::finish::finish_of;
use crate::json::text_of;
use crate::openai::tool_forms::ToolForms;
use crate::openai::unix_seconds;
use crate::podium_object::RunBody;

/// Writes the response of a run.
#[derive(Clone, Debug)]
pub struct ResponseWriter {
    record: Record,
    /// Seals the content of the reasoning item.
    key: Option<Arc<TurnKey>>,
}

/// The moment of a run that a response object shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Its acceptance, whatever happened since.
    Accepted,
    /// The beginning of its work.
    Begun,
    /// Now.
    Now,
}

/// The state of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

/// A response.
#[derive(Serialize)]
pub(super) struct Body<'a> {
    id: String,
    object: &'static str,
    created_at: u64,
    /// Set if the response is completed.
    completed_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<ConversationBody<'a>>,
    status: Status,
    background: bool,
    error: Option<ErrorFields>,
    incomplete_details: Option<IncompleteDetails>,
    instructions: Option<&'a str>,
    max_output_tokens: Option<u32>,
    max_tool_calls: Option<u32>,
    model: &'a str,
    output: Vec<Item<'a>>,
    parallel_tool_calls: bool,
    previous_response_id: Option<String>,
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_retention: Option<&'a str>,
    reasoning: Reasoning<'a>,
    safety_identifier: Option<&'a str>,
    service_tier: &'a str,
    store: bool,
    temperature: f32,
    text: Text<'a>,
    tool_choice: Value,
    tools: Vec<ToolBody<'a>>,
    top_logprobs: u32,
    top_p: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    truncation: &'a str,
    /// Set once the response is complete.
    usage: Option<ResponseUsage>,
    user: Option<&'a str>,
    metadata: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    podium: Option<PodiumBody<'a>>,
}

/// The parameters of a request that its response repeats, except those of the record.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) model: &'a str,
    pub(super) effort: Effort,
    pub(super) answer_tokens_max: Option<u32>,
    pub(super) sampling: Sampling,
    pub(super) answer: &'a AnswerForm,
    pub(super) tools: Option<&'a ToolUse>,
}

impl<'a> Body<'a> {
    /// A completed response without output, instructions and usage.
    fn of(id: ResponseId, created_at: u64, record: &'a Record, asked: Asked<'a>) -> Self {
        Self {
            id: id.to_string(),
            object: "response",
            created_at,
            completed_at: None,
            conversation: record.conversation.as_deref().map(|id| ConversationBody { id }),
            status: Status::Completed,
            background: record.background,
            error: None,
            incomplete_details: None,
            instructions: None,
            max_output_tokens: asked.answer_tokens_max,
            max_tool_calls: record.max_tool_calls,
            model: asked.model,
            output: Vec::new(),
            parallel_tool_calls: may_call_several(asked.tools, record),
            previous_response_id: None,
            prompt_cache_key: record.prompt_cache_key.as_deref(),
            prompt_cache_retention: record.prompt_cache_retention.as_deref(),
            reasoning: Reasoning { effort: asked.effort.as_str(), summary: record.summary.as_deref() },
            safety_identifier: record.safety_identifier.as_deref(),
            // Podium has one tier. Clients compare this with the tier that they asked for.
            service_tier: record.service_tier.as_deref().unwrap_or("default"),
            store: record.is_stored,
            // Without a value, each worker has its own default. The API has no word for that, and 1 is its default.
            temperature: asked.sampling.temperature.unwrap_or(1.0),
            text: Text {
                format: Format::of(asked.answer),
                verbosity: record.verbosity.as_deref().unwrap_or("medium"),
            },
            tool_choice: tool_choice(asked.tools, &record.tool_forms),
            tools: tools_of(asked.tools, &record.tool_forms),
            top_logprobs: 0,
            top_p: asked.sampling.top_p.unwrap_or(1.0),
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            truncation: record.truncation.as_deref().unwrap_or("disabled"),
            usage: None,
            user: record.user.as_deref(),
            metadata: &record.metadata,
            podium: None,
        }
    }

    /// The response to a request whose input was only registered, at its beginning or at its end.
    pub(super) fn of_registered(
        id: ResponseId,
        created_at: u64,
        moment: Moment,
        instructions: Option<&'a str>,
        record: &'a Record,
        asked: Asked<'a>,
    ) -> Self {
        let is_complete = moment == Moment::Now;
        Self {
            completed_at: is_complete.then_some(created_at),
            status: if is_complete { Status::Completed } else { Status::InProgress },
            instructions,
            previous_response_id: record.previous().map(|id| id.to_string()),
            // No process can read it later.
            store: false,
            usage: is_complete.then(ResponseUsage::default),
            ..Self::of(id, created_at, record, asked)
        }
    }
}

/// The object `podium` of a response.
#[derive(Serialize)]
struct PodiumBody<'a> {
    #[serde(flatten)]
    run: RunBody,
    /// The types of the tools that no worker was offered, because Podium does not run them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    tools_left_out: &'a BTreeSet<String>,
    /// The code of the error, which tells more than `error.code` of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'static str>,
}

#[derive(Serialize)]
struct ConversationBody<'a> {
    id: &'a str,
}

/// The body that confirms that a response was removed.
pub fn removed_response(id: &str) -> String {
    json!({"id": id, "object": "response", "deleted": true}).to_string()
}

#[derive(Serialize)]
struct ErrorFields {
    code: &'static str,
    message: String,
}

#[derive(Serialize)]
struct IncompleteDetails {
    reason: &'static str,
}

#[derive(Serialize)]
struct Reasoning<'a> {
    effort: &'static str,
    summary: Option<&'a str>,
}

#[derive(Serialize)]
struct Text<'a> {
    format: Format<'a>,
    verbosity: &'a str,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format<'a> {
    Text,
    JsonObject,
    JsonSchema { name: &'a str, description: Option<&'a str>, schema: &'a Value, strict: bool },
}

impl<'a> Format<'a> {
    fn of(form: &'a AnswerForm) -> Self {
        match form {
            // No request of this API has a regular expression.
            AnswerForm::Text | AnswerForm::Regex(_) => Self::Text,
            AnswerForm::JsonObject => Self::JsonObject,
            AnswerForm::JsonSchema(form) => Self::JsonSchema {
                name: &form.name,
                description: None,
                schema: &form.schema,
                strict: form.strict,
            },
        }
    }
}

impl ResponseWriter {
    /// The writer of a run's response.
    pub fn of(run: &Run) -> Self {
        Self { record: Record::of(run), key: None }
    }

    /// Whether a response ends with a reasoning item, whose content a key must seal.
    pub const fn needs_key(&self) -> bool {
        self.record.seals
    }

    /// The same writer with the key that seals the content of reasoning items. Without one, the item is left out.
    #[must_use]
    pub fn with_key(self, key: Option<Arc<TurnKey>>) -> Self {
        Self { key, ..self }
    }

    /// The reasoning item at the end of the output of a run that has ended.
    pub(super) fn reasoning_item<'a>(&self, run: &Run) -> Option<Item<'a>> {
        let key = self.key.as_ref().filter(|_| self.record.seals)?;
        // A text that cannot be sealed is left out: the run has the same.
        let content = key.seal(&run.spec().tenant, &Turn::of(run)?).ok()?;
        Some(Item::Reasoning {
            id: reasoning_id(ResponseId::of(run)),
            summary: Vec::new(),
            encrypted_content: Some(content),
        })
    }

    /// Whether the response may be read after the request that made it. False if another API made the run.
    pub const fn is_stored(&self) -> bool {
        self.record.is_stored
    }

    pub(super) const fn tool_forms(&self) -> &ToolForms {
        &self.record.tool_forms
    }

    /// The response as it is now.
    pub fn to_json(&self, run: &Run) -> String {
        text_of(&self.body(run, Moment::Now))
    }

    /// The response as it was when its run was accepted.
    pub fn accepted(&self, run: &Run) -> String {
        text_of(&self.body(run, Moment::Accepted))
    }

    pub(super) fn body<'a>(&'a self, run: &'a Run, moment: Moment) -> Body<'a> {
        let (record, spec) = (&self.record, run.spec());
        let request = &spec.request;
        let asked = Asked {
            model: &spec.model,
            effort: request.policy.effort,
            answer_tokens_max: request.answer_tokens_max,
            sampling: request.sampling,
            answer: &request.answer,
            tools: request.tools.as_ref(),
        };
        let status = self.status(run, moment);
        let is_shown = moment == Moment::Now;
        let instructions = request.conversation.messages().first().filter(|_| record.has_instructions);
        let end = run.replied_at().filter(|_| status == Status::Completed);
        let ended = run.has_replied(run.reply()) && is_shown;
        let id = ResponseId::of(run);
        // After tool calls, a response continues the one that made them.
        let previous = id.before().or_else(|| record.previous());
        Body {
            completed_at: end.map(unix_seconds),
            status,
            error: if is_shown { error(run) } else { None },
            incomplete_details: (status == Status::Incomplete)
                .then_some(IncompleteDetails { reason: "max_output_tokens" }),
            instructions: instructions.map(|message| message.text.as_str()),
            output: if is_shown { self.output(run) } else { Vec::new() },
            previous_response_id: previous.map(|id| id.to_string()),
            usage: ended.then(|| ResponseUsage::of(run)),
            podium: ended.then(|| PodiumBody {
                run: RunBody::of(run),
                tools_left_out: record.tool_forms.left_out(),
                error_code: failure(run).map(|code| code.mapping().code),
            }),
            ..Body::of(id, unix_seconds(spec.accepted_at), record, asked)
        }
    }

    fn output<'a>(&self, run: &'a Run) -> Vec<Item<'a>> {
        let mut items = output(run, &self.record.tool_forms);
        items.extend(self.reasoning_item(run));
        items
    }

    fn status(&self, run: &Run, moment: Moment) -> Status {
        match (moment, run.state()) {
            (Moment::Accepted, _) if self.record.background => Status::Queued,
            (Moment::Now, RunState::Active) if self.record.background && !has_begun(run) => Status::Queued,
            (Moment::Accepted | Moment::Begun, _) | (Moment::Now, RunState::Active) => Status::InProgress,
            (Moment::Now, RunState::Succeeded { .. }) if finish_of(run) == FinishReason::Length => {
                Status::Incomplete
            }
            (Moment::Now, RunState::Succeeded { .. } | RunState::Suspended) => Status::Completed,
            (Moment::Now, RunState::Failed { .. }) => Status::Failed,
            (Moment::Now, RunState::Cancelled) => Status::Cancelled,
        }
    }
}

/// Whether an answer may have several function calls. Without tools, the parameter is only repeated.
fn may_call_several(tools: Option<&ToolUse>, record: &Record) -> bool {
    match tools {
        Some(tools) => tools.at_once == CallsAtOnce::Several,
        None => record.parallel_tool_calls.unwrap_or(true),
    }
}

/// Whether a process works on the run, or has.
fn has_begun(run: &Run) -> bool {
    run.tasks().any(|(_, task)| !task.attempts.is_empty())
}

/// The reason why a run failed.
fn failure(run: &Run) -> Option<ErrorCode> {
    match run.state() {
        RunState::Failed { reason } => Some(ErrorCode::of_failure(reason)),
        _ => None,
    }
}

/// The error of a run that failed, with a code that clients of OpenAI's API know.
fn error(run: &Run) -> Option<ErrorFields> {
    let RunState::Failed { reason } = run.state() else { return None };
    let code = match ErrorCode::of_failure(reason) {
        ErrorCode::WorkerRateLimited => "rate_limit_exceeded",
        code @ (ErrorCode::ContextLengthExceeded | ErrorCode::InsufficientQuota) => code.mapping().code,
        _ => "server_error",
    };
    Some(ErrorFields { code, message: format!("run {} has no answer: {reason}", run.id()) })
}
