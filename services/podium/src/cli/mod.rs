//! The command line: what can be asked, and the way from there to the exit code.

mod accounts;
mod ask;
mod backend;
mod budget;
mod bundle;
mod estimate;
mod eval;
mod head;
mod key;
mod migrate;
mod outcomes;
mod output;
mod picture;
mod plan;
mod pool;
mod record;
mod runs;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use podium_domain::policy::{Effort, Tier};
use podium_setup::settings::{Sources, listing};

use crate::error::{self, Error};
use crate::settings::{Depth, KEYS, Settings, check};
use crate::{demo, serve};

pub(crate) use ask::{Drawn, draw_run};
pub(crate) use backend::{Backend, question_request};
pub(crate) use output::print_line;

/// Many models behind one: a conductor plans each question as a workflow over a pool of workers.
#[derive(Debug, Parser)]
#[command(name = "podium", version, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the OpenAI-compatible HTTP API and gRPC, everything in this process.
    Serve(ServeArgs),
    /// Ask a question; draw its workflow while it runs, then print the answer.
    Ask(ask::AskArgs),
    /// Let the conductor plan a question, and run nothing. Plans in this process, not in a server; `podium runs show` shows a
    /// server's plans.
    Plan(plan::PlanArgs),
    /// Estimate the cost of a question, and run nothing.
    Estimate(estimate::EstimateArgs),
    /// List, show, cancel and rate runs.
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// Look at pools of workers.
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Make, list and revoke the keys of tenants.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Set budgets of tenants and keys, and see what was spent.
    #[command(subcommand)]
    Budget(budget::BudgetCommand),
    /// Apply pending migrations to a cluster's database.
    Migrate(migrate::MigrateArgs),
    /// Look at conductors' bundles, check them, make them.
    #[command(subcommand)]
    Bundle(bundle::BundleCommand),
    /// Ask every question of a file and count the right answers.
    Eval(eval::EvalArgs),
    /// Train and measure mini heads, which choose a worker without a plan.
    #[command(subcommand)]
    Head(head::HeadCommand),
    /// Ask one question that needs a workflow, over simulated workers, and check the answer.
    Demo(demo::DemoArgs),
}

/// Options that every command with an engine has.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SetupArgs {
    /// Read settings from this file, as `key = value` lines in TOML.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Keep runs in this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<String>,
    /// The workers: a pool file, or `demo` for the simulated ones.
    #[arg(long, value_name = "FILE")]
    pub(crate) pool: Option<String>,
    /// Who plans: auto, llama:FOLDER, worker:WORKER, model:FILE#WORKER, remote:URL#MODEL, fixed:FILE, direct or direct:WORKER.
    #[arg(long, value_name = "CONDUCTOR")]
    pub(crate) conductor: Option<String>,
    /// Who is to follow the conductor: both are loaded, and each run goes to one of them.
    #[arg(long, value_name = "CONDUCTOR")]
    pub(crate) conductor_next: Option<String>,
    /// Its share of the runs that name no conductor, 0 to 1 [default: 0].
    #[arg(long, value_name = "SHARE")]
    pub(crate) conductor_next_share: Option<String>,
    /// What to log: a level, or a list such as `info,podium_engine=debug`.
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

impl SetupArgs {
    fn sources(&self) -> Sources {
        let mut sources = Sources::new(KEYS);
        if let Some(file) = &self.config {
            sources.read_file(file);
        }
        sources.read_environment(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        );
        sources.flag("data", self.data.as_deref());
        sources.flag("pool", self.pool.as_deref());
        sources.flag("conductor", self.conductor.as_deref());
        sources.flag("conductor_next", self.conductor_next.as_deref());
        sources.flag("conductor_next_share", self.conductor_next_share.as_deref());
        sources.flag("log", self.log.as_deref());
        sources
    }

    /// Whether a flag names what only an engine in this process can heed.
    fn names_an_engine(&self) -> bool {
        self.data.is_some()
            || self.pool.is_some()
            || self.conductor.is_some()
            || self.conductor_next.is_some()
    }

    /// The checked setup.
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        Ok(check(self.sources(), Depth::Values)?)
    }
}

/// Options of a command that reads a data folder and plans nothing.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DataArgs {
    /// Read settings from this file, as `key = value` lines in TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read and write this data folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<String>,
    /// What to log: a level, or a list such as `info,podium_engine=debug`.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Of no use here; accepted so that every command takes the flags of `podium ask`.
    #[arg(long, hide = true)]
    pool: Option<String>,
    /// As `pool`.
    #[arg(long, hide = true)]
    conductor: Option<String>,
}

impl DataArgs {
    /// The checked setup.
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        let Self { config, data, log, pool, conductor } = self.clone();
        SetupArgs { config, data, pool, conductor, log, ..SetupArgs::default() }.settings()
    }
}

#[derive(Debug, Args)]
struct ServeArgs {
    #[command(flatten)]
    setup: SetupArgs,
    /// Address of the OpenAI-compatible HTTP API [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of the gRPC API [default: 127.0.0.1:8081].
    #[arg(long, value_name = "ADDRESS")]
    grpc_listen: Option<String>,
    /// Allow addresses that other machines can reach. Without `--keys-required`, everybody who can reach them may use them.
    #[arg(long)]
    allow_remote: bool,
    /// Refuse requests without a key; `podium key create` makes one.
    #[arg(long)]
    keys_required: bool,
    /// Milliseconds that requests and calls under way may still take once told to stop [default: 10000].
    #[arg(long, value_name = "MS")]
    drain_ms: Option<String>,
    /// How long runs are kept after their end: days or hours such as 30d or 12h, or forever [default: 30d].
    #[arg(long, value_name = "TIME")]
    runs_kept: Option<String>,
    /// Reuse cached answers for identical deterministic step requests (temperature 0 or a seed): off or exact [default: off].
    #[arg(long, value_name = "USE")]
    step_cache: Option<String>,
    /// How log lines look: text or json [default: text].
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Set one key; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    instead: InsteadArgs,
}

/// What `podium serve` may do in place of serving.
#[derive(Debug, Args)]
struct InsteadArgs {
    /// Check the settings, the pool and the conductor as a start does, then exit.
    #[arg(long)]
    check_config: bool,
    /// Print a settings file with all keys, their defaults and their meaning, then exit.
    #[arg(long)]
    print_keys: bool,
}

impl ServeArgs {
    fn settings(&self) -> Result<Settings, Error> {
        let mut sources = self.setup.sources();
        sources.flag("listen", self.listen.as_deref());
        sources.flag("grpc_listen", self.grpc_listen.as_deref());
        sources.flag("allow_remote", self.allow_remote.then_some("true"));
        sources.flag("keys_required", self.keys_required.then_some("true"));
        sources.flag("drain_ms", self.drain_ms.as_deref());
        sources.flag("runs_kept", self.runs_kept.as_deref());
        sources.flag("step_cache", self.step_cache.as_deref());
        sources.flag("log_format", self.log_format.as_deref());
        self.set.iter().for_each(|text| sources.set(text));
        Ok(check(sources, Depth::Server)?)
    }
}

/// How to answer, as the command line names it.
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

/// How hard to try, as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EffortName {
    /// At most two steps.
    Low,
    /// As many steps as the tier allows.
    Medium,
    /// As medium; workers that can reason more.
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
    // One TLS provider for everything in the process; a second installation finds the first and is no problem.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(Box::pin(run(cli.command)));
            // Whatever still waits for a file or a name look-up does not hold the process back.
            runtime.shutdown_background();
            outcome
        }
        Err(source) => Err(Error::System { what: "the runtime does not start", source }),
    };
    outcome.unwrap_or_else(|error| {
        error::print(&error);
        error.exit_code()
    })
}

/// llama.cpp runs a debugger on its own process before it aborts, unless the environment forbids it from the start. So the
/// process begins anew, once, with that in its environment; where that cannot be done it goes on as it is.
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
        Command::Serve(args) if args.instead.print_keys => {
            print_line(listing("podium serve", KEYS).trim_end()).map(|()| ExitCode::SUCCESS)
        }
        Command::Serve(args) if args.instead.check_config => serve::report(&args.settings()?),
        Command::Serve(args) => serve::serve(args.settings()?).await,
        Command::Ask(args) => ask::ask(args).await,
        Command::Plan(args) => plan::plan(args).await,
        Command::Runs(command) => runs::runs(command).await,
        Command::Pool(command) => pool::pool(command).await,
        Command::Estimate(args) => estimate::estimate(args).await,
        Command::Key(command) => key::key(command).await,
        Command::Budget(command) => budget::budget(command).await,
        Command::Migrate(args) => migrate::migrate(args).await,
        Command::Bundle(command) => bundle::bundle(&command),
        Command::Eval(args) => eval::eval(args).await,
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
