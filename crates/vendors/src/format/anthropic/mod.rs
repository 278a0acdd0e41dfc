//! Anthropic Messages.

mod answer;
mod request;

use podium_domain::pool::{TokenLimitField, Worker};
use podium_ports::vendor::{ChatRequest, ToolChoice};
use reqwest::Url;

use super::{Format, Header};
use crate::answer::Decoder;
use crate::shared_fields::below;

/// The header that names the API version.
const VERSION_HEADER: &str = "anthropic-version";
/// The newest version. The vendor's own clients use it since their releases of October 2026.
const VERSION: &str = "2026-10-21";
/// The previous version, which still accepts `temperature` and `top_p`. Answers are the same in both.
const VERSION_WITH_SAMPLING: &str = "2023-06-01";

pub(super) struct Anthropic;

impl Format for Anthropic {
    fn url(&self, base: &Url, _worker: &Worker) -> Url {
        below(base, &["messages"])
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
        Box::new(answer::MessagesDecoder::new(worker.id.clone()))
    }

    /// The newest version that can express the request.
    fn header(&self, request: &ChatRequest) -> Option<Header> {
        let samples = request.temperature.is_some() || request.top_p.is_some();
        let value = if samples { VERSION_WITH_SAMPLING } else { VERSION };
        Some(Header { name: VERSION_HEADER, value })
    }

    /// Reasoning excludes many other options.
    fn unsupported(&self, worker: &Worker, request: &ChatRequest) -> Option<&'static str> {
        let thinks = request::thinking(worker, request).is_some();
        let choice = request.tools.as_ref().map(|tools| &tools.choice);
        match request.temperature {
            Some(temperature) if temperature > worker.api.temperature_max() => Some("temperature above 1"),
            Some(_) if thinks => Some("temperature together with effort"),
            _ if thinks && request.top_p.is_some() => Some("top_p together with effort"),
            _ if thinks && matches!(choice, Some(ToolChoice::Required | ToolChoice::Named(_))) => {
                Some("tools that have to be called together with effort")
            }
            _ => None,
        }
    }
}
