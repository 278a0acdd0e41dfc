//! Images as clients send them.

use podium_domain::content::{Image, MediaType};

use crate::link::{DataUrl, check_address, decoded, encoded, scheme};

const NAMES: &str = "image/png, image/jpeg, image/webp or image/gif";

/// The image of a URL: `https://…`, `http://…`, or `data:image/png;base64,…`, which contains it. An error says what the URL
/// must be.
pub(crate) fn of_url(url: &str) -> Result<Image, String> {
    match scheme(url).as_str() {
        "data" => of_data_url(url),
        "http" | "https" => check_address(url).map(|()| Image::Url(url.to_owned())),
        _ => Err("a URL that begins with `https://`, `http://` or `data:`".to_owned()),
    }
}

/// The image of these bytes.
pub(crate) fn of_bytes(media_type: &str, bytes: &[u8]) -> Result<Image, String> {
    let media_type = named(media_type).ok_or_else(|| format!("an image of type {NAMES}"))?;
    if bytes.is_empty() {
        return Err("an image that is not empty".to_owned());
    }
    Ok(Image::Data { media_type, base64: encoded(bytes) })
}

fn of_data_url(url: &str) -> Result<Image, String> {
    let expected = || format!("`data:TYPE;base64,DATA` with an image of type {NAMES}");
    let DataUrl { media_type, base64 } = DataUrl::parse(url).ok_or_else(expected)?;
    let media_type = named(&media_type).ok_or_else(expected)?;
    match decoded(base64) {
        Some(_) => Ok(Image::Data { media_type, base64: base64.to_owned() }),
        None => Err("an image that is not empty, in padded base64 of the standard alphabet".to_owned()),
    }
}

fn named(media_type: &str) -> Option<MediaType> {
    match media_type.trim().to_ascii_lowercase().as_str() {
        "image/png" => Some(MediaType::Png),
        "image/jpeg" | "image/jpg" => Some(MediaType::Jpeg),
        "image/webp" => Some(MediaType::Webp),
        "image/gif" => Some(MediaType::Gif),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_image_or_contains_it() {
        for url in ["https://example.org/a.png?b=c#d", "HTTP://example.org", "https://[::1]:80/a"] {
            assert_eq!(of_url(url), Ok(Image::Url(url.to_owned())));
        }
        let held = |media_type, base64: &str| Ok(Image::Data { media_type, base64: base64.to_owned() });
        assert_eq!(of_url("data:image/png;base64,iVBORw0KGgo="), held(MediaType::Png, "iVBORw0KGgo="));
        assert_eq!(of_url("DATA:image/JPG;BASE64,/9j/"), held(MediaType::Jpeg, "/9j/"));
        assert_eq!(of_bytes("image/webp", b"RIFF"), held(MediaType::Webp, "UklGRg=="));
        assert_eq!(decoded("UklGRg==").unwrap(), b"RIFF");
    }

    #[test]
    fn a_url_without_an_image_is_rejected() {
        let long = format!("https://example.org/{}", "a".repeat(8192));
        for (url, expected) in [
            ("", "begins with"),
            ("file:///etc/passwd", "begins with"),
            ("gs://bucket/a.png", "begins with"),
            ("é:x", "begins with"),
            ("https:", "a URL of at most"),
            ("https://", "a URL of at most"),
            ("https:///a", "a URL of at most"),
            ("https://example.org/a b", "without blanks"),
            ("https://example.org/\0", "without blanks"),
            (&long, "at most 8192 bytes"),
            ("data:", "data:TYPE;base64,DATA"),
            ("data:image/png,iVBO", "data:TYPE;base64,DATA"),
            ("data:image/svg+xml;base64,iVBO", "data:TYPE;base64,DATA"),
            ("data:text/html;base64,iVBO", "data:TYPE;base64,DATA"),
            ("data:image/png;base64,", "not empty"),
            ("data:image/png;base64,iVB", "in padded base64"),
            ("data:image/png;base64,iV O", "in padded base64"),
            ("data:image/png;base64,iV-_", "in padded base64"),
        ] {
            let refused = of_url(url).unwrap_err();
            assert!(refused.contains(expected), "{url}: {refused}");
        }
        assert!(of_bytes("image/bmp", b"BM").unwrap_err().contains("image/png"));
        assert!(of_bytes("image/png", b"").unwrap_err().contains("not empty"));
    }
}
