//! Every parameter of the Messages API, and how Podium treats it.

use crate::ApiError;
use crate::field::Field;
use crate::rule::{Kind, Parameter, Rule, any_object, is_empty, rule_of};

/// Most bytes of the name of a client's own user.
const USER_ID_BYTES_MAX: usize = 512;

const OWN_SERVICE: &str = "it concerns Anthropic's own service; leave it out";

/// The parameters.
pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::read("model", Kind::Text),
    Parameter::read("messages", Kind::Array),
    Parameter::read("max_tokens", Kind::Integer { min: 1 }),
    Parameter::read("system", Kind::Any),
    Parameter::read("stop_sequences", Kind::Array),
    Parameter::read("stream", Kind::Flag),
    Parameter::read("temperature", Kind::Number { min: 0, max: 1 }),
    Parameter::read("top_p", Kind::Number { min: 0, max: 1 }),
    Parameter::read("thinking", Kind::Object),
    Parameter::read("output_config", Kind::Object),
    Parameter::read("output_format", Kind::Object),
    Parameter::read("tools", Kind::Array),
    Parameter::read("tool_choice", Kind::Object),
    Parameter::read("podium", Kind::Object),
    // A hint for the choice of tokens that not every worker has.
    Parameter::ignored("top_k", Kind::Integer { min: 0 }, |field| field.integer(0, u32::MAX).map(drop)),
    Parameter::ignored("metadata", Kind::Object, metadata),
    Parameter::ignored("service_tier", Kind::OneOf(&["auto", "standard_only"]), |field| {
        field.one_of(&["auto", "standard_only"]).map(drop)
    }),
    Parameter::ignored("cache_control", Kind::Object, cache_control),
    // Hints to the vendor: the parts of the history that it may forget, and a message to compare the cache with.
    Parameter::ignored("context_management", Kind::Object, any_object),
    Parameter::ignored("diagnostics", Kind::Object, any_object),
    Parameter::unsupported("speed", |value| *value == "standard", "it must be `standard`"),
    Parameter::unsupported("inference_geo", |_| false, "Podium chooses no regions; leave it out"),
    Parameter::unsupported("container", |_| false, "Podium runs no code; leave it out"),
    Parameter::unsupported("mcp_servers", is_empty, "Podium calls no MCP servers; leave it out"),
    Parameter::unsupported("fallbacks", is_empty, "the pool decides on fallbacks; leave it out"),
    Parameter::unsupported("billing_policy", |_| false, OWN_SERVICE),
    Parameter::unsupported("compaction", |_| false, OWN_SERVICE),
    Parameter::unsupported("fallback_credit_token", |_| false, OWN_SERVICE),
    Parameter::unsupported("thread", |_| false, OWN_SERVICE),
];

/// The rule for a parameter; none if the name is unknown.
pub(super) fn rule(name: &str) -> Option<Rule> {
    rule_of(PARAMETERS, name)
}

fn metadata(field: &Field<'_>) -> Result<(), ApiError> {
    let metadata = field.object()?;
    field.only(metadata, &["user_id"])?;
    field.member(metadata, "user_id").map_or(Ok(()), |id| id.string_within(USER_ID_BYTES_MAX).map(drop))
}

/// A mark for the vendor's cache. Podium sets its own.
pub(super) fn cache_control(field: &Field<'_>) -> Result<(), ApiError> {
    let mark = field.object()?;
    field.required(mark, "type")?.one_of(&["ephemeral"])?;
    field.member(mark, "ttl").map_or(Ok(()), |ttl| ttl.one_of(&["5m", "1h"]).map(drop))
}
