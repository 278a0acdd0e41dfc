//! Ratings of runs: storing one, listing the rated outcomes.

use podium_api::v1;
use podium_api::{ApiError, ErrorCode, timestamp};
use podium_domain::ids::{RunId, TenantId};
use podium_domain::rating::Rating;
use podium_domain::time::Timestamp;
use podium_engine::{Engine, RatedOutcome};

use super::service::{page_size, page_token, run_id};
use crate::error_mapping;
use crate::use_cases;

pub(super) async fn rate(
    engine: &Engine,
    tenant: &TenantId,
    request: v1::RateRunRequest,
) -> Result<v1::RateRunResponse, ApiError> {
    let id = run_id(&request.run_id)?;
    let score = request
        .score
        .ok_or_else(|| ApiError::on_field(ErrorCode::MissingParameter, "score", "score is missing"))?;
    let rating = use_cases::rating(score, Some(request.comment))?;
    use_cases::rate(engine, tenant, id, &rating).await?;
    Ok(v1::RateRunResponse { rating: Some(message(&rating)) })
}

pub(super) async fn outcomes(
    engine: &Engine,
    tenant: &TenantId,
    request: v1::ListOutcomesRequest,
) -> Result<v1::ListOutcomesResponse, ApiError> {
    let from = request.from_time.map_or(Ok(Timestamp::default()), |at| time("from_time", at))?;
    let until = request.until_time.map_or(Ok(END_OF_TIME), |at| time("until_time", at))?;
    let after = page_token(&request.page_token)?;
    let page = engine.outcomes(tenant, from..until, after, page_size(request.page_size)).await;
    let page = page.map_err(|e| error_mapping::store_error(&e))?;
    Ok(v1::ListOutcomesResponse {
        outcomes: page.outcomes.iter().map(outcome).collect(),
        next_page_token: page.next.as_ref().map(RunId::to_string).unwrap_or_default(),
    })
}

const END_OF_TIME: Timestamp = Timestamp::from_unix_ms(u64::MAX);

/// A time in whole milliseconds. Times before 1970 become 1970.
fn time(field: &str, at: prost_types::Timestamp) -> Result<Timestamp, ApiError> {
    let nanos = u32::try_from(at.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    let nanos = nanos.ok_or_else(|| {
        let message = format!("{field}.nanos must be 0 to 999999999 (got {})", at.nanos);
        ApiError::on_field(ErrorCode::InvalidValue, field, message)
    })?;
    let seconds = u64::try_from(at.seconds).unwrap_or_default();
    Ok(Timestamp::from_unix_ms(seconds.saturating_mul(1000).saturating_add(u64::from(nanos / 1_000_000))))
}

fn message(rating: &Rating) -> v1::Rating {
    v1::Rating { score: rating.score(), comment: rating.comment().unwrap_or_default().to_owned() }
}

fn outcome(outcome: &RatedOutcome) -> v1::Outcome {
    v1::Outcome {
        run_id: outcome.run.to_string(),
        question: outcome.question.clone(),
        worker: outcome.worker.to_string(),
        rating: Some(message(&outcome.rating)),
        rate_time: Some(timestamp(outcome.rated_at)),
        cost_nano_usd: outcome.cost.nano_usd(),
        latency_ms: u64::try_from(outcome.latency.as_millis()).unwrap_or(u64::MAX),
    }
}
