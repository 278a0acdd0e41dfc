//! Every parameter of Chat Completions, and how Podium treats it.

use crate::rule::{Kind, Parameter, Rule, any_object, any_text, is_empty, rule_of};

const NO_PENALTY: &str = "workers set their own penalties, so it must be 0";
const PLAIN_TEXT: &str = "answers are plain text written by several models; leave it out";

/// The parameters.
pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::read("model", Kind::Text),
    Parameter::read("messages", Kind::Array),
    Parameter::read("stream", Kind::Flag),
    Parameter::read("stream_options", Kind::Object),
    Parameter::read("reasoning_effort", Kind::Text),
    Parameter::read("max_tokens", Kind::Integer { min: 1 }),
    Parameter::read("max_completion_tokens", Kind::Integer { min: 1 }),
    Parameter::read("podium", Kind::Object),
    Parameter::read("temperature", Kind::Number { min: 0, max: 2 }),
    Parameter::read("top_p", Kind::Number { min: 0, max: 1 }),
    Parameter::read("seed", Kind::Any),
    Parameter::read("response_format", Kind::Object),
    Parameter::read("stop", Kind::Any),
    Parameter::read("tools", Kind::Array),
    Parameter::read("tool_choice", Kind::Any),
    Parameter::read("parallel_tool_calls", Kind::Flag),
    // Not one of OpenAI's. OpenRouter and vLLM have it.
    Parameter::read("include_reasoning", Kind::Flag),
    // The client's notes, and hints for caches that Podium does not have.
    Parameter::ignored("user", Kind::Text, any_text),
    Parameter::ignored("service_tier", Kind::Text, any_text),
    Parameter::ignored("prompt_cache_key", Kind::Text, any_text),
    Parameter::ignored("prompt_cache_retention", Kind::Text, any_text),
    Parameter::ignored("safety_identifier", Kind::Text, any_text),
    // The wanted length of answers: only a hint for models.
    Parameter::ignored("verbosity", Kind::OneOf(&["low", "medium", "high"]), |field| {
        field.one_of(&["low", "medium", "high"]).map(drop)
    }),
    Parameter::ignored("metadata", Kind::Object, any_object),
    Parameter::ignored("prompt_cache_options", Kind::Object, any_object),
    // Text that the answer probably repeats: it only makes a single vendor faster.
    Parameter::ignored("prediction", Kind::Object, any_object),
    Parameter::ignored("store", Kind::Flag, |field| field.boolean().map(drop)),
    Parameter::unsupported("n", |value| *value == 1, "a run has one answer, so it must be 1"),
    Parameter::unsupported("presence_penalty", |value| value.as_f64() == Some(0.0), NO_PENALTY),
    Parameter::unsupported("frequency_penalty", |value| value.as_f64() == Some(0.0), NO_PENALTY),
    Parameter::unsupported("logit_bias", is_empty, "workers choose their tokens; leave it out"),
    Parameter::unsupported(
        "logprobs",
        |value| *value == false,
        "several models write an answer, so it must be false",
    ),
    Parameter::unsupported(
        "top_logprobs",
        |value| *value == 0,
        "several models write an answer, so it must be 0",
    ),
    Parameter::unsupported("functions", is_empty, "use `tools`"),
    Parameter::unsupported(
        "function_call",
        |value| *value == "none" || *value == "auto",
        "use `tools` and `tool_choice`",
    ),
    Parameter::unsupported(
        "modalities",
        |value| value.as_array().is_some_and(|all| all.iter().all(|one| one == "text")),
        "answers are plain text, so it must be [\"text\"]",
    ),
    Parameter::unsupported("audio", |_| false, PLAIN_TEXT),
    Parameter::unsupported("moderation", |_| false, PLAIN_TEXT),
    Parameter::unsupported("web_search_options", |_| false, PLAIN_TEXT),
];

/// The rule for a parameter; none if the name is unknown.
pub(super) fn rule(name: &str) -> Option<Rule> {
    rule_of(PARAMETERS, name)
}
