//! Anthropic Messages.

mod answer;
mod request;

use podium_domain::ids::WorkerId;
use podium_domain::pool::Worker;
use podium_ports::vendor::ChatRequest;
use reqwest::Url;

use crate::answer::Decoder;
use crate::form::below;

/// The header that says which version of the interface is meant, and the version.
pub(crate) const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

pub(crate) fn url(base: &Url) -> Url {
    below(base, &["messages"])
}

pub(crate) fn body(worker: &Worker, request: &ChatRequest) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&request::body(worker, request))
}

/// Whether the model will think, which excludes much else.
pub(crate) fn thinks(worker: &Worker, request: &ChatRequest) -> bool {
    request::thinking(worker, request).is_some()
}

pub(crate) fn decoder(worker: WorkerId) -> Box<dyn Decoder> {
    Box::new(answer::MessagesDecoder::new(worker))
}
