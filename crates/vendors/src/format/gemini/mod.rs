//! Google Gemini `streamGenerateContent`.

mod answer;
mod request;

use podium_domain::pool::{TokenLimitField, Worker};
use podium_ports::vendor::ChatRequest;
use reqwest::Url;

use super::Format;
use crate::answer::Decoder;
use crate::shared_fields::below;

/// Prefix of the ids that Podium gives to tool calls without one. They are never sent to the vendor.
const OWN_CALL_ID: &str = "podium-call-";

pub(super) struct Gemini;

impl Format for Gemini {
    fn url(&self, base: &Url, worker: &Worker) -> Url {
        let mut url = below(base, &["models", &format!("{}:streamGenerateContent", worker.model)]);
        // Without `alt=sse` the answer is one JSON array that ends with the whole answer.
        url.query_pairs_mut().append_pair("alt", "sse");
        url
    }

    fn body(
        &self,
        worker: &Worker,
        request: &ChatRequest,
        _limit: TokenLimitField,
    ) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&request::body(worker, request))
    }

    fn decoder(&self, worker: &Worker, _request: &ChatRequest) -> Box<dyn Decoder> {
        Box::new(answer::GeminiDecoder::new(worker.id.clone()))
    }
}
