//! Checks the settings.

use std::path::PathBuf;
use std::sync::Arc;

use podium_planning::{CONDUCTOR, ConductorChoices, PLAN_SLOTS, Place, local_limits};
use podium_ports::causes::with_causes;
use podium_server::ServerTls;
use podium_setup::settings::client_limits::client_limits;
use podium_setup::settings::engine::{DRAIN, RUNS_KEPT, STEP_SLOTS};
use podium_setup::settings::listeners::{
    API_HEALTH_LISTEN, DRAIN_DELAY, GRPC_LISTEN, KEYS_REQUIRED, LISTEN, METRICS_LISTEN,
};
use podium_setup::settings::log::{LOG, LOG_FORMAT};
use podium_setup::settings::step_cache::step_cache;
use podium_setup::settings::tls::tls_files;
use podium_setup::settings::{Checker, SettingsError, Sources};
use podium_telemetry::TelemetrySettings;
use podium_vendors::{EnvironmentKeys, HttpVendors};

use super::keys::{DATA, POOL};
use super::{PoolChoice, Settings};
use crate::{OPEN_BUNDLE, pool};

/// The depth of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Each value by itself, for commands that may need neither pool nor conductor.
    Values,
    /// The pool and the conductors as well, as a server needs them.
    Server,
}

/// Checks all settings.
pub(crate) fn check(sources: Sources, depth: Depth) -> Result<Settings, SettingsError> {
    let mut checker = sources.into_checker();
    let [listen, grpc_listen, metrics_listen, health_listen] =
        checker.listen([&LISTEN, &GRPC_LISTEN, &METRICS_LISTEN, &API_HEALTH_LISTEN]);
    let drain_delay = checker.read(&DRAIN_DELAY);
    let tls = tls_files(&mut checker);
    if depth == Depth::Server
        && let Some(Err(error)) = tls.clone().map(ServerTls::load)
    {
        checker.problem(error.setting(), error.problem());
    }
    let keys_required = checker.read(&KEYS_REQUIRED);
    let limits = client_limits(&mut checker);
    let data = data(&mut checker);
    let pool = checker.read(&POOL);
    let conductors = ConductorChoices::read(&mut checker, &CONDUCTOR);
    if depth == Depth::Server
        && let (Some(pool), Some(conductors)) = (&pool, &conductors)
    {
        together(&mut checker, pool, conductors);
    }
    let runs_kept = checker.read(&RUNS_KEPT);
    let plan_slots = checker.read_if_given(&PLAN_SLOTS);
    let step_slots = checker.read_if_given(&STEP_SLOTS);
    let local = local_limits(&mut checker);
    let step_cache = step_cache(&mut checker);
    let drain = checker.read(&DRAIN);
    let telemetry = TelemetrySettings::read(&mut checker);
    let log = checker.read_if_given(&LOG);
    let log_format = checker.read(&LOG_FORMAT);
    let settings = || {
        Some(Settings {
            listen: listen?,
            grpc_listen: grpc_listen?,
            metrics_listen,
            health_listen,
            drain_delay: drain_delay?,
            tls,
            keys_required: keys_required?,
            limits: limits?,
            data: data?,
            pool: pool?,
            conductors: conductors?,
            runs_kept: runs_kept?,
            step_cache: step_cache?,
            plan_slots,
            step_slots,
            local: local?,
            drain: drain?,
            telemetry,
            log,
            log_format: log_format?,
        })
    };
    checker.finish(settings())
}

fn data(checker: &mut Checker) -> Option<PathBuf> {
    if checker.has_value(&DATA) {
        return checker.read(&DATA);
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    if folder.is_none() {
        checker
            .problem(DATA.key.name, "has no default, as neither XDG_DATA_HOME nor HOME is set; pass --data");
    }
    folder.map(|folder| folder.join("podium"))
}

/// Checks the pool file, its vendors, and the conductors against it.
fn together(checker: &mut Checker, choice: &PoolChoice, conductors: &ConductorChoices) {
    let pool = match pool::read(choice) {
        Ok(pool) => Arc::new(pool),
        Err(error) => return checker.problem(POOL.key.name, &format!("is invalid: {}", with_causes(&error))),
    };
    if let Err(error) = HttpVendors::new(&pool, &EnvironmentKeys) {
        checker.problem(POOL.key.name, &format!("has vendors that cannot be used: {}", with_causes(&error)));
    }
    conductors.check(checker, &pool, Place::Here(OPEN_BUNDLE));
}
