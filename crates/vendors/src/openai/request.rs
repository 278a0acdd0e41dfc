//! From the internal request to the one on the wire.

use podium_domain::pool::Worker;
use podium_ports::vendor::ChatRequest;

use super::wire::{ChatBody, MessageBody, StreamOptions};

/// Which field bounds a completion. No server knows both words for it in all its models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenLimit {
    /// `max_completion_tokens`: OpenAI itself.
    MaxCompletionTokens,
    /// `max_tokens`: everyone else.
    MaxTokens,
}

impl TokenLimit {
    /// What the server of that name wants. OpenAI's regional hosts are below `api.openai.com`.
    pub(super) fn of_host(host: &str) -> Self {
        let host = host.to_ascii_lowercase();
        let is_openai = host == "api.openai.com" || host.ends_with(".api.openai.com");
        if is_openai { Self::MaxCompletionTokens } else { Self::MaxTokens }
    }
}

/// The body of a streamed call. A worker is never asked for more than it can write.
pub(super) fn body<'a>(worker: &'a Worker, request: &'a ChatRequest, limit: TokenLimit) -> ChatBody<'a> {
    let tokens_max = Some(request.output_tokens_max.min(worker.output_tokens_max));
    let messages = request.messages.iter();
    ChatBody {
        model: &worker.model,
        messages: messages.map(|m| MessageBody { role: m.role.as_str(), content: &m.text }).collect(),
        max_completion_tokens: tokens_max.filter(|_| limit == TokenLimit::MaxCompletionTokens),
        max_tokens: tokens_max.filter(|_| limit == TokenLimit::MaxTokens),
        temperature: request.temperature,
        reasoning_effort: request.effort.map(podium_domain::policy::Effort::as_str),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_openai_itself_gets_the_new_word() {
        for (host, limit) in [
            ("api.openai.com", TokenLimit::MaxCompletionTokens),
            ("EU.api.openai.com", TokenLimit::MaxCompletionTokens),
            ("api.openai.com.example.org", TokenLimit::MaxTokens),
            ("myapi.openai.com", TokenLimit::MaxTokens),
            ("127.0.0.1", TokenLimit::MaxTokens),
        ] {
            assert_eq!(TokenLimit::of_host(host), limit, "{host}");
        }
    }
}
