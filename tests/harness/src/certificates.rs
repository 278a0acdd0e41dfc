//! Certificates of a private authority for a test.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A certificate authority. Its files are removed when it is dropped.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM files in the authority's folder.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Authority {
    /// An authority that no other client trusts.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("podium-authority-").tempdir()?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of a test");
        write(&folder.path().join("root.pem"), &params.self_signed(&key)?.pem())?;
        Ok(Self { folder, issuer: Issuer::new(params, key) })
    }

    /// Its own certificate as a PEM file, for clients that should trust what it signed.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    /// Issues a certificate of `name` for these hosts; none for a client's certificate.
    pub fn issue(&self, name: &str, hosts: &[&str]) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name.push(DnType::CommonName, name);
        let file = |end: &str| self.folder.path().join(format!("{name}-{end}.pem"));
        let identity = Identity { certificate: file("certificate"), key: file("key") };
        write(&identity.certificate, &params.signed_by(&key, &self.issuer)?.pem())?;
        write(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }
}

fn write(file: &Path, pem: &str) -> Result<()> {
    fs::write(file, pem).with_context(|| format!("writing `{}`", file.display()))
}
