//! An answer as the wire has it: as one object or as the chunks of a stream, with its token counts.

use serde_json::{Value, json};

/// A token of this vendor is so many bytes of UTF-8, rounded up; never a part of a character.
pub(super) const TOKEN_BYTES: usize = 4;

const FINGERPRINT: &str = concat!("fp_sim_", env!("CARGO_PKG_VERSION"));

/// What is to be sent.
#[derive(Debug, Clone)]
pub(super) struct Completion {
    pub(super) id: String,
    pub(super) model: &'static str,
    /// Seconds since 1970.
    pub(super) created: u64,
    pub(super) pieces: Vec<String>,
    pub(super) finish_reason: &'static str,
    pub(super) prompt_tokens: usize,
    pub(super) cached_tokens: usize,
}

impl Completion {
    /// The whole answer.
    pub(super) fn whole(&self) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{
                "index": 0,
                "message": { "role": "assistant", "content": self.pieces.concat(), "refusal": null },
                "logprobs": null,
                "finish_reason": self.finish_reason,
            }],
            "usage": self.usage(),
            "service_tier": "default",
            "system_fingerprint": FINGERPRINT,
        })
    }

    /// The chunks of the stream in order: the role, the pieces, the reason for the end, and the usage if it is wanted.
    pub(super) fn chunks(&self, usage: Usage) -> Vec<Value> {
        let role = json!({ "role": "assistant", "content": "", "refusal": null });
        let mut chunks = vec![self.chunk(&role, None, usage)];
        chunks.extend(self.pieces.iter().map(|piece| self.chunk(&json!({ "content": piece }), None, usage)));
        chunks.push(self.chunk(&json!({}), Some(self.finish_reason), usage));
        if usage == Usage::Included {
            let mut last = self.envelope(Value::Array(Vec::new()), usage);
            last["usage"] = self.usage();
            chunks.push(last);
        }
        chunks
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>, usage: Usage) -> Value {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
        self.envelope(Value::Array(vec![choice]), usage)
    }

    fn envelope(&self, choices: Value, usage: Usage) -> Value {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "service_tier": "default",
            "system_fingerprint": FINGERPRINT,
        });
        chunk["choices"] = choices;
        if usage == Usage::Included {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn usage(&self) -> Value {
        let completion_tokens = self.pieces.len();
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
            "prompt_tokens_details": { "cached_tokens": self.cached_tokens, "audio_tokens": 0 },
            "completion_tokens_details": {
                "reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
            },
        })
    }
}

/// Whether a stream ends with a chunk that counts tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    Included,
    LeftOut,
}

/// The tokens of a text.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::with_capacity(text.len().div_ceil(TOKEN_BYTES));
    let mut rest = text;
    while !rest.is_empty() {
        let end = (TOKEN_BYTES.min(rest.len())..=rest.len())
            .find(|end| rest.is_char_boundary(*end))
            .unwrap_or(rest.len());
        let (token, after) = rest.split_at(end);
        tokens.push(token.to_owned());
        rest = after;
    }
    tokens
}

/// The text up to the first stop sequence, and its tokens up to the limit, with the reason for the end.
pub(super) fn limited(
    text: &str,
    stops: &[String],
    tokens_max: Option<usize>,
) -> (Vec<String>, &'static str) {
    let end = stops.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| text.find(stop.as_str())).min();
    let mut pieces = tokens(&text[..end.unwrap_or(text.len())]);
    let limit = tokens_max.unwrap_or(usize::MAX);
    let reason = if pieces.len() > limit { "length" } else { "stop" };
    pieces.truncate(limit);
    (pieces, reason)
}

#[cfg(test)]
mod tests {
    use super::{limited, tokens};

    #[test]
    fn tokens_are_four_bytes_and_never_split_a_character() {
        assert_eq!(tokens("abcdefghi"), ["abcd", "efgh", "i"]);
        assert_eq!(tokens("abc\u{e9}xyz"), ["abc\u{e9}", "xyz"]);
        assert!(tokens("").is_empty());
    }

    #[test]
    fn limits_and_stop_sequences_end_the_text() {
        assert_eq!(limited("abcdefgh", &[], Some(1)), (vec!["abcd".to_owned()], "length"));
        assert_eq!(limited("abcdefgh", &[], Some(2)).1, "stop");
        assert_eq!(
            limited("abcdefgh", &["zz".to_owned(), "f".to_owned()], None),
            (vec!["abcd".to_owned(), "e".to_owned()], "stop")
        );
    }
}
