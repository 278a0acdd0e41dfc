//! Maps errors of the engine and the store to those that a client sees.

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use podium_api::{ApiError, ErrorCode};
use podium_domain::budget::{Budget, Shortage};
use podium_domain::conversation::Message;
use podium_domain::ids::RunId;
use podium_domain::pool::Feature;
use podium_domain::run::{FailReason, Refusal, Run, RunState};
use podium_domain::time::Timestamp;
use podium_engine::{AnswerError, CommandError, RateError, SubmitError, WatchError};
use podium_ports::causes::with_causes;
use podium_ports::store::StoreError;

/// The error for an unknown run, or another tenant's.
pub(crate) fn unknown_run(id: RunId) -> ApiError {
    ApiError::on_field(ErrorCode::RunNotFound, "run_id", format!("run `{id}` does not exist"))
}

/// The reason why a run has no reply; none if it has its answer, or waits for the results of its tool calls.
pub(crate) fn run_error(run: &Run) -> Option<ApiError> {
    match run.state() {
        RunState::Succeeded { .. } | RunState::Suspended => None,
        RunState::Failed { reason } => Some(fail_error(run.id(), reason)),
        RunState::Cancelled => {
            Some(ApiError::new(ErrorCode::RunCancelled, format!("run {} was cancelled", run.id())))
        }
        RunState::Active => {
            Some(ApiError::new(ErrorCode::Internal, format!("run {} has not ended", run.id())))
        }
    }
}

fn fail_error(run: RunId, reason: &FailReason) -> ApiError {
    ApiError::new(ErrorCode::of_failure(reason), format!("run {run} has no answer: {reason}"))
}

/// The error for a request that is not accepted. `budgets` are those that it is charged to.
pub(crate) fn submit_error(error: &SubmitError, budgets: &[Budget], now: Timestamp) -> ApiError {
    match error {
        SubmitError::Policy(e) => {
            ApiError::on_field(ErrorCode::InvalidValue, format!("policy.{}", e.field), e.to_string())
        }
        SubmitError::UnknownConductor { .. } => {
            ApiError::on_field(ErrorCode::ModelNotFound, "model", error.to_string())
        }
        SubmitError::Sampling(e) => {
            ApiError::on_field(ErrorCode::InvalidValue, format!("sampling.{}", e.field), e.to_string())
        }
        SubmitError::Answer(e) => ApiError::on_field(
            ErrorCode::InvalidValue,
            format!("response_format.{}", e.field()),
            e.to_string(),
        ),
        SubmitError::Tools(e) => ApiError::on_field(ErrorCode::InvalidValue, "tools", e.to_string()),
        SubmitError::NoneTakes(e) => {
            let field = match e.feature {
                Feature::Image | Feature::Pdf | Feature::PdfUrl => "messages",
                Feature::Stop => "stop",
                Feature::Tools => "tools",
                _ => "response_format",
            };
            ApiError::on_field(ErrorCode::NoWorkerAllowed, field, e.to_string())
        }
        SubmitError::ContextExceeded { .. } => {
            ApiError::on_field(ErrorCode::ContextLengthExceeded, "messages", error.to_string())
        }
        SubmitError::NoWorkerAllowed { .. } => {
            ApiError::on_field(ErrorCode::NoWorkerAllowed, "policy.workers_allowed", error.to_string())
        }
        SubmitError::OtherRequest { .. } => ApiError::new(ErrorCode::IdempotencyMismatch, error.to_string()),
        SubmitError::OverBudget(e) => ApiError::new(ErrorCode::InsufficientQuota, e.to_string())
            .retrying_after(next_period(e, budgets, now)),
        SubmitError::Store(e) => store_error(e),
        SubmitError::Illegal(e) => defect(e),
        SubmitError::GivenPlan(e) => defect(e),
    }
}

/// The time until the budget has a new period; none if the run would not fit that either.
fn next_period(shortage: &Shortage, budgets: &[Budget], now: Timestamp) -> Option<Duration> {
    let is_it = |budget: &&Budget| budget.payer == shortage.payer && budget.cap == Some(shortage.cap);
    let budget = budgets.iter().find(is_it).filter(|_| shortage.asked <= shortage.cap)?;
    Some(budget.period.next_start(now)?.since(now))
}

/// The error for a run that cannot be watched.
pub fn watch_error(id: RunId, error: &WatchError) -> ApiError {
    match error {
        WatchError::UnknownRun => unknown_run(id),
        WatchError::Store(e) => store_error(e),
    }
}

/// The error for an answer that breaks off. It says where the rest is, because not every SDK shows the header with the run id.
pub(crate) fn answer_error(run: RunId, error: &AnswerError) -> ApiError {
    let error = match error {
        AnswerError::Store(e) => store_error(e),
        AnswerError::Diverged { .. } => ApiError::new(ErrorCode::AnswerRestarted, error.to_string()),
        AnswerError::Unreadable { .. } => defect(error),
    };
    ApiError::new(error.code, format!("{}; GET /v1/runs/{run} returns the answer", error.message))
}

/// The error for a stream that is cut off because the server stops.
pub(crate) fn stopping_stream(run: RunId) -> ApiError {
    let message =
        format!("the server is stopping, and the run goes on; GET /v1/runs/{run} returns the answer");
    ApiError::new(ErrorCode::Stopping, message)
}

/// The error for an answer that does not fit the memory for unread answers.
pub(crate) fn overloaded(run: RunId) -> ApiError {
    let message = format!(
        "too many bytes of answers wait for clients that do not read them; GET /v1/runs/{run} returns the answer later"
    );
    ApiError::new(ErrorCode::Overloaded, message)
}

/// The error for a watching client that has all events up to `sequence`.
pub(crate) fn overloaded_watch(sequence: u64) -> ApiError {
    let message = format!(
        "too many bytes of answers wait for clients that do not read them; watch again after event {sequence}"
    );
    ApiError::new(ErrorCode::Overloaded, message)
}

/// The error for a run that cannot be cancelled.
pub(crate) fn command_error(id: RunId, error: &CommandError) -> ApiError {
    match error {
        CommandError::UnknownRun => unknown_run(id),
        CommandError::Refused(_) => ApiError::new(
            ErrorCode::RunEnded,
            format!("run {id} has ended; an ended run cannot be cancelled"),
        ),
        CommandError::Damaged => unreadable(id, "its stored data is invalid"),
        CommandError::Contended => ApiError::new(ErrorCode::Unavailable, error.to_string()),
        CommandError::Store(e) => store_error(e),
        CommandError::Stopped => stopping(),
    }
}

/// The error for tool results that a run does not take. `run` is the run before.
pub(crate) fn results_error(run: &Run, results: &Message, error: &CommandError) -> ApiError {
    let id = run.id();
    match error {
        CommandError::Refused(Refusal::Ended) => {
            ApiError::new(ErrorCode::RunEnded, format!("run {id} has ended; it takes no tool results"))
        }
        CommandError::Refused(Refusal::OtherResults) => {
            let pending: BTreeSet<_> = run.tool_calls().into_iter().map(|call| call.id).collect();
            let sent: BTreeSet<_> = results.results().map(|result| result.call_id.clone()).collect();
            let list = |ids: Vec<&String>| {
                let ids: Vec<_> = ids.into_iter().map(|id| format!("`{id}`")).collect();
                if ids.is_empty() { "none".to_owned() } else { ids.join(", ") }
            };
            let (missing, unknown) =
                (list(pending.difference(&sent).collect()), list(sent.difference(&pending).collect()));
            let message = format!(
                "results must have one result for each pending call of run {id}; missing: {missing}; not pending: {unknown}"
            );
            ApiError::on_field(ErrorCode::InvalidValue, "results", message)
        }
        CommandError::Refused(refusal @ Refusal::ResultsTooLong) => {
            ApiError::on_field(ErrorCode::InvalidValue, "results", refusal.to_string())
        }
        CommandError::Refused(_) => ApiError::new(
            ErrorCode::RunNotSuspended,
            format!("run {id} waits for no tool results; they count once, when the run is suspended"),
        ),
        other => command_error(id, other),
    }
}

/// The error for a run that cannot be rated.
pub(crate) fn rate_error(id: RunId, error: &RateError) -> ApiError {
    match error {
        RateError::UnknownRun => unknown_run(id),
        RateError::NotEnded => {
            ApiError::new(ErrorCode::RunNotEnded, format!("run {id} has not ended; rate it after its end"))
        }
        RateError::Store(e) => store_error(e),
    }
}

/// The error for a store that fails. The log has the details.
pub(crate) fn store_error(error: &StoreError) -> ApiError {
    match error {
        StoreError::Unavailable(_) | StoreError::Refused(_) => {
            tracing::error!(error = with_causes(error), "the store failed");
            ApiError::new(ErrorCode::Unavailable, "the store is unavailable; try again later")
        }
        StoreError::Inconsistent { run, source } => {
            tracing::error!(error = with_causes(error), "a stored run cannot be read");
            unreadable(*run, &source.to_string())
        }
        StoreError::Removed { run } => unknown_run(*run),
    }
}

/// The error for a run whose stored data this version cannot read.
fn unreadable(run: RunId, problem: &str) -> ApiError {
    let message = format!(
        "run {run} cannot be read: {problem}; a newer version of Podium may have written it, and servers of that version can read it. Otherwise its data is damaged: the server's log has the details"
    );
    ApiError::new(ErrorCode::Internal, message)
}

/// The error for a server that is stopping.
pub(crate) fn stopping() -> ApiError {
    ApiError::new(ErrorCode::Stopping, "the server is stopping; try again")
}

/// The error for a defect. The log has the details.
pub(crate) fn defect(error: &(dyn Error + 'static)) -> ApiError {
    tracing::error!(error = with_causes(error), "a request failed because of a defect");
    ApiError::new(ErrorCode::Internal, "internal error; the server's log has the details")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_used_up_says_when_its_next_period_begins() {
        use podium_domain::budget::{Payer, Period};
        use podium_domain::ids::TenantId;
        use podium_domain::money::Cost;

        let tenant = TenantId::new("acme").unwrap();
        let payer = Payer::Tenant(tenant.clone());
        let [one, ten] = [1, 10].map(Cost::from_nano_usd);
        let wait = |period, asked| {
            let budget = Budget { payer: payer.clone(), tenant: tenant.clone(), period, cap: Some(ten) };
            let shortage =
                Shortage { payer: payer.clone(), cap: ten, spent: ten, reserved: Cost::default(), asked };
            // Half an hour before midnight, 2024-02-29.
            let now = Timestamp::from_unix_ms(1_709_249_400_000);
            submit_error(&SubmitError::OverBudget(shortage), &[budget], now).retry_after()
        };
        let half_an_hour = Some(Duration::from_mins(30));
        assert_eq!([Period::Day, Period::Month].map(|period| wait(period, one)), [half_an_hour; 2]);
        assert_eq!(wait(Period::Total, one), None);
        assert_eq!(wait(Period::Day, Cost::from_nano_usd(11)), None);
    }

    #[test]
    fn a_run_that_cannot_be_read_says_why_and_what_to_do() {
        let run: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let source = "event 3 is in format 2, this version reads format 1".into();
        let error = store_error(&StoreError::Inconsistent { run, source });
        let words =
            [run.to_string().as_str(), "event 3 is in format 2", "newer version", "log"].map(str::to_owned);
        for words in words {
            assert!(error.message.contains(&words), "{}", error.message);
        }
    }
}
