//! The facts about each wire format that checks of pools, sampling and metrics need. The code of the formats is in the adapter of
//! the vendors.

use std::fmt;

use serde::Deserialize;

use super::Feature;
use crate::policy::Effort;
use crate::sampling::TEMPERATURE_MAX;

/// The HTTP API of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireFormat {
    /// OpenAI Chat Completions, as OpenAI, Azure, vLLM, Ollama, `OpenRouter`, `DeepSeek`, Mistral and many others serve it.
    #[serde(alias = "openai-compatible")]
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Google Gemini `generateContent`.
    Gemini,
}

/// The facts about one wire format.
struct Facts {
    /// Its name in pool files.
    name: &'static str,
    /// The vendor that alone serves it, by OpenTelemetry's list of providers; `None` if many vendors serve it.
    provider: Option<&'static str>,
    /// The header that carries the key; `None` for `Authorization: Bearer`.
    key_header: Option<&'static str>,
    /// The features that it can express.
    features: &'static [Feature],
    /// Whether it supports blank stop sequences.
    ends_at_blanks: bool,
    /// The highest temperature that it accepts.
    temperature_max: f32,
    /// Whether a worker that reasons accepts a temperature and `top_p`.
    samples_while_reasoning: bool,
    /// Whether a worker that reasons accepts a request whose answer must call a tool.
    forces_tools_while_reasoning: bool,
    /// The effort levels that most of its models accept.
    usual_efforts: &'static [Effort],
    /// The fields that its requests set themselves, so that a pool must not set them.
    own_fields: &'static [&'static str],
}

const OPENAI_CHAT: Facts = Facts {
    name: "openai-chat",
    provider: None,
    key_header: None,
    features: &[
        Feature::Temperature,
        Feature::TopP,
        Feature::Stop,
        Feature::Seed,
        Feature::Tools,
        Feature::OneToolCall,
        Feature::JsonObject,
        Feature::JsonSchema,
        Feature::Regex,
        Feature::Effort,
        Feature::ReasoningText,
        Feature::CacheHint,
        Feature::Image,
        Feature::Pdf,
    ],
    ends_at_blanks: true,
    temperature_max: TEMPERATURE_MAX,
    samples_while_reasoning: true,
    forces_tools_while_reasoning: true,
    usual_efforts: OPENAI_EFFORTS,
    own_fields: &[
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "n",
        "tools",
        "tool_choice",
        "response_format",
        "stop",
        "functions",
        "function_call",
    ],
};

const OPENAI_RESPONSES: Facts = Facts {
    name: "openai-responses",
    provider: None,
    key_header: None,
    features: &[
        Feature::Temperature,
        Feature::TopP,
        Feature::Tools,
        Feature::OneToolCall,
        Feature::JsonObject,
        Feature::JsonSchema,
        Feature::Effort,
        Feature::ReasoningText,
        Feature::CacheHint,
        Feature::Image,
        Feature::Pdf,
        Feature::PdfUrl,
    ],
    ends_at_blanks: true,
    temperature_max: TEMPERATURE_MAX,
    samples_while_reasoning: true,
    forces_tools_while_reasoning: true,
    usual_efforts: OPENAI_EFFORTS,
    own_fields: &[
        "model",
        "input",
        "stream",
        "max_output_tokens",
        "tools",
        "tool_choice",
        "store",
        "background",
        "conversation",
        "previous_response_id",
    ],
};

const OPENAI_EFFORTS: &[Effort] =
    &[Effort::None, Effort::Minimal, Effort::Low, Effort::Medium, Effort::High, Effort::XHigh];

const ANTHROPIC: Facts = Facts {
    name: "anthropic",
    provider: Some("anthropic"),
    key_header: Some("x-api-key"),
    features: &[
        Feature::Temperature,
        Feature::TopP,
        Feature::Stop,
        Feature::Tools,
        Feature::OneToolCall,
        Feature::JsonSchema,
        Feature::Effort,
        Feature::ThinkingBudget,
        Feature::ReasoningText,
        Feature::CacheHint,
        Feature::Image,
        Feature::Pdf,
        Feature::PdfUrl,
    ],
    ends_at_blanks: false,
    temperature_max: 1.0,
    samples_while_reasoning: false,
    forces_tools_while_reasoning: false,
    usual_efforts: &[Effort::Low, Effort::Medium, Effort::High, Effort::XHigh, Effort::Max],
    own_fields: &[
        "model",
        "messages",
        "system",
        "stream",
        "max_tokens",
        "tools",
        "tool_choice",
        "stop_sequences",
    ],
};

const GEMINI: Facts = Facts {
    name: "gemini",
    provider: Some("gcp.gemini"),
    key_header: Some("x-goog-api-key"),
    features: &[
        Feature::Temperature,
        Feature::TopP,
        Feature::Stop,
        Feature::Seed,
        Feature::Tools,
        Feature::JsonObject,
        Feature::JsonSchema,
        Feature::Effort,
        Feature::ThinkingBudget,
        Feature::ReasoningText,
        Feature::Image,
        Feature::Pdf,
        Feature::PdfUrl,
    ],
    ends_at_blanks: true,
    temperature_max: TEMPERATURE_MAX,
    samples_while_reasoning: true,
    forces_tools_while_reasoning: true,
    usual_efforts: &[Effort::Low, Effort::Medium, Effort::High],
    own_fields: &[
        "contents",
        "systemInstruction",
        "tools",
        "toolConfig",
        "generationConfig.maxOutputTokens",
        "generationConfig.candidateCount",
        "generationConfig.responseMimeType",
        "generationConfig.stopSequences",
    ],
};

impl WireFormat {
    const fn facts(self) -> &'static Facts {
        match self {
            Self::OpenaiChat => &OPENAI_CHAT,
            Self::OpenaiResponses => &OPENAI_RESPONSES,
            Self::Anthropic => &ANTHROPIC,
            Self::Gemini => &GEMINI,
        }
    }

    /// Its name in pool files.
    pub const fn as_str(self) -> &'static str {
        self.facts().name
    }

    /// The vendor that alone serves it, as metrics name it; `None` if many vendors serve it.
    pub const fn provider(self) -> Option<&'static str> {
        self.facts().provider
    }

    /// Whether it can express the feature.
    pub fn carries(self, feature: Feature) -> bool {
        self.facts().features.contains(&feature)
    }

    /// Whether it supports blank stop sequences.
    pub const fn ends_at_blanks(self) -> bool {
        self.facts().ends_at_blanks
    }

    /// The highest temperature that it accepts.
    pub const fn temperature_max(self) -> f32 {
        self.facts().temperature_max
    }

    /// Whether a worker that reasons accepts a temperature and `top_p`.
    pub const fn samples_while_reasoning(self) -> bool {
        self.facts().samples_while_reasoning
    }

    /// Whether a worker that reasons accepts a request whose answer must call a tool.
    pub const fn forces_tools_while_reasoning(self) -> bool {
        self.facts().forces_tools_while_reasoning
    }

    /// The effort levels that most of its models accept.
    pub(super) const fn usual_efforts(self) -> &'static [Effort] {
        self.facts().usual_efforts
    }

    /// The header that carries the key if the pool names none.
    pub(super) fn key_header(self) -> KeyHeader {
        self.facts().key_header.map_or(KeyHeader::Bearer, |name| KeyHeader::Named(name.to_owned()))
    }

    /// The fields that its requests set themselves, so that a pool must not set them. A dot separates an outer and an inner field.
    pub(super) const fn own_fields(self) -> &'static [&'static str] {
        self.facts().own_fields
    }
}

impl fmt::Display for WireFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The field of a Chat Completions request that bounds the completion. No server supports both in all its models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenLimitField {
    /// `max_completion_tokens`: OpenAI and Azure, whose reasoning models reject the other one.
    MaxCompletionTokens,
    /// `max_tokens`: all other servers.
    MaxTokens,
}

impl TokenLimitField {
    /// Its name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxTokens => "max_tokens",
        }
    }

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::MaxCompletionTokens => Self::MaxTokens,
            Self::MaxTokens => Self::MaxCompletionTokens,
        }
    }
}

/// Where a request carries the key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyHeader {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// `NAME: KEY`; the name is valid and in lower case.
    Named(String),
}
