//! Fields that several wire formats write in the same way.

use std::borrow::Cow;

use podium_domain::content::{Image, Pdf};
use podium_domain::policy::Effort;
use podium_domain::pool::{Feature, Worker};
use podium_ports::vendor::Tool;
use reqwest::Url;
use serde_json::{Map, Value};

/// Appends path segments to `base`. A query of the base is kept.
pub(crate) fn below(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

/// An image as a URL: its own, or a `data:` URL with its content.
pub(crate) fn image_url(image: &Image) -> Cow<'_, str> {
    match image {
        Image::Url(url) => Cow::Borrowed(url),
        Image::Data { media_type, base64 } => {
            Cow::Owned(format!("data:{};base64,{base64}", media_type.as_str()))
        }
    }
}

/// The content of a PDF, in base64, as a `data:` URL.
pub(crate) fn pdf_data_url(base64: &str) -> String {
    format!("data:{};base64,{base64}", Pdf::MEDIA_TYPE)
}

/// The file name of a PDF. OpenAI refuses content without one.
pub(crate) fn pdf_file_name(pdf: &Pdf) -> Cow<'_, str> {
    let name = pdf.name.as_deref().unwrap_or("document.pdf");
    let has_ending = name.rsplit_once('.').is_some_and(|(_, ending)| ending.eq_ignore_ascii_case("pdf"));
    if has_ending { Cow::Borrowed(name) } else { Cow::Owned(format!("{name}.pdf")) }
}

/// Arguments of an earlier tool call as a JSON object. A model may have written something else, or a limit may have cut it off; then
/// the object holds the text.
pub(crate) fn object(arguments: &str) -> Map<String, Value> {
    serde_json::from_str(arguments)
        .unwrap_or_else(|_| Map::from_iter([("invalid_arguments".to_owned(), Value::from(arguments))]))
}

/// Whether the arguments of a tool must follow its schema exactly, for a worker that knows strict schemas.
pub(crate) fn strict(tool: &Tool, worker: &Worker) -> Option<bool> {
    tool.strict.filter(|_| worker.takes(Feature::JsonSchema))
}

/// How many of an answer's tokens may go into reasoning, for models that take a number and no effort by name. Even the
/// larger budgets leave enough of a usual limit for the answer itself.
pub(crate) fn thinking_budget(effort: Effort, output_tokens_max: u32) -> u32 {
    let eighths = match effort {
        Effort::None | Effort::Minimal => 0,
        Effort::Low => 1,
        Effort::Medium => 3,
        Effort::High => 5,
        Effort::XHigh => 6,
        Effort::Max => 7,
    };
    output_tokens_max / 8 * eighths
}
