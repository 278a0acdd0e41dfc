//! The addresses on which a program listens, and who may use them.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Group, Setting};

/// The address of the HTTP API.
pub const LISTEN: Setting<SocketAddr> =
    Setting::address("listen", "The address of the OpenAI-compatible HTTP API.").default("127.0.0.1:8080");

/// The address of the gRPC API.
pub const GRPC_LISTEN: Setting<SocketAddr> =
    Setting::address("grpc_listen", "The address of the gRPC API.").default("127.0.0.1:8081");

/// The address where a program that serves clients shows its metrics.
pub const METRICS_LISTEN: Setting<SocketAddr> = Setting::address(
    "metrics_listen",
    "The address where Prometheus reads metrics, at /metrics. They cover all tenants.",
)
.optional("127.0.0.1:9464", "no such address");

/// The address where a program that serves clients shows its health.
pub const API_HEALTH_LISTEN: Setting<SocketAddr> = Setting::address(
    "health_listen",
    "The address of /healthz, /readyz and /metrics without TLS, for probes. The HTTP API has the first two as well.",
)
.optional("127.0.0.1:8084", "no such address");

/// How long a program that serves clients goes on after the signal to stop.
pub const DRAIN_DELAY: Setting<Duration> = Setting::milliseconds(
    "drain_delay_ms",
    &(0..=3_600_000),
    "Time after the signal to stop in which the server takes requests although it is not ready, until load balancers send \
     none. drain_ms begins after it.",
)
.default("0");

/// Whether other machines may reach the listeners.
pub const ALLOW_REMOTE: Setting<bool> = Setting::switch(
    "allow_remote",
    "Allow addresses that other machines can reach. Without keys_required, every machine that reaches the server may use it.",
)
.default("false");

/// Whether a request needs a key.
pub const KEYS_REQUIRED: Setting<bool> = Setting::switch(
    "keys_required",
    "Reject requests without a key; `podium key create` creates one. If false, such requests belong to the tenant `local`.",
)
.default("false");

/// The address of a program without API.
pub const HEALTH_LISTEN: Setting<SocketAddr> =
    Setting::address("listen", "The address of /healthz, /readyz and /metrics.");

/// The listeners of a program that serves clients.
pub const API_LISTENERS: Group = Group {
    title: "Listeners",
    keys: &[
        LISTEN.key,
        GRPC_LISTEN.key,
        METRICS_LISTEN.key,
        API_HEALTH_LISTEN.key,
        ALLOW_REMOTE.key,
        KEYS_REQUIRED.key,
        DRAIN_DELAY.key,
    ],
};

/// The listener of a program without API.
pub const HEALTH_LISTENER: Group = Group {
    title: "Listeners",
    keys: &[HEALTH_LISTEN.key, ALLOW_REMOTE.key.with_help("Allow an address that other machines can reach.")],
};

/// A warning if other machines can reach a server at one of these addresses and need no key.
pub fn keyless_warning(addresses: [SocketAddr; 2], keys_required: bool) -> Option<&'static str> {
    let is_reachable = addresses.iter().any(|address| !address.ip().is_loopback());
    (is_reachable && !keys_required).then_some(
        "other machines can reach this server and need no key; keys_required = true rejects requests without one",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_others_reach_without_a_key_gets_a_warning() {
        let [here, everywhere] = ["127.0.0.1:1", "0.0.0.0:2"].map(|address| address.parse().unwrap());
        for (addresses, keys_required, warns) in [
            ([here, here], false, false),
            ([here, everywhere], false, true),
            ([everywhere, here], false, true),
            ([everywhere, everywhere], true, false),
        ] {
            assert_eq!(keyless_warning(addresses, keys_required).is_some(), warns, "{addresses:?}");
        }
    }
}
