//! Turns values as they were written into a checked setup.

use std::path::PathBuf;

use podium_ports::conductor::LocalLimits;
use podium_setup::conductor::ConductorChoices;
use podium_setup::settings::{Checker, SettingsError, Sources, hardware, server_limits, step_cache, values};
use podium_telemetry::TelemetrySettings;

use super::{PoolChoice, Settings};

/// Checks everything.
pub(crate) fn check(sources: Sources) -> Result<Settings, SettingsError> {
    let mut checker = sources.into_checker();
    let [listen, grpc_listen, metrics_listen] = checker.listen(["listen", "grpc_listen", "metrics_listen"]);
    let keys_required = checker.read("keys_required", values::yes_or_no);
    let limits = server_limits(&mut checker);
    let data = data(&mut checker);
    let pool = checker.read("pool", pool);
    let conductors = ConductorChoices::read(&mut checker, values::conductor);
    let runs_kept = checker.read("runs_kept", values::runs_kept);
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

fn pool(text: &str) -> Result<PoolChoice, String> {
    match text {
        "" => Err("is empty, it must be `demo` or a pool file".to_owned()),
        "demo" => Ok(PoolChoice::Demo),
        path => Ok(PoolChoice::File(path.into())),
    }
}
