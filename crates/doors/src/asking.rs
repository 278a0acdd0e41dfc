//! What the doors share: asking the engine, and telling a client what went wrong without telling it too much.

use std::error::Error;

use podium_api::{ApiError, ErrorCode, NewRun};
use podium_domain::ids::{RunId, TenantId};
use podium_domain::pool::Feature;
use podium_domain::rating::Rating;
use podium_domain::run::{FailReason, Run, RunState};
use podium_engine::{
    AnswerError, CommandError, Ending, Engine, Estimate, RateError, Submit, SubmitError, Submitted,
    WatchError,
};
use podium_ports::store::StoreError;

use crate::access::Caller;

/// Accepts a run.
pub async fn submit(engine: &Engine, caller: Caller, new_run: NewRun) -> Result<Submitted, ApiError> {
    engine.submit(request(engine, caller, new_run)?).await.map_err(|e| submit_error(&e))
}

/// Accepts a run of a client who waits for its end.
pub(crate) async fn ask(
    engine: &Engine,
    caller: Caller,
    new_run: NewRun,
) -> Result<(Submitted, Ending), ApiError> {
    engine.ask(request(engine, caller, new_run)?).await.map_err(|e| submit_error(&e))
}

/// What a run could cost.
pub(crate) async fn estimate(engine: &Engine, caller: Caller, new_run: NewRun) -> Result<Estimate, ApiError> {
    engine.estimate(&request(engine, caller, new_run)?).await.map_err(|e| submit_error(&e))
}

fn request(engine: &Engine, caller: Caller, new_run: NewRun) -> Result<Submit, ApiError> {
    if !new_run.model.is_served_by(engine.conductor_ids()) {
        let here: Vec<_> = engine.conductor_ids().map(|id| format!("`{id}`")).collect();
        let message = format!(
            "model `{}` is pinned to another conductor than this server's {}",
            new_run.model,
            here.join(" and ")
        );
        return Err(ApiError::on_field(ErrorCode::ModelNotFound, "model", message));
    }
    Ok(Submit {
        tenant: caller.tenant,
        key: caller.key,
        budgets: caller.budgets,
        request_id: new_run.request_id,
        model: new_run.model.to_string(),
        conductor: new_run.model.conductor,
        conversation: new_run.conversation,
        policy: new_run.policy,
        answer_tokens_max: new_run.answer_tokens_max,
        sampling: new_run.sampling,
        answer: new_run.answer,
        stops: new_run.stops,
    })
}

/// A tenant's run as it stands. Another's is one that there is not.
pub async fn load(engine: &Engine, tenant: &TenantId, id: RunId) -> Result<Run, ApiError> {
    let run = engine.run(id).await.map_err(|e| store_error(&e))?;
    run.filter(|run| run.spec().tenant == *tenant).ok_or_else(|| unknown_run(id))
}

/// The error for a run that there is not.
pub(crate) fn unknown_run(id: RunId) -> ApiError {
    ApiError::on_field(ErrorCode::RunNotFound, "run_id", format!("there is no run `{id}`"))
}

/// Why a run that ended has no answer; none if it has one.
pub(crate) fn run_error(run: &Run) -> Option<ApiError> {
    match run.state() {
        RunState::Succeeded { .. } => None,
        RunState::Failed { reason } => Some(fail_error(run.id(), reason)),
        RunState::Cancelled => {
            Some(ApiError::new(ErrorCode::RunCancelled, format!("run {} was taken back", run.id())))
        }
        RunState::Active => {
            Some(ApiError::new(ErrorCode::Internal, format!("run {} has not ended", run.id())))
        }
    }
}

fn fail_error(run: RunId, reason: &FailReason) -> ApiError {
    ApiError::new(ErrorCode::of_failure(reason), format!("run {run} has no answer: {reason}"))
}

fn submit_error(error: &SubmitError) -> ApiError {
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
        SubmitError::NoneTakes(e) => {
            let field = match e.feature {
                Feature::Image => "messages",
                Feature::Stop => "stop",
                _ => "response_format",
            };
            ApiError::on_field(ErrorCode::NoWorkerAllowed, field, e.to_string())
        }
        SubmitError::ContextExceeded { .. } => {
            ApiError::on_field(ErrorCode::InvalidValue, "messages", error.to_string())
        }
        SubmitError::NoWorkerAllowed => {
            ApiError::on_field(ErrorCode::NoWorkerAllowed, "policy.workers_allowed", error.to_string())
        }
        SubmitError::OverBudget(e) => ApiError::new(ErrorCode::InsufficientQuota, e.to_string()),
        SubmitError::Store(e) => store_error(e),
        SubmitError::Illegal(e) => defect(e),
    }
}

/// What a client is told when a run cannot be watched.
pub fn watch_error(id: RunId, error: &WatchError) -> ApiError {
    match error {
        WatchError::UnknownRun => unknown_run(id),
        WatchError::Store(e) => store_error(e),
    }
}

/// What a client is told when an answer breaks off.
pub(crate) fn answer_error(error: &AnswerError) -> ApiError {
    match error {
        AnswerError::Store(e) => store_error(e),
        AnswerError::Diverged { .. } => ApiError::new(ErrorCode::AnswerRestarted, error.to_string()),
        AnswerError::Unreadable { .. } => defect(error),
    }
}

/// What a client is told when a run cannot be taken back.
pub(crate) fn command_error(id: RunId, error: &CommandError) -> ApiError {
    match error {
        CommandError::UnknownRun => unknown_run(id),
        CommandError::Refused(_) => ApiError::new(ErrorCode::RunEnded, format!("run {id} has ended already")),
        CommandError::Damaged => ApiError::new(ErrorCode::Internal, format!("run {id} cannot be read")),
        CommandError::Contended => ApiError::new(ErrorCode::Unavailable, error.to_string()),
        CommandError::Store(e) => store_error(e),
        CommandError::Stopped => stopping(),
    }
}

/// Keeps what a client thinks of a run.
pub(crate) async fn rate(
    engine: &Engine,
    tenant: &TenantId,
    id: RunId,
    rating: &Rating,
) -> Result<(), ApiError> {
    engine.rate(tenant, id, rating).await.map_err(|error| match error {
        RateError::UnknownRun => unknown_run(id),
        RateError::NotEnded => {
            ApiError::new(ErrorCode::RunNotEnded, format!("run {id} has not ended; it cannot be rated yet"))
        }
        RateError::Store(e) => store_error(&e),
    })
}

/// A score and a comment as a rating.
pub(crate) fn rating(score: f64, comment: Option<String>) -> Result<Rating, ApiError> {
    Rating::new(score, comment)
        .map_err(|e| ApiError::on_field(ErrorCode::InvalidValue, e.field(), e.to_string()))
}

/// What a client is told when the store fails. Its own words go to the log.
pub(crate) fn store_error(error: &StoreError) -> ApiError {
    match error {
        StoreError::Unavailable(_) => {
            tracing::error!(error = chain(error), "the store failed");
            ApiError::new(ErrorCode::Unavailable, "the store does not answer; try again later")
        }
        StoreError::Inconsistent { .. } => defect(error),
        StoreError::Removed { run } => unknown_run(*run),
    }
}

/// What a client is told when the server is going down.
pub(crate) fn stopping() -> ApiError {
    ApiError::new(ErrorCode::Stopping, "the server is stopping")
}

/// What a client is told of a defect: that there is one. The log has the rest.
pub(crate) fn defect(error: &(dyn Error + 'static)) -> ApiError {
    tracing::error!(error = chain(error), "a request met a defect");
    ApiError::new(ErrorCode::Internal, "the server has a defect; its log says more")
}

/// An error with everything that caused it, in one line.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
