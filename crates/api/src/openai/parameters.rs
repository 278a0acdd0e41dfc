//! Every parameter of Chat Completions, and how Podium treats it.

use crate::rule::{Rule, is_empty};

/// The rule for a parameter; none if the name is unknown.
pub(super) fn rule(name: &str) -> Option<Rule> {
    let unsupported = |requests_nothing, advice| Rule::Unsupported { requests_nothing, advice };
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
        | "stop"
        | "tools"
        | "tool_choice"
        | "parallel_tool_calls" => Rule::Read,
        // The client's notes, and hints for caches that Podium does not have.
        "user" | "service_tier" | "prompt_cache_key" | "prompt_cache_retention" | "safety_identifier" => {
            Rule::Ignored(|field| field.string().map(drop))
        }
        // The wanted length of answers: only a hint for models.
        "verbosity" => Rule::Ignored(|field| field.one_of(&["low", "medium", "high"]).map(drop)),
        // Text that the answer probably repeats: it only makes a single vendor faster.
        "metadata" | "prompt_cache_options" | "prediction" => Rule::Ignored(|field| field.object().map(drop)),
        "store" => Rule::Ignored(|field| field.boolean().map(drop)),
        "n" => unsupported(|value| *value == 1, "a run has one answer, so it must be 1"),
        "presence_penalty" | "frequency_penalty" => unsupported(
            |value| value.as_f64() == Some(0.0),
            "workers set their own penalties, so it must be 0",
        ),
        "logit_bias" => unsupported(is_empty, "workers choose their tokens; leave it out"),
        "logprobs" => {
            unsupported(|value| *value == false, "several models write an answer, so it must be false")
        }
        "top_logprobs" => unsupported(|value| *value == 0, "several models write an answer, so it must be 0"),
        "functions" => unsupported(is_empty, "use `tools`"),
        "function_call" => {
            unsupported(|value| *value == "none" || *value == "auto", "use `tools` and `tool_choice`")
        }
        "modalities" => unsupported(
            |value| value.as_array().is_some_and(|all| all.iter().all(|one| one == "text")),
            "answers are plain text, so it must be [\"text\"]",
        ),
        "audio" | "moderation" | "web_search_options" => {
            unsupported(|_| false, "answers are plain text written by several models; leave it out")
        }
        _ => return None,
    };
    Some(rule)
}
