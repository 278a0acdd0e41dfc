//! Cancels and expires runs, and gives tasks to other processes.

use std::process::ExitCode;

use podium_domain::ids::RunId;
use podium_domain::run::{Run, TaskRef, TaskState};
use podium_engine::Engine;
use podium_ports::causes::with_causes;
use podium_ports::store::ClaimRef;

use super::super::accounts::OperatorStore;
use super::super::output::print_line;
use super::list::RunLine;
use super::{CancelArgs, ExpireArgs, RequeueArgs};
use crate::assemble::repairing;
use crate::error::{Error, run_failed};
use crate::report::count;
use crate::terminal;

/// Runs that are listed at once.
const PAGE: u32 = 500;
/// How often a claim is disowned again while its row is locked.
const DISOWN_TRIES: u32 = 20;
/// Time between two of these tries.
const DISOWN_PAUSE: std::time::Duration = std::time::Duration::from_millis(250);

/// How an operator ends a run.
#[derive(Clone, Copy)]
enum Ending {
    Cancel,
    Expire,
}

impl Ending {
    const fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Expire => "expire",
        }
    }
}

pub(super) async fn cancel(args: CancelArgs) -> Result<ExitCode, Error> {
    if args.ids.is_empty() && args.filter.is_empty() {
        let what = "name runs, or a filter: --state, --tenant or --older (--older 0s for all runs)";
        return Err(Error::Refused(what.to_owned()));
    }
    let store = args.store.open_all().await?;
    let found = if args.ids.is_empty() { find(&store, &args).await? } else { args.ids.clone() };
    if args.yes {
        return end(&store, &found, Ending::Cancel).await;
    }
    if !args.ids.is_empty() {
        found.iter().try_for_each(|id| print_line(&id.to_string()))?;
    }
    terminal::note(&format!("{} would be cancelled; --yes cancels them", count(found.len(), "run")));
    Ok(ExitCode::SUCCESS)
}

/// The runs of the filter. Without --yes each is printed.
async fn find(store: &OperatorStore, args: &CancelArgs) -> Result<Vec<RunId>, Error> {
    let (now, mut found) = (store.clock.now(), Vec::new());
    let filter = args.filter.filter(now);
    loop {
        let page = store.operations.open_runs(&filter, found.last().copied(), PAGE).await?;
        let is_last = page.len() < PAGE as usize;
        found.extend(page.iter().map(|run| run.id));
        for run in page.into_iter().filter(|_| !args.yes) {
            print_line(&RunLine::of(run, now).text())?;
        }
        if is_last {
            return Ok(found);
        }
    }
}

pub(super) async fn expire(args: ExpireArgs) -> Result<ExitCode, Error> {
    let store = args.store.open_all().await?;
    end(&store, &args.ids, Ending::Expire).await
}

/// Ends the runs one after the other. One that cannot be ended does not keep the others from ending.
async fn end(store: &OperatorStore, runs: &[RunId], ending: Ending) -> Result<ExitCode, Error> {
    let engine = repairing(store.runs.clone(), store.clock.clone())?;
    let mut failed = 0;
    for id in runs {
        store.record(ending.word(), &id.to_string(), String::new()).await?;
        match end_one(&engine, *id, ending).await {
            Ok(state) => print_line(&format!("{id}  {state}"))?,
            Err(why) => {
                failed += 1;
                store.record("refused", &id.to_string(), format!("{}: {why}", ending.word())).await?;
                eprintln!("podium: {id} was not changed: {why}");
            }
        }
    }
    let ended = count(runs.len() - failed, "run");
    terminal::note(&match ending {
        Ending::Cancel => format!("{ended} cancelled"),
        Ending::Expire => format!("{ended} expired"),
    });
    Ok(if failed == 0 { ExitCode::SUCCESS } else { run_failed() })
}

/// Ends a run and returns the name of its new state.
async fn end_one(engine: &Engine, id: RunId, ending: Ending) -> Result<&'static str, String> {
    let run = match ending {
        Ending::Cancel => engine.cancel(id).await,
        Ending::Expire => engine.expire(id).await,
    };
    run.map(|run| run.state().as_str()).map_err(|error| with_causes(&error))
}

pub(super) async fn requeue(args: RequeueArgs) -> Result<ExitCode, Error> {
    let store = args.store.open_all().await?;
    let run = store.runs.load(&[args.id]).await?.pop().flatten();
    let run = run.ok_or_else(|| Error::Refused(format!("run {} does not exist", args.id)))?;
    let found = run.tasks().find(|(task, _)| task.to_string() == args.task);
    let Some((task, found)) = found else {
        return Err(Error::Refused(format!("run {} has no task `{}`: {}", args.id, args.task, names(&run))));
    };
    let subject = format!("{} {task}", args.id);
    match &found.state {
        TaskState::Ready { .. } => {
            store.record("requeue", &subject, "a ready task is published again".to_owned()).await?;
            store.runs.put_back(&[(args.id, task)]).await?;
            print_line("the task is in the backlog of its lane, from which it is published again")?;
        }
        TaskState::Running { claim, .. } => {
            let claim = ClaimRef { run: args.id, task, claim: *claim };
            let details = format!("claim {} is taken away from its process", claim.claim.as_uuid());
            store.record("requeue", &subject, details).await?;
            disown(&store, claim).await?;
            print_line(
                "the claim is released; the sweeper gives the task to another process within seconds",
            )?;
        }
        state => {
            let what = format!("task {task} is neither ready nor running: {}", describe(state));
            return Err(Error::Refused(what));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn disown(store: &OperatorStore, claim: ClaimRef) -> Result<(), Error> {
    for _ in 0..DISOWN_TRIES {
        if store.runs.disown(&[claim]).await?.first().copied().unwrap_or(true) {
            return Ok(());
        }
        store.clock.sleep(DISOWN_PAUSE).await;
    }
    Err(Error::Refused("another transaction keeps the row of the task locked; try again".to_owned()))
}

fn names(run: &Run) -> String {
    let names: Vec<_> = run.tasks().map(|(task, _): (TaskRef, _)| task.to_string()).collect();
    format!("it has {}", names.join(", "))
}

const fn describe(state: &TaskState) -> &'static str {
    match state {
        TaskState::Waiting => "it waits for earlier steps",
        TaskState::Calling => "it waits for the results of tool calls",
        TaskState::Done => "it is done",
        TaskState::Skipped => "it was skipped",
        TaskState::Failed => "it failed",
        TaskState::Cancelled => "it was cancelled",
        TaskState::Ready { .. } | TaskState::Running { .. } => "it is open",
    }
}
