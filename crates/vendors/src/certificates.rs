//! Why a server's certificate is refused, in words that say what to look at.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// What is wrong with the certificate that a connection failed for, if it failed for one.
pub(crate) fn refused_for(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = cause.downcast_ref() {
            return Some(words(why));
        }
        // The source of an error of input and output is not what it holds, but the source of that.
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
        E::NotValidForName | E::NotValidForNameContext { .. } => "is for another name than that of base_url",
        E::Revoked => "was revoked",
        other => return format!("its certificate is refused: {other:?}"),
    };
    format!("its certificate {what}")
}
