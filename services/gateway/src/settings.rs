//! A gateway's own settings, in addition to those of every process of a cluster.

use std::net::SocketAddr;
use std::time::Duration;

use podium_cluster::{ClusterSettings, GATEWAY, GATEWAY_GROUPS, HasCluster, program_keys};
use podium_planning::Place;
use podium_ports::server::{ServerLimits, TlsFiles};
use podium_server::ServerTls;
use podium_setup::settings::client_limits::{CLIENT_LIMITS, client_limits};
use podium_setup::settings::listeners::{
    API_HEALTH_LISTEN, API_LISTENERS, DRAIN_DELAY, GRPC_LISTEN, KEYS_REQUIRED, LISTEN, METRICS_LISTEN,
    keyless_warning,
};
use podium_setup::settings::tls::{TLS, tls_files};
use podium_setup::settings::{ProgramKeys, SettingsError, Sources};

/// The checked settings.
pub(crate) struct Settings {
    /// The settings of every process.
    pub(crate) cluster: ClusterSettings,
    /// The address of the HTTP API.
    pub(crate) listen: SocketAddr,
    /// The address of the gRPC API.
    pub(crate) grpc_listen: SocketAddr,
    /// The address where metrics are shown, if any.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// The address where health is shown, if not only by the HTTP API.
    pub(crate) health_listen: Option<SocketAddr>,
    /// How long requests are taken after the signal to stop.
    pub(crate) drain_delay: Duration,
    /// The files for TLS; none if clients use no TLS.
    pub(crate) tls: Option<TlsFiles>,
    /// Whether a request needs a key.
    pub(crate) keys_required: bool,
    /// The limits of clients.
    pub(crate) limits: ServerLimits,
}

impl HasCluster for Settings {
    fn cluster(&self) -> &ClusterSettings {
        &self.cluster
    }
}

impl Settings {
    /// A warning about settings that are valid but rarely intended.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        let is_open = !self.keys_required && !self.tls.as_ref().is_some_and(TlsFiles::identify_clients);
        keyless_warning([self.listen, self.grpc_listen], !is_open)
    }
}

/// The gateway's keys.
pub fn keys() -> ProgramKeys {
    program_keys(GATEWAY, &[&[API_LISTENERS, TLS, CLIENT_LIMITS], &GATEWAY_GROUPS[..]].concat())
}

/// Checks everything.
pub(crate) fn check(sources: Sources) -> Result<Settings, SettingsError> {
    let mut checker = sources.into_checker();
    let [listen, grpc_listen, metrics_listen, health_listen] =
        checker.listen([&LISTEN, &GRPC_LISTEN, &METRICS_LISTEN, &API_HEALTH_LISTEN]);
    let drain_delay = checker.read(&DRAIN_DELAY);
    let tls = tls_files(&mut checker);
    if let Some(Err(error)) = tls.clone().map(ServerTls::load) {
        checker.problem(error.setting(), error.problem());
    }
    let cluster = ClusterSettings::read(&mut checker, GATEWAY, Place::Elsewhere);
    let keys_required = checker.read(&KEYS_REQUIRED);
    let limits = client_limits(&mut checker);
    let settings = || {
        Some(Settings {
            cluster: cluster?,
            listen: listen?,
            grpc_listen: grpc_listen?,
            metrics_listen,
            health_listen,
            drain_delay: drain_delay?,
            tls,
            keys_required: keys_required?,
            limits: limits?,
        })
    };
    checker.finish(settings())
}

#[cfg(test)]
mod tests {
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
}
