//! Every parameter of the Messages API, and how Podium treats it.

use crate::ApiError;
use crate::field::Field;
use crate::rule::{Rule, is_empty};

/// Most bytes of the name of a client's own user.
const USER_ID_BYTES_MAX: usize = 512;

/// The rule for a parameter; none if the name is unknown.
pub(super) fn rule(name: &str) -> Option<Rule> {
    let unsupported = |requests_nothing, advice| Rule::Unsupported { requests_nothing, advice };
    let rule = match name {
        "model" | "messages" | "max_tokens" | "system" | "stop_sequences" | "stream" | "temperature"
        | "top_p" | "thinking" | "output_config" | "output_format" | "tools" | "tool_choice" | "podium" => {
            Rule::Read
        }
        // A hint for the choice of tokens that not every worker has.
        "top_k" => Rule::Ignored(|field| field.integer(0, u32::MAX).map(drop)),
        "metadata" => Rule::Ignored(metadata),
        "service_tier" => Rule::Ignored(|field| field.one_of(&["auto", "standard_only"]).map(drop)),
        "cache_control" => Rule::Ignored(cache_control),
        // Hints to the vendor: the parts of the history that it may forget, and a message to compare the cache with.
        "context_management" | "diagnostics" => Rule::Ignored(|field| field.object().map(drop)),
        "speed" => unsupported(|value| *value == "standard", "it must be `standard`"),
        "inference_geo" => unsupported(|_| false, "Podium chooses no regions; leave it out"),
        "container" => unsupported(|_| false, "Podium runs no code; leave it out"),
        "mcp_servers" => unsupported(is_empty, "Podium calls no MCP servers; leave it out"),
        "fallbacks" => unsupported(is_empty, "the pool decides on fallbacks; leave it out"),
        "billing_policy" | "compaction" | "fallback_credit_token" | "thread" => {
            unsupported(|_| false, "it concerns Anthropic's own service; leave it out")
        }
        _ => return None,
    };
    Some(rule)
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
