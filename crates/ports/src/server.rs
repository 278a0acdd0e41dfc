//! What clients may take of a server.

use std::time::Duration;

/// Bounds on the connections of a server and on what is held for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Most connections of all clients together. None: as many as the process' limit of open files leaves room for.
    pub connections_max: Option<usize>,
    /// Longest time until the head of a connection's first request has arrived.
    pub head: Duration,
    /// Longest time until the body of a request has arrived.
    pub body: Duration,
    /// Longest time that a connection stays open without a request under way.
    pub idle: Duration,
    /// Longest time that a client may take nothing of an answer.
    pub stall: Duration,
    /// Most bytes of answers that are held until clients have read them.
    pub unread_bytes_max: usize,
    /// Host names by which the server may be asked while it needs no key, besides those of this machine.
    pub hosts_allowed: Vec<String>,
    /// Origins of web pages that browsers let read the answers, such as `https://app.example.com`.
    pub cors_origins: Vec<String>,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: None,
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            stall: Duration::from_secs(30),
            unread_bytes_max: 256 << 20,
            hosts_allowed: Vec::new(),
            cors_origins: Vec::new(),
        }
    }
}
