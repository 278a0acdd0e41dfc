//! The connections to another cell's gateways.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, ORIGIN, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    SEC_WEBSOCKET_EXTENSIONS, TRANSFER_ENCODING, UPGRADE, VARY,
};
use axum::http::uri::{InvalidUri, Uri};
use axum::http::{HeaderMap, HeaderName, HeaderValue, request};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::connections::Protocol;

/// How long a gateway may take to accept a connection before the next one is tried.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// How often a silent gateway is pinged, and how long it may take to answer.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
const ALIVE_WAIT: Duration = Duration::from_secs(5);
/// How long an unused connection is kept: less than gateways keep it by default.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Headers that concern one connection and are not forwarded. [`CONTENT_LENGTH`] and [`HOST`] are rewritten.
const OF_A_CONNECTION: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The files for TLS with other cells. They are read when the connections are set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellTls {
    /// The authorities of the other gateways' certificates; none for the system's.
    pub root_certificates: Option<PathBuf>,
    /// The certificate of this gateway, for gateways that ask for one.
    pub identity: Option<CellIdentity>,
}

/// A certificate and its key, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellIdentity {
    /// The certificate, and those of the authorities between it and the root.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// The connections to other cells cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ConnectorError {
    /// A file cannot be read, or does not hold what it should.
    #[error("cannot use `{}` for TLS with other cells", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The error of the parser. It does not contain a key.
        #[source]
        source: pem::Error,
    },
    /// TLS, which `https://` needs, cannot be set up.
    #[error("cannot set up TLS with other cells")]
    Tls(#[from] rustls::Error),
    /// An address is invalid.
    #[error("invalid gateway address `{address}`; it must be a URL such as https://gateway.example:8080")]
    Address {
        /// The address.
        address: String,
        /// The parse error.
        #[source]
        source: InvalidUri,
    },
}

/// A request was not sent, or not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// No gateway accepted a connection.
    #[error("none of its {gateways} gateways accepts a connection")]
    Unconnected {
        gateways: usize,
        #[source]
        source: ClientError,
    },
    /// The connection broke before the response began.
    #[error("its gateway closed the connection before it answered")]
    Unanswered(#[source] ClientError),
    /// The request's target cannot be forwarded.
    #[error("the request's target is invalid")]
    Target(#[from] axum::http::Error),
}

/// The kind of answer that a forwarded request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Response,
    /// An upgrade of the connection.
    WebSocket,
}

/// The gateways of another cell, for one protocol.
pub(crate) struct Upstream {
    addresses: Vec<Uri>,
    /// The index of the current address. It changes when a connection fails.
    at: AtomicUsize,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    protocol: Protocol,
}

impl Upstream {
    /// Connections to these gateways. Their TLS, if any, has this configuration.
    pub(super) fn new(
        addresses: &[String],
        protocol: Protocol,
        tls: ClientConfig,
    ) -> Result<Self, ConnectorError> {
        let uri = |address: &String| {
            address.parse().map_err(|source| ConnectorError::Address { address: address.clone(), source })
        };
        let addresses: Vec<Uri> = addresses.iter().map(uri).collect::<Result<_, _>>()?;
        let mut client = Client::builder(TokioExecutor::new());
        client.timer(TokioTimer::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_MAX);
        if protocol == Protocol::Grpc {
            client
                .http2_only(true)
                .http2_keep_alive_interval(ALIVE_EVERY)
                .http2_keep_alive_timeout(ALIVE_WAIT);
        }
        let client = client.build(connector(protocol, tls));
        Ok(Self { addresses, at: AtomicUsize::new(0), client, protocol })
    }

    /// Sends a request to the first gateway that accepts a connection. Never repeats a request that a gateway may have read.
    pub(super) async fn send(
        &self,
        head: &request::Parts,
        body: Bytes,
        wanted: Wanted,
    ) -> Result<Response, SendError> {
        let gateways = self.addresses.len();
        let mut tried = 0;
        loop {
            tried += 1;
            let at = self.at.load(Ordering::Relaxed);
            let request = self.request(head, &self.addresses[at % gateways], body.clone(), wanted)?;
            match self.client.request(request).await {
                Ok(response) => return Ok(self.received(response.map(Body::new))),
                Err(error) if !error.is_connect() => return Err(SendError::Unanswered(error)),
                Err(source) => {
                    // If several requests fail together, one of them changes the index.
                    let next = (at + 1) % gateways;
                    let _ = self.at.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
                    if tried >= gateways {
                        return Err(SendError::Unconnected { gateways, source });
                    }
                }
            }
        }
    }

    fn request(
        &self,
        head: &request::Parts,
        address: &Uri,
        body: Bytes,
        wanted: Wanted,
    ) -> Result<axum::http::Request<Full<Bytes>>, SendError> {
        let mut target = Uri::builder();
        if let (Some(scheme), Some(authority)) = (address.scheme(), address.authority()) {
            target = target.scheme(scheme.clone()).authority(authority.clone());
        }
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri = target.path_and_query(path).build()?;
        let mut request = axum::http::Request::new(Full::new(body));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = head.headers.clone();
        let headers = request.headers_mut();
        without_connection(headers);
        // The body was decoded here, so its length is new. The origin was checked here.
        for name in [CONTENT_LENGTH, HOST, ORIGIN] {
            headers.remove(name);
        }
        if wanted == Wanted::WebSocket {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            // Each of the two connections would have its own.
            headers.remove(SEC_WEBSOCKET_EXTENSIONS);
        }
        if self.protocol == Protocol::Http {
            // This gateway compresses the response for its client.
            headers.remove(ACCEPT_ENCODING);
        }
        Ok(request)
    }

    fn received(&self, mut response: Response) -> Response {
        let headers = response.headers_mut();
        without_connection(headers);
        if self.protocol == Protocol::Http {
            headers.remove(VARY);
        }
        response
    }
}

fn without_connection(headers: &mut HeaderMap) {
    for name in OF_A_CONNECTION {
        headers.remove(name);
    }
}

fn connector(protocol: Protocol, tls: ClientConfig) -> HttpsConnector<HttpConnector> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_MAX));
    http.set_keepalive(Some(ALIVE_EVERY));
    http.set_keepalive_interval(Some(ALIVE_WAIT));
    http.set_keepalive_retries(Some(2));
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    match protocol {
        Protocol::Http => builder.enable_http1().wrap_connector(http),
        Protocol::Grpc => builder.enable_http2().wrap_connector(http),
    }
}

/// The configuration of TLS. Without `https://` addresses, the system's authorities are not read.
pub(super) fn client_config(files: &CellTls, has_https: bool) -> Result<ClientConfig, ConnectorError> {
    let mut roots = RootCertStore::empty();
    match &files.root_certificates {
        Some(file) => {
            for authority in certificates(file)? {
                roots.add(authority)?;
            }
        }
        // Unreadable ones are left out; connections that need one of them fail.
        None if has_https => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    let tls = ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into());
    let tls = tls.with_safe_default_protocol_versions()?.with_root_certificates(roots);
    let Some(CellIdentity { certificate, key }) = &files.identity else {
        return Ok(tls.with_no_client_auth());
    };
    let read = PrivateKeyDer::from_pem_file(key);
    let read = read.map_err(|source| ConnectorError::File { file: key.clone(), source })?;
    Ok(tls.with_client_auth_cert(certificates(certificate)?, read)?)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectorError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    read.map_err(|source| ConnectorError::File { file: file.to_owned(), source })
}
