//! Decodes chunks, or one whole response.

use podium_domain::content::{Seal, ToolCall};
use podium_domain::ids::WorkerId;
use podium_domain::usage::Usage;
use podium_ports::vendor::FinishReason;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::OWN_CALL_ID;
use crate::answer::{Answer, Decoder};
use crate::errors::json_or_text;
use crate::lenient::{Tokens, null_as_default, or_default};
use crate::sse::SseEvent;

/// Bytes that a tool call counts for in addition to its arguments.
const CALL_BYTES: usize = 64;
/// Longest id of a response that is used in the ids of its tool calls.
const RESPONSE_ID_BYTES_MAX: usize = 128;

/// Decoder of `generateContent`, streamed or not.
#[derive(Debug)]
pub(super) struct GeminiDecoder {
    worker: WorkerId,
    response_id: String,
    calls: usize,
}

/// A chunk of a streamed answer, or a whole answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk {
    #[serde(default)]
    candidates: Option<Vec<Candidate>>,
    #[serde(default)]
    response_id: Option<String>,
    #[serde(default)]
    prompt_feedback: Option<Feedback>,
    #[serde(default, deserialize_with = "or_default")]
    usage_metadata: Option<UsageBody>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    #[serde(default)]
    index: Option<u32>,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Content {
    #[serde(default)]
    parts: Option<Vec<PartBody>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartBody {
    #[serde(default)]
    text: Option<String>,
    /// Whether the text is reasoning.
    #[serde(default, deserialize_with = "null_as_default")]
    thought: bool,
    #[serde(default)]
    function_call: Option<CallBody>,
    #[serde(default)]
    thought_signature: Option<String>,
}

#[derive(Debug, Deserialize)]
struct CallBody {
    #[serde(default)]
    id: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    args: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    #[serde(default)]
    block_reason: Option<String>,
}

/// Token counts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UsageBody {
    #[serde(rename = "promptTokenCount")]
    prompt: Tokens,
    #[serde(rename = "toolUsePromptTokenCount")]
    tool_use: Tokens,
    #[serde(rename = "cachedContentTokenCount")]
    cached: Tokens,
    #[serde(rename = "candidatesTokenCount")]
    candidates: Tokens,
    #[serde(rename = "thoughtsTokenCount")]
    thoughts: Tokens,
    #[serde(rename = "totalTokenCount")]
    total: Tokens,
}

impl Decoder for GeminiDecoder {
    fn event(&mut self, event: &SseEvent, answer: &mut Answer) {
        match serde_json::from_slice(&event.data) {
            Ok(chunk) => self.chunk(chunk, answer),
            Err(_) if event.name == b"error" => {
                answer.fail(answer.errors.in_stream(&json_or_text(&event.data)));
            }
            Err(error) => answer.garbled(&format!("a chunk that cannot be decoded, {error}")),
        }
    }

    fn whole(&mut self, json: &[u8], answer: &mut Answer) {
        // Behind a proxy that drops `alt=sse`, the chunks come as one list.
        let chunks = match json.first() {
            Some(b'[') => serde_json::from_slice(json),
            _ => serde_json::from_slice(json).map(|chunk| vec![chunk]),
        };
        match chunks {
            Ok(chunks) => chunks.into_iter().for_each(|chunk| self.chunk(chunk, answer)),
            Err(error) => answer.garbled(&format!("a body that cannot be decoded, {error}")),
        }
    }
}

impl GeminiDecoder {
    pub(super) fn new(worker: WorkerId) -> Self {
        Self { worker, response_id: String::new(), calls: 0 }
    }

    fn chunk(&mut self, chunk: Chunk, answer: &mut Answer) {
        if let Some(error) = chunk.error {
            return answer.fail(answer.errors.in_stream(&error));
        }
        if let Some(id) = chunk.response_id.filter(|id| id.len() <= RESPONSE_ID_BYTES_MAX) {
            self.response_id = id;
        }
        if let Some(usage) = chunk.usage_metadata {
            answer.usage = Some(usage_of(&usage));
        }
        let candidates = chunk.candidates.unwrap_or_default();
        if candidates.is_empty()
            && let Some(word) = chunk.prompt_feedback.and_then(|feedback| feedback.block_reason)
        {
            return answer.fail(answer.errors.blocked(&word));
        }
        for candidate in candidates.into_iter().filter(|candidate| candidate.index.unwrap_or(0) == 0) {
            let parts = candidate.content.and_then(|content| content.parts).unwrap_or_default();
            for part in parts {
                self.part(part, answer);
            }
            match candidate.finish_reason.as_deref() {
                None | Some("" | "FINISH_REASON_UNSPECIFIED") => {}
                Some(word) => match finish_reason(word) {
                    Some(reason) => answer.reason = Some(reason),
                    None => return answer.fail(answer.errors.aborted(word)),
                },
            }
        }
    }

    fn part(&mut self, part: PartBody, answer: &mut Answer) {
        match part.text {
            Some(text) if part.thought => answer.reasoning(text),
            Some(text) => answer.text(text),
            None => {}
        }
        let Some(call) = part.function_call else { return };
        let arguments = call.args.map_or_else(String::new, |args| Value::Object(args).to_string());
        let mark = part.thought_signature;
        if answer.gather(arguments.len() + CALL_BYTES + mark.as_ref().map_or(0, String::len)) {
            let id = call.id.filter(|id| !id.is_empty());
            let id = id.unwrap_or_else(|| format!("{OWN_CALL_ID}{}-{}", self.response_id, self.calls));
            let seal = mark.map(|mark| Seal { worker: self.worker.clone(), mark });
            self.calls += 1;
            answer.tool_call(ToolCall { seal, ..ToolCall::new(id, call.name, arguments) });
        }
    }
}

/// Maps a finish reason; `None` for reasons of an aborted answer.
fn finish_reason(word: &str) -> Option<FinishReason> {
    match word {
        "STOP" => Some(FinishReason::Stop),
        "MAX_TOKENS" => Some(FinishReason::Length),
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => Some(FinishReason::ContentFilter),
        _ => None,
    }
}

/// Adds up the tokens that the vendor counts separately: reasoning, and the input of its own tools.
fn usage_of(body: &UsageBody) -> Usage {
    let prompt_tokens = body.prompt.count().saturating_add(body.tool_use.count());
    let thoughts = body.thoughts.count();
    let candidates = body.candidates.or_rest_of(body.total, prompt_tokens.saturating_add(thoughts));
    Usage {
        prompt_tokens,
        cached_tokens: body.cached.count().min(prompt_tokens),
        cache_write_tokens: 0,
        completion_tokens: candidates.saturating_add(thoughts),
        reasoning_tokens: thoughts,
    }
}
