//! The bodies on the wire. Requests are written exactly; answers are read leniently, and only the fields that are used.

use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::lenient::{Tokens, null_as_default, or_default};

#[derive(Debug, Serialize)]
pub(super) struct ChatBody<'a> {
    pub(super) model: &'a str,
    pub(super) messages: Vec<MessageBody<'a>>,
    /// Used for OpenAI itself, whose newer models reject `max_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_completion_tokens: Option<u32>,
    /// Used for all other servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) top_p: Option<f32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<ToolBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_format: Option<FormatBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) structured_outputs: Option<StructuredBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_key: Option<&'a str>,
    pub(super) stream: bool,
    pub(super) stream_options: StreamOptions,
}

#[derive(Debug, Serialize)]
pub(super) struct MessageBody<'a> {
    pub(super) role: &'static str,
    /// Missing only in an assistant's turn that consists of tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<ContentBody<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<CallBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<&'a str>,
}

/// The content of a turn: a plain string if it is text only, because not every server accepts parts.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ContentBody<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

/// A piece of a turn.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrlBody<'a> },
    File { file: FileBody<'a> },
}

/// A file and its name.
#[derive(Debug, Serialize)]
pub(super) struct FileBody<'a> {
    pub(super) filename: Cow<'a, str>,
    pub(super) file_data: Cow<'a, str>,
}

/// The location of an image.
#[derive(Debug, Serialize)]
pub(super) struct ImageUrlBody<'a> {
    pub(super) url: Cow<'a, str>,
}

/// A tool call of an assistant's turn.
#[derive(Debug, Serialize)]
pub(super) struct CallBody<'a> {
    pub(super) id: &'a str,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) function: CalledBody<'a>,
}

/// The called tool and its arguments.
#[derive(Debug, Serialize)]
pub(super) struct CalledBody<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct ToolBody<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) function: FunctionBody<'a>,
}

/// A tool's name, description and parameters.
#[derive(Debug, Serialize)]
pub(super) struct FunctionBody<'a> {
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) description: &'a str,
    pub(super) parameters: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strict: Option<bool>,
}

/// The response format.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum FormatBody<'a> {
    JsonObject,
    JsonSchema { json_schema: SchemaBody<'a> },
}

/// vLLM's constraint on an answer, beyond OpenAI's response formats.
#[derive(Debug, Serialize)]
pub(super) struct StructuredBody<'a> {
    pub(super) regex: &'a str,
}

/// A schema for the answer.
#[derive(Debug, Serialize)]
pub(super) struct SchemaBody<'a> {
    pub(super) name: &'a str,
    pub(super) schema: &'a Value,
    pub(super) strict: bool,
}

/// Additional content of a stream.
#[derive(Debug, Serialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: bool,
}

/// A chunk of a streamed answer, or a whole answer: they differ in `delta` and `message` only.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk {
    /// `error` if an older vLLM reports one.
    #[serde(default)]
    pub(super) object: Option<String>,
    /// The answer's id.
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) choices: Vec<Choice>,
    /// The whole call's usage; of several, the last one counts.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) usage: Option<UsageBody>,
    /// Groq's place for the usage of a stream.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) x_groq: Option<GroqBody>,
    /// An error in the middle of a stream; its form varies.
    #[serde(default)]
    pub(super) error: Option<Value>,
}

/// One of several alternatives; requests ask for one only.
#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    #[serde(default)]
    pub(super) index: Option<u32>,
    #[serde(default)]
    pub(super) delta: Option<AnswerBody>,
    #[serde(default)]
    pub(super) message: Option<AnswerBody>,
    #[serde(default)]
    pub(super) finish_reason: Option<String>,
    /// The stop sequence that ended the answer, from vLLM; the number of a token or null otherwise.
    #[serde(default)]
    pub(super) stop_reason: Value,
    /// The same from `SGLang`.
    #[serde(default)]
    pub(super) matched_stop: Value,
}

/// The content of an answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct AnswerBody {
    #[serde(default)]
    pub(super) content: Text,
    /// OpenAI's field for the text of a model that refuses.
    #[serde(default)]
    pub(super) refusal: Text,
    /// The reasoning field of `DeepSeek`, vLLM and many others.
    #[serde(default)]
    pub(super) reasoning_content: Text,
    /// The reasoning field of `OpenRouter`, Groq, Ollama and newer vLLM.
    #[serde(default)]
    pub(super) reasoning: Text,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) tool_calls: Vec<CallPiece>,
}

/// A piece of a tool call.
#[derive(Debug, Deserialize)]
pub(super) struct CallPiece {
    /// Which call it belongs to.
    #[serde(default)]
    pub(super) index: Option<usize>,
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) function: Option<CalledPiece>,
}

/// A piece of the called tool.
#[derive(Debug, Deserialize)]
pub(super) struct CalledPiece {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) arguments: Option<String>,
}

/// Groq's extension.
#[derive(Debug, Deserialize)]
pub(super) struct GroqBody {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) usage: Option<UsageBody>,
}

/// Token counts, with the field names of all vendors.
#[derive(Debug, Default, Deserialize)]
pub(super) struct UsageBody {
    #[serde(default)]
    pub(super) prompt_tokens: Tokens,
    #[serde(default)]
    pub(super) completion_tokens: Tokens,
    #[serde(default)]
    pub(super) total_tokens: Tokens,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) prompt_tokens_details: Option<PromptTokensBody>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) completion_tokens_details: Option<CompletionTokensBody>,
    /// `DeepSeek`'s name for cached tokens.
    #[serde(default)]
    pub(super) prompt_cache_hit_tokens: Tokens,
    /// Some servers put cached tokens here.
    #[serde(default)]
    pub(super) cached_tokens: Tokens,
    /// Some servers put reasoning tokens here.
    #[serde(default)]
    pub(super) reasoning_tokens: Tokens,
}

/// Details of the prompt's tokens.
#[derive(Debug, Default, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the vendors' names")]
pub(super) struct PromptTokensBody {
    #[serde(default)]
    pub(super) cached_tokens: Tokens,
    /// Tokens written to the vendor's cache, which are billed at a separate price.
    #[serde(default)]
    pub(super) cache_write_tokens: Tokens,
    /// `LiteLLM`'s name for the same.
    #[serde(default)]
    pub(super) cache_creation_tokens: Tokens,
}

/// Details of the completion's tokens.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CompletionTokensBody {
    #[serde(default)]
    pub(super) reasoning_tokens: Tokens,
}

/// A text: a string, null, or a list of parts of which only text parts count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(Self)
    }
}

struct TextVisitor;

/// A part of a text that is sent as a list.
#[derive(Deserialize)]
struct PartBody {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    text: Option<String>,
}

impl<'de> Visitor<'de> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of parts")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_string<E>(self, text: String) -> Result<String, E> {
        Ok(text)
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<String, A::Error> {
        let mut whole = String::new();
        while let Some(part) = parts.next_element::<PartBody>()? {
            if part.kind.is_none_or(|kind| kind == "text") {
                whole.push_str(part.text.as_deref().unwrap_or_default());
            }
        }
        Ok(whole)
    }
}
