//! OpenAI Chat Completions, as OpenAI, vLLM, llama.cpp, Ollama, `OpenRouter`, `DeepSeek` and many others serve it.
//!
//! `wire` holds what stands on the wire, `request` writes it, `sse` and `stream` read the answer, `error` reads what went
//! wrong. Answers are read leniently (these servers agree on the rough form only); requests use the common subset.

mod endpoint;
mod error;
mod request;
mod retry_after;
mod sse;
mod stream;
mod wire;

pub(crate) use endpoint::{Endpoint, Key};

#[cfg(test)]
mod golden_tests;
