//! The parts of a message besides text: images, PDFs, tool calls and their results, reasoning.

mod attachment;

use serde::{Deserialize, Serialize};

use crate::ids::WorkerId;

pub use attachment::{Attachment, Pdf, PdfSource};

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text that follows a part of another kind.
    Text(String),
    /// An image, in a user's message.
    Image(Image),
    /// A PDF, in a user's message.
    Pdf(Pdf),
    /// A tool call by the assistant.
    ToolCall(ToolCall),
    /// The result of a tool, in a user's message.
    ToolResult(ToolResult),
    /// The assistant's reasoning.
    Reasoning(Reasoning),
}

impl Part {
    /// Its images and PDFs: itself, or those of a tool's result.
    pub fn attachments(&self) -> impl Iterator<Item = Attachment<'_>> {
        match self {
            Self::Image(image) => attached(std::slice::from_ref(image), &[]),
            Self::Pdf(pdf) => attached(&[], std::slice::from_ref(pdf)),
            Self::ToolResult(result) => attached(&result.images, &result.pdfs),
            Self::Text(_) | Self::ToolCall(_) | Self::Reasoning(_) => attached(&[], &[]),
        }
    }

    /// Its size in bytes without images and PDFs.
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Image(_) | Self::Pdf(_) => 0,
            Self::ToolResult(result) => result.text_bytes(),
            Self::Text(_) | Self::ToolCall(_) | Self::Reasoning(_) => self.bytes(),
        }
    }

    /// Its size in bytes for limits: everything that a client or a worker chose.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Image(image) => image.bytes(),
            Self::Pdf(pdf) => pdf.bytes(),
            Self::ToolCall(call) => call.bytes(),
            Self::ToolResult(result) => result.bytes(),
            Self::Reasoning(reasoning) => reasoning.bytes(),
        }
    }
}

fn attached<'a>(images: &'a [Image], pdfs: &'a [Pdf]) -> impl Iterator<Item = Attachment<'a>> {
    images.iter().map(Attachment::Image).chain(pdfs.iter().map(Attachment::Pdf))
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Image {
    /// The address from which the vendor can fetch it.
    Url(String),
    /// The image itself.
    Data {
        /// The encoding.
        media_type: MediaType,
        /// Its bytes in padded standard base64.
        base64: String,
    },
}

impl Image {
    fn bytes(&self) -> usize {
        match self {
            Self::Url(url) => url.len(),
            Self::Data { base64, .. } => base64.len(),
        }
    }
}

/// The image encodings that every vendor supports.
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
    /// Its MIME type.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
            Self::Gif => "image/gif",
        }
    }
}

/// A tool call by the assistant. Several calls in one message may run concurrently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Identifies the call within the conversation.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments, as the worker wrote them: usually the text of a JSON object, but models write invalid JSON too.
    pub arguments: String,
    /// The seal that the worker expects back with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
    /// The id by which the worker knows the call, if it differs from `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_id: Option<Seal>,
}

impl ToolCall {
    /// A call without seals.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let (id, name, arguments) = (id.into(), name.into(), arguments.into());
        Self { id, name, arguments, seal: None, own_id: None }
    }

    /// Its size in bytes for limits.
    pub fn bytes(&self) -> usize {
        let seals = Seal::bytes(self.seal.as_ref()) + Seal::bytes(self.own_id.as_ref());
        self.id.len() + self.name.len() + self.arguments.len() + seals
    }

    /// Whether the arguments of both are the same JSON, whatever its spaces and the order of its members; or the same text.
    pub fn has_same_arguments(&self, other: &Self) -> bool {
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        self.arguments == other.arguments
            || json(&self.arguments).is_some_and(|arguments| Some(arguments) == json(&other.arguments))
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// The name of the tool.
    pub name: String,
    /// Its output, or an error message.
    pub output: String,
    /// Whether the tool failed.
    #[serde(default)]
    pub is_error: bool,
    /// The images of the output, after its text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// The PDFs of the output, after its images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pdfs: Vec<Pdf>,
}

impl ToolResult {
    /// The text output of a tool that did not fail.
    pub fn new(call_id: impl Into<String>, name: impl Into<String>, output: impl Into<String>) -> Self {
        let (call_id, name, output) = (call_id.into(), name.into(), output.into());
        Self { call_id, name, output, is_error: false, images: Vec::new(), pdfs: Vec::new() }
    }

    /// Its size in bytes for limits.
    pub fn bytes(&self) -> usize {
        let images = self.images.iter().map(Image::bytes).sum::<usize>();
        self.text_bytes() + images + self.pdfs.iter().map(Pdf::bytes).sum::<usize>()
    }

    /// Its images and then its PDFs.
    pub fn attachments(&self) -> impl Iterator<Item = Attachment<'_>> {
        attached(&self.images, &self.pdfs)
    }

    /// Whether it has neither images nor PDFs.
    pub const fn is_text_only(&self) -> bool {
        self.images.is_empty() && self.pdfs.is_empty()
    }

    fn text_bytes(&self) -> usize {
        self.call_id.len() + self.name.len() + self.output.len()
    }
}

/// The assistant's reasoning, as far as the vendor shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The text; blank if the vendor hides it.
    pub text: String,
    /// The seal that the worker expects back. Reasoning without a seal is never sent to a vendor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
}

impl Reasoning {
    /// Its size in bytes for limits.
    pub fn bytes(&self) -> usize {
        self.text.len() + Seal::bytes(self.seal.as_ref())
    }
}

/// An opaque mark by which a worker recognises its own output: a signature, or an id. It is returned to that worker only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// The worker that issued it.
    pub worker: WorkerId,
    /// The mark; only the adapter of the worker's wire format interprets it.
    pub mark: String,
}

impl Seal {
    fn bytes(seal: Option<&Self>) -> usize {
        seal.map_or(0, |seal| seal.mark.len())
    }

    /// The mark, if `worker` issued it.
    pub fn mark_of<'s>(seal: Option<&'s Self>, worker: &WorkerId) -> Option<&'s str> {
        seal.filter(|seal| seal.worker == *worker).map(|seal| seal.mark.as_str())
    }
}
