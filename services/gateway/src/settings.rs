//! What a gateway is told besides what every process of a cluster is told.

use std::net::SocketAddr;

use podium_cluster::{ClusterSettings, KEYS};
use podium_ports::server::ServerLimits;
use podium_setup::settings::{Key, SERVER_KEYS, SettingsError, Sources, server_limits, values};

/// A checked setup.
pub(crate) struct Settings {
    /// What every process is told.
    pub(crate) cluster: ClusterSettings,
    /// Where the HTTP door listens.
    pub(crate) listen: SocketAddr,
    /// Where the gRPC door listens.
    pub(crate) grpc_listen: SocketAddr,
    /// Where metrics are shown; none: nowhere.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Whether who asks must show a key.
    pub(crate) keys_required: bool,
    /// What clients may take of the gateway.
    pub(crate) limits: ServerLimits,
}

pub(crate) fn keys() -> Vec<Key> {
    let own: &[Key] = &[
        // Where the OpenAI-compatible HTTP door listens.
        ("listen", Some("127.0.0.1:8080")),
        // Where the gRPC door listens.
        ("grpc_listen", Some("127.0.0.1:8081")),
        // Where Prometheus reads metrics, at `/metrics`; they are of all tenants. Default: nowhere.
        ("metrics_listen", None),
        // Whether the doors may listen where other machines reach them.
        ("allow_remote", Some("false")),
        // Whether who asks must show a key; else who shows none is the tenant `local`.
        ("keys_required", Some("false")),
    ];
    [KEYS, own, SERVER_KEYS].concat()
}

/// Checks everything.
pub(crate) fn check(sources: Sources) -> Result<Settings, SettingsError> {
    let mut checker = sources.into_checker();
    let [listen, grpc_listen, metrics_listen] = checker.listen(["listen", "grpc_listen", "metrics_listen"]);
    let cluster = ClusterSettings::read(&mut checker);
    let keys_required = checker.read("keys_required", values::yes_or_no);
    let limits = server_limits(&mut checker);
    let settings = || {
        Some(Settings {
            cluster: cluster?,
            listen: listen?,
            grpc_listen: grpc_listen?,
            metrics_listen,
            keys_required: keys_required?,
            limits: limits?,
        })
    };
    checker.finish(settings())
}
