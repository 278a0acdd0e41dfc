//! Explains why a server's certificate was rejected.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// The reason why a certificate was rejected, if that is what made the connection fail.
pub(crate) fn rejection_of(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = cause.downcast_ref() {
            return Some(words(why));
        }
        // `io::Error::source` skips the error that it wraps, so that one is read with `get_ref`.
        let held = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = held.map(|held| held as &(dyn Error + 'static)).or_else(|| cause.source());
    }
    None
}

fn words(why: &CertificateError) -> String {
    use CertificateError as E;
    let what = match why {
        E::UnknownIssuer => "is signed by an authority that this machine does not trust",
        E::Expired | E::ExpiredContext { .. } => "has expired, by this machine's clock",
        E::NotValidYet | E::NotValidYetContext { .. } => "is not valid yet, by this machine's clock",
        E::NotValidForName | E::NotValidForNameContext { .. } => "is not valid for the host name of base_url",
        E::Revoked => "was revoked",
        other => return format!("its certificate is rejected: {other:?}"),
    };
    format!("its certificate {what}")
}
