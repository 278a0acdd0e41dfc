//! What is the same for every process of a cluster: its command line, its way to the exit code, its end.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use podium_ports::BoxError;
use podium_setup::Signals;
use podium_setup::settings::{Key, SettingsError, Sources};
use tokio::runtime::{Builder, Runtime};
use tracing::{info, warn};

use crate::ClusterError;

/// The exit code after a second signal, as shells count an interrupt.
const INTERRUPTED: i32 = 130;
/// What tokio asks for how many threads it is to have.
const THREADS: &str = "TOKIO_WORKER_THREADS";
/// The exit code for a setup that is wrong.
const USAGE: u8 = 2;

/// The command line of every process of a cluster. Settings come from defaults, the file, the environment
/// (`PODIUM__KEY`) and `--set`, in rising order.
#[derive(Debug, Parser)]
struct Arguments {
    /// Read settings from this file, as `key = value` lines in TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Check the settings and the pool, and stop.
    #[arg(long)]
    check_config: bool,
    /// Print the keys with their defaults, and stop.
    #[arg(long)]
    print_keys: bool,
    /// Print the version, and stop.
    #[arg(long)]
    version: bool,
}

/// Runs a process: reads its settings by `check`, then serves by `serve`.
pub fn main<S, F: Future<Output = Result<(), ClusterError>>>(
    name: &str,
    version: &str,
    keys: &[Key],
    check: impl FnOnce(Sources) -> Result<S, SettingsError>,
    serve: impl FnOnce(S) -> F,
) -> ExitCode {
    main_with_inspection(name, version, keys, check, |_| Ok(None), serve)
}

/// The same; under `--check-config`, `inspect` also looks at the machine, and says what it finds or what is missing.
pub fn main_with_inspection<S, F: Future<Output = Result<(), ClusterError>>>(
    name: &str,
    version: &str,
    keys: &[Key],
    check: impl FnOnce(Sources) -> Result<S, SettingsError>,
    inspect: impl FnOnce(&S) -> Result<Option<String>, BoxError>,
    serve: impl FnOnce(S) -> F,
) -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.version {
        println(&format!("{name} {version}"));
        return ExitCode::SUCCESS;
    }
    if arguments.print_keys {
        for (key, default) in keys {
            println(&format!("{key} = {}", default.unwrap_or("(no default)")));
        }
        return ExitCode::SUCCESS;
    }
    let settings = match check(sources(&arguments, keys)) {
        Ok(settings) => settings,
        Err(error) => {
            complain(name, &error);
            return ExitCode::from(USAGE);
        }
    };
    if arguments.check_config {
        return match inspect(&settings) {
            Ok(found) => {
                println("the configuration is right");
                if let Some(line) = found {
                    println(&line);
                }
                ExitCode::SUCCESS
            }
            Err(error) => {
                complain(name, &*error);
                ExitCode::from(USAGE)
            }
        };
    }
    // The one TLS provider, for everything that speaks TLS. A second call (tests) changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(name, &error);
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(serve(settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(name, &error);
            ExitCode::FAILURE
        }
    }
}

/// A runtime with a thread for each two processors, unless `TOKIO_WORKER_THREADS` says otherwise.
///
/// A run's way is a chain of short stretches of work in many processes: whoever has more threads than work mostly wakes them. On
/// two processors one thread takes a tenth less of their time than two.
fn runtime() -> io::Result<Runtime> {
    let threads = match std::env::var(THREADS) {
        Ok(text) => {
            let threads = text.parse::<NonZero<usize>>();
            let wrong = |_| io::Error::other(format!("{THREADS} is `{text}`, it must be a number from 1 on"));
            threads.map_err(wrong)?.get()
        }
        Err(_) => std::thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2),
    };
    Builder::new_multi_thread().worker_threads(threads).enable_all().build()
}

fn sources(arguments: &Arguments, keys: &[Key]) -> Sources {
    let mut sources = Sources::new(keys);
    if let Some(file) = &arguments.config {
        sources.read_file(file);
    }
    let variables = std::env::vars_os();
    sources.read_environment(
        variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    arguments.set.iter().for_each(|text| sources.set(text));
    sources
}

#[expect(clippy::print_stdout, reason = "what was asked for on the command line")]
fn println(line: &str) {
    println!("{line}");
}

fn complain(name: &str, error: &dyn StdError) {
    eprintln!("{name}: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprintln!("  because: {cause}");
        source = cause.source();
    }
}

/// Waits for the first signal, or for a breakdown.
pub async fn first_signal(
    signals: &mut Signals,
    broke_down: impl Future<Output = ClusterError>,
) -> Result<(), ClusterError> {
    tokio::select! {
        name = signals.next() => {
            info!(signal = name, "stopping");
            Ok(())
        }
        error = broke_down => Err(error),
    }
}

/// Stops; a second signal ends the process at once.
pub async fn stop_or_second_signal(signals: &mut Signals, stop: impl Future<Output = ()>) {
    tokio::select! {
        () = stop => info!("stopped"),
        name = signals.next() => {
            warn!(signal = name, "ending at once; others take over what was under way");
            std::process::exit(INTERRUPTED);
        }
    }
}
