//! Images and PDFs for a question: files of this machine, or URLs that vendors fetch.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use podium_api::v1;
use podium_domain::content::{MediaType, Pdf};

use crate::error::Error;

/// Most bytes of an image or a PDF in a question: a conversation holds 1 MiB, and base64 makes four bytes of three.
const BYTES_MAX: u64 = 768 << 10;

/// The image that `named` names: a URL if it begins like one, otherwise a file. The first bytes of a file decide its type, not its
/// name.
pub(super) fn image_part(named: &str) -> Result<v1::Part, Error> {
    let image = if begins_with(named, &["http://", "https://", "data:"]) {
        v1::image::Image::Url(named.to_owned())
    } else {
        let path = Path::new(named);
        let data = read(path)?;
        let media_type = media_type(&data).ok_or_else(|| Error::NoImage { path: path.to_owned() })?;
        let media_type = media_type.as_str().to_owned();
        v1::image::Image::Data(v1::ImageData { media_type, data: within_limit(path, data)? })
    };
    Ok(v1::Part { part: Some(v1::part::Part::Image(v1::Image { image: Some(image) })) })
}

/// The PDF that `named` names: a URL if it begins like one, otherwise a file, which must begin like a PDF.
pub(super) fn file_part(named: &str) -> Result<v1::Part, Error> {
    let file = if begins_with(named, &["http://", "https://"]) {
        v1::File { name: String::new(), source: Some(v1::file::Source::Url(named.to_owned())) }
    } else {
        let path = Path::new(named);
        let data = read(path)?;
        if !data.starts_with(b"%PDF-") {
            return Err(Error::NoPdf { path: path.to_owned() });
        }
        let data = v1::FileData { media_type: Pdf::MEDIA_TYPE.to_owned(), data: within_limit(path, data)? };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        v1::File { name, source: Some(v1::file::Source::Data(data)) }
    };
    Ok(v1::Part { part: Some(v1::part::Part::File(file)) })
}

fn begins_with(named: &str, schemes: &[&str]) -> bool {
    schemes
        .iter()
        .any(|scheme| named.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

/// The content of a file, or its beginning if it is too long.
fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut data))
        .map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
    Ok(data)
}

fn within_limit(path: &Path, data: Vec<u8>) -> Result<Vec<u8>, Error> {
    if data.len() as u64 > BYTES_MAX {
        return Err(Error::FileTooLong { path: path.to_owned(), max: BYTES_MAX });
    }
    Ok(data)
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
        let url = |named: &str| match image_part(named).unwrap().part {
            Some(v1::part::Part::Image(v1::Image { image: Some(v1::image::Image::Url(url)) })) => url,
            other => unreachable!("{other:?}"),
        };
        assert_eq!(url("HTTPS://example.org/a.png"), "HTTPS://example.org/a.png");
        assert_eq!(url("data:image/png;base64,iVBORw0KGgo="), "data:image/png;base64,iVBORw0KGgo=");
        assert!(matches!(image_part("ftp://example.org/a.png"), Err(Error::Unreadable { .. })));
    }

    #[test]
    fn the_url_of_a_pdf_is_passed_on() {
        let url = "https://example.org/a.pdf";
        let file = v1::File { name: String::new(), source: Some(v1::file::Source::Url(url.to_owned())) };
        assert_eq!(file_part(url).unwrap().part, Some(v1::part::Part::File(file)));
        assert!(matches!(file_part("data:application/pdf;base64,JVBERi0="), Err(Error::Unreadable { .. })));
    }
}
