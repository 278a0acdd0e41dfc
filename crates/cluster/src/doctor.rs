//! `--doctor`: checks everything that a process of a cluster depends on, from its own settings, and says what to do.
//!
//! It reads only: it applies no migration, creates no stream and calls no vendor. Each check has a time limit, and one that fails
//! does not keep the others from running.

mod servers;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::path::PathBuf;

use podium_ports::causes::with_causes;
use podium_ports::clock::Clock as _;
use podium_setup::SystemClock;
use podium_setup::doctor::{Findings, check_machine, check_workers};
use podium_setup::settings::SettingsError;
use podium_vendors::{EnvironmentKeys, HttpVendors};

use crate::Role;
use crate::settings::ClusterSettings;

/// The state of the hardware that computes a local model, or what is missing; `None` without a local model.
pub(crate) type Inspected = Result<Option<String>, podium_ports::BoxError>;

/// The findings about settings that cannot be used. Nothing else can be checked without them.
pub(crate) fn of_invalid_settings(error: &SettingsError) -> Findings {
    let mut findings = Findings::default();
    for problem in &error.0 {
        findings.error("settings", problem.clone(), "correct this key; --print-keys explains every key");
    }
    findings
}

/// Checks everything that a process with these settings depends on.
pub(crate) async fn diagnose(settings: &ClusterSettings, role: Role, inspected: Inspected) -> Findings {
    let mut findings = Findings::default();
    findings.ok("settings", "valid");
    if !settings.unused.is_empty() {
        let unused = settings.unused.join(", ");
        findings.warning(
            "settings",
            format!("this process does not use {unused}"),
            "remove or rename these keys",
        );
    }
    servers::check_postgres(&mut findings, settings).await;
    servers::check_nats(&mut findings, settings).await;
    if role != Role::Gateway {
        servers::check_redis(&mut findings, settings).await;
    }
    check_pool(&mut findings, settings, role);
    match (role, inspected) {
        (Role::Planner, inspected) => check_models(&mut findings, settings, inspected),
        // A gateway inspects its own settings only.
        (_, Ok(Some(warning))) => {
            findings.warning("settings", warning, "change these settings unless you meant them");
        }
        (_, Ok(None)) => {}
        (_, Err(error)) => findings.error("settings", with_causes(&*error), "change these settings"),
    }
    // The processes of a cluster write no files; the folder of temporary files is for their libraries.
    check_machine(&mut findings, &[std::env::temp_dir()]);
    findings
}

/// Only processes that call workers need their keys.
fn check_pool(findings: &mut Findings, settings: &ClusterSettings, role: Role) {
    let calls = role == Role::Executor || (role == Role::Planner && settings.conductors.call_a_model());
    let missing: Vec<_> = match HttpVendors::new(&settings.pool, &EnvironmentKeys) {
        Ok(vendors) if calls => vendors.missing_secrets().collect(),
        Ok(_) => Vec::new(),
        Err(error) => {
            findings.error("pool", with_causes(&error), "correct the vendors of the pool file");
            Vec::new()
        }
    };
    check_workers(findings, &settings.pool, &missing, SystemClock.now());
}

fn check_models(findings: &mut Findings, settings: &ClusterSettings, inspected: Inspected) {
    let conductors = settings.conductors.to_string();
    let bundles: Vec<PathBuf> = settings.conductors.bundles().map(PathBuf::from).collect();
    if bundles.is_empty() {
        findings.ok("conductor", format!("{conductors}, without a model in this process"));
    }
    for folder in bundles {
        match podium_bundle::Bundle::verify(&folder) {
            Ok(bundle) => {
                let manifest = bundle.manifest();
                let files = manifest.files().len();
                findings.ok("model", format!("{}: {files} files match their checksums", manifest.id()));
            }
            Err(error) => findings.error(
                "model",
                with_causes(&error),
                "copy the bundle again; `podium bundle verify FOLDER` checks it",
            ),
        }
    }
    match inspected {
        Ok(None) => {}
        Ok(Some(found)) => findings.ok("hardware", joined(&found)),
        Err(error) => findings.error(
            "hardware",
            with_causes(&*error),
            "set gpu_layers = \"0\", or give the process a GPU that its driver shows (`nvidia-smi`)",
        ),
    }
}

/// Lines as one.
fn joined(lines: &str) -> String {
    lines.lines().map(str::trim).fold(String::new(), |mut all, line| {
        let comma = if all.is_empty() { "" } else { "; " };
        // Writing to a string cannot fail.
        let _ = write!(all, "{comma}{line}");
        all
    })
}
