//! Decodes chunks, or one whole completion.

use podium_domain::usage::Usage;
use podium_ports::vendor::FinishReason;
use serde_json::Value;

use super::wire::{AnswerBody, CallPiece, Chunk, UsageBody};
use crate::answer::{Answer, Decoder};
use crate::errors::json_or_text;
use crate::sse::SseEvent;

/// Bytes that a tool call counts for in addition to its arguments.
const CALL_BYTES: usize = 64;
/// Longest id of an answer that is used in the ids of its tool calls.
const ID_BYTES_MAX: usize = 128;

/// Decoder of the Chat Completions format.
#[derive(Debug, Default)]
pub(super) struct ChatDecoder {
    /// The tool calls that have begun, in order.
    calls: Vec<BegunCall>,
    /// The answer's id, for tool calls that come without one.
    id: String,
}

/// A tool call that has begun.
#[derive(Debug)]
struct BegunCall {
    /// The server's number.
    number: usize,
    id: String,
    /// Its position in the answer; `None` if it is dropped.
    index: Option<usize>,
}

impl Decoder for ChatDecoder {
    fn event(&mut self, event: &SseEvent, answer: &mut Answer) {
        if event.name == b"error" {
            return answer.fail(answer.errors.in_stream(&json_or_text(&event.data)));
        }
        match serde_json::from_slice(&event.data) {
            Ok(chunk) => self.chunk(chunk, answer),
            Err(error) => answer.garbled(&format!("a chunk that cannot be decoded, {error}")),
        }
    }

    fn whole(&mut self, json: &[u8], answer: &mut Answer) {
        match serde_json::from_slice::<Chunk>(json) {
            Ok(chunk) => {
                let has_answer = !chunk.choices.is_empty();
                self.chunk(chunk, answer);
                if has_answer {
                    answer.reason.get_or_insert(FinishReason::Stop);
                }
            }
            Err(error) => answer.garbled(&format!("a body that cannot be decoded, {error}")),
        }
    }

    fn ends_with_done(&self) -> bool {
        true
    }
}

impl ChatDecoder {
    fn chunk(&mut self, chunk: Chunk, answer: &mut Answer) {
        if let Some(error) = chunk.error {
            return answer.fail(answer.errors.in_stream(&error));
        }
        if chunk.object.as_deref() == Some("error") {
            return answer.garbled("an error without a description");
        }
        if let Some(id) = chunk.id.filter(|id| id.len() <= ID_BYTES_MAX) {
            self.id = id;
        }
        if let Some(usage) = chunk.usage.or(chunk.x_groq.and_then(|groq| groq.usage)) {
            answer.usage = Some(usage_of(&usage));
        }
        for choice in chunk.choices.into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            if let Some(body) = choice.delta.or(choice.message) {
                self.body(body, answer);
            }
            for stop in [choice.stop_reason, choice.matched_stop] {
                if let Value::String(stop) = stop {
                    answer.stop_sequence = Some(stop);
                }
            }
            match choice.finish_reason.as_deref() {
                None | Some("") => {}
                Some(word) => match finish_reason(word) {
                    Some(reason) => answer.reason = Some(reason),
                    None => return answer.fail(answer.errors.aborted(word)),
                },
            }
        }
    }

    fn body(&mut self, body: AnswerBody, answer: &mut Answer) {
        // Servers that know both field names send the same text in both.
        let reasoning =
            if body.reasoning_content.0.is_empty() { body.reasoning } else { body.reasoning_content };
        answer.reasoning(reasoning.0);
        answer.text(body.content.0);
        answer.refusal(body.refusal.0);
        for (position, piece) in body.tool_calls.into_iter().enumerate() {
            self.call(position, piece, answer);
        }
    }

    /// Appends a piece to its tool call, or starts a call. Some servers send whole calls without numbers, or all with the
    /// same one: a new id starts a new call.
    fn call(&mut self, position: usize, piece: CallPiece, answer: &mut Answer) {
        let number = piece.index.unwrap_or(position);
        let id = piece.id.filter(|id| !id.is_empty());
        let function = piece.function;
        let (name, arguments) = function.map_or((None, None), |f| (f.name, f.arguments));
        let arguments = arguments.unwrap_or_default();
        if !answer.gather(arguments.len() + CALL_BYTES) {
            return;
        }
        let begins = |call: &BegunCall| match &id {
            Some(id) => *id != call.id,
            None => piece.index.is_none() && name.is_some(),
        };
        let known = self.calls.iter().rev().find(|call| call.number == number);
        let index = match known {
            Some(call) if !begins(call) => {
                if let (Some(index), Some(name)) = (call.index, name) {
                    answer.name_call(index, name);
                }
                call.index
            }
            _ => {
                let id = id.unwrap_or_else(|| format!("call_{}_{}", self.id, self.calls.len()));
                let index = answer.begin_call(id.clone(), name.unwrap_or_default());
                self.calls.push(BegunCall { number, id, index });
                index
            }
        };
        if let Some(index) = index {
            answer.call_arguments(index, &arguments);
        }
    }
}

/// Maps a finish reason; `None` for reasons of a server that aborted the answer.
fn finish_reason(word: &str) -> Option<FinishReason> {
    match word {
        "length" | "max_tokens" | "model_length" => Some(FinishReason::Length),
        "content_filter" | "safety" => Some(FinishReason::ContentFilter),
        "tool_calls" | "function_call" => Some(FinishReason::ToolCalls),
        "error" | "abort" | "insufficient_system_resource" => None,
        // `stop` and its other names.
        _ => Some(FinishReason::Stop),
    }
}

/// Counts cached tokens (read or written) as part of the prompt and reasoning tokens as part of the completion, for every server.
fn usage_of(body: &UsageBody) -> Usage {
    let (cached, written) = body.prompt_tokens_details.as_ref().map_or((0, 0), |details| {
        let written = details.cache_write_tokens.count().max(details.cache_creation_tokens.count());
        (details.cached_tokens.count(), written)
    });
    let reasoning = body.completion_tokens_details.as_ref();
    let reasoning = reasoning.map_or(0, |details| details.reasoning_tokens.count());
    let reasoning = reasoning.max(body.reasoning_tokens.count());
    let prompt = body.prompt_tokens.count();
    let mut completion = body.completion_tokens.or_rest_of(body.total_tokens, prompt);
    // xAI excludes reasoning from the completion, which its total reveals.
    let counts_apart =
        prompt.saturating_add(completion).saturating_add(reasoning) == body.total_tokens.count();
    if counts_apart {
        completion = completion.saturating_add(reasoning);
    }
    let cached = cached.max(body.prompt_cache_hit_tokens.count()).max(body.cached_tokens.count()).min(prompt);
    Usage {
        prompt_tokens: prompt,
        cached_tokens: cached,
        cache_write_tokens: written.min(prompt - cached),
        completion_tokens: completion,
        reasoning_tokens: reasoning.min(completion),
    }
}
