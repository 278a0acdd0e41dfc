//! One call of a model that writes a plan: its text as it comes, and how it ended.

use futures::StreamExt;
use podium_domain::pool::Worker;
use podium_ports::conductor::TextSink;
use podium_ports::vendor::{ChatEvent, ChatRequest, FinishReason, VendorError, Vendors};

use super::tally::Tally;

/// Most bytes of a text in which a plan is looked for. A model that writes on is stopped.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// What a model wrote.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) reason: FinishReason,
}

/// A call that broke off.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) error: VendorError,
    /// Whether something of its text had come.
    pub(super) was_heard: bool,
}

/// Has `model` write; `sink` hears each piece, and `tally` knows what it consumes.
pub(super) async fn write(
    vendors: &dyn Vendors,
    model: &Worker,
    request: &ChatRequest,
    sink: TextSink<'_>,
    tally: &Tally,
) -> Result<Written, Broken> {
    tally.begin(request);
    let mut text = String::new();
    let result = listen(vendors, model, request, sink, tally, &mut text).await;
    match result {
        Ok(reason) => Ok(Written { text, reason }),
        Err(error) => {
            tally.break_off();
            Err(Broken { error, was_heard: !text.is_empty() })
        }
    }
}

async fn listen(
    vendors: &dyn Vendors,
    model: &Worker,
    request: &ChatRequest,
    sink: TextSink<'_>,
    tally: &Tally,
    text: &mut String,
) -> Result<FinishReason, VendorError> {
    let mut answer = vendors.chat(model, request).await?;
    while let Some(event) = answer.next().await {
        match event? {
            // A plan is text, and so is the reasoning that is asked for.
            ChatEvent::Started { .. }
            | ChatEvent::Quota(_)
            | ChatEvent::Reasoning(_)
            | ChatEvent::ReasoningSealed(_)
            | ChatEvent::ToolCall(_) => {}
            ChatEvent::Delta(piece) => {
                tally.heard(piece.len());
                sink(&piece);
                text.push_str(&piece);
                if text.len() > TEXT_BYTES_MAX {
                    tally.break_off();
                    return Ok(FinishReason::Length);
                }
            }
            ChatEvent::Finished { reason, usage } => {
                tally.finish(usage);
                return Ok(reason);
            }
        }
    }
    let (vendor, message) = (model.vendor.as_str().to_owned(), "an answer without an end".to_owned());
    Err(VendorError::Garbled { vendor, message })
}
