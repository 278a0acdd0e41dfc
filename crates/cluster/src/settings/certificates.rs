//! Certificates, in files that settings name.

use std::path::{Path, PathBuf};

use podium_setup::settings::{Checker, values};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Whom a connection trusts, and as whom it shows itself. Files in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificates {
    /// The certificates of who may have signed the server's one; none: whom the system trusts.
    pub root: Option<PathBuf>,
    /// For servers that ask clients for one.
    pub client: Option<ClientCertificate>,
}

/// A client's certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, then those of who signed it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Certificates {
    /// Reads the keys of a server, which begin with `server`; none if something is wrong.
    pub(super) fn read(checker: &mut Checker, server: &str) -> Option<Self> {
        let keys =
            ["root_certificates", "client_certificate", "client_key"].map(|end| format!("{server}_{end}"));
        let [root_key, certificate_key, key_key] = &keys;
        let root = checker.read_if_given(root_key, certificates);
        let certificate = checker.read_if_given(certificate_key, certificates);
        let key = checker.read_if_given(key_key, private_key);
        let is_wrong =
            |(key, value): (&String, &Option<PathBuf>)| checker.written(key).is_some() && value.is_none();
        if keys.iter().zip([&root, &certificate, &key]).any(is_wrong) {
            return None;
        }
        let client = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return lacks(checker, certificate_key, key_key),
            (None, Some(_)) => return lacks(checker, key_key, certificate_key),
        };
        Some(Self { root, client })
    }

    /// Whether there are any, so that the connection has to be an encrypted one.
    pub fn are_given(&self) -> bool {
        *self != Self::default()
    }
}

fn lacks(checker: &mut Checker, given: &str, missing: &str) -> Option<Certificates> {
    checker.problem(given, &format!("is given, but not {missing}: they belong together"));
    None
}

fn certificates(text: &str) -> Result<PathBuf, String> {
    let (path, bytes) = file(text)?;
    let mut found = CertificateDer::pem_slice_iter(&bytes).peekable();
    if found.peek().is_none() || found.any(|certificate| certificate.is_err()) {
        return Err(format!("is `{text}`, which holds no certificate in PEM, or a damaged one"));
    }
    Ok(path)
}

fn private_key(text: &str) -> Result<PathBuf, String> {
    let (path, bytes) = file(text)?;
    // What is wrong with it is not repeated: it may be the key.
    let key = PrivateKeyDer::from_pem_slice(&bytes);
    key.map_err(|_| format!("is `{text}`, which holds no private key in PEM, or an encrypted one"))?;
    Ok(path)
}

fn file(text: &str) -> Result<(PathBuf, Vec<u8>), String> {
    let path = values::path(text)?;
    let bytes = std::fs::read(Path::new(&path));
    // Nor is what is no path: it may be the key itself.
    let bytes = bytes.map_err(|error| format!("names a file that cannot be read: {error}"))?;
    Ok((path, bytes))
}
