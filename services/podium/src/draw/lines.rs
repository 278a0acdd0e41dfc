//! A run as a sequence of lines, for pipes, logs and plain terminals.

use std::fmt::Write as _;

use podium_api::v1::run_event::Kind;
use podium_api::v1::watch_run_response::Update;
use podium_api::v1::{self, WatchRunResponse};

use super::board::{Board, Row};
use super::text::{dollars, fit, seconds, sees};

/// Most columns of an output in a line.
const OUTPUT_COLUMNS: usize = 100;

/// The lines for an update that is already in `board`; empty for updates that only a redrawn board shows.
pub(super) fn describe(board: &Board, update: &WatchRunResponse) -> String {
    let Some(Update::Event(event)) = &update.update else { return String::new() };
    let Some(said) = event.kind.as_ref().and_then(|kind| say(board, kind)) else { return String::new() };
    format!("[{:>6}] {said}\n", seconds(board.elapsed()))
}

fn say(board: &Board, kind: &Kind) -> Option<String> {
    let said = match kind {
        Kind::Accepted(accepted) => {
            format!(
                "accepted by {}, conductor {}, pool {}",
                accepted.model, accepted.conductor, accepted.pool
            )
        }
        Kind::AttemptStarted(started) => {
            let (what, attempt) = (name(started.task.as_ref()), started.attempt);
            let by =
                if started.worker.is_empty() { String::new() } else { format!(" by {}", started.worker) };
            let again = if attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
            format!("{what} begun{by}{again}")
        }
        Kind::StepsPlanned(planned) => match planned.steps.len() {
            1 => "step 1 is planned".to_owned(),
            steps => format!("steps up to {steps} are planned"),
        },
        Kind::StepsSuperseded(superseded) => match superseded.steps {
            1 => "step 1 is superseded: the plan continued without it".to_owned(),
            steps => format!("steps up to {steps} are superseded: the plan continued without them"),
        },
        Kind::PlanReady(plan) => say_plan(board, plan),
        Kind::AnswerKept(_) => "the conductor keeps the answer".to_owned(),
        Kind::StepDone(done) => {
            let row = board.row(done.round, Some(done.step))?;
            format!("step {} done in {}: {}", done.step + 1, spent(row), fit(&done.output, OUTPUT_COLUMNS))
        }
        Kind::StepSkipped(skipped) => say_skipped(*skipped),
        Kind::StepCalled(called) => match called.tool_calls.as_slice() {
            [call] => format!("step {} calls the tool {}", called.step + 1, call.name),
            calls => format!("step {} calls {} tools", called.step + 1, calls.len()),
        },
        Kind::Suspended(_) => "suspended until the results of the tool calls come".to_owned(),
        Kind::ResultsGiven(_) => "continued with the results of the tool calls".to_owned(),
        Kind::AttemptFailed(failed) => say_attempt_failed(failed),
        Kind::FellBack(back) => {
            format!(
                "step {} goes on with {}: {}",
                back.step + 1,
                back.worker,
                fit(&back.error, OUTPUT_COLUMNS)
            )
        }
        Kind::AttemptLost(lost) => {
            format!(
                "{} was lost because its process stopped responding, will be tried again",
                name(lost.task.as_ref())
            )
        }
        Kind::TaskFailed(failed) => format!("{} failed: {}", name(failed.task.as_ref()), failed.error),
        Kind::RoundOpened(v1::RoundOpened { round, failed: Some(failure) }) => {
            format!("round {} begun, to correct a failure: {}", round + 1, failure.message)
        }
        Kind::RoundOpened(opened) => format!("round {} begun", opened.round + 1),
        Kind::RoundAbandoned(abandoned) => format!(
            "round {} gives no answer, the one before it stands: {}",
            abandoned.round + 1,
            abandoned.failure.as_ref().map_or("", |failure| &failure.message)
        ),
        Kind::Succeeded(_) => format!("answered for {}", dollars(board.cost_nano_usd())),
        Kind::Failed(failed) => {
            format!("failed: {}", failed.failure.as_ref().map_or("", |failure| &failure.message))
        }
        Kind::Cancelled(_) => "cancelled".to_owned(),
        Kind::StepReady(_) | Kind::ResultUnused(_) => return None,
    };
    Some(said)
}

fn say_skipped(skipped: v1::StepSkipped) -> String {
    let (step, same_as) = (skipped.step + 1, skipped.same_as + 1);
    format!("step {step} is skipped: the earlier answers agree, that of step {same_as} is taken")
}

fn say_attempt_failed(failed: &v1::AttemptFailed) -> String {
    let what = name(failed.task.as_ref());
    if failed.handed_back {
        return format!("{what} was handed back, will be begun again");
    }
    if failed.fallback.is_some() {
        return format!("{what} failed: {}", failed.error);
    }
    format!("{what} failed, will be tried again: {}", failed.error)
}

fn say_plan(board: &Board, plan: &v1::PlanReady) -> String {
    let spent = board.row(plan.round, None).map(spent).unwrap_or_default();
    let mut said = match plan.steps.len() {
        1 => format!("planned 1 step in {spent}"),
        steps => format!("planned {steps} steps in {spent}"),
    };
    if let Some(why) = &plan.fallback {
        let _ = write!(said, ", a substitute: {why}");
    }
    for step in &plan.steps {
        let sees = sees(&step.access, step.sees_earlier_round.then_some("the round before"));
        let sees = if sees.is_empty() { String::new() } else { format!("  (sees {})", sees.join(", ")) };
        let _ = write!(
            said,
            "\n           {}  {}  {}{sees}",
            step.index + 1,
            step.worker,
            fit(&step.subtask, OUTPUT_COLUMNS)
        );
    }
    said
}

fn spent(row: &Row) -> String {
    let time = row.elapsed().map(seconds).unwrap_or_default();
    match row.saved_nano_usd {
        None => format!("{time}, {}", dollars(row.cost_nano_usd)),
        Some(saved) => format!("{time} from the cache, {} saved", dollars(saved)),
    }
}

fn name(task: Option<&v1::Task>) -> String {
    match task.and_then(|task| task.step) {
        None => "planning".to_owned(),
        Some(step) => format!("step {}", step + 1),
    }
}
