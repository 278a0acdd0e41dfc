//! One try of a model at writing a plan: its text as it comes, and what it consumed even if it breaks off.

use futures::StreamExt;
use podium_domain::pool::Worker;
use podium_domain::usage::Usage;
use podium_ports::conductor::TextSink;
use podium_ports::vendor::{ChatEvent, ChatRequest, FinishReason, VendorError, Vendors};

/// Most bytes of a text in which a plan is looked for. A model that writes on is stopped.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// Bytes of a token, about, where a vendor does not count.
const BYTES_PER_TOKEN: u64 = 4;

/// What a model wrote.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) reason: FinishReason,
    pub(super) usage: Usage,
}

/// A try that broke off.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) error: VendorError,
    /// An estimate of what it consumed; nothing if it was refused.
    pub(super) usage: Usage,
}

/// Has `model` write; `sink` hears each piece.
pub(super) async fn write(
    vendors: &dyn Vendors,
    model: &Worker,
    request: &ChatRequest,
    sink: TextSink<'_>,
) -> Result<Written, Broken> {
    let mut text = String::new();
    let refused = |error| Broken { error, usage: Usage::default() };
    let mut answer = vendors.chat(model, request).await.map_err(refused)?;
    while let Some(event) = answer.next().await {
        match event {
            // A plan is text, and so is the reasoning that is asked for.
            Ok(
                ChatEvent::Started { .. }
                | ChatEvent::Quota(_)
                | ChatEvent::Reasoning(_)
                | ChatEvent::ReasoningSealed(_)
                | ChatEvent::ToolCall(_),
            ) => {}
            Ok(ChatEvent::Delta(piece)) => {
                sink(&piece);
                text.push_str(&piece);
                if text.len() > TEXT_BYTES_MAX {
                    let usage = estimate(request, &text);
                    return Ok(Written { text, reason: FinishReason::Length, usage });
                }
            }
            Ok(ChatEvent::Finished { reason, usage }) => {
                let usage = usage.unwrap_or_else(|| estimate(request, &text));
                return Ok(Written { text, reason, usage });
            }
            Err(error) => return Err(broken(error, request, &text)),
        }
    }
    let (vendor, message) = (model.vendor.as_str().to_owned(), "an answer without an end".to_owned());
    Err(broken(VendorError::Garbled { vendor, message }, request, &text))
}

/// A call that broke off before its text is charged for nothing: nobody knows.
fn broken(error: VendorError, request: &ChatRequest, text: &str) -> Broken {
    let usage = if text.is_empty() { Usage::default() } else { estimate(request, text) };
    Broken { error, usage }
}

/// About what a call consumed.
fn estimate(request: &ChatRequest, text: &str) -> Usage {
    let tokens = |bytes: usize| (bytes as u64).div_ceil(BYTES_PER_TOKEN);
    Usage {
        prompt_tokens: tokens(request.messages.iter().map(|message| message.text.len()).sum()),
        completion_tokens: tokens(text.len()),
        ..Usage::default()
    }
}
