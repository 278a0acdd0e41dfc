//! Lists the open work of all tenants, and the record of operators' actions.

use std::process::ExitCode;
use std::time::Duration;

use podium_domain::time::Timestamp;
use podium_ports::operations::{OpenRun, OperatorAction, Reservation, Stuck, StuckTask};
use podium_ports::store::LaneLoad;
use serde::Serialize;

use super::super::output::{print_json, print_line};
use super::{ListArgs, RunsArgs, TasksArgs};
use crate::error::Error;
use crate::report::dollars;
use crate::terminal;

/// A line of a list.
trait Line: Serialize {
    fn line(&self) -> String;
}

/// A time span for people, in its largest unit.
pub(crate) fn age(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn print<T: Line>(lines: &[T], nothing: &str, args: &ListArgs) -> Result<ExitCode, Error> {
    if args.json {
        print_json(&lines)?;
    } else if lines.is_empty() {
        terminal::note(nothing);
    }
    for line in lines.iter().filter(|_| !args.json) {
        print_line(&line.line())?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct LaneLine {
    lane: String,
    backlog: u64,
    published: u64,
    running: u64,
    oldest_ms: Option<u64>,
}

impl LaneLine {
    fn of(load: LaneLoad, now: Timestamp) -> Self {
        let LaneLoad { lane, backlog, published, running, oldest } = load;
        let oldest_ms = oldest.map(|oldest| now.unix_ms().saturating_sub(oldest.unix_ms()));
        Self { lane, backlog, published, running, oldest_ms }
    }
}

impl Line for LaneLine {
    fn line(&self) -> String {
        let Self { lane, backlog, published, running, oldest_ms } = self;
        let oldest = oldest_ms.map(|ms| format!(", the oldest for {}", age(Duration::from_millis(ms))));
        let waiting = backlog + published;
        format!(
            "{lane}  {waiting} waiting ({published} published){}, {running} running",
            oldest.unwrap_or_default()
        )
    }
}

pub(super) async fn lanes(args: ListArgs) -> Result<ExitCode, Error> {
    let store = args.store.open_all().await?;
    let (loads, now) = (store.runs.lane_loads().await?, store.clock.now());
    let lines: Vec<_> =
        loads.into_iter().map(|load| LaneLine::of(load, now)).take(args.limit as usize).collect();
    print(&lines, "no lane has open tasks", &args)
}

#[derive(Serialize)]
struct TaskLine {
    run: String,
    task: String,
    tenant: String,
    lane: String,
    state: &'static str,
    since_ms: u64,
    age_ms: u64,
}

impl TaskLine {
    fn of(task: StuckTask, now: Timestamp) -> Self {
        let state = match task.state {
            Stuck::InBacklog => "backlog",
            Stuck::Published => "published",
            Stuck::Abandoned => "abandoned",
        };
        Self {
            run: task.run.to_string(),
            task: task.task,
            tenant: task.tenant.to_string(),
            lane: task.lane,
            state,
            since_ms: task.since.unix_ms(),
            age_ms: now.unix_ms().saturating_sub(task.since.unix_ms()),
        }
    }
}

impl Line for TaskLine {
    fn line(&self) -> String {
        let Self { run, task, tenant, lane, state, since_ms, age_ms } = self;
        let since = match since_ms {
            0 => "its process has no lease".to_owned(),
            _ => age(Duration::from_millis(*age_ms)),
        };
        format!("{run}  {task}  {tenant}  {lane}  {state}  {since}")
    }
}

pub(super) async fn tasks(args: TasksArgs) -> Result<ExitCode, Error> {
    let store = args.list.store.open_all().await?;
    let now = store.clock.now();
    let stuck = store.operations.stuck_tasks(now.before(args.older), args.list.limit).await?;
    let lines: Vec<_> = stuck.into_iter().map(|task| TaskLine::of(task, now)).collect();
    print(&lines, "no task is stuck", &args.list)
}

#[derive(Serialize)]
pub(super) struct RunLine {
    run: String,
    tenant: String,
    model: String,
    state: String,
    accepted_ms: u64,
    age_ms: u64,
    due_ms: u64,
    cost_usd: f64,
}

impl RunLine {
    pub(super) fn of(run: OpenRun, now: Timestamp) -> Self {
        Self {
            run: run.id.to_string(),
            tenant: run.tenant.to_string(),
            model: run.model,
            state: run.state,
            accepted_ms: run.accepted_at.unix_ms(),
            age_ms: now.unix_ms().saturating_sub(run.accepted_at.unix_ms()),
            due_ms: run.due_at.unix_ms(),
            cost_usd: run.cost.usd(),
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { run, tenant, model, state, age_ms, cost_usd, .. } = self;
        let (age, cost) = (age(Duration::from_millis(*age_ms)), dollars(*cost_usd));
        format!("{run}  {tenant}  {model}  {state}  for {age}  {cost}")
    }
}

impl Line for RunLine {
    fn line(&self) -> String {
        self.text()
    }
}

pub(super) async fn runs(args: RunsArgs) -> Result<ExitCode, Error> {
    let store = args.list.store.open_all().await?;
    let now = store.clock.now();
    let runs = store.operations.open_runs(&args.filter.filter(now), None, args.list.limit).await?;
    let lines: Vec<_> = runs.into_iter().map(|run| RunLine::of(run, now)).collect();
    print(&lines, "no such run is open", &args.list)
}

#[derive(Serialize)]
struct HoldLine {
    payer: String,
    period_start_ms: u64,
    spent_usd: f64,
    reserved_usd: f64,
}

impl HoldLine {
    fn of(held: Reservation) -> Self {
        Self {
            payer: held.payer,
            period_start_ms: held.from.unix_ms(),
            spent_usd: held.charge.spent.usd(),
            reserved_usd: held.charge.reserved.usd(),
        }
    }
}

impl Line for HoldLine {
    fn line(&self) -> String {
        let Self { payer, spent_usd, reserved_usd, .. } = self;
        format!("{payer}  {} reserved, {} spent", dollars(*reserved_usd), dollars(*spent_usd))
    }
}

pub(super) async fn holds(args: ListArgs) -> Result<ExitCode, Error> {
    let store = args.store.open_all().await?;
    let held = store.operations.reservations(args.limit).await?;
    let lines: Vec<_> = held.into_iter().map(HoldLine::of).collect();
    print(&lines, "no budget has reserved money", &args)
}

#[derive(Serialize)]
struct ActionLine {
    at_ms: u64,
    operator: String,
    action: String,
    subject: String,
    details: String,
}

impl ActionLine {
    fn of(action: OperatorAction) -> Self {
        let OperatorAction { at, operator, action, subject, details } = action;
        Self { at_ms: at.unix_ms(), operator, action, subject, details }
    }
}

impl Line for ActionLine {
    fn line(&self) -> String {
        let Self { at_ms, operator, action, subject, details } = self;
        let seconds = i64::try_from(at_ms / 1000).unwrap_or_default();
        let at = prost_types::Timestamp { seconds, nanos: 0 };
        format!("{at}  {operator}  {action}  {subject}  {details}").trim_end().to_owned()
    }
}

pub(super) async fn log(args: ListArgs) -> Result<ExitCode, Error> {
    let store = args.store.open_all().await?;
    let lines: Vec<_> = store.operations.actions(args.limit).await?.into_iter().map(ActionLine::of).collect();
    print(&lines, "no action is recorded", &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_shown_in_its_largest_unit() {
        let ages = [5, 119, 120, 7199, 7200, 172_800].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["5s", "119s", "2m", "119m", "2h", "2d"]);
    }
}
