//! Files in the content of messages and tool results, as Chat Completions and the Responses API have them.

use podium_domain::content::{Part, Pdf};

use crate::ApiError;
use crate::field::Field;
use crate::link::{DataUrl, decoded};
use crate::pdf;

/// Media types of text besides `text/…`, after `application/`.
const TEXTS: [&str; 5] = ["json", "xml", "yaml", "x-yaml", "toml"];

/// The part of a file whose content is the `data:` URL `data`: a PDF, or the text of a text file after its name.
pub(super) fn of_data(data: &Field<'_>, name: Option<String>) -> Result<Part, ApiError> {
    let unsupported = || {
        data.unsupported("only PDFs and text files are read: `data:TYPE;base64,DATA` with `application/pdf` or a type of text")
    };
    let DataUrl { media_type, base64 } = DataUrl::parse(data.string()?).ok_or_else(unsupported)?;
    if media_type == Pdf::MEDIA_TYPE {
        return pdf::of_base64(base64, name).map(Part::Pdf).map_err(|must_be| data.must_be(&must_be));
    }
    let is_text = media_type.starts_with("text/")
        || media_type.strip_prefix("application/").is_some_and(|kind| TEXTS.contains(&kind));
    if !is_text {
        return Err(unsupported());
    }
    let bytes = if base64.is_empty() { Some(Vec::new()) } else { decoded(base64) };
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(|| data.must_be("a `data:` URL with UTF-8 text in padded base64"))?;
    Ok(Part::Text(match name {
        Some(name) => format!("{name}:\n{text}"),
        None => text,
    }))
}
