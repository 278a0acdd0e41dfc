//! Anthropic Messages.

mod answer;
mod request;

use podium_domain::ids::WorkerId;
use podium_domain::pool::Worker;
use podium_ports::vendor::ChatRequest;
use reqwest::Url;

use crate::answer::Decoder;
use crate::shared_fields::below;

/// The header that names the API version.
pub(crate) const VERSION_HEADER: &str = "anthropic-version";
/// The newest version. The vendor's own clients use it since their releases of October 2026.
const VERSION: &str = "2026-10-21";
/// The previous version, which still accepts `temperature` and `top_p`. Answers are the same in both.
const VERSION_WITH_SAMPLING: &str = "2023-06-01";

/// The newest version that can express the request.
pub(crate) fn version(request: &ChatRequest) -> &'static str {
    let samples = request.temperature.is_some() || request.top_p.is_some();
    if samples { VERSION_WITH_SAMPLING } else { VERSION }
}

pub(crate) fn url(base: &Url) -> Url {
    below(base, &["messages"])
}

pub(crate) fn body(worker: &Worker, request: &ChatRequest) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&request::body(worker, request))
}

/// Whether the model will reason, which excludes many other options.
pub(crate) fn thinks(worker: &Worker, request: &ChatRequest) -> bool {
    request::thinking(worker, request).is_some()
}

pub(crate) fn decoder(worker: WorkerId) -> Box<dyn Decoder> {
    Box::new(answer::MessagesDecoder::new(worker))
}
