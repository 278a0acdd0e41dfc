//! `podium admin`: the work of all tenants, and its repair. Each repair is recorded in the database before it is done.

mod list;
mod repair;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use podium_domain::ids::{RunId, TenantId};
use podium_domain::time::Timestamp;
use podium_ports::operations::{OpenRunFilter, OpenState};

use super::accounts::{AccountsArgs, tenant};
use crate::error::Error;

pub(super) use list::age;

#[derive(Debug, Subcommand)]
pub(super) enum AdminCommand {
    /// List the lanes with open tasks: what waits, what runs, and since when the oldest waits.
    Lanes(ListArgs),
    /// List tasks that nobody took in time, and those whose process is dead.
    Tasks(TasksArgs),
    /// List the runs that have not ended.
    Runs(RunsArgs),
    /// List the budgets with reserved money. `podium budget correct` corrects a sum.
    Holds(ListArgs),
    /// Cancel runs, by id or by filter. Without --yes it only lists them.
    Cancel(CancelArgs),
    /// End runs as their deadline would; for a suspended run, as the end of its wait for tool results.
    Expire(ExpireArgs),
    /// Give a task to the next process: publish it again, or take it away from the process that holds it.
    Requeue(RequeueArgs),
    /// List what operators did with these commands and with `podium budget correct`, the newest first.
    Log(ListArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Most lines.
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: AccountsArgs,
}

#[derive(Debug, Args)]
pub(super) struct TasksArgs {
    /// Only tasks that have waited for at least this time, such as 30s, 5m, 2h or 3d.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = span)]
    older: Duration,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Args)]
pub(super) struct FilterArgs {
    /// Only runs in this state.
    #[arg(long, value_enum)]
    state: Option<StateName>,
    /// Only runs of this tenant.
    #[arg(long, value_name = "NAME", value_parser = tenant)]
    tenant: Option<TenantId>,
    /// Only runs that were accepted at least this time ago, such as 30s, 5m, 2h or 3d.
    #[arg(long, value_name = "TIME", value_parser = span)]
    older: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct RunsArgs {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Args)]
pub(super) struct CancelArgs {
    /// The ids of the runs. Without any, a filter must be given.
    #[arg(value_name = "ID", value_parser = run_id)]
    ids: Vec<RunId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Cancel them, instead of listing them.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    store: AccountsArgs,
}

#[derive(Debug, Args)]
pub(super) struct ExpireArgs {
    /// The ids of the runs.
    #[arg(value_name = "ID", required = true, value_parser = run_id)]
    ids: Vec<RunId>,
    #[command(flatten)]
    store: AccountsArgs,
}

#[derive(Debug, Args)]
pub(super) struct RequeueArgs {
    /// The id of the run.
    #[arg(value_name = "ID", value_parser = run_id)]
    id: RunId,
    /// The task as `podium admin tasks` names it, such as `plan.0` or `step.0.2`.
    #[arg(value_name = "TASK")]
    task: String,
    #[command(flatten)]
    store: AccountsArgs,
}

/// The state of a run that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StateName {
    /// It is planned and worked on.
    Active,
    /// It waits for the results of tool calls.
    Suspended,
}

impl FilterArgs {
    /// Whether nothing restricts the runs.
    const fn is_empty(&self) -> bool {
        self.state.is_none() && self.tenant.is_none() && self.older.is_none()
    }

    fn filter(&self, now: Timestamp) -> OpenRunFilter {
        OpenRunFilter {
            state: self.state.map(|state| match state {
                StateName::Active => OpenState::Active,
                StateName::Suspended => OpenState::Suspended,
            }),
            tenant: self.tenant.clone(),
            accepted_before: self.older.map(|older| now.before(older)),
        }
    }
}

pub(super) async fn admin(command: AdminCommand) -> Result<ExitCode, Error> {
    match command {
        AdminCommand::Lanes(args) => list::lanes(args).await,
        AdminCommand::Tasks(args) => list::tasks(args).await,
        AdminCommand::Runs(args) => list::runs(args).await,
        AdminCommand::Holds(args) => list::holds(args).await,
        AdminCommand::Log(args) => list::log(args).await,
        AdminCommand::Cancel(args) => repair::cancel(args).await,
        AdminCommand::Expire(args) => repair::expire(args).await,
        AdminCommand::Requeue(args) => repair::requeue(args).await,
    }
}

fn run_id(text: &str) -> Result<RunId, String> {
    text.parse().map_err(|_| format!("`{text}` is not the id of a run, such as run_0190…"))
}

/// A number with a unit: seconds, minutes, hours or days.
fn span(text: &str) -> Result<Duration, String> {
    let seconds = |unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86_400),
        _ => None,
    };
    let parsed = text.chars().next_back().and_then(|unit| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(seconds(unit)?)
    });
    parsed.map(Duration::from_secs).ok_or_else(|| format!("`{text}` is no time such as 30s, 5m, 2h or 3d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_with_a_unit() {
        assert_eq!(span("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(span("2h"), Ok(Duration::from_hours(2)));
        assert_eq!(span("0d"), Ok(Duration::ZERO));
        for wrong in ["", "5", "m", "-1m", "1.5h", "5 m", "5w", "99999999999999999999d"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }
}
