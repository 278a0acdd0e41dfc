//! What both APIs share: requests to the engine, and errors that a client may see.

use std::error::Error;

use podium_api::{ApiError, ErrorCode, NewRun};
use podium_domain::ids::{RunId, TenantId};
use podium_domain::policy::Policy;
use podium_domain::pool::Feature;
use podium_domain::rating::Rating;
use podium_domain::run::{FailReason, Run, RunState};
use podium_engine::{
    AnswerError, CommandError, Ending, Engine, Estimate, RateError, Submit, SubmitError, Submitted,
    WatchError,
};
use podium_ports::store::StoreError;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::access::{Caller, hex};

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
    let request_digest = new_run.request_id.is_some().then(|| digest(&new_run));
    Ok(Submit {
        tenant: caller.tenant,
        key: caller.key,
        budgets: caller.budgets,
        request_id: new_run.request_id,
        request_digest,
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

/// A hash of everything that a client can set: a request id that comes with another request is refused.
fn digest(new_run: &NewRun) -> String {
    // Every field is named, so that a new one cannot be forgotten.
    let NewRun { request_id: _, model, conversation, policy, answer_tokens_max, sampling, answer, stops } =
        new_run;
    let mut parts = serde_json::json!([
        model.to_string(),
        conversation,
        answer_tokens_max,
        sampling,
        answer,
        stops,
        policy.effort,
        [policy.steps_max, policy.rounds_max],
        policy.attempts_max,
        policy.deadline_ms,
        policy.cost_max,
        policy.output_bytes_max,
        policy.workers_allowed,
    ]);
    let chosen = chosen(policy);
    if let (false, Some(parts)) = (chosen.is_empty(), parts.as_array_mut()) {
        parts.push(chosen.into());
    }
    hex(&Sha256::digest(parts.to_string().as_bytes()))
}

/// The fields of a policy that differ from the defaults, and their values. A field that a later version adds with a default
/// leaves the digest of a request as it was.
fn chosen(policy: &Policy) -> Map<String, Value> {
    let fields = |policy: &Policy| match serde_json::to_value(policy) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (mut given, defaults) = (fields(policy), fields(&Policy::new(policy.tier, policy.effort)));
    // A value that is not written, since it was meant before there was a choice, is null here.
    for name in defaults.keys() {
        given.entry(name).or_insert(Value::Null);
    }
    given.retain(|name, value| defaults.get(name) != Some(value));
    given
}

/// A tenant's run as it stands. To other tenants it does not exist.
pub async fn load(engine: &Engine, tenant: &TenantId, id: RunId) -> Result<Run, ApiError> {
    let run = engine.run(id).await.map_err(|e| store_error(&e))?;
    run.filter(|run| run.spec().tenant == *tenant).ok_or_else(|| unknown_run(id))
}

/// The error for a run that does not exist.
pub(crate) fn unknown_run(id: RunId) -> ApiError {
    ApiError::on_field(ErrorCode::RunNotFound, "run_id", format!("there is no run `{id}`"))
}

/// Why a run that ended has no answer; none if it has one.
pub(crate) fn run_error(run: &Run) -> Option<ApiError> {
    match run.state() {
        RunState::Succeeded { .. } => None,
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
            ApiError::on_field(ErrorCode::ContextLengthExceeded, "messages", error.to_string())
        }
        SubmitError::NoWorkerAllowed => {
            ApiError::on_field(ErrorCode::NoWorkerAllowed, "policy.workers_allowed", error.to_string())
        }
        SubmitError::OtherRequest { .. } => ApiError::new(ErrorCode::IdempotencyMismatch, error.to_string()),
        SubmitError::OverBudget(e) => ApiError::new(ErrorCode::InsufficientQuota, e.to_string()),
        SubmitError::Store(e) => store_error(e),
        SubmitError::Illegal(e) => defect(e),
    }
}

/// The error for a run that cannot be watched.
pub fn watch_error(id: RunId, error: &WatchError) -> ApiError {
    match error {
        WatchError::UnknownRun => unknown_run(id),
        WatchError::Store(e) => store_error(e),
    }
}

/// The error for an answer that breaks off. It says where the rest is, as the client has no run id from a header in every SDK.
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
    let message = format!("the server is stopping, the run goes on; GET /v1/runs/{run} returns the answer");
    ApiError::new(ErrorCode::Stopping, message)
}

/// The error for an answer that cannot be held, as other clients do not read theirs.
pub(crate) fn overloaded(run: RunId) -> ApiError {
    let message = format!(
        "too many bytes of answers wait for clients that do not read them; GET /v1/runs/{run} returns the answer later"
    );
    ApiError::new(ErrorCode::Overloaded, message)
}

/// The same for a client that watches, and has all events up to `sequence`.
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
        CommandError::Refused(_) => ApiError::new(ErrorCode::RunEnded, format!("run {id} has ended already")),
        CommandError::Damaged => ApiError::new(ErrorCode::Internal, format!("run {id} cannot be read")),
        CommandError::Contended => ApiError::new(ErrorCode::Unavailable, error.to_string()),
        CommandError::Store(e) => store_error(e),
        CommandError::Stopped => stopping(),
    }
}

/// Stores a client's rating of a run.
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

/// The error for a store that fails. The details go to the log.
pub(crate) fn store_error(error: &StoreError) -> ApiError {
    match error {
        StoreError::Unavailable(_) | StoreError::Refused(_) => {
            tracing::error!(error = chain(error), "the store failed");
            ApiError::new(ErrorCode::Unavailable, "the store does not answer; try again later")
        }
        StoreError::Inconsistent { .. } => defect(error),
        StoreError::Removed { run } => unknown_run(*run),
    }
}

/// The error for a server that is stopping.
pub(crate) fn stopping() -> ApiError {
    ApiError::new(ErrorCode::Stopping, "the server is stopping")
}

/// The error for a defect. The details go to the log.
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

#[cfg(test)]
mod tests {
    use podium_api::v1;

    use super::*;

    fn new_run(change: impl FnOnce(&mut v1::CreateRunRequest)) -> NewRun {
        let text = "why?".to_owned();
        let message = v1::Message { role: v1::Role::User.into(), text, ..Default::default() };
        let mut request = v1::CreateRunRequest { messages: vec![message], ..Default::default() };
        change(&mut request);
        NewRun::try_from(request).unwrap()
    }

    #[test]
    fn two_requests_have_one_digest_only_if_they_ask_for_the_same() {
        let same = digest(&new_run(|_| {}));
        assert_eq!(digest(&new_run(|request| request.request_id = "other".to_owned())), same);
        assert_eq!(digest(&new_run(|request| request.model = "podium-ultra".to_owned())), same);
        for other in [
            new_run(|request| request.messages[0].text.push('!')),
            new_run(|request| request.model = "podium-mini".to_owned()),
            new_run(|request| request.effort = v1::Effort::High.into()),
            new_run(|request| request.answer_tokens_max = Some(5)),
            new_run(|request| request.stop = vec!["x".to_owned()]),
            new_run(|request| request.policy = Some(v1::Policy { steps_max: Some(2), ..Default::default() })),
        ] {
            assert_ne!(digest(&other), same, "{other:?}");
        }
    }

    #[test]
    fn the_digest_covers_every_field_of_a_policy() {
        let run = new_run(|_| {});
        let same = digest(&run);
        let Value::Object(fields) = serde_json::to_value(&run.policy).unwrap() else { panic!("no fields") };
        let words = ["none", "pool", "again", "continue", "fail", "off", "high", "mini"];
        let mut others: Vec<Value> = words.map(Value::from).to_vec();
        others.extend([1.into(), 4.into(), serde_json::json!({"only": ["w"]})]);
        for name in fields.keys() {
            let mut is_covered = false;
            for other in &others {
                let changed = fields.iter().map(|(field, value)| {
                    (field.clone(), if field == name { other.clone() } else { value.clone() })
                });
                let Ok(policy) = serde_json::from_value(Value::Object(changed.collect())) else { continue };
                if policy == run.policy {
                    continue;
                }
                let other = NewRun { policy, ..run.clone() };
                assert_ne!(digest(&other), same, "{name}: {:?}", other.policy);
                is_covered = true;
            }
            assert!(is_covered, "the test has no other value for {name}");
        }
    }
}
