//! What the wire formats write alike.

use std::borrow::Cow;

use podium_domain::content::Image;
use podium_domain::policy::Effort;
use reqwest::Url;
use serde_json::{Map, Value};

/// The address below `base`. A query of the base is kept.
pub(crate) fn below(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

/// A picture as an address: its own, or one that holds it.
pub(crate) fn image_url(image: &Image) -> Cow<'_, str> {
    match image {
        Image::Url(url) => Cow::Borrowed(url),
        Image::Data { media_type, base64 } => {
            Cow::Owned(format!("data:{};base64,{base64}", media_type.as_str()))
        }
    }
}

/// Arguments of a tool as the object that they were checked to be.
pub(crate) fn object(arguments: &str) -> Map<String, Value> {
    serde_json::from_str(arguments).unwrap_or_default()
}

/// The part of an answer's tokens that may go into reasoning, for models that know no effort by name. The larger parts leave
/// enough of a usual limit for an answer.
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
