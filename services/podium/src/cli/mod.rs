//! The command line: commands, flags and exit codes.

mod accounts;
mod admin;
mod ask;
mod attachment;
mod backend;
mod budget;
mod bundle;
mod compare;
mod doctor;
#[cfg(test)]
mod documents;
mod estimate;
mod eval;
mod fetch;
mod head;
mod key;
mod migrate;
mod outcomes;
mod output;
mod plan;
mod pool;
mod record;
mod rollout;
mod runs;
mod top;
mod workflow_outcomes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use podium_domain::policy::{Effort, Tier};
use podium_setup::settings::{Flags, SettingsError, Sources};
use podium_setup::{Followed, VERSION, changes, follow_settings};

use crate::error::{self, Error};
use crate::settings::{DataFlags, Depth, EngineFlags, ServerFlags, Settings, check, keys};
use crate::{demo, serve};

pub(crate) use ask::{Drawn, draw_run};
pub(crate) use backend::{Backend, question_request};
pub(crate) use output::print_line;

const SOURCES_HELP: &str = "A setting is its default, the value of the file of --config, of the environment (PODIUM__KEY), of its flag, or of --set; a \
                            later source replaces an earlier one.";

/// Answers questions with many models behind one API: a conductor plans each question as a workflow over a pool of workers.
#[derive(Debug, Parser)]
#[command(name = "podium", version = VERSION, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the OpenAI-compatible HTTP API and gRPC, with everything in this process.
    #[command(after_help = SOURCES_HELP)]
    Serve(ServeArgs),
    /// Ask a question, draw its workflow while it runs, then print the answer.
    Ask(ask::AskArgs),
    /// Plan a question without running the plan. Plans in this process, not in a server; `podium runs show` shows a server's plans.
    Plan(plan::PlanArgs),
    /// Estimate the cost of a question without running it.
    Estimate(estimate::EstimateArgs),
    /// List, show, cancel and rate runs.
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// Check pools of workers.
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Create, list and revoke the keys of tenants.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Set, show, correct and remove budgets of tenants and keys.
    #[command(subcommand)]
    Budget(budget::BudgetCommand),
    /// Check everything that a server or a process depends on, and say what to do.
    Doctor(doctor::DoctorArgs),
    /// Look at the work of all tenants, and repair it. For operators: needs access to the database.
    #[command(subcommand)]
    Admin(admin::AdminCommand),
    /// Show lanes, runs, reserved money and vendors, again and again. For operators: needs access to the database.
    Top(top::TopArgs),
    /// Apply pending migrations to a cluster's database.
    Migrate(migrate::MigrateArgs),
    /// Show, check, fetch and pack conductors' bundles.
    #[command(subcommand)]
    Bundle(bundle::BundleCommand),
    /// Ask every question of a file and count the right answers.
    Eval(eval::EvalArgs),
    /// Run and grade the plans of a conductor in training, for reinforcement learning: JSON lines in, JSON lines out.
    Rollout(rollout::RolloutArgs),
    /// Train and measure mini heads, which choose a worker without a plan.
    #[command(subcommand)]
    Head(head::HeadCommand),
    /// Ask one question that needs a workflow, over simulated workers, and check the answer.
    Demo(demo::DemoArgs),
}

/// Options of every command with an engine.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SetupArgs {
    /// Read settings from this file, as `key = value` lines in TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags<EngineFlags>,
}

impl SetupArgs {
    /// The same with this flag.
    pub(crate) fn with(self, key: &'static str, value: String) -> Self {
        Self { flags: self.flags.with(key, value), ..self }
    }

    /// Whether a flag names something that only an engine in this process can use.
    fn names_an_engine(&self) -> bool {
        ["data", "pool", "conductor", "conductor_next", "conductor_max"]
            .iter()
            .any(|key| self.flags.get(key).is_some())
    }

    /// The checked settings.
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        let mut sources = sources(self.config.as_deref());
        self.flags.read_into(&mut sources);
        Ok(check(sources, Depth::Values)?)
    }
}

/// Options of a command that reads a data folder and plans nothing.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DataArgs {
    /// Read settings from this file, as `key = value` lines in TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags<DataFlags>,
    /// Unused; accepted so that every command takes the flags of `podium ask`.
    #[arg(long, hide = true)]
    pool: Option<String>,
    /// As `pool`.
    #[arg(long, hide = true)]
    conductor: Option<String>,
}

impl DataArgs {
    /// Whether a flag names the data folder.
    pub(crate) fn names_a_folder(&self) -> bool {
        self.flags.get("data").is_some()
    }

    /// The checked settings.
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        let mut sources = sources(self.config.as_deref());
        self.flags.read_into(&mut sources);
        sources.flag("pool", self.pool.as_deref());
        sources.flag("conductor", self.conductor.as_deref());
        Ok(check(sources, Depth::Values)?)
    }
}

/// The defaults, the file and the environment.
fn sources(config: Option<&Path>) -> Sources {
    let mut sources = Sources::new(&keys());
    if let Some(file) = config {
        sources.read_file(file);
    }
    sources.read_own_environment();
    sources
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Read settings from this file, as `key = value` lines in TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags<ServerFlags>,
    /// Set one key. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Check the settings, the pool and the conductor as a start does, then exit.
    #[arg(long)]
    check_config: bool,
    /// Print a settings file with all keys, their defaults and their meaning, then exit.
    #[arg(long)]
    print_keys: bool,
}

impl ServeArgs {
    fn settings(&self) -> Result<Settings, Error> {
        Ok(self.settings_again()?.0)
    }

    /// The settings as they are now, checked as at a start.
    fn settings_again(&self) -> Result<(Settings, Followed), SettingsError> {
        let mut sources = sources(self.config.as_deref());
        self.flags.read_into(&mut sources);
        self.set.iter().for_each(|text| sources.set(text));
        let settings = check(sources, Depth::Server)?;
        let followed = settings.followed();
        Ok((settings, followed))
    }
}

/// The tier of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TierName {
    /// Latency: one worker.
    Mini,
    /// Quality: a workflow.
    Ultra,
}

impl From<TierName> for Tier {
    fn from(name: TierName) -> Self {
        match name {
            TierName::Mini => Self::Mini,
            TierName::Ultra => Self::Ultra,
        }
    }
}

/// The effort of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EffortName {
    /// At most two steps.
    Low,
    /// As many steps as the tier allows.
    Medium,
    /// As medium, and workers that support it reason more.
    High,
    /// A second round may correct the first.
    Xhigh,
}

impl From<EffortName> for Effort {
    fn from(name: EffortName) -> Self {
        match name {
            EffortName::Low => Self::Low,
            EffortName::Medium => Self::Medium,
            EffortName::High => Self::High,
            EffortName::Xhigh => Self::XHigh,
        }
    }
}

/// Runs the command that the process' arguments name.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    #[cfg(feature = "llama")]
    die_quietly();
    // The TLS provider of the whole process. A second installation finds the first one and has no effect.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(Box::pin(run(cli.command)));
            // The process does not wait for pending file operations or name look-ups.
            runtime.shutdown_background();
            outcome
        }
        Err(source) => Err(Error::System { what: "cannot start the runtime", source }),
    };
    outcome.unwrap_or_else(|error| {
        error::print(&error);
        error.exit_code()
    })
}

/// llama.cpp runs a debugger on its own process before it aborts, unless the environment forbids it from the start. So the process
/// replaces itself once, with that variable set. If that fails, it continues without it.
#[cfg(feature = "llama")]
fn die_quietly() {
    use std::os::unix::process::CommandExt as _;

    const NO_BACKTRACE: &str = "GGML_NO_BACKTRACE";
    let mut arguments = std::env::args_os();
    if let (None, Ok(program), Some(name)) =
        (std::env::var_os(NO_BACKTRACE), std::env::current_exe(), arguments.next())
    {
        let mut again = std::process::Command::new(program);
        // Returns only if it fails.
        let _ = again.arg0(name).args(arguments).env(NO_BACKTRACE, "1").exec();
    }
}

async fn run(command: Command) -> Result<ExitCode, Error> {
    match command {
        Command::Serve(args) if args.print_keys => {
            print_line(keys().settings_file().trim_end()).map(|()| ExitCode::SUCCESS)
        }
        Command::Serve(args) if args.check_config => serve::report(&args.settings()?),
        Command::Serve(args) => {
            let settings = args.settings()?;
            let (announcer, changes) = changes();
            let read = || args.settings_again();
            let follow = follow_settings(args.config.clone(), settings.followed(), read, announcer);
            tokio::select! {
                served = serve::serve(settings, changes) => served,
                // It ends only where the system has no such signal.
                never = async { follow.await; std::future::pending().await } => never,
            }
        }
        Command::Ask(args) => ask::ask(args).await,
        Command::Plan(args) => plan::plan(args).await,
        Command::Runs(command) => runs::runs(command).await,
        Command::Pool(command) => pool::pool(command).await,
        Command::Estimate(args) => estimate::estimate(args).await,
        Command::Key(command) => key::key(command).await,
        Command::Budget(command) => budget::budget(command).await,
        Command::Doctor(args) => doctor::doctor(args).await,
        Command::Admin(command) => admin::admin(command).await,
        Command::Top(args) => top::top(args).await,
        Command::Migrate(args) => migrate::migrate(args).await,
        Command::Bundle(command) => bundle::bundle(&command).await,
        Command::Eval(args) => eval::eval(args).await,
        Command::Rollout(args) => rollout::rollout(args).await,
        Command::Head(command) => head::head(command).await,
        Command::Demo(args) => demo::demo(args).await,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
