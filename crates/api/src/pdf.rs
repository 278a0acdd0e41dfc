//! PDF files as clients send them.

use podium_domain::content::{Pdf, PdfSource};

use crate::ApiError;
use crate::field::Field;
use crate::link::{check_address, decoded, encoded};

/// The PDF at a URL, which the vendor fetches. An error says what the URL must be.
pub(crate) fn of_address(url: &str, name: Option<String>) -> Result<Pdf, String> {
    check_address(url)?;
    Ok(Pdf { name, source: PdfSource::Url(url.to_owned()) })
}

/// The PDF in `base64`. An error says what that must be.
pub(crate) fn of_base64(base64: &str, name: Option<String>) -> Result<Pdf, String> {
    match decoded(base64) {
        Some(_) => Ok(Pdf { name, source: PdfSource::Data(base64.to_owned()) }),
        None => Err("a PDF that is not empty, in padded base64 of the standard alphabet".to_owned()),
    }
}

/// The PDF of these bytes. An error says what they must be.
pub(crate) fn of_bytes(media_type: &str, bytes: &[u8], name: Option<String>) -> Result<Pdf, String> {
    if !media_type.trim().eq_ignore_ascii_case(Pdf::MEDIA_TYPE) {
        return Err(format!("a file of type {}", Pdf::MEDIA_TYPE));
    }
    if bytes.is_empty() {
        return Err("a file that is not empty".to_owned());
    }
    Ok(Pdf { name, source: PdfSource::Data(encoded(bytes)) })
}

/// The name of a file; `None` if it is empty. An error says what it must be.
pub(crate) fn name_of(name: &str) -> Result<Option<String>, String> {
    if name.len() > Pdf::NAME_BYTES_MAX || name.contains(char::is_control) {
        return Err(format!("at most {} bytes without control characters", Pdf::NAME_BYTES_MAX));
    }
    Ok((!name.is_empty()).then(|| name.to_owned()))
}

/// The name that a member of a JSON object holds.
pub(crate) fn name(field: Option<Field<'_>>) -> Result<Option<String>, ApiError> {
    let Some(field) = field else { return Ok(None) };
    name_of(field.string()?).map_err(|must_be| field.must_be(&must_be))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pdf_is_at_an_address_or_in_base64() {
        let name = || Some("a.pdf".to_owned());
        let data = Pdf { name: name(), source: PdfSource::Data("JVBERi0=".to_owned()) };
        assert_eq!(of_base64("JVBERi0=", name()), Ok(data.clone()));
        assert_eq!(of_bytes("Application/PDF", b"%PDF-", name()), Ok(data));
        let url = "https://example.org/a.pdf";
        assert_eq!(of_address(url, None), Ok(Pdf { name: None, source: PdfSource::Url(url.to_owned()) }));
    }

    #[test]
    fn an_error_says_what_a_file_must_be() {
        for base64 in ["", "JVB", "JV-_", "JVBERi0=\n", "%PDF-"] {
            assert!(of_base64(base64, None).unwrap_err().contains("in padded base64"), "{base64}");
        }
        for url in ["file:///etc/passwd", "data:application/pdf;base64,JVBERi0=", "s3://a/b.pdf", ""] {
            assert!(of_address(url, None).unwrap_err().contains("begins with"), "{url}");
        }
        assert!(of_address("https:///a", None).unwrap_err().contains("at most 8192 bytes"));
        assert!(of_bytes("text/plain", b"a", None).unwrap_err().contains("application/pdf"));
        assert!(of_bytes("application/pdf", b"", None).unwrap_err().contains("not empty"));
    }

    #[test]
    fn a_name_is_short_and_of_one_line() {
        assert_eq!(name_of(""), Ok(None));
        assert_eq!(name_of("Résumé 1.pdf"), Ok(Some("Résumé 1.pdf".to_owned())));
        for name in ["a\nassistant: b", "\0", &"x".repeat(501)] {
            assert!(name_of(name).unwrap_err().contains("at most 500 bytes"), "{name}");
        }
    }
}
