//! Every parameter of Chat Completions, and what becomes of it here.

use serde_json::Value;

use super::field::Field;
use crate::ApiError;

/// What becomes of a parameter.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    /// It is read.
    Read,
    /// It is checked and then passed over: it changes nothing that a client could rely on.
    Ignored(fn(&Field<'_>) -> Result<(), ApiError>),
    /// It is accepted only where it asks for nothing, else refused with this advice.
    Unsupported {
        /// Whether a value asks for nothing.
        asks_for_nothing: fn(&Value) -> bool,
        /// What works instead.
        advice: &'static str,
    },
}

/// What becomes of the parameter of that name; none if there is no such parameter.
pub(super) fn rule(name: &str) -> Option<Rule> {
    let unsupported = |asks_for_nothing, advice| Rule::Unsupported { asks_for_nothing, advice };
    let rule = match name {
        "model"
        | "messages"
        | "stream"
        | "stream_options"
        | "reasoning_effort"
        | "max_tokens"
        | "max_completion_tokens"
        | "podium"
        | "temperature"
        | "top_p"
        | "seed"
        | "response_format"
        | "stop" => Rule::Read,
        // Notes of the client's own, and hints for caches that Podium does not have.
        "user" | "service_tier" | "prompt_cache_key" | "prompt_cache_retention" | "safety_identifier" => {
            Rule::Ignored(|field| field.string().map(drop))
        }
        // How long answers should be, which models may follow or not.
        "verbosity" => Rule::Ignored(|field| field.one_of(&["low", "medium", "high"]).map(drop)),
        "metadata" | "prompt_cache_options" => Rule::Ignored(|field| field.object().map(drop)),
        "store" | "parallel_tool_calls" => Rule::Ignored(|field| field.boolean().map(drop)),
        "n" => unsupported(|value| *value == 1, "a run has one answer, so it must be 1"),
        "presence_penalty" | "frequency_penalty" => unsupported(
            |value| value.as_f64() == Some(0.0),
            "penalties are the workers' own, so it must be 0",
        ),
        "logit_bias" => unsupported(is_empty, "workers choose their tokens; leave it out"),
        "logprobs" => {
            unsupported(|value| *value == false, "several models write an answer, so it must be false")
        }
        "top_logprobs" => unsupported(|value| *value == 0, "several models write an answer, so it must be 0"),
        "tools" | "functions" => unsupported(is_empty, "tools cannot be called yet; leave it out"),
        "tool_choice" | "function_call" => unsupported(
            |value| *value == "none" || *value == "auto",
            "tools cannot be called yet; leave it out",
        ),
        "modalities" => unsupported(
            |value| value.as_array().is_some_and(|all| all.iter().all(|one| one == "text")),
            "answers are plain text, so it must be [\"text\"]",
        ),
        "audio" | "moderation" | "prediction" | "web_search_options" => {
            unsupported(|_| false, "leave it out")
        }
        _ => return None,
    };
    Some(rule)
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}
