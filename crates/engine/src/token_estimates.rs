//! Tokens of calls, estimated from their bytes where no vendor has counted them.

use podium_domain::content::Attachment;
use podium_domain::conversation::Message;
use podium_domain::token_estimate::{attachment_tokens, text_tokens};
use podium_domain::usage::Usage;
use podium_ports::limiter::TokenEstimate;
use podium_ports::vendor::{AnswerForm, ChatRequest, ToolUse};

/// Tokens that vendors may add to a prompt or a completion.
const TOKENS_SLACK: u64 = 4096;
/// Most tokens of an image, at any vendor and in any resolution.
const IMAGE_TOKENS_MAX: u64 = 20_000;
/// Most pages of a PDF, at any vendor. A page is sent as an image and as text, which together count as one image.
const PDF_PAGES_MAX: u64 = 1_000;

/// Tokens of a prompt: its messages, and the tools and the schema of the response format, which vendors prepend.
pub(crate) fn prompt_tokens(request: &ChatRequest) -> u64 {
    text_tokens(prompt_bytes(request)) + attachment_tokens(&request.messages)
}

/// The tokens that a call may take of its worker's limits.
pub(crate) fn call_tokens(request: &ChatRequest) -> TokenEstimate {
    TokenEstimate { input: prompt_tokens(request), output_max: request.output_tokens_max.into() }
}

/// The usage, bounded by what the request can have used: two prompt tokens for each byte, [`IMAGE_TOKENS_MAX`] for each image and for
/// each possible page of a PDF, twice the limit of output tokens, and [`TOKENS_SLACK`] more of each. Parts of a sum are at most the sum.
pub(crate) fn bounded(usage: Usage, request: &ChatRequest) -> Usage {
    let attached: u64 = request.messages.iter().flat_map(Message::attachments).map(attachment_max).sum();
    let prompt_max = prompt_bytes(request) as u64 * 2 + attached + TOKENS_SLACK;
    let completion_max = u64::from(request.output_tokens_max) * 2 + TOKENS_SLACK;
    let prompt_tokens = usage.prompt_tokens.min(prompt_max);
    let completion_tokens = usage.completion_tokens.min(completion_max);
    let cached_tokens = usage.cached_tokens.min(prompt_tokens);
    Usage {
        prompt_tokens,
        cached_tokens,
        cache_write_tokens: usage.cache_write_tokens.min(prompt_tokens - cached_tokens),
        completion_tokens,
        reasoning_tokens: usage.reasoning_tokens.min(completion_tokens),
    }
}

/// Bytes of a prompt without its images and PDFs.
fn prompt_bytes(request: &ChatRequest) -> usize {
    let schema = match &request.answer {
        AnswerForm::JsonSchema(form) => form.schema.to_string().len(),
        AnswerForm::Text | AnswerForm::JsonObject | AnswerForm::Regex(_) => 0,
    };
    let tools = request.tools.as_ref().map_or(0, ToolUse::bytes);
    text_bytes(&request.messages) + schema + tools
}

fn text_bytes(messages: &[Message]) -> usize {
    messages.iter().map(Message::text_bytes).sum()
}

/// Most tokens that a vendor counts for it.
const fn attachment_max(attachment: Attachment<'_>) -> u64 {
    match attachment {
        Attachment::Image(_) => IMAGE_TOKENS_MAX,
        Attachment::Pdf(_) => PDF_PAGES_MAX * IMAGE_TOKENS_MAX,
    }
}
