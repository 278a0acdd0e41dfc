//! An authority of the tests' own, and doors to the simulator that speak TLS, each with another certificate.

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

/// What a server shows to prove who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paper {
    Sound,
    OfNobodyKnown,
    Expired,
    ForAnotherName,
}

impl Paper {
    const ALL: [Self; 4] = [Self::Sound, Self::OfNobodyKnown, Self::Expired, Self::ForAnotherName];
}

/// An authority whom our clients may trust, and a door for each paper.
pub(crate) struct Authority {
    certificate: NamedTempFile,
    doors: Vec<(Paper, SocketAddr)>,
    _serving: JoinSet<()>,
}

impl Authority {
    /// Opens the doors to `server`.
    pub(crate) async fn before(server: SocketAddr) -> Self {
        let (known, unknown) = (issuer("Known"), issuer("Unknown"));
        let certificate = NamedTempFile::new().unwrap();
        std::fs::write(certificate.path(), known.pem()).unwrap();
        let (mut doors, mut serving) = (Vec::new(), JoinSet::new());
        for paper in Paper::ALL {
            let by = if paper == Paper::OfNobodyKnown { &unknown } else { &known };
            let acceptor = TlsAcceptor::from(Arc::new(config(paper, by)));
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            doors.push((paper, listener.local_addr().unwrap()));
            serving.spawn(serve(listener, acceptor, server));
        }
        Self { certificate, doors, _serving: serving }
    }

    /// The file that those have who trust it.
    pub(crate) fn certificate(&self) -> &Path {
        self.certificate.path()
    }

    pub(crate) fn door(&self, paper: Paper) -> SocketAddr {
        self.doors.iter().find(|(shown, _)| *shown == paper).unwrap().1
    }
}

fn issuer(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn config(paper: Paper, by: &CertifiedIssuer<'static, KeyPair>) -> ServerConfig {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![match paper {
        Paper::ForAnotherName => SanType::DnsName("elsewhere.example".try_into().unwrap()),
        _ => SanType::IpAddress(Ipv4Addr::LOCALHOST.into()),
    }];
    if paper == Paper::Expired {
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

/// Passes on what comes by TLS.
async fn serve(listener: TcpListener, acceptor: TlsAcceptor, server: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            // Who does not like the certificate goes away in the middle.
            let Ok(mut caller) = acceptor.accept(stream).await else { return };
            let mut server = TcpStream::connect(server).await.unwrap();
            let _ended_somehow = tokio::io::copy_bidirectional(&mut caller, &mut server).await;
        });
        while connections.try_join_next().is_some() {}
    }
}
