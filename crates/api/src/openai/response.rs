//! Chat Completions responses: whole answers, chunks of streams, models, errors.

use podium_domain::content::ToolCall;
use podium_domain::run::{FinishReason, ReplyUsage, Run};
use podium_domain::time::Timestamp;
use podium_domain::usage::Usage;
use serde::{Serialize, Serializer};

use crate::ApiError;
use crate::finish::{finish_of, refusal_text, reply_suffix};
use crate::json::text_of;
use crate::podium_object::RunBody;

/// Seconds since the Unix epoch, as OpenAI writes times.
pub const fn unix_seconds(at: Timestamp) -> u64 {
    at.unix_ms() / 1000
}

/// The fields that all chunks of one completion share. Writes the bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    id: String,
    created: u64,
    model: String,
    system_fingerprint: String,
}

#[derive(Serialize)]
struct Body<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: Vec<Choice<'a>>,
    #[serde(skip_serializing_if = "UsageField::is_absent")]
    usage: UsageField,
    #[serde(skip_serializing_if = "Option::is_none")]
    podium: Option<RunBody>,
}

/// The `usage` field of a body.
enum UsageField {
    /// Left out.
    Absent,
    /// Null: a later chunk has it.
    Later,
    /// Known.
    Now(UsageBody),
}

impl UsageField {
    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl Serialize for UsageField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent | Self::Later => serializer.serialize_none(),
            Self::Now(usage) => usage.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<MessageBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta<'a>>,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
}

#[derive(Serialize)]
struct MessageBody<'a> {
    role: &'static str,
    /// Null if the worker refused, or called tools without a word.
    content: Option<&'a str>,
    refusal: Option<&'a str>,
    /// The reasoning, if the request asks for it. It is a field of `OpenRouter` and vLLM, not of OpenAI.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallBody<'a>>,
}

/// A tool call, or a piece of one.
#[derive(Serialize)]
pub(super) struct CallBody<'a> {
    /// Its position; in streams only.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: FunctionBody<'a>,
}

#[derive(Serialize)]
struct FunctionBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

impl<'a> From<&'a ToolCall> for CallBody<'a> {
    fn from(call: &'a ToolCall) -> Self {
        let function = FunctionBody { name: Some(&call.name), arguments: &call.arguments };
        Self { index: None, id: Some(&call.id), kind: Some("function"), function }
    }
}

#[derive(Serialize, Default)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallBody<'a>>,
}

/// Totals include planning; the `orchestration` fields hold its share. Cached steps consume nothing and are not included: the
/// `step_cache` fields hold the tokens that they saved.
#[derive(Serialize)]
pub(super) struct UsageBody {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    pub(super) total_tokens: u64,
    pub(super) prompt_tokens_details: PromptDetails,
    pub(super) completion_tokens_details: CompletionDetails,
}

#[derive(Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those on the wire")]
pub(super) struct PromptDetails {
    cached_tokens: u64,
    /// Those that vendors wrote to their caches, which some of them charge for.
    cache_write_tokens: u64,
    orchestration_input_tokens: u64,
    orchestration_input_cached_tokens: u64,
    #[serde(skip_serializing_if = "is_zero")]
    step_cache_input_tokens: u64,
}

#[derive(Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those on the wire")]
pub(super) struct CompletionDetails {
    reasoning_tokens: u64,
    orchestration_output_tokens: u64,
    #[serde(skip_serializing_if = "is_zero")]
    step_cache_output_tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference over")]
fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

impl UsageBody {
    pub(super) fn of(run: &Run) -> Self {
        Self::from_parts(run.usage(), run.planning_usage(), run.saved().usage)
    }

    /// The usage of the current reply.
    pub(super) fn of_reply(run: &Run) -> Self {
        let ReplyUsage { all, planning, saved } = run.reply_usage();
        Self::from_parts(all, planning, saved)
    }

    fn from_parts(all: Usage, planning: Usage, saved: Usage) -> Self {
        Self {
            prompt_tokens: all.prompt_tokens,
            completion_tokens: all.completion_tokens,
            total_tokens: all.total_tokens(),
            prompt_tokens_details: PromptDetails {
                cached_tokens: all.cached_tokens,
                cache_write_tokens: all.cache_write_tokens,
                orchestration_input_tokens: planning.prompt_tokens,
                orchestration_input_cached_tokens: planning.cached_tokens,
                step_cache_input_tokens: saved.prompt_tokens,
            },
            completion_tokens_details: CompletionDetails {
                reasoning_tokens: all.reasoning_tokens,
                orchestration_output_tokens: planning.completion_tokens,
                step_cache_output_tokens: saved.completion_tokens,
            },
        }
    }
}

impl Completion {
    /// The completion of a run, which may be active.
    pub fn of(run: &Run) -> Self {
        let spec = run.spec();
        Self {
            id: format!("chatcmpl-{}{}", run.id().as_uuid().simple(), reply_suffix(run)),
            created: unix_seconds(spec.accepted_at),
            model: spec.model.clone(),
            system_fingerprint: format!("{}/{}", spec.conductor, spec.pool),
        }
    }

    /// The whole response of a run; none if the run did not succeed.
    pub fn whole(&self, run: &Run) -> Option<String> {
        let calls = run.tool_calls();
        let (content, refusal) = match run.refusal() {
            Some(said) => (None, Some(refusal_text(said))),
            None => (Some(run.reply_text()?).filter(|text| calls.is_empty() || !text.is_empty()), None),
        };
        let tool_calls = calls.iter().map(Into::into).collect();
        let reasoning = Some(run.reply_reasoning()).filter(|text| !text.is_empty());
        let message = MessageBody { role: "assistant", content, refusal, reasoning, tool_calls };
        let finish_reason = Some(finish_reason(run));
        let choice = Choice { index: 0, message: Some(message), delta: None, logprobs: None, finish_reason };
        Some(self.body(
            "chat.completion",
            vec![choice],
            UsageField::Now(UsageBody::of_reply(run)),
            Some(RunBody::of(run)),
        ))
    }

    /// The first chunk of a stream, which has the role.
    pub fn opening(&self, include_usage: bool) -> String {
        let delta = Delta { role: Some("assistant"), content: Some(""), ..Delta::default() };
        self.chunk(delta, None, include_usage)
    }

    /// A chunk with the next text of the answer.
    pub fn delta(&self, text: &str, include_usage: bool) -> String {
        self.chunk(Delta { content: Some(text), ..Delta::default() }, None, include_usage)
    }

    /// A chunk with the next reasoning, before the answer.
    pub fn reasoning(&self, text: &str, include_usage: bool) -> String {
        self.chunk(Delta { reasoning: Some(text), ..Delta::default() }, None, include_usage)
    }

    /// A chunk in which a tool call begins.
    pub fn call_begun(&self, index: usize, id: &str, name: &str, include_usage: bool) -> String {
        let function = FunctionBody { name: Some(name), arguments: "" };
        let call = CallBody { index: Some(index), id: Some(id), kind: Some("function"), function };
        self.chunk(Delta { tool_calls: vec![call], ..Delta::default() }, None, include_usage)
    }

    /// A chunk with the next piece of the arguments of a tool call.
    pub fn call_arguments(&self, index: usize, text: &str, include_usage: bool) -> String {
        let function = FunctionBody { name: None, arguments: text };
        let call = CallBody { index: Some(index), id: None, kind: None, function };
        self.chunk(Delta { tool_calls: vec![call], ..Delta::default() }, None, include_usage)
    }

    /// The chunk after the last text: the finish reason, and the steps without an output. If the worker refused, the chunk repeats
    /// its words as the refusal; they were streamed as content before.
    pub fn closing(&self, run: &Run, include_usage: bool) -> String {
        let delta = Delta { refusal: run.refusal().map(refusal_text), ..Delta::default() };
        let podium = (run.refusal().is_some() || !run.failed_steps().is_empty()).then(|| RunBody::of(run));
        self.chunk_with(delta, Some(finish_reason(run)), include_usage, podium)
    }

    /// The chunk with the usage, which follows the closing one.
    pub fn usage(&self, run: &Run) -> String {
        let usage = UsageField::Now(UsageBody::of_reply(run));
        self.body("chat.completion.chunk", Vec::new(), usage, Some(RunBody::of(run)))
    }

    fn chunk(&self, delta: Delta<'_>, finish_reason: Option<&'static str>, include_usage: bool) -> String {
        self.chunk_with(delta, finish_reason, include_usage, None)
    }

    fn chunk_with(
        &self,
        delta: Delta<'_>,
        finish_reason: Option<&'static str>,
        include_usage: bool,
        podium: Option<RunBody>,
    ) -> String {
        let choice = Choice { index: 0, message: None, delta: Some(delta), logprobs: None, finish_reason };
        let usage = if include_usage { UsageField::Later } else { UsageField::Absent };
        self.body("chat.completion.chunk", vec![choice], usage, podium)
    }

    fn body(
        &self,
        object: &'static str,
        choices: Vec<Choice<'_>>,
        usage: UsageField,
        podium: Option<RunBody>,
    ) -> String {
        text_of(&Body {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            system_fingerprint: &self.system_fingerprint,
            choices,
            usage,
            podium,
        })
    }
}

/// The reason why the answer ends, by OpenAI's names.
fn finish_reason(run: &Run) -> &'static str {
    match finish_of(run) {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::ToolCalls => "tool_calls",
    }
}

/// A model in the list of models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Model {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

impl Model {
    /// A model. `created` is in seconds since the Unix epoch.
    pub fn new(id: impl Into<String>, created: u64) -> Self {
        Self { id: id.into(), object: "model", created, owned_by: "podium" }
    }
}

/// The list of models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelList {
    object: &'static str,
    data: Vec<Model>,
    /// The list that Codex reads instead of `data`. Its entries contain Codex's own instructions for a model; while it is empty,
    /// Codex uses its defaults.
    models: [(); 0],
}

impl ModelList {
    /// The list of these models.
    pub fn new(data: Vec<Model>) -> Self {
        Self { object: "list", data, models: [] }
    }
}

/// An error in OpenAI's format.
#[derive(Serialize)]
pub struct ErrorBody<'a> {
    error: ErrorFields<'a>,
}

#[derive(Serialize)]
struct ErrorFields<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: &'static str,
}

impl<'a> ErrorBody<'a> {
    /// The body of an error.
    pub fn new(error: &'a ApiError) -> Self {
        let mapping = error.code.mapping();
        let fields = ErrorFields {
            message: &error.message,
            r#type: mapping.kind,
            param: error.param(),
            code: mapping.code,
        };
        Self { error: fields }
    }

    /// The body as JSON.
    pub fn to_json(&self) -> String {
        text_of(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ErrorCode;

    fn completion() -> Completion {
        Completion {
            id: "chatcmpl-1".into(),
            created: 7,
            model: "podium-ultra".into(),
            system_fingerprint: "c/p".into(),
        }
    }

    fn read(body: &str) -> Value {
        serde_json::from_str(body).unwrap()
    }

    #[test]
    fn chunks_have_a_null_usage_only_if_usage_follows() {
        assert_eq!(read(&completion().delta("a", false)).get("usage"), None);
        assert_eq!(read(&completion().delta("a", true))["usage"], Value::Null);
        assert!(completion().delta("a", true).contains("\"usage\":null"));
    }

    #[test]
    fn usage_lists_what_the_step_cache_saved() {
        let tokens =
            |prompt_tokens, completion_tokens| Usage { prompt_tokens, completion_tokens, ..Usage::NONE };
        let usage_with =
            |saved| serde_json::to_value(UsageBody::from_parts(tokens(7, 3), tokens(7, 3), saved)).unwrap();
        let usage = usage_with(tokens(100, 10));
        assert_eq!((&usage["prompt_tokens"], &usage["total_tokens"]), (&json!(7), &json!(10)));
        assert_eq!(usage["prompt_tokens_details"]["step_cache_input_tokens"], json!(100));
        assert_eq!(usage["completion_tokens_details"]["step_cache_output_tokens"], json!(10));
        assert!(!usage_with(Usage::NONE).to_string().contains("step_cache"));
    }

    #[test]
    fn the_total_includes_planning_which_is_shown_apart() {
        let all = Usage { prompt_tokens: 100, cached_tokens: 20, completion_tokens: 30, ..Usage::NONE };
        let planning = Usage { prompt_tokens: 40, cached_tokens: 15, completion_tokens: 10, ..Usage::NONE };
        let usage = serde_json::to_value(UsageBody::from_parts(all, planning, Usage::NONE)).unwrap();
        let expected = json!({
            "prompt_tokens": 100,
            "completion_tokens": 30,
            "total_tokens": 130,
            "prompt_tokens_details": {
                "cached_tokens": 20,
                "cache_write_tokens": 0,
                "orchestration_input_tokens": 40,
                "orchestration_input_cached_tokens": 15,
            },
            "completion_tokens_details": {"reasoning_tokens": 0, "orchestration_output_tokens": 10},
        });
        assert_eq!(usage, expected);
    }

    #[test]
    fn a_stream_opens_with_the_role() {
        let opening = read(&completion().opening(false));
        assert_eq!(opening["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
        assert_eq!(opening["choices"][0]["finish_reason"], Value::Null);
    }

    #[test]
    fn a_streamed_call_has_its_id_and_name_once() {
        let delta = |body: &str| read(body)["choices"][0]["delta"].clone();
        let begun = json!({"tool_calls": [
            {"index": 1, "id": "call_x", "type": "function", "function": {"name": "look", "arguments": ""}},
        ]});
        assert_eq!(delta(&completion().call_begun(1, "call_x", "look", false)), begun);
        let more = json!({"tool_calls": [{"index": 1, "function": {"arguments": "{\"a\":"}}]});
        assert_eq!(delta(&completion().call_arguments(1, "{\"a\":", false)), more);
    }

    #[test]
    fn an_error_has_all_four_members() {
        let error = ApiError::on_field(ErrorCode::UnknownParameter, "colour", "unknown parameter `colour`");
        let expected = json!({"error": {
            "message": "unknown parameter `colour`",
            "type": "invalid_request_error",
            "param": "colour",
            "code": "unknown_parameter",
        }});
        assert_eq!(read(&ErrorBody::new(&error).to_json()), expected);
    }
}
