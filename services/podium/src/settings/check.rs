//! Turns values as they were written into a checked setup.

use std::path::PathBuf;
use std::sync::Arc;

use podium_bundle::LocalLimits;
use podium_setup::conductor::{ConductorChoices, Place};
use podium_setup::settings::{Checker, SettingsError, Sources, hardware, server_limits, step_cache, values};
use podium_setup::with_causes;
use podium_telemetry::TelemetrySettings;
use podium_vendors::{EnvironmentKeys, HttpVendors};

use super::{PoolChoice, Settings};
use crate::{OPEN_BUNDLE, pool};

/// How much is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Each value by itself, for commands that may need no pool and no conductor.
    Values,
    /// The pool and the conductors as well, as a server needs them.
    Server,
}

/// Checks everything.
pub(crate) fn check(sources: Sources, depth: Depth) -> Result<Settings, SettingsError> {
    let mut checker = sources.into_checker();
    let [listen, grpc_listen, metrics_listen] = checker.listen(["listen", "grpc_listen", "metrics_listen"]);
    let keys_required = checker.read("keys_required", values::yes_or_no);
    let limits = server_limits(&mut checker);
    let data = data(&mut checker);
    let pool = checker.read("pool", pool_choice);
    let conductors = ConductorChoices::read(&mut checker, values::conductor);
    if depth == Depth::Server
        && let (Some(pool), Some(conductors)) = (&pool, &conductors)
    {
        together(&mut checker, pool, conductors);
    }
    let runs_kept = checker.read("runs_kept", values::runs_kept);
    let plan_slots = checker.read_if_given("plan_slots", values::slots);
    let step_slots = checker.read_if_given("step_slots", values::slots);
    let sequences_max = checker.read("plan_sequences", values::plan_sequences);
    let waiting_max = checker.read("plans_waiting_max", values::plans_waiting_max);
    let hardware = hardware(&mut checker);
    let step_cache = step_cache(&mut checker);
    let drain = checker.read("drain_ms", values::drain);
    let telemetry = TelemetrySettings::read(&mut checker);
    let log = checker.read_if_given("log", values::log_filter);
    let log_format = checker.read("log_format", values::log_format);
    let settings = || {
        Some(Settings {
            listen: listen?,
            grpc_listen: grpc_listen?,
            metrics_listen,
            keys_required: keys_required?,
            limits: limits?,
            data: data?,
            pool: pool?,
            conductors: conductors?,
            runs_kept: runs_kept?,
            step_cache: step_cache?,
            plan_slots,
            step_slots,
            local: LocalLimits {
                sequences_max: sequences_max?,
                waiting_max: waiting_max?,
                hardware: hardware?,
            },
            drain: drain?,
            telemetry,
            log,
            log_format: log_format?,
        })
    };
    checker.finish(settings())
}

fn data(checker: &mut Checker) -> Option<PathBuf> {
    if let Some(value) = checker.written("data") {
        let path = PathBuf::from(value);
        if value.is_empty() {
            checker.problem("data", "is empty, it must be a folder");
        }
        return Some(path);
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    if folder.is_none() {
        checker.problem("data", "has no default, as neither XDG_DATA_HOME nor HOME is set; pass --data");
    }
    folder.map(|folder| folder.join("podium"))
}

/// Checks the pool file, its vendors, and the conductors against it.
fn together(checker: &mut Checker, choice: &PoolChoice, conductors: &ConductorChoices) {
    let pool = match pool::read(choice) {
        Ok(pool) => Arc::new(pool),
        Err(error) => return checker.problem("pool", &format!("is invalid: {}", with_causes(&error))),
    };
    if let Err(error) = HttpVendors::new(&pool, &EnvironmentKeys) {
        checker.problem("pool", &format!("has vendors that cannot be used: {}", with_causes(&error)));
    }
    conductors.check(checker, &pool, Place::Here(OPEN_BUNDLE));
}

fn pool_choice(text: &str) -> Result<PoolChoice, String> {
    match text {
        "" => Err("is empty, it must be `demo` or a pool file".to_owned()),
        "demo" => Ok(PoolChoice::Demo),
        path => Ok(PoolChoice::File(path.into())),
    }
}
