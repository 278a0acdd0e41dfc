//! Every parameter of the Responses API, and how Podium treats it.

use crate::ApiError;
use crate::field::Field;
use crate::rule::{Rule, is_empty};

/// Most entries of `include`.
const INCLUDE_MAX: usize = 32;

/// The rule for a parameter; none if the name is unknown.
pub(super) fn rule(name: &str) -> Option<Rule> {
    let unsupported = |requests_nothing, advice| Rule::Unsupported { requests_nothing, advice };
    let rule = match name {
        "model"
        | "input"
        | "instructions"
        | "max_output_tokens"
        | "reasoning"
        | "text"
        | "temperature"
        | "top_p"
        | "metadata"
        | "user"
        | "safety_identifier"
        | "prompt_cache_key"
        | "prompt_cache_retention"
        | "store"
        | "truncation"
        | "tools"
        | "tool_choice"
        | "parallel_tool_calls"
        | "max_tool_calls"
        | "previous_response_id"
        | "background"
        | "conversation"
        | "stream"
        | "stream_options"
        | "podium" => Rule::Read,
        "include" => Rule::Ignored(include),
        // There is one service tier. The client's own notes change nothing.
        "service_tier" => {
            Rule::Ignored(|field| field.one_of(&["auto", "default", "flex", "scale", "priority"]).map(drop))
        }
        "prompt_cache_options" | "client_metadata" => Rule::Ignored(|field| field.object().map(drop)),
        "presence_penalty" | "frequency_penalty" => unsupported(
            |value| value.as_f64() == Some(0.0),
            "workers set their own penalties, so it must be 0",
        ),
        "top_logprobs" => unsupported(|value| *value == 0, "several models write an answer, so it must be 0"),
        "prompt" => unsupported(|_| false, "Podium stores no prompts; send `instructions` and `input`"),
        "context_management" => unsupported(is_empty, "Podium drops no part of a conversation; leave it out"),
        "moderation" => unsupported(|_| false, "Podium moderates nothing; leave it out"),
        _ => return None,
    };
    Some(rule)
}

/// Additional output. Only log probabilities do not exist here; the other kinds belong to tools of OpenAI's service, which a
/// response never has, or to reasoning that a later turn needs, which Podium stores.
pub(super) fn include(field: &Field<'_>) -> Result<(), ApiError> {
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
    for entry in field.array_of(INCLUDE_MAX)? {
        if entry.one_of(&KNOWN)? == "message.output_text.logprobs" {
            return Err(
                entry.unsupported("several models write an answer, so there are no log probabilities")
            );
        }
    }
    Ok(())
}
