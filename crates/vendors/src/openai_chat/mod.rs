//! OpenAI Chat Completions, as OpenAI, Azure, vLLM, llama.cpp, Ollama, `OpenRouter`, `DeepSeek` and many others serve it.
//!
//! `wire` defines the bodies, `request` writes them, `answer` reads them. Answers are read leniently, because these servers
//! agree on the rough form only. Requests use the common subset, and other fields only for workers that declare them.

mod answer;
mod request;
mod wire;

use podium_domain::pool::{TokenLimitField, Worker};
use podium_ports::vendor::ChatRequest;
use reqwest::Url;

pub(crate) use self::request::token_limit_of_host;
use crate::answer::Decoder;
use crate::shared_fields::below;

pub(crate) fn url(base: &Url) -> Url {
    below(base, &["chat", "completions"])
}

pub(crate) fn body(
    worker: &Worker,
    request: &ChatRequest,
    limit: TokenLimitField,
) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&request::body(worker, request, limit))
}

pub(crate) fn decoder() -> Box<dyn Decoder> {
    Box::<answer::ChatDecoder>::default()
}
