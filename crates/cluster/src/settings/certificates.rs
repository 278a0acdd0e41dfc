//! Certificates, in files that settings name.

use std::path::{Path, PathBuf};

use podium_setup::settings::{Checker, Key, Setting, Values, values};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The authorities that a connection trusts, and the certificate that it shows. Files in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificates {
    /// The authorities that may have signed the server's certificate; `None` for those of the system.
    pub root: Option<PathBuf>,
    /// For servers that ask clients for one.
    pub client: Option<ClientCertificate>,
}

/// A client's certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, then those of its authorities.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The settings of a server's certificates.
pub(super) struct CertificateSettings {
    pub(super) root: Setting<PathBuf>,
    pub(super) certificate: Setting<PathBuf>,
    pub(super) key: Setting<PathBuf>,
}

/// A setting that names the authorities of a server's certificate.
pub(super) const fn root_setting(name: &'static str, help: &'static str) -> Setting<PathBuf> {
    Setting::parsed(name, Values::Form("FILE"), |_, text| certificates(text), help)
}

/// A setting that names a client's certificate.
pub(super) const fn certificate_setting(name: &'static str) -> Setting<PathBuf> {
    let help = "A PEM file with this client's certificate, for servers that ask for one.";
    Setting::parsed(name, Values::Form("FILE"), |_, text| certificates(text), help)
}

/// A setting that names the key of a client's certificate.
pub(super) const fn key_setting(name: &'static str) -> Setting<PathBuf> {
    let help = "A PEM file with the private key of the client's certificate.";
    Setting::parsed(name, Values::Form("FILE"), |_, text| private_key(text), help)
}

impl Certificates {
    /// Reads a server's settings. `None` if something is wrong.
    pub(super) fn read(checker: &mut Checker, settings: &CertificateSettings) -> Option<Self> {
        let CertificateSettings { root, certificate, key } = settings;
        let given = [root, certificate, key].map(|setting| checker.has_value(setting));
        let read = [root, certificate, key].map(|setting| checker.read_if_given(setting));
        let is_invalid = given.iter().zip(&read).any(|(is_given, value)| *is_given && value.is_none());
        if is_invalid {
            return None;
        }
        let [root, client_certificate, client_key] = read;
        let client = match (client_certificate, client_key) {
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return lacks(checker, &certificate.key, &key.key),
            (None, Some(_)) => return lacks(checker, &key.key, &certificate.key),
        };
        Some(Self { root, client })
    }

    /// Whether there are any, so that the connection must be encrypted.
    pub fn are_given(&self) -> bool {
        *self != Self::default()
    }
}

fn lacks(checker: &mut Checker, given: &Key, missing: &Key) -> Option<Certificates> {
    checker.problem(given.name, &format!("is set, but {} is not; both are needed", missing.name));
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
    // The parser's error is not repeated, because it may contain the key.
    let key = PrivateKeyDer::from_pem_slice(&bytes);
    key.map_err(|_| format!("is `{text}`, which holds no private key in PEM, or an encrypted one"))?;
    Ok(path)
}

fn file(text: &str) -> Result<(PathBuf, Vec<u8>), String> {
    let path = values::path(text)?;
    let bytes = std::fs::read(Path::new(&path));
    // The error does not repeat the value, because it may be the key itself.
    let bytes = bytes.map_err(|error| format!("names a file that cannot be read: {error}"))?;
    Ok((path, bytes))
}
