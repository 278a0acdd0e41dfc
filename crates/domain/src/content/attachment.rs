//! Images and PDFs: the parts of a message that not every worker reads, with estimates of their tokens.

use serde::{Deserialize, Serialize};

use super::{Image, Part};
use crate::pool::Feature;

/// Estimated tokens of an image of unknown size. According to the vendors' pages of 2026, a large image takes 1,100 to 1,600, in
/// some models up to 4,800. The limiter learns the real number from answers.
const IMAGE_TOKENS: u64 = 1_600;
/// The upper estimate of the tokens of an image.
const IMAGE_TOKENS_MAX: u64 = 4_800;
/// Estimated tokens of a page of a PDF: the upper end of the 1,500 to 3,000 that Anthropic's page on PDFs names.
const PAGE_TOKENS: u64 = 3_000;
/// The upper estimate of the tokens of a page. Vendors send a page as its text and as an image.
const PAGE_TOKENS_MAX: u64 = PAGE_TOKENS + IMAGE_TOKENS_MAX;
/// Bytes of a page, because PDFs are not parsed: the quotient of Gemini's two limits of a PDF, 50 MB and 1,000 pages.
const PAGE_BYTES: u64 = 50_000;
/// The lower estimate of the bytes of a page: compressed text without images.
const PAGE_BYTES_MIN: u64 = 5_000;
/// Estimated pages of a PDF at a URL.
const URL_PAGES: u64 = 10;
/// The upper estimate of the pages of a PDF at a URL: Anthropic's limit for models with a context of 200,000 tokens.
const URL_PAGES_MAX: u64 = 100;

/// A PDF file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pdf {
    /// Its file name or title, without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its location or content.
    pub source: PdfSource,
}

/// The location or the content of a PDF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PdfSource {
    /// The address from which the vendor can fetch it.
    Url(String),
    /// Its bytes in padded standard base64.
    Data(String),
}

impl Pdf {
    /// Most bytes of a name.
    pub const NAME_BYTES_MAX: usize = 500;
    /// Its MIME type.
    pub const MEDIA_TYPE: &'static str = "application/pdf";

    /// Its size in bytes for limits.
    pub(super) fn bytes(&self) -> usize {
        let (PdfSource::Url(text) | PdfSource::Data(text)) = &self.source;
        text.len() + self.name.as_ref().map_or(0, String::len)
    }

    /// Its pages, estimated from its bytes, or `of_url` if only its URL is known.
    fn pages(&self, page_bytes: u64, of_url: u64) -> u64 {
        match &self.source {
            PdfSource::Url(_) => of_url,
            PdfSource::Data(base64) => (base64.len() as u64 / 4 * 3).div_ceil(page_bytes).max(1),
        }
    }
}

/// An image or a PDF of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment<'a> {
    /// An image.
    Image(&'a Image),
    /// A PDF.
    Pdf(&'a Pdf),
}

impl Attachment<'_> {
    /// The feature of the workers that can be sent it.
    pub const fn feature(self) -> Feature {
        match self {
            Self::Image(_) => Feature::Image,
            Self::Pdf(Pdf { source: PdfSource::Url(_), .. }) => Feature::PdfUrl,
            Self::Pdf(Pdf { source: PdfSource::Data(_), .. }) => Feature::Pdf,
        }
    }

    /// Whether it is an address, whose content may change.
    pub const fn is_at_url(self) -> bool {
        matches!(self, Self::Image(Image::Url(_)) | Self::Pdf(Pdf { source: PdfSource::Url(_), .. }))
    }

    /// Its estimated tokens.
    pub fn tokens(self) -> u64 {
        match self {
            Self::Image(_) => IMAGE_TOKENS,
            Self::Pdf(pdf) => pdf.pages(PAGE_BYTES, URL_PAGES) * PAGE_TOKENS,
        }
    }

    /// The upper estimate of its tokens.
    pub fn tokens_max(self) -> u64 {
        match self {
            Self::Image(_) => IMAGE_TOKENS_MAX,
            Self::Pdf(pdf) => pdf.pages(PAGE_BYTES_MIN, URL_PAGES_MAX) * PAGE_TOKENS_MAX,
        }
    }

    /// It as a part of a message.
    pub fn to_part(self) -> Part {
        match self {
            Self::Image(image) => Part::Image(image.clone()),
            Self::Pdf(pdf) => Part::Pdf(pdf.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pdf(source: PdfSource) -> Pdf {
        Pdf { name: Some("a.pdf".to_owned()), source }
    }

    #[test]
    fn a_pdf_has_a_stable_stored_form() {
        for (stored, part) in [
            (
                r#"{"pdf":{"name":"a.pdf","source":{"data":"JVBERi0="}}}"#,
                pdf(PdfSource::Data("JVBERi0=".to_owned())),
            ),
            (
                r#"{"pdf":{"source":{"url":"https://example.org/a"}}}"#,
                Pdf { name: None, source: PdfSource::Url("https://example.org/a".to_owned()) },
            ),
        ] {
            assert_eq!(serde_json::to_string(&Part::Pdf(part.clone())).unwrap(), stored);
            assert_eq!(serde_json::from_str::<Part>(stored).unwrap(), Part::Pdf(part));
        }
    }

    #[test]
    fn the_tokens_of_a_pdf_follow_from_its_bytes() {
        let tokens = |source| {
            let pdf = pdf(source);
            (Attachment::Pdf(&pdf).tokens(), Attachment::Pdf(&pdf).tokens_max())
        };
        assert_eq!(tokens(PdfSource::Data("JVBERi0=".to_owned())), (3_000, 7_800));
        // 120,000 bytes are 3 pages, or at most 24.
        assert_eq!(tokens(PdfSource::Data("x".repeat(160_000))), (9_000, 24 * 7_800));
        assert_eq!(tokens(PdfSource::Url("https://example.org/a".to_owned())), (30_000, 780_000));
    }
}
