//! How this process is set up.

mod check;
mod keys;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use podium_bundle::LocalLimits;
use podium_domain::pool::Pool;
use podium_ports::cache::CacheOptions;
use podium_ports::server::ServerLimits;
use podium_setup::conductor::{ConductorChoice, ConductorChoices};
use podium_setup::settings::values;
use podium_setup::{Identity, LogFormat};
use podium_telemetry::TelemetrySettings;

pub(crate) use check::{Depth, check};
pub(crate) use keys::KEYS;

/// Steps at the same time, unless the pool allows more: enough that vendors' limits decide, and not this process.
const STEP_SLOTS: usize = 1024;

/// The name of this process among others, in claims and in what it measures and logs.
pub(crate) fn instance() -> String {
    format!("podium-{}", std::process::id())
}

/// A checked setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Address of the HTTP server.
    pub(crate) listen: SocketAddr,
    /// Address of the gRPC server.
    pub(crate) grpc_listen: SocketAddr,
    /// Where metrics are shown; none: nowhere.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Whether who asks must show a key.
    pub(crate) keys_required: bool,
    /// What clients may take of the server.
    pub(crate) limits: ServerLimits,
    /// The folder that keeps the runs.
    pub(crate) data: PathBuf,
    /// The workers.
    pub(crate) pool: PoolChoice,
    /// Who plans.
    pub(crate) conductors: ConductorChoices,
    /// How long runs are kept after their end; none: for ever.
    pub(crate) runs_kept: Option<Duration>,
    /// How much the step cache remembers; none: there is none.
    pub(crate) step_cache: Option<CacheOptions>,
    /// Plans made at the same time, for each tier; none: as the conductor can take.
    pub(crate) plan_slots: Option<usize>,
    /// Steps run at the same time, for each vendor and tier; none: as the pool allows.
    pub(crate) step_slots: Option<usize>,
    /// What a model in this process may take.
    pub(crate) local: LocalLimits,
    /// How long work under way may still take at the end.
    pub(crate) drain: Duration,
    /// Where metrics are delivered.
    pub(crate) telemetry: TelemetrySettings,
    /// What is logged; the command knows the default.
    pub(crate) log: Option<String>,
    /// How it is logged.
    pub(crate) log_format: LogFormat,
}

impl Settings {
    /// Starts logging. `level` is what is logged where the settings do not say.
    pub(crate) fn start_log(&self, level: &str) {
        let instance = instance();
        let identity =
            Identity { service: "podium", version: env!("CARGO_PKG_VERSION"), instance: &instance };
        podium_setup::start_log(self.log.as_deref().unwrap_or(level), self.log_format, &identity);
    }

    /// Plans made at the same time, for each tier.
    pub(crate) fn plan_slots(&self) -> usize {
        self.plan_slots.unwrap_or_else(|| {
            let may_have_a_model =
                self.conductors.need_a_model_here() || self.conductors.current == ConductorChoice::Auto;
            values::plan_slots(may_have_a_model.then_some(self.local.sequences_max))
        })
    }

    /// Steps run at the same time, for each vendor and tier.
    pub(crate) fn step_slots(&self, pool: &Pool) -> usize {
        let of_workers = pool.workers().iter().map(|worker| worker.limits.in_flight_max as usize);
        self.step_slots.unwrap_or_else(|| of_workers.fold(STEP_SLOTS, usize::max).min(values::SLOTS_MAX))
    }
}

/// Which workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolChoice {
    /// Those of the demo: small programs in this process that play models.
    Demo,
    /// Those of a file.
    File(PathBuf),
}

#[cfg(test)]
mod tests;
