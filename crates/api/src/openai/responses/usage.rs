//! The tokens of a run, by the names of the Responses API.

use podium_domain::run::Run;
use serde::Serialize;

use crate::openai::response::{CompletionDetails, PromptDetails, UsageBody};

/// Totals include planning; the `orchestration` fields hold its share.
#[derive(Default, Serialize)]
pub(super) struct ResponseUsage {
    input_tokens: u64,
    input_tokens_details: PromptDetails,
    output_tokens: u64,
    output_tokens_details: CompletionDetails,
    total_tokens: u64,
}

impl ResponseUsage {
    pub(super) fn of(run: &Run) -> Self {
        let UsageBody {
            prompt_tokens,
            completion_tokens,
            total_tokens,
            prompt_tokens_details,
            completion_tokens_details,
        } = UsageBody::of_reply(run);
        Self {
            input_tokens: prompt_tokens,
            input_tokens_details: prompt_tokens_details,
            output_tokens: completion_tokens,
            output_tokens_details: completion_tokens_details,
            total_tokens,
        }
    }
}
