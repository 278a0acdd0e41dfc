//! The only place that builds HTTP clients: it sets their TLS provider, timeouts and bounds.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::{Certificate, redirect};

/// How long an idle connection is kept for the next call.
const IDLE_MAX: Duration = Duration::from_mins(1);
/// Idle connections kept for each host.
const IDLE_CONNECTIONS_MAX: usize = 64;
/// Interval between probes of a silent connection.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Longest wait for the answer to a probe.
const KEEPALIVE_ANSWER_MAX: Duration = Duration::from_secs(10);

/// How requests leave this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// Through the proxy that the environment names, if it names one.
    Outside,
    /// Directly to the host, ignoring proxy variables: for loopback addresses, which no proxy can reach.
    Loopback,
}

/// Builds a client for calling vendors. It waits `connect_max` for a connection, TLS included, and has no limit for a whole
/// call: each call sets its own. If `roots` is given, it trusts certificates signed by these authorities only.
///
/// It does not follow redirects: they would carry a key or a question to a host that nobody configured. It does not request
/// compressed answers: a compressor on the way delays tokens.
pub fn http_client(
    route: Route,
    connect_max: Duration,
    roots: Option<Vec<Certificate>>,
) -> Result<reqwest::Client, reqwest::Error> {
    install_tls_provider();
    let builder = reqwest::Client::builder()
        .user_agent(concat!("podium/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect_max)
        .redirect(redirect::Policy::none())
        .no_gzip()
        .tcp_nodelay(true)
        .tcp_keepalive(KEEPALIVE)
        .http2_keep_alive_interval(KEEPALIVE)
        .http2_keep_alive_timeout(KEEPALIVE_ANSWER_MAX)
        .pool_idle_timeout(IDLE_MAX)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX);
    let builder = match roots {
        Some(roots) => builder.tls_certs_only(roots),
        None => builder,
    };
    match route {
        Route::Outside => builder.build(),
        Route::Loopback => builder.no_proxy().build(),
    }
}

/// Makes ring the process's TLS provider, unless the process chose one already.
fn install_tls_provider() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    });
}
