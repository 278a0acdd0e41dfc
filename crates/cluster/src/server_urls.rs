//! Addresses with the passwords that settings only reference. Their results must not be printed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use podium_setup::settings::SecretRef;
use redis::{ClientTlsConfig, ConnectionInfo, TlsCertificates};
use secrecy::{ExposeSecret as _, SecretString};

use crate::error::ClusterError;
use crate::settings::{Certificates, ClientCertificate, RedisSettings};

/// Adds the password of its user to a URL. `key` is the setting that references it.
pub(crate) fn with_password(
    url: &str,
    key: &'static str,
    password: Option<&SecretRef>,
) -> Result<String, ClusterError> {
    let Some(password) = password else {
        return Ok(url.to_owned());
    };
    Ok(insert(url, secret(key, password)?.expose_secret()))
}

/// The secret that the setting `key` references.
pub(crate) fn secret(key: &'static str, reference: &SecretRef) -> Result<SecretString, ClusterError> {
    reference.resolve().map_err(|source| ClusterError::Secret { key, source })
}

/// Adds the certificates to a Postgres URL. If there are root certificates, the server's certificate is checked, unless the URL has
/// an `sslmode`.
pub(crate) fn with_certificates(url: &str, certificates: &Certificates) -> String {
    let mut parameters = Vec::new();
    let has = |name: &str| url.contains(&format!("{name}="));
    if let Some(root) = &certificates.root {
        parameters.push(("sslrootcert", encoded_path(root)));
    }
    if let Some(ClientCertificate { certificate, key }) = &certificates.client {
        parameters.push(("sslcert", encoded_path(certificate)));
        parameters.push(("sslkey", encoded_path(key)));
    }
    if (certificates.root.is_some() || has("sslrootcert")) && !has("sslmode") {
        parameters.push(("sslmode", "verify-full".to_owned()));
    }
    parameters.into_iter().fold(url.to_owned(), |url, (name, value)| {
        let mark = if url.contains('?') { '&' } else { '?' };
        format!("{url}{mark}{name}={value}")
    })
}

fn encoded_path(path: &Path) -> String {
    percent_encoded(path.as_os_str().as_encoded_bytes())
}

/// The address of the Redis server at `url`, with password and certificates.
pub(crate) fn redis(settings: &RedisSettings, url: &str) -> Result<ConnectionInfo, ClusterError> {
    let url = with_password(url, "redis_password", settings.password.as_ref())?;
    let read = |path: &PathBuf| {
        fs::read(path).map_err(|source| ClusterError::Unreadable { path: path.clone(), source })
    };
    let Certificates { root, client } = &settings.certificates;
    let root_cert = root.as_ref().map(read).transpose()?;
    let client_tls = match client {
        Some(ClientCertificate { certificate, key }) => {
            Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
        }
        None => None,
    };
    // The error about an invalid URL may repeat its password.
    let wrong = |_| ClusterError::Server {
        server: "Redis",
        hint: "",
        source: "the URL in `redis` or a certificate is invalid".into(),
    };
    let is_encrypted = root_cert.is_some() || client_tls.is_some();
    let client = if is_encrypted {
        redis::Client::build_with_tls(url, TlsCertificates { client_tls, root_cert })
    } else {
        redis::Client::open(url)
    };
    Ok(client.map_err(wrong)?.get_connection_info().clone())
}

fn insert(url: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (user, place) = rest.split_once('@').unwrap_or(("", rest));
    format!("{scheme}://{user}:{}@{place}", percent_encoded(password.as_bytes()))
}

/// Encodes everything but letters and digits, which is valid in every part of a URL.
fn percent_encoded(bytes: &[u8]) -> String {
    bytes.iter().copied().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_encoded_and_added_to_its_user() {
        assert_eq!(
            insert("postgres://podium@db:5432/podium", "p@ss:/?"),
            "postgres://podium:p%40ss%3A%2F%3F@db:5432/podium"
        );
        assert_eq!(insert("redis://cache:6379", "x y"), "redis://:x%20y@cache:6379");
    }

    #[test]
    fn root_certificates_turn_checks_on_by_default() {
        let mut certificates = Certificates { root: Some("/a b/root.pem".into()), client: None };
        let url = with_certificates("postgres://db/podium", &certificates);
        assert_eq!(url, "postgres://db/podium?sslrootcert=%2Fa%20b%2Froot%2Epem&sslmode=verify-full");
        let url = with_certificates("postgres://db/podium?sslmode=verify-ca", &certificates);
        assert_eq!(url, "postgres://db/podium?sslmode=verify-ca&sslrootcert=%2Fa%20b%2Froot%2Epem");
        certificates.root = None;
        assert_eq!(with_certificates("postgres://db/podium", &certificates), "postgres://db/podium");
    }
}
