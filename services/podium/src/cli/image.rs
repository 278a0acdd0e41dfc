//! Images for a question: files of this machine, or URLs that vendors fetch.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use podium_api::v1;
use podium_domain::content::MediaType;

use crate::error::Error;

/// Most bytes of an image in a question: a conversation holds 1 MiB, and base64 makes four bytes of three.
const BYTES_MAX: u64 = 768 << 10;

/// The image that `named` names: a URL if it begins like one, otherwise a file. The first bytes of a file decide its type, not its
/// name.
pub(super) fn part(named: &str) -> Result<v1::Part, Error> {
    let is_address = ["http://", "https://", "data:"]
        .iter()
        .any(|scheme| named.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let image = if is_address { v1::image::Image::Url(named.to_owned()) } else { file(Path::new(named))? };
    Ok(v1::Part { part: Some(v1::part::Part::Image(v1::Image { image: Some(image) })) })
}

fn file(path: &Path) -> Result<v1::image::Image, Error> {
    let mut data = Vec::new();
    File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut data))
        .map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
    let Some(media_type) = media_type(&data) else {
        return Err(Error::NoImage { path: path.to_owned() });
    };
    if data.len() as u64 > BYTES_MAX {
        return Err(Error::ImageTooLong { path: path.to_owned(), max: BYTES_MAX });
    }
    Ok(v1::image::Image::Data(v1::ImageData { media_type: media_type.as_str().to_owned(), data }))
}

/// The type of an image that begins with these bytes.
fn media_type(data: &[u8]) -> Option<MediaType> {
    match data {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(MediaType::Png),
        [0xff, 0xd8, 0xff, ..] => Some(MediaType::Jpeg),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(MediaType::Gif),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(MediaType::Webp),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_its_first_bytes_say() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n..."[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\x10\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\x10\0\0\0WAVE", None),
            (b"<svg/>", None),
            (b"", None),
        ] {
            assert_eq!(media_type(bytes).map(MediaType::as_str), expected, "{bytes:?}");
        }
    }

    #[test]
    fn an_address_is_passed_on_and_is_no_file() {
        let url = |named: &str| match part(named).unwrap().part {
            Some(v1::part::Part::Image(v1::Image { image: Some(v1::image::Image::Url(url)) })) => url,
            other => unreachable!("{other:?}"),
        };
        assert_eq!(url("HTTPS://example.org/a.png"), "HTTPS://example.org/a.png");
        assert_eq!(url("data:image/png;base64,iVBORw0KGgo="), "data:image/png;base64,iVBORw0KGgo=");
        assert!(matches!(part("ftp://example.org/a.png"), Err(Error::Unreadable { .. })));
    }
}
