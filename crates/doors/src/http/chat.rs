//! `POST /v1/chat/completions`.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use podium_api::openai::{ChatRequest, Completion, ErrorBody};
use podium_api::{ApiError, ErrorCode};
use podium_domain::ids::{RequestId, RunId, TenantId};
use podium_domain::run::Run;
use podium_engine::{AnswerError, AnswerPart, Ending};
use tokio_util::sync::CancellationToken;

use super::money::EstimateBody;
use super::reply::{Refusal, json, name_run};
use super::{BODY_BYTES_MAX, Door};
use crate::asking;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Silence on a stream after which a comment is sent, so that nobody in between closes it.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

pub(super) async fn complete(
    State(door): State<Door>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    if door.stopping.is_cancelled() {
        return Err(asking::stopping().into());
    }
    let caller = door.caller(&headers).await?;
    let mut request = ChatRequest::parse(&whole(body)?)?;
    request.new_run.request_id = idempotency_key(&headers)?;
    if !request.stream {
        let (submitted, ending) = asking::ask(&door.engine, caller, request.new_run).await?;
        return whole_answer(&door, submitted.run_id(), ending).await;
    }
    let tenant = caller.tenant.clone();
    let id = asking::submit(&door.engine, caller, request.new_run).await?.run_id();
    let mut response = streamed(&door, (&tenant, id), request.include_usage).await?;
    name_run(&mut response, id);
    Ok(response)
}

/// `POST /v1/estimates`: a request for a completion, and what it could cost.
pub(super) async fn estimate(
    State(door): State<Door>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    let caller = door.caller(&headers).await?;
    let request = ChatRequest::parse(&whole(body)?)?;
    let estimate = asking::estimate(&door.engine, caller, request.new_run).await?;
    let body = serde_json::to_string(&EstimateBody::of(&estimate)).map_err(|e| asking::defect(&e))?;
    Ok(json(body))
}

pub(super) fn whole(body: Result<Bytes, BytesRejection>) -> Result<Bytes, ApiError> {
    body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!("the request is longer than {BODY_BYTES_MAX} bytes");
            ApiError::new(ErrorCode::BodyTooLarge, message)
        }
        _ => ApiError::new(ErrorCode::InvalidJson, "the request broke off"),
    })
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<RequestId>, ApiError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let wrong = |problem: String| {
        ApiError::on_field(ErrorCode::InvalidValue, IDEMPOTENCY_KEY, format!("{IDEMPOTENCY_KEY}: {problem}"))
    };
    let text = value.to_str().map_err(|_| wrong("it must be ASCII".to_owned()))?;
    RequestId::new(text).map(Some).map_err(|e| wrong(e.to_string()))
}

type Answer = BoxStream<'static, Result<AnswerPart, AnswerError>>;

async fn streamed(
    door: &Door,
    (tenant, id): (&TenantId, RunId),
    include_usage: bool,
) -> Result<Response, ApiError> {
    let run = asking::load(&door.engine, tenant, id).await?;
    let streaming = Streaming {
        completion: Completion::of(&run),
        include_usage,
        answer: door.engine.answer(id).await.map_err(|e| asking::watch_error(id, &e))?,
        cut: door.cut.clone(),
        stage: Stage::Opening,
    };
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_EVERY).text("keep-alive");
    Ok(Sse::new(streaming.into_events()).keep_alive(keep_alive).into_response())
}

async fn whole_answer(door: &Door, id: RunId, mut ending: Ending) -> Result<Response, Refusal> {
    // What its workers write on the way is of no concern here.
    let ended = tokio::select! {
        run = ending.run() => run.map_err(|e| asking::watch_error(id, &e)),
        () = door.cut.cancelled() => {
            Err(asking::stopping())
        }
    };
    let run = ended.map_err(|e| Refusal::of_run(e, id))?;
    match (Completion::of(&run).whole(&run), asking::run_error(&run)) {
        (Some(body), None) => {
            let mut response = json(body);
            name_run(&mut response, id);
            Ok(response)
        }
        (_, Some(error)) => Err(Refusal::of_run(error, id)),
        (None, None) => Err(Refusal::of_run(no_output(id), id)),
    }
}

fn no_output(run: RunId) -> ApiError {
    ApiError::new(ErrorCode::Internal, format!("run {run} succeeded without an output"))
}

/// Where a stream of chunks stands.
enum Stage {
    Opening,
    Answering,
    /// These are left to be said, the last one first.
    Closing(Vec<String>),
}

struct Streaming {
    completion: Completion,
    include_usage: bool,
    answer: Answer,
    cut: CancellationToken,
    stage: Stage,
}

impl Streaming {
    fn into_events(self) -> BoxStream<'static, Result<Event, Infallible>> {
        stream::unfold(self, |mut streaming| async {
            let data = streaming.next().await?;
            Some((Ok(Event::default().data(data)), streaming))
        })
        .boxed()
    }

    /// The data of the next event.
    async fn next(&mut self) -> Option<String> {
        match &mut self.stage {
            Stage::Opening => {
                self.stage = Stage::Answering;
                return Some(self.completion.opening(self.include_usage));
            }
            Stage::Closing(left) => return left.pop(),
            Stage::Answering => {}
        }
        let part = tokio::select! {
            part = self.answer.next() => part,
            () = self.cut.cancelled() => return Some(self.fail(&asking::stopping())),
        };
        match part? {
            Ok(AnswerPart::Text(text)) => Some(self.completion.delta(&text, self.include_usage)),
            Ok(AnswerPart::Ended(run)) => Some(self.end(&run)),
            Err(error) => Some(self.fail(&asking::answer_error(&error))),
        }
    }

    fn end(&mut self, run: &Run) -> String {
        if let Some(error) = asking::run_error(run) {
            return self.fail(&error);
        }
        let mut left = vec!["[DONE]".to_owned()];
        if self.include_usage {
            left.push(self.completion.usage(run));
        }
        self.stage = Stage::Closing(left);
        self.completion.closing(run, self.include_usage)
    }

    /// An error event; nothing follows it.
    fn fail(&mut self, error: &ApiError) -> String {
        self.stage = Stage::Closing(Vec::new());
        ErrorBody::new(error).to_json()
    }
}
