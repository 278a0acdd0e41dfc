//! `podium doctor`: checks everything that `podium serve` depends on, or runs the same check of a process of a cluster.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};
use podium_bundle::Bundle;
use podium_ports::causes::with_causes;
use podium_ports::clock::Clock as _;
use podium_setup::doctor::{Findings, Severity, check_machine, check_workers};
use podium_setup::settings::Flags;
use podium_setup::{SystemClock, VERSION};
use podium_vendors::{EnvironmentKeys, HttpVendors};

use super::output::print_line;
use super::sources;
use crate::data_dir::DataDir;
use crate::error::{Error, run_failed};
use crate::pool;
use crate::settings::{Depth, EngineFlags, Settings, check};

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// The process of a cluster to check instead of `podium serve`: its program is started with --doctor and the arguments after --.
    #[arg(value_enum, value_name = "PROCESS")]
    process: Option<ProcessName>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Read settings from this file, as `key = value` lines in TOML.
    #[arg(long, value_name = "FILE", conflicts_with = "process")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags<EngineFlags>,
    /// Arguments of the process, such as `--config FILE`.
    #[arg(last = true, value_name = "ARGUMENT", requires = "process")]
    arguments: Vec<OsString>,
}

/// A program of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ProcessName {
    /// podium-gateway
    Gateway,
    /// podium-planner
    Planner,
    /// podium-executor
    Executor,
}

impl ProcessName {
    const fn program(self) -> &'static str {
        match self {
            Self::Gateway => "podium-gateway",
            Self::Planner => "podium-planner",
            Self::Executor => "podium-executor",
        }
    }
}

pub(super) async fn doctor(args: DoctorArgs) -> Result<ExitCode, Error> {
    if let Some(process) = args.process {
        return Err(replace_by(process.program(), &args));
    }
    let mut sources = sources(args.config.as_deref());
    args.flags.read_into(&mut sources);
    let mut findings = Findings::default();
    match check(sources, Depth::Server) {
        Ok(settings) => diagnose(&mut findings, &settings).await,
        Err(error) => {
            for problem in error.0 {
                findings.error(
                    "settings",
                    problem,
                    "correct this key; `podium serve --print-keys` explains all keys",
                );
            }
        }
    }
    print_line(&if args.json { findings.json("podium", VERSION) } else { findings.to_string() })?;
    Ok(if findings.worst() < Severity::Error { ExitCode::SUCCESS } else { run_failed() })
}

/// Replaces this process by the program, which is next to this one or on the PATH. Returns only if that fails.
fn replace_by(program: &str, args: &DoctorArgs) -> Error {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(program));
    let path = beside.filter(|path| path.is_file()).unwrap_or_else(|| program.into());
    let mut command = Command::new(&path);
    command.arg("--doctor").args(args.json.then_some("--json")).args(&args.arguments);
    let source = command.exec();
    Error::Refused(format!(
        "{} cannot be started: {source}; run it with --doctor where it is installed",
        path.display()
    ))
}

async fn diagnose(findings: &mut Findings, settings: &Settings) {
    findings.ok("settings", "valid");
    check_pool(findings, settings);
    for folder in settings.conductors.bundles() {
        check_model(findings, folder);
    }
    check_data(findings, settings).await;
    check_machine(findings, &[settings.data.clone(), std::env::temp_dir()]);
}

fn check_pool(findings: &mut Findings, settings: &Settings) {
    let pool = match pool::read(&settings.pool) {
        Ok(pool) => pool,
        Err(error) => return findings.error("pool", with_causes(&error), "correct the pool file"),
    };
    let missing = match HttpVendors::new(&pool, &EnvironmentKeys) {
        Ok(vendors) => vendors.missing_secrets().collect(),
        Err(error) => {
            findings.error("pool", with_causes(&error), "correct the vendors of the pool file");
            Vec::new()
        }
    };
    check_workers(findings, &pool, &missing, SystemClock.now());
}

fn check_model(findings: &mut Findings, folder: &Path) {
    match Bundle::verify(folder) {
        Ok(bundle) => {
            let (id, files) = (bundle.manifest().id(), bundle.manifest().files().len());
            findings.ok("model", format!("{id}: {files} files match their checksums"));
        }
        Err(error) => {
            findings.error("model", with_causes(&error), "fetch the bundle again: `podium bundle fetch`");
        }
    }
}

/// Opens the database if there is one. A server may use it at the same time.
async fn check_data(findings: &mut Findings, settings: &Settings) {
    const PART: &str = "data";
    let path = match DataDir::shared_database(&settings.data) {
        Ok(path) => path,
        Err(error) => {
            return findings.error(
                PART,
                with_causes(&error),
                "give this user the folder, or name another with --data",
            );
        }
    };
    if !path.exists() {
        return findings.ok(PART, format!("{} has no database yet", settings.data.display()));
    }
    match podium_store_sqlite::Store::open(&path, podium_store_sqlite::Options::default()).await {
        Ok(store) => {
            store.close().await;
            findings.ok(PART, format!("{} can be opened and has all migrations", path.display()));
        }
        Err(error) => {
            let advice = "start the version that wrote it, or restore a backup (docs/guide/backup.md)";
            findings.error(PART, with_causes(&error), advice);
        }
    }
}
