//! Messages: the answers of runs.

use podium_domain::content::ToolCall;
use podium_domain::run::{FinishReason, ReplyUsage, Run};
use podium_domain::token_estimate::message_tokens;
use podium_domain::usage::Usage;
use serde::Serialize;
use serde_json::{Value, json};

use crate::finish::{finish_of, refusal_text, reply_suffix, stop_sequence_of};
use crate::json::text_of;
use crate::podium_object::RunBody;

/// The fields that all events of one message share. Writes the bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageWriter {
    id: String,
    model: String,
    /// The estimated tokens of the prompt. The real number is known at the end.
    prompt_tokens: u64,
}

/// A message.
#[derive(Serialize)]
pub(super) struct Body<'a> {
    id: &'a str,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<Block<'a>>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'a str>,
    stop_details: Option<StopDetails<'a>>,
    usage: UsageBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    podium: Option<RunBody>,
}

/// A content block.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    /// Text.
    Text {
        /// The text.
        text: &'a str,
        /// Always null: workers cite no sources.
        citations: Option<()>,
    },
    /// The thoughts of the worker before its answer.
    Thinking {
        /// The text.
        thinking: &'a str,
        /// Clients send it back with the text. Podium needs neither.
        signature: &'static str,
    },
    /// A call of a tool.
    ToolUse {
        /// Identifies the call.
        id: &'a str,
        /// The name of the tool.
        name: &'a str,
        /// The arguments, an object.
        input: Value,
    },
}

/// The signature of every block of thinking. Clients reject an empty one.
pub(super) const SIGNATURE: &str = "podium";

impl<'a> Block<'a> {
    pub(super) const fn thinking(thinking: &'a str) -> Self {
        Self::Thinking { thinking, signature: SIGNATURE }
    }

    pub(super) const fn text(text: &'a str) -> Self {
        Self::Text { text, citations: None }
    }

    /// A call. Arguments that are not a JSON object stand in an object of their own, because the API has no other place for them.
    fn call(call: &'a ToolCall) -> Self {
        let input = match serde_json::from_str(&call.arguments) {
            Ok(input @ Value::Object(_)) => input,
            _ if call.arguments.trim().is_empty() => json!({}),
            _ => json!({"invalid_json": call.arguments}),
        };
        Self::ToolUse { id: &call.id, name: &call.name, input }
    }
}

/// Why a worker refused.
#[derive(Serialize)]
pub(super) struct StopDetails<'a> {
    r#type: &'static str,
    category: Option<&'a str>,
    explanation: Option<&'a str>,
}

/// The end of a message.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "they are the names of the format")]
pub(super) struct Ending<'a> {
    stop_reason: &'static str,
    /// Null if no sequence ended the answer, or if the vendor does not say which one did.
    stop_sequence: Option<&'a str>,
    stop_details: Option<StopDetails<'a>>,
}

/// The tokens of all attempts of a run, those of planning included. `orchestration_` fields hold the share of planning.
#[derive(Clone, Copy, Serialize)]
pub(super) struct UsageBody {
    /// Prompt tokens that were neither read from nor written to a vendor's cache.
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    orchestration_input_tokens: u64,
    orchestration_output_tokens: u64,
}

#[derive(Clone, Copy, Serialize)]
struct OutputDetails {
    thinking_tokens: u64,
}

impl UsageBody {
    /// The usage of the current reply.
    pub(super) fn of(run: &Run) -> Self {
        let ReplyUsage { all, planning, saved: _ } = run.reply_usage();
        Self::from_parts(all, planning)
    }

    fn from_parts(all: Usage, planning: Usage) -> Self {
        let cached = all.cached_tokens.saturating_add(all.cache_write_tokens);
        Self {
            input_tokens: all.prompt_tokens.saturating_sub(cached),
            cache_creation_input_tokens: all.cache_write_tokens,
            cache_read_input_tokens: all.cached_tokens,
            output_tokens: all.completion_tokens,
            output_tokens_details: OutputDetails { thinking_tokens: all.reasoning_tokens },
            orchestration_input_tokens: planning.prompt_tokens,
            orchestration_output_tokens: planning.completion_tokens,
        }
    }
}

impl<'a> Ending<'a> {
    pub(super) fn of(run: &'a Run) -> Self {
        let explanation = run.refusal().map(refusal_text);
        let stop_details = explanation.map(|text| StopDetails {
            r#type: "refusal",
            category: None,
            explanation: Some(text),
        });
        let stop_sequence = stop_sequence_of(run);
        let stop_reason = if stop_sequence.is_some() { "stop_sequence" } else { stop_reason(run) };
        Self { stop_reason, stop_sequence, stop_details }
    }
}

/// The reason why the answer ends, by Anthropic's names.
fn stop_reason(run: &Run) -> &'static str {
    match finish_of(run) {
        FinishReason::Stop => "end_turn",
        FinishReason::Length => "max_tokens",
        FinishReason::ContentFilter => "refusal",
        FinishReason::ToolCalls => "tool_use",
    }
}

/// The text of an answer or a refusal.
pub(super) fn text_of_run(run: &Run) -> Option<&str> {
    run.refusal().map(refusal_text).or_else(|| run.reply_text())
}

impl MessageWriter {
    /// The message of a run, which may be active.
    pub fn of(run: &Run) -> Self {
        let spec = run.spec();
        Self {
            id: format!("msg_{}{}", run.id().as_uuid().simple(), reply_suffix(run)),
            model: spec.model.clone(),
            prompt_tokens: message_tokens(spec.request.conversation.messages()),
        }
    }

    #[cfg(test)]
    pub(super) fn for_test(id: &str, model: &str, prompt_tokens: u64) -> Self {
        Self { id: id.to_owned(), model: model.to_owned(), prompt_tokens }
    }

    /// The whole response of a run; none if the run did not succeed.
    pub fn whole(&self, run: &Run) -> Option<String> {
        let (text, calls) = (text_of_run(run)?, run.tool_calls());
        let text = Some(text).filter(|text| calls.is_empty() || !text.is_empty()).map(Block::text);
        let Ending { stop_reason, stop_sequence, stop_details } = Ending::of(run);
        let thinking = Some(run.reply_reasoning()).filter(|text| !text.is_empty()).map(Block::thinking);
        Some(text_of(&Body {
            content: thinking.into_iter().chain(text).chain(calls.iter().map(Block::call)).collect(),
            stop_reason: Some(stop_reason),
            stop_sequence,
            stop_details,
            usage: UsageBody::of(run),
            podium: Some(RunBody::of(run)),
            ..self.empty()
        }))
    }

    /// The message before its first block.
    pub(super) fn empty(&self) -> Body<'_> {
        let tokens = Usage { prompt_tokens: self.prompt_tokens, ..Usage::NONE };
        Body {
            id: &self.id,
            r#type: "message",
            role: "assistant",
            model: &self.model,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            stop_details: None,
            usage: UsageBody::from_parts(tokens, Usage::NONE),
            podium: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_are_no_object_stand_in_one() {
        let input = |arguments: &str| {
            let call = ToolCall::new("c", "look", arguments);
            serde_json::to_value(Block::call(&call)).unwrap()["input"].take()
        };
        assert_eq!(input(r#"{"b":1,"a":2}"#).to_string(), r#"{"b":1,"a":2}"#);
        assert_eq!((input(""), input(" ")), (json!({}), json!({})));
        let invalid = |text: &str| json!({"invalid_json": text});
        assert_eq!((input("{\"a\":"), input("[1]")), (invalid("{\"a\":"), invalid("[1]")));
    }

    #[test]
    fn tokens_of_a_vendors_cache_are_counted_apart() {
        let all = Usage {
            prompt_tokens: 100,
            cached_tokens: 60,
            cache_write_tokens: 30,
            completion_tokens: 7,
            reasoning_tokens: 5,
        };
        let planning = Usage { prompt_tokens: 8, completion_tokens: 2, ..Usage::NONE };
        let expected = json!({
            "input_tokens": 10,
            "cache_creation_input_tokens": 30,
            "cache_read_input_tokens": 60,
            "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 5},
            "orchestration_input_tokens": 8,
            "orchestration_output_tokens": 2,
        });
        assert_eq!(serde_json::to_value(UsageBody::from_parts(all, planning)).unwrap(), expected);
    }
}
