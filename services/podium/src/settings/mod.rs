//! The settings of this process.

mod check;
mod keys;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use podium_bundle::LocalLimits;
use podium_domain::pool::Pool;
use podium_planning::{ConductorChoice, ConductorChoices, plan_slots_for};
use podium_ports::cache::CacheOptions;
use podium_ports::server::{ServerLimits, TlsFiles};
use podium_setup::settings::engine::SLOTS_MAX;
use podium_setup::{Followed, Identity, LogFormat, VERSION};
use podium_telemetry::TelemetrySettings;

pub(crate) use check::{Depth, check};
pub(crate) use keys::{DataFlags, EngineFlags, ServerFlags, keys};

/// Concurrent steps, unless the pool allows more. Large enough that the vendors' limits decide, not this process.
const STEP_SLOTS: usize = 1024;

/// The name that distinguishes this process from others, in claims, metrics and logs.
pub(crate) fn instance() -> String {
    format!("podium-{}", std::process::id())
}

/// The checked settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
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
    /// The folder that keeps the runs.
    pub(crate) data: PathBuf,
    /// The workers.
    pub(crate) pool: PoolChoice,
    /// The conductors.
    pub(crate) conductors: ConductorChoices,
    /// How long runs are kept after their end; `None` means forever.
    pub(crate) runs_kept: Option<Duration>,
    /// The bounds of the step cache; `None` if it is off.
    pub(crate) step_cache: Option<CacheOptions>,
    /// Most concurrent plans for each tier; `None` for as many as the conductor can take.
    pub(crate) plan_slots: Option<usize>,
    /// Most concurrent steps for each vendor and tier; `None` for as many as the pool allows.
    pub(crate) step_slots: Option<usize>,
    /// The bounds of a model in this process.
    pub(crate) local: LocalLimits,
    /// Time for work under way at shutdown.
    pub(crate) drain: Duration,
    /// Where metrics are delivered.
    pub(crate) telemetry: TelemetrySettings,
    /// The log filter; `None` for the default of the command.
    pub(crate) log: Option<String>,
    /// The format of log lines.
    pub(crate) log_format: LogFormat,
}

impl Settings {
    /// Starts logging, with the filter `level` if the settings have none.
    pub(crate) fn start_log(&self, level: &str) {
        let instance = instance();
        let identity = Identity { service: "podium", version: VERSION, instance: &instance };
        podium_setup::start_log(self.log.as_deref().unwrap_or(level), self.log_format, &identity);
    }

    /// The settings that a running server follows.
    pub(crate) fn followed(&self) -> Followed {
        let files = match &self.pool {
            PoolChoice::File(path) => vec![path.clone()],
            PoolChoice::Demo => Vec::new(),
        };
        Followed { files, log: self.log.clone().unwrap_or_else(|| "info".to_owned()) }
    }

    /// Most concurrent plans for each tier.
    pub(crate) fn plan_slots(&self) -> usize {
        self.plan_slots.unwrap_or_else(|| {
            let may_have_a_model =
                self.conductors.need_a_model_here() || self.conductors.current == ConductorChoice::Auto;
            plan_slots_for(may_have_a_model.then_some(self.local.sequences_max))
        })
    }

    /// Most concurrent steps for each vendor and tier.
    pub(crate) fn step_slots(&self, pool: &Pool) -> usize {
        let of_workers = pool.workers().iter().map(|worker| worker.limits.in_flight_max as usize);
        let slots_max = usize::try_from(SLOTS_MAX).unwrap_or(usize::MAX);
        self.step_slots.unwrap_or_else(|| of_workers.fold(STEP_SLOTS, usize::max).min(slots_max))
    }
}

/// The choice of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolChoice {
    /// The demo's: small programs in this process that simulate models.
    Demo,
    /// Those of a pool file.
    File(PathBuf),
}

#[cfg(test)]
mod tests;
