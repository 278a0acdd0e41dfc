//! The command line of a cluster's processes, and their exit codes.

use std::error::Error as StdError;
use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches as _};
use podium_ports::BoxError;
use podium_ports::causes::causes;
use podium_setup::doctor::Severity;
use podium_setup::settings::{ProgramKeys, SettingsError, Sources, read_flags, with_all_flags};
use podium_setup::{Changes, changes, follow_settings};
use tokio::runtime::{Builder, Runtime};

use crate::doctor::{diagnose, of_invalid_settings};
use crate::{ClusterError, ClusterSettings, Role};

/// The variable from which tokio takes its number of threads.
const THREADS: &str = "TOKIO_WORKER_THREADS";
/// The exit code for invalid settings.
const USAGE: u8 = 2;

/// A program of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// A description for `--help`.
    pub about: &'static str,
    /// The kind of process.
    pub role: Role,
}

/// The checked settings of a program.
pub trait HasCluster {
    /// The settings of every process of a cluster.
    fn cluster(&self) -> &ClusterSettings;
}

const AFTER_HELP: &str = "Settings come from their defaults, the file of --config, the environment (PODIUM__KEY), the flags and --set; \
                          a later source replaces an earlier one. --print-keys prints a settings file that explains each key.";

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Arguments {
    /// Read settings from this file, as `key = value` lines in TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Check the settings, the pool, the conductor and the secrets as a start does, then exit.
    #[arg(long)]
    check_config: bool,
    /// Print a settings file with all keys, their defaults and their meaning, then exit.
    #[arg(long)]
    print_keys: bool,
    /// Check what the process depends on (settings, servers, schema, clock, models, keys, prices, limits of the machine), say what
    /// to do, then exit: with code 1 if there is an error. Changes nothing.
    #[arg(long)]
    doctor: bool,
    /// Print the findings of --doctor as one JSON document.
    #[arg(long, requires = "doctor")]
    json: bool,
}

impl Program {
    fn command(&self, keys: &ProgramKeys) -> Command {
        let command = Command::new(self.name).version(self.version).about(self.about).after_help(AFTER_HELP);
        with_all_flags(Arguments::augment_args(command), keys).max_term_width(110)
    }
}

/// Runs a process: reads its settings by `check`, then serves by `serve`, which gets the settings again each time that they change.
pub fn main<S: HasCluster, F: Future<Output = Result<(), ClusterError>>>(
    program: &Program,
    keys: &ProgramKeys,
    check: impl Fn(Sources) -> Result<S, SettingsError>,
    serve: impl FnOnce(S, Changes<S>) -> F,
) -> ExitCode {
    main_with_inspection(program, keys, check, |_| Ok(None), serve)
}

/// The same; under `--check-config` and `--doctor`, `inspect` also looks at the machine and reports what it finds, or what is missing.
pub fn main_with_inspection<S: HasCluster, F: Future<Output = Result<(), ClusterError>>>(
    program: &Program,
    keys: &ProgramKeys,
    check: impl Fn(Sources) -> Result<S, SettingsError>,
    inspect: impl FnOnce(&S) -> Result<Option<String>, BoxError>,
    serve: impl FnOnce(S, Changes<S>) -> F,
) -> ExitCode {
    let name = program.name;
    let matches = program.command(keys).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if arguments.print_keys {
        return if print(&keys.settings_file()) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // The one TLS provider, for everything that speaks TLS. A second call (tests) changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = match check(sources(&arguments, &matches, keys)) {
        settings if arguments.doctor => return doctor(program, &arguments, settings, inspect),
        Ok(settings) => settings,
        Err(error) => {
            complain(name, &error);
            return ExitCode::from(USAGE);
        }
    };
    if arguments.check_config {
        return match inspect(&settings) {
            Ok(found) => {
                let found = found.map(|line| format!("{line}\n")).unwrap_or_default();
                print(&format!("the settings are valid\n{found}"));
                ExitCode::SUCCESS
            }
            Err(error) => {
                complain(name, &*error);
                ExitCode::from(USAGE)
            }
        };
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(name, &error);
            return ExitCode::FAILURE;
        }
    };
    let (announcer, changes) = changes();
    let read = || {
        let settings = check(sources(&arguments, &matches, keys))?;
        let followed = settings.cluster().followed();
        Ok::<_, SettingsError>((settings, followed))
    };
    let follow = follow_settings(arguments.config.clone(), settings.cluster().followed(), read, announcer);
    let served = runtime.block_on(async {
        tokio::select! {
            served = serve(settings, changes) => served,
            // It ends only where the system has no such signal.
            served = async { follow.await; std::future::pending().await } => served,
        }
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(name, &error);
            ExitCode::FAILURE
        }
    }
}

/// Prints the findings about these settings and everything that they name.
fn doctor<S: HasCluster>(
    program: &Program,
    arguments: &Arguments,
    settings: Result<S, SettingsError>,
    inspect: impl FnOnce(&S) -> Result<Option<String>, BoxError>,
) -> ExitCode {
    let findings = match (settings, runtime()) {
        (Err(error), _) => of_invalid_settings(&error),
        (Ok(_), Err(error)) => {
            complain(program.name, &error);
            return ExitCode::FAILURE;
        }
        (Ok(settings), Ok(runtime)) => {
            let inspected = inspect(&settings);
            runtime.block_on(diagnose(settings.cluster(), program.role, inspected))
        }
    };
    let shown =
        if arguments.json { findings.json(program.name, program.version) } else { findings.to_string() };
    let is_well = print(&format!("{shown}\n")) && findings.worst() < Severity::Error;
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A runtime with a thread for each two processors, unless `TOKIO_WORKER_THREADS` says otherwise.
///
/// A run is a chain of short pieces of work in many processes, so a process with more threads than work spends its time on waking
/// them. On two processors, one thread takes a tenth less CPU time than two.
fn runtime() -> io::Result<Runtime> {
    let threads = match std::env::var(THREADS) {
        Ok(text) => {
            let threads = text.parse::<NonZero<usize>>();
            let wrong = |_| io::Error::other(format!("{THREADS} is `{text}`, it must be a number above 0"));
            threads.map_err(wrong)?.get()
        }
        Err(_) => std::thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2),
    };
    Builder::new_multi_thread().worker_threads(threads).enable_all().build()
}

fn sources(arguments: &Arguments, matches: &ArgMatches, keys: &ProgramKeys) -> Sources {
    let mut sources = Sources::new(keys);
    if let Some(file) = &arguments.config {
        sources.read_file(file);
    }
    sources.read_own_environment();
    read_flags(matches, keys, &mut sources);
    arguments.set.iter().for_each(|text| sources.set(text));
    sources
}

/// Writes to standard output. Returns whether that succeeded; a closed pipe is no error.
fn print(text: &str) -> bool {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) => error.kind() == io::ErrorKind::BrokenPipe,
        Ok(()) => true,
    }
}

fn complain(name: &str, error: &dyn StdError) {
    eprintln!("{name}: {error}");
    for cause in causes(error) {
        eprintln!("  because: {cause}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_the_settings_of_the_process() {
        let program =
            Program { name: "podium-x", version: "1.2.3", about: "Does one thing.", role: Role::Executor };
        let mut command = program.command(&crate::program_keys("podium-x", &[]));
        command.clone().debug_assert();
        let help = command.render_help().to_string();
        assert!(help.starts_with("Does one thing.") && help.contains("--print-keys"), "{help}");
        assert!(help.contains("--lease-ms <NUMBER>"), "{help}");
    }
}
