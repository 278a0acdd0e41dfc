//! The features of requests, and those that a worker supports.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;

use super::WireFormat;

/// An optional part of a request that not every worker supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// A sampling temperature.
    Temperature,
    /// Nucleus sampling.
    TopP,
    /// Stop sequences.
    Stop,
    /// A seed for sampling.
    Seed,
    /// Tools, including several calls in one answer.
    Tools,
    /// A limit of one tool call per answer.
    OneToolCall,
    /// An answer that is any JSON object.
    JsonObject,
    /// An answer that follows a JSON schema.
    JsonSchema,
    /// An answer that matches a regular expression, as vLLM's `structured_outputs` has it.
    Regex,
    /// A named reasoning effort.
    Effort,
    /// A reasoning effort as a number of tokens, for models without named efforts.
    ThinkingBudget,
    /// A request to return the reasoning. Without it, none is returned.
    ReasoningText,
    /// A hint at the common beginning of prompts. Without it, the hint is left out.
    CacheHint,
    /// Images. In a pool file this is the modality `image`, not a feature.
    #[serde(skip)]
    Image,
    /// PDFs that the request contains. In a pool file this is the modality `pdf`.
    #[serde(skip)]
    Pdf,
    /// PDFs that the vendor fetches from a URL: the modality `pdf`, in a wire format that can name a URL.
    #[serde(skip)]
    PdfUrl,
}

impl Feature {
    /// The features of a worker for which the pool names none, as far as its wire format can express them.
    pub(super) const DEFAULT: [Self; 4] = [Self::Temperature, Self::TopP, Self::Stop, Self::Seed];

    /// Its name in pool files and errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::TopP => "top_p",
            Self::Stop => "stop",
            Self::Seed => "seed",
            Self::Tools => "tools",
            Self::OneToolCall => "one_tool_call",
            Self::JsonObject => "json_object",
            Self::JsonSchema => "json_schema",
            Self::Regex => "regex",
            Self::Effort => "effort",
            Self::ThinkingBudget => "thinking_budget",
            Self::ReasoningText => "reasoning_text",
            Self::CacheHint => "cache_hint",
            Self::Image => "image",
            Self::Pdf => "pdf",
            Self::PdfUrl => "pdf by URL",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A worker's features: those that the pool lists, or the default ones. Adds problems to `problems`.
pub(super) fn features(
    listed: Option<Vec<Feature>>,
    format: WireFormat,
    at: &str,
    problems: &mut Vec<String>,
) -> BTreeSet<Feature> {
    let Some(listed) = listed else {
        return Feature::DEFAULT.into_iter().filter(|feature| format.carries(*feature)).collect();
    };
    let features: BTreeSet<_> = listed.into_iter().collect();
    for feature in features.iter().filter(|feature| !format.carries(**feature)) {
        problems.push(format!("{at}: features: api `{format}` does not support `{feature}`"));
    }
    if features.contains(&Feature::Effort) && features.contains(&Feature::ThinkingBudget) {
        problems.push(format!("{at}: features: `effort` and `thinking_budget` exclude each other"));
    }
    if features.contains(&Feature::OneToolCall) && !features.contains(&Feature::Tools) {
        problems.push(format!("{at}: features: `one_tool_call` needs `tools`"));
    }
    features
}
