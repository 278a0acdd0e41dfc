//! TLS of the listeners: certificates from files, which are read again when they change.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podium_ports::causes::with_causes;
use podium_ports::server::{TlsFiles, TlsVersion};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Protocol;

/// A file of TLS cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {problem}")]
pub struct TlsError {
    setting: &'static str,
    problem: String,
}

impl TlsError {
    /// The setting that names the file.
    pub fn setting(&self) -> &'static str {
        self.setting
    }

    /// The problem, as it follows the setting's name in a sentence.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

/// A setting and the file that it names.
#[derive(Clone, Copy)]
struct Named<'a> {
    setting: &'static str,
    file: &'a Path,
}

impl Named<'_> {
    fn problem(self, problem: &str) -> TlsError {
        TlsError { setting: self.setting, problem: format!("is `{}`, {problem}", self.file.display()) }
    }

    fn read(self) -> Result<Vec<u8>, TlsError> {
        // The value is not repeated, because it may be the key itself.
        std::fs::read(self.file).map_err(|error| TlsError {
            setting: self.setting,
            problem: format!("names a file that cannot be read: {error}"),
        })
    }
}

/// The contents of the files.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authorities: Option<Vec<u8>>,
}

/// The configurations made from the files.
struct Configs {
    http: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
}

/// TLS for both listeners, by the newest valid contents of its files.
pub struct ServerTls {
    files: TlsFiles,
    current: Mutex<(Contents, Configs)>,
}

impl ServerTls {
    /// Reads and checks the files.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let contents = read(&files)?;
        let configs = configs(&files, &contents)?;
        Ok(Self { files, current: Mutex::new((contents, configs)) })
    }

    /// The configuration for a new connection.
    pub(super) fn config(&self, protocol: Protocol) -> Arc<ServerConfig> {
        let current = self.lock();
        Arc::clone(match protocol {
            Protocol::Http => &current.1.http,
            Protocol::Grpc => &current.1.grpc,
        })
    }

    /// Reads the files again and again until `stop`. Invalid files leave the configuration as it is and are logged once.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut last_problem = None;
        loop {
            let next = Instant::now() + self.files.reload_every;
            if stop.run_until_cancelled(sleep_until(next)).await.is_none() {
                return;
            }
            let this = Arc::clone(&self);
            let outcome = tokio::task::spawn_blocking(move || this.reload()).await;
            match outcome {
                Ok(Ok(is_new)) => {
                    if is_new {
                        info!("new connections use the changed files of TLS");
                    }
                    last_problem = None;
                }
                Ok(Err(error)) => {
                    if last_problem.as_ref() != Some(&error) {
                        warn!("{error}; the earlier certificates stay in use");
                    }
                    last_problem = Some(error);
                }
                Err(panic) => warn!(error = with_causes(&panic), "the files of TLS could not be read"),
            }
        }
    }

    /// Reads the files. Returns whether they have changed.
    fn reload(&self) -> Result<bool, TlsError> {
        let contents = read(&self.files)?;
        if contents == self.lock().0 {
            return Ok(false);
        }
        let configs = configs(&self.files, &contents)?;
        *self.lock() = (contents, configs);
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, (Contents, Configs)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn certificate_of(files: &TlsFiles) -> Named<'_> {
    Named { setting: "tls_certificate", file: &files.certificate }
}

fn key_of(files: &TlsFiles) -> Named<'_> {
    Named { setting: "tls_key", file: &files.key }
}

fn client_authorities_of(file: &Path) -> Named<'_> {
    Named { setting: "tls_client_root_certificates", file }
}

fn read(files: &TlsFiles) -> Result<Contents, TlsError> {
    let client_authorities = files.client_authorities.as_deref().map(client_authorities_of).map(Named::read);
    Ok(Contents {
        certificate: certificate_of(files).read()?,
        key: key_of(files).read()?,
        client_authorities: client_authorities.transpose()?,
    })
}

fn configs(files: &TlsFiles, contents: &Contents) -> Result<Configs, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let versions: &[&SupportedProtocolVersion] = match files.oldest {
        TlsVersion::V1_2 => &[&TLS12, &TLS13],
        TlsVersion::V1_3 => &[&TLS13],
    };
    let named = certificate_of(files);
    let chain = certificates(named, &contents.certificate)?;
    // The parser's error is not repeated, because it may contain the key.
    let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|_| {
        key_of(files).problem("which holds no private key in PEM, or an encrypted one; TLS needs a plain one")
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| named.problem(&format!("but TLS cannot be set up: {error}")))?;
    let builder = match clients(files, contents, provider)? {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut http = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let certificate = files.certificate.display();
            key_of(files).problem(&format!(
                "which is not the key of the certificate `{certificate}`; name the files of one pair"
            ))
        }
        other => named.problem(&format!("which cannot be used: {other}")),
    })?;
    let mut grpc = http.clone();
    http.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    grpc.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Configs { http: http.into(), grpc: grpc.into() })
}

/// The check of clients' certificates; none if clients need no certificate.
fn clients(
    files: &TlsFiles,
    contents: &Contents,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let (Some(file), Some(pem)) = (&files.client_authorities, &contents.client_authorities) else {
        return Ok(None);
    };
    let named = client_authorities_of(file);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(named, pem)? {
        let added = roots.add(certificate);
        added.map_err(|error| {
            named.problem(&format!("which holds a certificate that is no authority: {error}"))
        })?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| named.problem(&format!("which cannot be used: {error}")))?;
    Ok(Some(verifier))
}

fn certificates(named: Named<'_>, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(named.problem("which holds no certificate in PEM, or a damaged one")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use podium_harness::Authority;

    use super::*;

    fn files(authority: &Authority) -> TlsFiles {
        let server = authority.issue("server", &["localhost"]).unwrap();
        TlsFiles {
            certificate: server.certificate,
            key: server.key,
            client_authorities: Some(authority.root()),
            oldest: TlsVersion::V1_3,
            reload_every: Duration::from_secs(10),
        }
    }

    fn problem(files: TlsFiles) -> String {
        ServerTls::load(files).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn each_bad_file_is_named_with_its_problem() {
        let authority = Authority::new().unwrap();
        let good = files(&authority);
        let other = authority.issue("other", &["localhost"]).unwrap();
        let junk = authority.root().with_file_name("junk.pem");
        std::fs::write(&junk, "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n").unwrap();
        for (bad, words) in [
            (
                TlsFiles { certificate: "/none.pem".into(), ..good.clone() },
                "tls_certificate names a file that cannot be read",
            ),
            (
                TlsFiles { certificate: good.key.clone(), ..good.clone() },
                "which holds no certificate in PEM, or a damaged one",
            ),
            (TlsFiles { certificate: junk.clone(), ..good.clone() }, "junk.pem`, which cannot be used"),
            (TlsFiles { key: good.certificate.clone(), ..good.clone() }, "which holds no private key in PEM"),
            (TlsFiles { key: other.key, ..good.clone() }, "which is not the key of the certificate"),
            (
                TlsFiles { client_authorities: Some("/none".into()), ..good.clone() },
                "tls_client_root_certificates names a file that cannot be read",
            ),
            (
                TlsFiles { client_authorities: Some(junk), ..good.clone() },
                "which holds a certificate that is no authority",
            ),
        ] {
            let problem = problem(bad);
            assert!(problem.contains(words), "{problem}");
        }
        assert_eq!(problem(good), "");
    }

    #[test]
    fn changed_files_replace_the_configuration_only_if_they_are_valid() {
        let authority = Authority::new().unwrap();
        let files = files(&authority);
        let tls = ServerTls::load(files.clone()).unwrap();
        let first = tls.config(Protocol::Http);
        assert_eq!(tls.reload(), Ok(false));
        std::fs::write(&files.key, "no key").unwrap();
        assert!(tls.reload().is_err());
        assert!(Arc::ptr_eq(&first, &tls.config(Protocol::Http)));
        // The same names, so the files are replaced.
        authority.issue("server", &["localhost"]).unwrap();
        assert_eq!(tls.reload(), Ok(true));
        assert!(!Arc::ptr_eq(&first, &tls.config(Protocol::Http)));
    }
}
