//! A certificate authority for the tests, and TLS listeners in front of the simulator, each with another certificate.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tempfile::NamedTempFile;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The certificate of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certificate {
    Valid,
    UnknownAuthority,
    Expired,
    ForAnotherName,
}

impl Certificate {
    const ALL: [Self; 4] = [Self::Valid, Self::UnknownAuthority, Self::Expired, Self::ForAnotherName];
}

/// An authority that clients may trust, and a listener for each certificate.
pub(crate) struct Authority {
    certificate: NamedTempFile,
    listeners: Vec<(Certificate, SocketAddr)>,
    _serving: JoinSet<()>,
}

impl Authority {
    /// Starts the listeners in front of `server`.
    pub(crate) async fn before(server: SocketAddr) -> Self {
        let (known, unknown) = (issuer("Known"), issuer("Unknown"));
        let certificate = NamedTempFile::new().unwrap();
        std::fs::write(certificate.path(), known.pem()).unwrap();
        let (mut listeners, mut serving) = (Vec::new(), JoinSet::new());
        for kind in Certificate::ALL {
            let by = if kind == Certificate::UnknownAuthority { &unknown } else { &known };
            let acceptor = TlsAcceptor::from(Arc::new(config(kind, by)));
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            listeners.push((kind, listener.local_addr().unwrap()));
            serving.spawn(serve(listener, acceptor, server));
        }
        Self { certificate, listeners, _serving: serving }
    }

    /// The file with the trusted authority.
    pub(crate) fn certificate(&self) -> &Path {
        self.certificate.path()
    }

    pub(crate) fn listener(&self, kind: Certificate) -> SocketAddr {
        self.listeners.iter().find(|(shown, _)| *shown == kind).unwrap().1
    }
}

fn issuer(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn config(kind: Certificate, by: &CertifiedIssuer<'static, KeyPair>) -> ServerConfig {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![match kind {
        Certificate::ForAnotherName => SanType::DnsName("elsewhere.example".try_into().unwrap()),
        _ => SanType::IpAddress(Ipv4Addr::LOCALHOST.into()),
    }];
    if kind == Certificate::Expired {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 12, 31);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap()
}

/// Forwards TLS connections.
async fn serve(listener: TcpListener, acceptor: TlsAcceptor, server: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            // A client that rejects the certificate disconnects during the handshake.
            let Ok(mut caller) = acceptor.accept(stream).await else { return };
            let mut server = TcpStream::connect(server).await.unwrap();
            let _ended_somehow = tokio::io::copy_bidirectional(&mut caller, &mut server).await;
        });
        while connections.try_join_next().is_some() {}
    }
}
