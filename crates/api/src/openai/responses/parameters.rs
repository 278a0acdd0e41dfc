//! Every parameter of the Responses API, and how Podium treats it.

use crate::ApiError;
use crate::field::Field;
use crate::rule::{Kind, Parameter, Rule, any_object, is_empty, rule_of};

/// Most entries of `include`.
const INCLUDE_MAX: usize = 32;
/// Most entries of `context_management`.
pub(crate) const CONTEXT_RULES_MAX: usize = 8;

pub(super) const SERVICE_TIERS: &[&str] = &["auto", "default", "flex", "scale", "priority"];
const NO_PENALTY: &str = "workers set their own penalties, so it must be 0";

/// The parameters.
pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::read("model", Kind::Text),
    Parameter::read("input", Kind::Any),
    Parameter::read("instructions", Kind::Text),
    Parameter::read("max_output_tokens", Kind::Integer { min: 1 }),
    Parameter::read("reasoning", Kind::Object),
    Parameter::read("text", Kind::Object),
    Parameter::read("temperature", Kind::Number { min: 0, max: 2 }),
    Parameter::read("top_p", Kind::Number { min: 0, max: 1 }),
    Parameter::read("metadata", Kind::Object),
    Parameter::read("user", Kind::Text),
    Parameter::read("safety_identifier", Kind::Text),
    Parameter::read("prompt_cache_key", Kind::Text),
    Parameter::read("prompt_cache_retention", Kind::OneOf(&["in_memory", "24h"])),
    Parameter::read("store", Kind::Flag),
    Parameter::read("truncation", Kind::OneOf(&["auto", "disabled"])),
    Parameter::read("tools", Kind::Array),
    Parameter::read("tool_choice", Kind::Any),
    Parameter::read("parallel_tool_calls", Kind::Flag),
    Parameter::read("max_tool_calls", Kind::Integer { min: 1 }),
    Parameter::read("previous_response_id", Kind::Text),
    Parameter::read("conversation", Kind::Any),
    Parameter::read("background", Kind::Flag),
    Parameter::read("include", Kind::Array),
    Parameter::read("stream", Kind::Flag),
    Parameter::read("stream_options", Kind::Object),
    Parameter::read("podium", Kind::Object),
    Parameter::read("service_tier", Kind::OneOf(SERVICE_TIERS)),
    // The client's own notes change nothing.
    Parameter::ignored("prompt_cache_options", Kind::Object, any_object),
    Parameter::ignored("client_metadata", Kind::Object, any_object),
    Parameter::unsupported("presence_penalty", |value| value.as_f64() == Some(0.0), NO_PENALTY),
    Parameter::unsupported("frequency_penalty", |value| value.as_f64() == Some(0.0), NO_PENALTY),
    Parameter::unsupported(
        "top_logprobs",
        |value| *value == 0,
        "several models write an answer, so it must be 0",
    ),
    Parameter::unsupported("prompt", |_| false, "Podium stores no prompts; send `instructions` and `input`"),
    // A conversation is compacted only by `/v1/responses/compact`.
    Parameter::ignored("context_management", Kind::Array, context_management),
    Parameter::unsupported("image", is_empty, "Podium makes no images; leave it out"),
    Parameter::unsupported("access_programs", is_empty, "Podium has no access programs; leave it out"),
    Parameter::unsupported("moderation", |_| false, "Podium moderates nothing; leave it out"),
];

/// The rule for a parameter; none if the name is unknown.
pub(super) fn rule(name: &str) -> Option<Rule> {
    rule_of(PARAMETERS, name)
}

/// When the client wants its conversation to be compacted.
fn context_management(field: &Field<'_>) -> Result<(), ApiError> {
    field.array_of(CONTEXT_RULES_MAX)?.try_for_each(|rule| {
        let members = rule.object()?;
        rule.only(members, &["type", "compact_threshold"])?;
        rule.required(members, "type")?.one_of(&["compaction"])?;
        rule.member(members, "compact_threshold")
            .map_or(Ok(()), |threshold| threshold.integer(1, u32::MAX).map(drop))
    })
}

/// Additional output; returns whether reasoning items shall have content. Log probabilities do not exist here, and the other kinds
/// belong to tools of OpenAI's service, which a response never has.
pub(super) fn include(field: &Field<'_>) -> Result<bool, ApiError> {
    const KNOWN: [&str; 8] = [
        "reasoning.encrypted_content",
        "message.input_image.image_url",
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
        "message.output_text.logprobs",
    ];
    let mut has_reasoning = false;
    for entry in field.array_of(INCLUDE_MAX)? {
        match entry.one_of(&KNOWN)? {
            "message.output_text.logprobs" => {
                let advice = "several models write an answer, so there are no log probabilities";
                return Err(entry.unsupported(advice));
            }
            "reasoning.encrypted_content" => has_reasoning = true,
            _ => {}
        }
    }
    Ok(has_reasoning)
}
