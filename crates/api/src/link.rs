//! URLs of images and files as clients send them: addresses that vendors fetch, and `data:` URLs, which hold the content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Longest address.
const ADDRESS_BYTES_MAX: usize = 8 << 10;

/// Checks that a vendor can fetch `https://…` or `http://…`. An error says what it must be.
pub(crate) fn check_address(url: &str) -> Result<(), String> {
    let scheme = scheme(url);
    if scheme != "http" && scheme != "https" {
        return Err("a URL that begins with `https://` or `http://`".to_owned());
    }
    let rest = &url[scheme.len()..];
    let has_host = rest.strip_prefix("://").is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    let has_blank = url.contains(|c: char| c.is_whitespace() || c.is_control());
    if !has_host || url.len() > ADDRESS_BYTES_MAX || has_blank {
        return Err(format!("a URL of at most {ADDRESS_BYTES_MAX} bytes without blanks"));
    }
    Ok(())
}

/// The scheme of a URL, in lower case.
pub(crate) fn scheme(url: &str) -> String {
    url.split(':').next().unwrap_or_default().to_ascii_lowercase()
}

/// A URL `data:TYPE;base64,DATA`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DataUrl<'a> {
    /// The media type without parameters, in lower case.
    pub(crate) media_type: String,
    /// The content, which is not checked.
    pub(crate) base64: &'a str,
}

impl<'a> DataUrl<'a> {
    /// The parts of such a URL; `None` for any other text.
    pub(crate) fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        let (head, base64) = rest.split_once(',')?;
        let (media_type, coding) = head.rsplit_once(';')?;
        if !scheme.eq_ignore_ascii_case("data") || !coding.eq_ignore_ascii_case("base64") {
            return None;
        }
        let media_type = media_type.split(';').next()?.trim().to_ascii_lowercase();
        Some(Self { media_type, base64 })
    }
}

/// The bytes of `base64`, which has padding and the standard alphabet; `None` if it is invalid or empty.
pub(crate) fn decoded(base64: &str) -> Option<Vec<u8>> {
    STANDARD.decode(base64).ok().filter(|bytes| !bytes.is_empty())
}

/// The inverse of [`decoded`].
pub(crate) fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
