//! What a message may hold beside its words: pictures, calls of tools and their results, reasoning.

use serde::{Deserialize, Serialize};

use crate::ids::WorkerId;

/// Tokens that a picture is taken for where nobody says better. By what vendors write of their models in 2026 a large picture
/// takes 1,100 to 1,600, in some of them up to 4,800; what a worker really counts is learned from its answers.
pub const IMAGE_TOKENS: u64 = 1_600;
/// The most that a picture is expected to take.
pub const IMAGE_TOKENS_MAX: u64 = 4_800;

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Words that come after a piece that is none.
    Text(String),
    /// A picture; of a user's message.
    Image(Image),
    /// A tool that the assistant wants called.
    ToolCall(ToolCall),
    /// What a tool gave; of a user's message.
    ToolResult(ToolResult),
    /// How the assistant reasoned.
    Reasoning(Reasoning),
}

impl Part {
    /// Whether it is a picture.
    pub const fn is_image(&self) -> bool {
        matches!(self, Self::Image(_))
    }

    /// Its size, for limits: every byte that a client or a worker chose.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Image(Image::Url(url)) => url.len(),
            Self::Image(Image::Data { base64, .. }) => base64.len(),
            Self::ToolCall(call) => {
                call.id.len() + call.name.len() + call.arguments.len() + Seal::bytes(call.seal.as_ref())
            }
            Self::ToolResult(result) => result.call_id.len() + result.name.len() + result.output.len(),
            Self::Reasoning(reasoning) => reasoning.text.len() + Seal::bytes(reasoning.seal.as_ref()),
        }
    }
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Image {
    /// Where the vendor can fetch it.
    Url(String),
    /// The picture itself.
    Data {
        /// How it is coded.
        media_type: MediaType,
        /// Its bytes in base64, of the standard alphabet and padded.
        base64: String,
    },
}

/// How a picture is coded: what every vendor takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaType {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// WebP.
    Webp,
    /// GIF.
    Gif,
}

impl MediaType {
    /// Its name in MIME.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
            Self::Gif => "image/gif",
        }
    }
}

/// A tool that the assistant wants called. Several in one message may be called at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Tells the calls of a conversation apart.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments, as the text of a JSON object.
    pub arguments: String,
    /// What the worker wants back with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
}

/// What a tool gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Its output, or what went wrong.
    pub output: String,
    /// Whether it went wrong.
    #[serde(default)]
    pub is_error: bool,
}

/// How the assistant reasoned, as far as the vendor shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// In words; blank where the vendor hides them.
    pub text: String,
    /// What the worker wants back with it. Reasoning without one is never sent to a vendor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
}

/// An opaque mark by which a worker recognises what it wrote. Only that worker gets it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Whose it is.
    pub worker: WorkerId,
    /// The mark, in a form that only the adapter of the worker's wire format reads.
    pub mark: String,
}

impl Seal {
    fn bytes(seal: Option<&Self>) -> usize {
        seal.map_or(0, |seal| seal.mark.len())
    }

    /// The mark, if it is `worker`'s.
    pub fn mark_of<'s>(seal: Option<&'s Self>, worker: &WorkerId) -> Option<&'s str> {
        seal.filter(|seal| seal.worker == *worker).map(|seal| seal.mark.as_str())
    }
}
