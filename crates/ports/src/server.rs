//! The bounds on clients' use of a server, and the files that it encrypts with.

use std::path::PathBuf;
use std::time::Duration;

/// Bounds on a server's connections and on the memory held for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Most connections of all clients together. `None`: as many as the process' limit of open files allows.
    pub connections_max: Option<usize>,
    /// Most bytes of a request's head.
    pub header_bytes_max: usize,
    /// Most requests of one HTTP/2 connection at the same time.
    pub connection_streams_max: usize,
    /// Most streams that one tenant has open at the same time: streamed answers and watches.
    pub tenant_streams_max: usize,
    /// Most requests of all clients at the same time.
    pub requests_in_flight_max: usize,
    /// Most WebSocket connections of all clients at the same time.
    pub websockets_max: usize,
    /// Longest time until the head of a connection's first request has arrived. A TLS handshake is part of it.
    pub head: Duration,
    /// Longest time until the body of a request has arrived.
    pub body: Duration,
    /// Longest time that a connection stays open without an active request.
    pub idle: Duration,
    /// Age after which a connection ends with its open requests, so that clients connect again, perhaps to another server. Each
    /// connection varies it by up to a tenth. `None`: any age.
    pub age: Option<Duration>,
    /// How long the open requests of an HTTP/2 connection may go on after its `age`. `None`: without limit.
    pub age_grace: Option<Duration>,
    /// Longest time in which a client may read nothing of an answer.
    pub stall: Duration,
    /// Most bytes of answers that wait in memory for clients to read them.
    pub unread_bytes_max: usize,
    /// Host names that a server without keys accepts in requests, besides those of this machine.
    pub hosts_allowed: Vec<String>,
    /// Origins of web pages whose scripts may read the answers, such as `https://app.example.com`.
    pub cors_origins: Vec<String>,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: None,
            header_bytes_max: 32 << 10,
            connection_streams_max: 1024,
            tenant_streams_max: 10_000,
            requests_in_flight_max: 20_000,
            websockets_max: 4096,
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            age: None,
            age_grace: None,
            stall: Duration::from_secs(30),
            unread_bytes_max: 256 << 20,
            hosts_allowed: Vec::new(),
            cors_origins: Vec::new(),
        }
    }
}

/// The files for TLS, in PEM. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, then those of its authorities.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of clients' certificates. Clients without such a certificate are refused. `None`: clients need none.
    pub client_authorities: Option<PathBuf>,
    /// The oldest version that clients may use.
    pub oldest: TlsVersion,
    /// How often the files are read again.
    pub reload_every: Duration,
}

impl TlsFiles {
    /// Whether only clients with a certificate of an authority are served.
    pub fn identify_clients(&self) -> bool {
        self.client_authorities.is_some()
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}
