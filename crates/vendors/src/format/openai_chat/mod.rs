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

use super::Format;
use crate::answer::Decoder;
use crate::shared_fields::below;

pub(super) struct OpenaiChat;

impl Format for OpenaiChat {
    fn url(&self, base: &Url, _worker: &Worker) -> Url {
        below(base, &["chat", "completions"])
    }

    fn body(
        &self,
        worker: &Worker,
        request: &ChatRequest,
        limit: TokenLimitField,
    ) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&request::body(worker, request, limit))
    }

    fn decoder(&self, _worker: &Worker, _request: &ChatRequest) -> Box<dyn Decoder> {
        Box::<answer::ChatDecoder>::default()
    }

    fn token_limit_of_host(&self, host: &str) -> Option<TokenLimitField> {
        Some(request::token_limit_of_host(host))
    }
}
