//! The wire formats: one module each, which converts between the bodies of an API and the one internal form.
//!
//! A new format is a module here with its line in [`of`], and its facts in `podium_domain::pool::WireFormat`.

mod anthropic;
mod gemini;
mod openai_chat;
mod openai_responses;

use podium_domain::pool::{TokenLimitField, WireFormat, Worker};
use podium_ports::vendor::ChatRequest;
use reqwest::Url;

use crate::answer::Decoder;

/// One wire format.
pub(crate) trait Format: Sync {
    /// The address of a call, below the vendor's base URL.
    fn url(&self, base: &Url, worker: &Worker) -> Url;

    /// The body of a request. `limit` matters only to formats with a [`Self::token_limit_of_host`].
    fn body(
        &self,
        worker: &Worker,
        request: &ChatRequest,
        limit: TokenLimitField,
    ) -> serde_json::Result<Vec<u8>>;

    /// Reads the answer to a request.
    fn decoder(&self, worker: &Worker, request: &ChatRequest) -> Box<dyn Decoder>;

    /// A header that the API needs besides content type and key.
    fn header(&self, _request: &ChatRequest) -> Option<Header> {
        None
    }

    /// A part of the request that the API accepts with restrictions, or separately but not in combination, if the request
    /// violates such a rule.
    fn unsupported(&self, _worker: &Worker, _request: &ChatRequest) -> Option<&'static str> {
        None
    }

    /// The field that bounds a completion at a host, if servers of this format differ in it.
    fn token_limit_of_host(&self, _host: &str) -> Option<TokenLimitField> {
        None
    }
}

/// A header of a request. The name is in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) name: &'static str,
    pub(crate) value: &'static str,
}

/// The code for a wire format.
pub(crate) fn of(api: WireFormat) -> &'static dyn Format {
    match api {
        WireFormat::OpenaiChat => &openai_chat::OpenaiChat,
        WireFormat::OpenaiResponses => &openai_responses::OpenaiResponses,
        WireFormat::Anthropic => &anthropic::Anthropic,
        WireFormat::Gemini => &gemini::Gemini,
    }
}
