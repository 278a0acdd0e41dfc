//! A gateway's own settings, besides those of every process of a cluster.

use std::net::SocketAddr;

use podium_cluster::{ClusterSettings, GATEWAY, KEYS};
use podium_ports::server::ServerLimits;
use podium_setup::conductor::Place;
use podium_setup::settings::{
    Key, SERVER_KEYS, SettingsError, Sources, keyless_warning, server_limits, values,
};

/// A checked setup.
pub(crate) struct Settings {
    /// What every process is told.
    pub(crate) cluster: ClusterSettings,
    /// Address of the HTTP server.
    pub(crate) listen: SocketAddr,
    /// Address of the gRPC server.
    pub(crate) grpc_listen: SocketAddr,
    /// Where metrics are shown; none: nowhere.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Whether who asks must show a key.
    pub(crate) keys_required: bool,
    /// What clients may take of the gateway.
    pub(crate) limits: ServerLimits,
}

impl Settings {
    /// Settings that are allowed and rarely intended.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        keyless_warning([self.listen, self.grpc_listen], self.keys_required)
    }
}

pub(crate) fn keys() -> Vec<Key> {
    let own: &[Key] = &[
        Key::new("listen", "127.0.0.1:8080", "The address of the OpenAI-compatible HTTP API, as HOST:PORT."),
        Key::new("grpc_listen", "127.0.0.1:8081", "The address of the gRPC API, as HOST:PORT."),
        Key::optional(
            "metrics_listen",
            "127.0.0.1:9464",
            "The address where Prometheus reads metrics, at /metrics; they are of all tenants. Unset: nowhere.",
        ),
        Key::new(
            "allow_remote",
            "false",
            "Whether these addresses may be ones that other machines can reach; set keys_required as well then.",
        ),
        Key::new(
            "keys_required",
            "false",
            "Whether requests without a key are refused. If not, they are of the tenant `local`.",
        ),
    ];
    [KEYS, own, &SERVER_KEYS].concat()
}

/// Checks everything.
pub(crate) fn check(sources: Sources) -> Result<Settings, SettingsError> {
    let mut checker = sources.into_checker();
    let [listen, grpc_listen, metrics_listen] = checker.listen(["listen", "grpc_listen", "metrics_listen"]);
    let cluster = ClusterSettings::read(&mut checker, GATEWAY, Place::Elsewhere);
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

#[cfg(test)]
mod tests {
    use podium_setup::settings::listing;

    use super::*;

    #[test]
    fn a_gateway_that_others_reach_without_a_key_warns() {
        let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pools/demo.toml");
        let warns = |own: &[(&'static str, &'static str)]| {
            let keys = keys();
            let mut sources = Sources::new(&keys);
            let cluster =
                [("postgres", "postgres://podium@127.0.0.1/podium"), ("pool", pool), ("conductor", "direct")];
            cluster.iter().chain(own).for_each(|(key, value)| sources.flag(key, Some(value)));
            check(sources).map(|settings| settings.warning().is_some())
        };
        let remote = [("listen", "0.0.0.0:8080"), ("allow_remote", "true")];
        assert_eq!(warns(&[]), Ok(false));
        assert_eq!(warns(&remote), Ok(true));
        assert_eq!(warns(&[remote[0], remote[1], ("keys_required", "true")]), Ok(false));
    }

    #[test]
    fn the_example_file_is_what_print_keys_prints() {
        let example = include_str!("../../../deploy/settings/podium-gateway.toml");
        assert_eq!(example, listing(GATEWAY, &keys()), "podium-gateway --print-keys has other text");
    }
}
