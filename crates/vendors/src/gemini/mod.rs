//! Google Gemini `streamGenerateContent`.

mod answer;
mod request;

use podium_domain::ids::WorkerId;
use podium_domain::pool::Worker;
use podium_ports::vendor::ChatRequest;
use reqwest::Url;

use crate::answer::Decoder;
use crate::shared_fields::below;

/// Prefix of the ids that Podium gives to tool calls without one. They are never sent to the vendor.
const OWN_CALL_ID: &str = "podium-call-";

pub(crate) fn url(base: &Url, model: &str) -> Url {
    let mut url = below(base, &["models", &format!("{model}:streamGenerateContent")]);
    // Without `alt=sse` the answer is one JSON array that ends with the whole answer.
    url.query_pairs_mut().append_pair("alt", "sse");
    url
}

pub(crate) fn body(worker: &Worker, request: &ChatRequest) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&request::body(worker, request))
}

pub(crate) fn decoder(worker: WorkerId) -> Box<dyn Decoder> {
    Box::new(answer::GeminiDecoder::new(worker))
}
