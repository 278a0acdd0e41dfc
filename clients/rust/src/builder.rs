//! Builds a client: address, key, TLS, keepalive, deadline, retries.

use std::fmt;
use std::time::Duration;

use tonic::codec::CompressionEncoding::Gzip;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

use crate::client::Client;
use crate::error::Error;
use crate::retry::RetryPolicy;
use crate::v1::podium_service_client::PodiumServiceClient;

/// The server's limit of a response.
const RESPONSE_BYTES_MAX: usize = 16 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_secs(30);

/// HTTP/2 pings on a connection with calls in flight, which find a connection that broke silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Time between two pings. Default: 30 s.
    pub interval: Duration,
    /// The connection is closed if a ping has no answer for so long. Default: 10 s.
    pub timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), timeout: Duration::from_secs(10) }
    }
}

/// The settings of a client.
#[derive(Clone)]
#[must_use]
pub struct ClientBuilder {
    url: String,
    api_key: Option<String>,
    authorities: Vec<Certificate>,
    identity: Option<Identity>,
    server_name: Option<String>,
    connect_timeout: Duration,
    keepalive: Option<Keepalive>,
    deadline: Option<Duration>,
    retry: RetryPolicy,
}

impl ClientBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            api_key: None,
            authorities: Vec::new(),
            identity: None,
            server_name: None,
            connect_timeout: CONNECT_TIMEOUT,
            keepalive: Some(Keepalive::default()),
            deadline: Some(DEADLINE),
            retry: RetryPolicy::default(),
        }
    }

    /// The key that the server asks for. It is sent with every call and never printed. Use an `https` address, or anyone on the
    /// network can read it.
    pub fn api_key(self, key: impl Into<String>) -> Self {
        Self { api_key: Some(key.into()), ..self }
    }

    /// Trusts servers with a certificate of this authority (PEM), instead of those that the system trusts. May be repeated.
    pub fn ca_certificate(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.authorities.push(Certificate::from_pem(pem));
        self
    }

    /// Proves the client's identity to the server (mTLS): its certificate and private key, both PEM.
    pub fn identity(self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        Self { identity: Some(Identity::from_pem(certificate, key)), ..self }
    }

    /// The name in the server's certificate, if it is not the host of the address.
    pub fn server_name(self, name: impl Into<String>) -> Self {
        Self { server_name: Some(name.into()), ..self }
    }

    /// Longest time for a connection, TLS included. Default: 10 s.
    pub fn connect_timeout(self, limit: Duration) -> Self {
        Self { connect_timeout: limit, ..self }
    }

    /// The pings of a connection; none turns them off.
    pub fn keepalive(self, keepalive: Option<Keepalive>) -> Self {
        Self { keepalive, ..self }
    }

    /// Longest time of one call, retries included; the server gets the remaining time as `grpc-timeout`. It does not limit a
    /// watch. None: no limit. Default: 30 s.
    pub fn deadline(self, limit: Option<Duration>) -> Self {
        Self { deadline: limit, ..self }
    }

    /// When failed calls are repeated.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// A client that connects with its first call, and again after each lost connection. Needs a tokio runtime.
    pub fn build(self) -> Result<Client, Error> {
        let channel = self.endpoint()?.connect_lazy();
        self.client(channel)
    }

    /// As [`Self::build`], but connects now, and fails if the server is unreachable or its certificate is not trusted.
    pub async fn connect(self) -> Result<Client, Error> {
        let connected = self.endpoint()?.connect().await;
        let channel = connected.map_err(|source| Error::Connect { url: self.url.clone(), source })?;
        self.client(channel)
    }

    fn endpoint(&self) -> Result<Endpoint, Error> {
        let url = || self.url.clone();
        let mut endpoint = Endpoint::from_shared(self.url.clone())
            .map_err(|source| Error::Address { url: url(), source })?
            .user_agent(concat!("podium-client-rust/", env!("CARGO_PKG_VERSION")))
            .map_err(|source| Error::Address { url: url(), source })?
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true);
        if let Some(keepalive) = self.keepalive {
            endpoint =
                endpoint.http2_keep_alive_interval(keepalive.interval).keep_alive_timeout(keepalive.timeout);
        }
        let is_secure =
            endpoint.uri().scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
        if is_secure {
            endpoint.tls_config(self.tls()).map_err(|source| Error::Tls { url: url(), source: Some(source) })
        } else if self.identity.is_some() || !self.authorities.is_empty() {
            Err(Error::Tls { url: url(), source: None })
        } else {
            Ok(endpoint)
        }
    }

    fn tls(&self) -> ClientTlsConfig {
        let mut tls = ClientTlsConfig::new();
        tls = if self.authorities.is_empty() {
            tls.with_native_roots()
        } else {
            tls.ca_certificates(self.authorities.iter().cloned())
        };
        if let Some(identity) = &self.identity {
            tls = tls.identity(identity.clone());
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name.clone());
        }
        tls
    }

    fn client(self, channel: Channel) -> Result<Client, Error> {
        let key = match &self.api_key {
            Some(key) => {
                let mut value: MetadataValue<Ascii> = format!("Bearer {key}").parse().map_err(Error::Key)?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let service = PodiumServiceClient::new(InterceptedService::new(channel, Key(key)))
            .max_decoding_message_size(RESPONSE_BYTES_MAX)
            .accept_compressed(Gzip);
        Ok(Client::new(service, self.deadline, self.retry))
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("url", &self.url)
            .field("has_api_key", &self.api_key.is_some())
            .field("has_identity", &self.identity.is_some())
            .field("deadline", &self.deadline)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

/// Adds the key to each call.
#[derive(Clone, Debug)]
pub struct Key(Option<MetadataValue<Ascii>>);

impl Interceptor for Key {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn certificates_for_an_address_without_tls_are_refused() {
        let error = Client::builder("http://127.0.0.1:1").ca_certificate("pem").build().unwrap_err();
        assert!(error.to_string().contains("must begin with https://"), "{error}");
    }

    #[tokio::test]
    async fn an_invalid_address_is_named_in_the_error() {
        let error = Client::builder("not an address").build().unwrap_err();
        assert!(error.to_string().contains("`not an address`"), "{error}");
    }

    #[tokio::test]
    async fn a_key_is_never_printed() {
        let builder = Client::builder("http://127.0.0.1:1").api_key("sk-secret");
        assert!(!format!("{builder:?}").contains("sk-secret"));
        let client = builder.build().unwrap();
        assert!(!format!("{client:?}").contains("sk-secret"));
        let error = Client::builder("http://127.0.0.1:1").api_key("sk-\u{7}secret").build().unwrap_err();
        assert!(matches!(error, Error::Key(_)) && !format!("{error:?}").contains("secret"));
    }
}
