//! The requests to the engine that both APIs share.

use podium_api::{ApiError, ErrorCode, ModelName, NewRun, ServedModels};
use podium_domain::conversation::Message;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::policy::Policy;
use podium_domain::rating::Rating;
use podium_domain::request::RunRequest;
use podium_domain::required_features::takes_results;
use podium_domain::run::Run;
use podium_engine::{Ending, Engine, Estimate, Submit, Submitted};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::auth::{Caller, hex};
use crate::error_mapping::{rate_error, results_error, store_error, submit_error, unknown_run};

/// Accepts a run.
pub async fn submit(engine: &Engine, caller: Caller, new_run: NewRun) -> Result<Submitted, ApiError> {
    let budgets = caller.budgets.clone();
    let submitted = engine.submit(request(engine, caller, new_run)?).await;
    submitted.map_err(|e| submit_error(&e, &budgets, engine.now()))
}

/// Accepts a run whose client waits for the end.
pub(crate) async fn ask(
    engine: &Engine,
    caller: Caller,
    new_run: NewRun,
) -> Result<(Submitted, Ending), ApiError> {
    let budgets = caller.budgets.clone();
    let asked = engine.ask(request(engine, caller, new_run)?).await;
    asked.map_err(|e| submit_error(&e, &budgets, engine.now()))
}

/// Estimates the cost of a run.
pub(crate) async fn estimate(engine: &Engine, caller: Caller, new_run: NewRun) -> Result<Estimate, ApiError> {
    let request = request(engine, caller, new_run)?;
    engine.estimate(&request).await.map_err(|e| submit_error(&e, &request.budgets, engine.now()))
}

/// The models that this server serves.
pub(crate) fn served(engine: &Engine) -> ServedModels {
    ServedModels {
        conductors: engine.conductor_ids(),
        max: engine.workflow_head_id(),
        pool: engine.pool().version(),
    }
}

/// Checks that a model is served here.
pub(crate) fn check_model(engine: &Engine, model: &ModelName) -> Result<(), ApiError> {
    conductor_of(engine, model).map(drop)
}

/// The conductor that a request for this model must get, if not any.
fn conductor_of(engine: &Engine, model: &ModelName) -> Result<Option<String>, ApiError> {
    let served = served(engine);
    let conductor = served.conductor_of(model).map(|id| id.map(ToOwned::to_owned));
    conductor.map_err(|error| ApiError::on_field(ErrorCode::ModelNotFound, "model", error.to_string()))
}

fn request(engine: &Engine, caller: Caller, new_run: NewRun) -> Result<Submit, ApiError> {
    let conductor = conductor_of(engine, &new_run.model)?;
    let request_digest = new_run.request_id.is_some().then(|| digest(&new_run));
    Ok(Submit {
        tenant: caller.tenant,
        key: caller.key,
        budgets: caller.budgets,
        request_id: new_run.request_id,
        request_digest,
        model: new_run.model.to_string(),
        conductor,
        request: new_run.request,
    })
}

/// A hash of all fields that a client can set. A known request id with another digest is rejected.
fn digest(new_run: &NewRun) -> String {
    // All fields are named, so that the compiler reports a new one here.
    let NewRun { request_id: _, model, request } = new_run;
    // A repeated request has a span of its own.
    let RunRequest {
        conversation,
        policy,
        answer_tokens_max,
        sampling,
        answer,
        stops,
        tools,
        shows_reasoning,
        trace: _,
        api_record,
    } = request;
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
    // Left out without tools, so that the digests of earlier versions stay valid. The same holds for the record.
    if let (Some(tools), Some(parts)) = (tools, parts.as_array_mut()) {
        parts.push(serde_json::json!({ "tools": tools }));
    }
    if let (true, Some(parts)) = (shows_reasoning, parts.as_array_mut()) {
        parts.push(serde_json::json!({ "shows_reasoning": true }));
    }
    if let (Some(record), Some(parts)) = (api_record, parts.as_array_mut()) {
        parts.push(serde_json::json!({ "api_record": record }));
    }
    hex(&Sha256::digest(parts.to_string().as_bytes()))
}

/// The fields of a policy that differ from the defaults, and their values. So a field that a later version adds with a default
/// does not change the digests of earlier requests.
fn chosen(policy: &Policy) -> Map<String, Value> {
    let fields = |policy: &Policy| match serde_json::to_value(policy) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (mut given, defaults) = (fields(policy), fields(&Policy::new(policy.tier, policy.effort)));
    // A value that serde leaves out, because older versions had no choice, is null here.
    for name in defaults.keys() {
        given.entry(name).or_insert(Value::Null);
    }
    given.retain(|name, value| defaults.get(name) != Some(value));
    given
}

/// Loads a run. Another tenant's run is reported as unknown.
pub async fn load(engine: &Engine, tenant: &TenantId, id: RunId) -> Result<Run, ApiError> {
    let run = engine.run(id).await.map_err(|e| store_error(&e))?;
    run.filter(|run| run.spec().tenant == *tenant).ok_or_else(|| unknown_run(id))
}

/// Loads a run as it was at the end of a reply; as it is now if that reply is the current one.
pub(crate) async fn load_reply(
    engine: &Engine,
    tenant: &TenantId,
    id: RunId,
    reply: u16,
) -> Result<Run, ApiError> {
    let run = engine.run_at(id, reply).await.map_err(|e| store_error(&e))?;
    run.filter(|run| run.spec().tenant == *tenant).ok_or_else(|| unknown_run(id))
}

/// Gives tool results to a suspended run.
pub(crate) async fn give_results(
    engine: &Engine,
    tenant: &TenantId,
    id: RunId,
    results: Message,
) -> Result<Run, ApiError> {
    let run = load(engine, tenant, id).await?;
    takes_results(&run, &engine.pool(), std::slice::from_ref(&results))
        .map_err(|none| ApiError::on_field(ErrorCode::NoWorkerAllowed, "results", none.to_string()))?;
    let given = engine.give_results(id, vec![results.clone()]).await;
    given.map_err(|e| results_error(&run, &results, &e))
}

/// Stores a client's rating of a run.
pub(crate) async fn rate(
    engine: &Engine,
    tenant: &TenantId,
    id: RunId,
    rating: &Rating,
) -> Result<(), ApiError> {
    engine.rate(tenant, id, rating).await.map_err(|e| rate_error(id, &e))
}

/// Builds a rating from a score and a comment.
pub(crate) fn rating(score: f64, comment: Option<String>) -> Result<Rating, ApiError> {
    Rating::new(score, comment)
        .map_err(|e| ApiError::on_field(ErrorCode::InvalidValue, e.field(), e.to_string()))
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
    fn two_requests_share_a_digest_only_if_they_are_equal() {
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
        let Value::Object(fields) = serde_json::to_value(&run.request.policy).unwrap() else {
            panic!("no fields")
        };
        let words = ["none", "pool", "again", "continue", "fail", "off", "high", "mini", "last"];
        let mut others: Vec<Value> = words.map(Value::from).to_vec();
        others.extend([1.into(), 4.into(), serde_json::json!({"only": ["w"]})]);
        for name in fields.keys() {
            let mut is_covered = false;
            for other in &others {
                let changed = fields.iter().map(|(field, value)| {
                    (field.clone(), if field == name { other.clone() } else { value.clone() })
                });
                let Ok(policy) = serde_json::from_value(Value::Object(changed.collect())) else { continue };
                if policy == run.request.policy {
                    continue;
                }
                let mut other = run.clone();
                other.request.policy = policy;
                assert_ne!(digest(&other), same, "{name}: {:?}", other.request.policy);
                is_covered = true;
            }
            assert!(is_covered, "the test has no other value for {name}");
        }
    }
}
