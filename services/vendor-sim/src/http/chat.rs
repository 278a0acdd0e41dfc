//! `POST /v1/chat/completions`: checks, meets the scripted fault, lets the model answer, and sends that at its pace.

use std::{
    fmt::Write as _,
    io,
    num::NonZero,
    sync::{Arc, PoisonError},
    time::{Duration, SystemTime},
};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{State, rejection::BytesRejection},
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures::stream;
use sha2::{Digest, Sha256};

use super::{
    completion::{Completion, TOKEN_BYTES, Usage, limited},
    error::ApiError,
    request::{ChatRequest, Delivery},
};
use crate::{
    behaviour::{CallScript, Fault},
    calls::{Arrival, CallEntry, CallLog, Outcome},
    dice,
    models::Model,
    prompt,
    sim::Shared,
};

/// Bytes of a subtask that the log of calls keeps.
const LOGGED_BYTES_MAX: usize = 2_000;
/// Requests a minute that the rate-limit headers speak of; nothing counts them.
const REQUESTS_A_MINUTE: &str = "10000";

pub(super) async fn completions(
    State(shared): State<Arc<Shared>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let request = ChatRequest::parse(&body.map_err(|_| ApiError::too_large())?)?;
    let model = Model::named(&request.model).ok_or_else(|| ApiError::unknown_model(&request.model))?;
    let entry = shared.calls.begin(arrival(model, &request));
    let script = shared.script(model, entry.sequence());
    if let Some(fault) = script.fault {
        entry.meets(fault.name());
    }
    let mut response = match refusal(model, script.fault) {
        Some(error) => {
            entry.end(Outcome::Failed);
            error.into_response()
        }
        None if script.fault == Some(Fault::Hang) => {
            // The entry is kept until the caller goes away or the simulator stops.
            let _entry = entry;
            std::future::pending().await
        }
        None => answered(&shared, model, request, script, entry).await,
    };
    add_headers(&shared, &mut response);
    Ok(response)
}

fn arrival(model: Model, request: &ChatRequest) -> Arrival {
    let message = request.last_user_text();
    let mut subtask = prompt::task(message).subtask;
    let end = (0..=LOGGED_BYTES_MAX.min(subtask.len())).rev().find(|end| subtask.is_char_boundary(*end));
    subtask.truncate(end.unwrap_or(0));
    let digest = Sha256::digest(message.as_bytes());
    let message_sha256 = digest.iter().fold(String::new(), |mut digits, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    Arrival { model, stream: request.delivery != Delivery::Whole, subtask, message_sha256 }
}

fn refusal(model: Model, fault: Option<Fault>) -> Option<ApiError> {
    match fault? {
        Fault::RateLimit { retry_after_s } => Some(ApiError::rate_limit(model.id(), retry_after_s)),
        Fault::ServerError => Some(ApiError::server_error()),
        Fault::Overloaded => Some(ApiError::overloaded()),
        Fault::Hang | Fault::CutStream { .. } | Fault::SlowFirstToken { .. } | Fault::Garbage => None,
    }
}

async fn answered(
    shared: &Arc<Shared>,
    model: Model,
    request: ChatRequest,
    script: CallScript,
    entry: CallEntry,
) -> Response {
    let delivery = request.delivery;
    let Some(completion) = complete(shared, model, request, script, entry.sequence()).await else {
        entry.end(Outcome::Failed);
        return ApiError::server_error().into_response();
    };
    let cut_after =
        if let Some(Fault::CutStream { after_chunks }) = script.fault { Some(after_chunks) } else { None };
    match (delivery, cut_after) {
        (Delivery::Whole, None) => {
            let gaps = u64::try_from(completion.pieces.len().saturating_sub(1)).unwrap_or(u64::MAX);
            first_token(&shared.calls, script).await;
            pause(script.token_ms.saturating_mul(gaps)).await;
            entry.end(Outcome::Answered);
            Json(completion.whole()).into_response()
        }
        (Delivery::Whole, Some(_)) => {
            first_token(&shared.calls, script).await;
            let mut frames = vec![completion.whole().to_string()];
            let half =
                (0..=frames[0].len() / 2).rev().find(|end| frames[0].is_char_boundary(*end)).unwrap_or(0);
            frames[0].truncate(half);
            let script = CallScript { first_token_ms: 0, first_token_tick_ms: 0, ..script };
            sent(shared, frames, Ending::Cut, (script, entry), "application/json")
        }
        (Delivery::Stream | Delivery::StreamWithUsage, _) => {
            let usage = if delivery == Delivery::StreamWithUsage { Usage::Included } else { Usage::LeftOut };
            let chunks = completion.chunks(usage);
            let mut frames: Vec<String> = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
            let ending = match cut_after {
                None => Ending::Whole,
                Some(after_chunks) => {
                    frames.truncate(after_chunks);
                    Ending::Cut
                }
            };
            if ending == Ending::Whole {
                frames.push("data: [DONE]\n\n".to_owned());
            }
            sent(shared, frames, ending, (script, entry), "text/event-stream; charset=utf-8")
        }
    }
}

/// Lets the model answer. `None` only if the answering thread died.
async fn complete(
    shared: &Arc<Shared>,
    model: Model,
    request: ChatRequest,
    script: CallScript,
    sequence: u64,
) -> Option<Completion> {
    let turns: Vec<&str> =
        request.messages.iter().flat_map(|(role, text)| [role.as_str(), ": ", text.as_str(), "\n"]).collect();
    let prompt = turns.concat();
    let prompt_tokens = request.messages.iter().map(|(_, text)| text.len().div_ceil(TOKEN_BYTES)).sum();
    let cached = shared.prompts.lock().unwrap_or_else(PoisonError::into_inner).cached_tokens(model, &prompt);
    let generalist = shared.generalist();
    let message = request.last_user_text().to_owned();
    let mut text = match script.fault {
        Some(Fault::Garbage) => garbage(shared.seed(), sequence),
        _ => tokio::task::spawn_blocking(move || model.answer(&message, generalist)).await.ok()?,
    };
    for _ in 0..script.stamp_words {
        // Writing to a string cannot fail.
        let _ = write!(text, " call-{sequence}");
    }
    let (pieces, finish_reason) = limited(&text, &request.stops, request.tokens_max);
    let id = dice::draw(shared.seed(), &["id", model.id(), &sequence.to_string()]);
    Some(Completion {
        id: format!("chatcmpl-sim{id:016x}"),
        model: model.id(),
        created: now(),
        pieces,
        finish_reason,
        prompt_tokens,
        cached_tokens: cached.min(prompt_tokens),
    })
}

/// Text that is no answer to anything, with unbalanced brackets to trip up those who look for lists in it.
fn garbage(seed: u64, sequence: u64) -> String {
    let draw = dice::draw(seed, &["garbage", &sequence.to_string()]);
    format!("model_id = [[{draw:x}, subtasks = [\"unfinished, access_list = }} zzz {draw:b}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Whole,
    Cut,
}

/// A response whose frames are sent at the scripted pace. Its entry is ended with the last frame, or abandoned with it.
fn sent(
    shared: &Shared,
    frames: Vec<String>,
    ending: Ending,
    (script, entry): (CallScript, CallEntry),
    content_type: &'static str,
) -> Response {
    let state = (frames.into_iter().enumerate().peekable(), Some(entry), Arc::clone(&shared.calls));
    let frames = stream::unfold(state, move |(mut frames, mut entry, calls)| async move {
        let Some((index, frame)) = frames.next() else {
            let entry = entry.take()?;
            // Only a cut gets here with its entry: the last frame of a whole answer ends it.
            pause(script.token_ms).await;
            // Gives the connection a turn to send what it has, so that the cut comes after it.
            tokio::task::yield_now().await;
            entry.end(Outcome::Cut);
            let broken = io::Error::new(io::ErrorKind::ConnectionAborted, "scripted cut");
            return Some((Err(broken), (frames, None, calls)));
        };
        if index == 0 {
            first_token(&calls, script).await;
        } else {
            pause(script.token_ms).await;
        }
        if ending == Ending::Whole
            && frames.peek().is_none()
            && let Some(entry) = entry.take()
        {
            entry.end(Outcome::Answered);
        }
        Some((Ok(Bytes::from(frame)), (frames, entry, calls)))
    });
    let headers = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(frames)).into_response()
}

fn add_headers(shared: &Shared, response: &mut Response) {
    let request_id =
        format!("req_{:016x}", dice::draw(shared.seed(), &["request", &shared.calls.received().to_string()]));
    let limited = response.status() == axum::http::StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    if let Ok(request_id) = HeaderValue::try_from(request_id) {
        headers.insert(HeaderName::from_static("x-request-id"), request_id);
    }
    headers.insert(
        HeaderName::from_static("x-ratelimit-limit-requests"),
        HeaderValue::from_static(REQUESTS_A_MINUTE),
    );
    let remaining = if limited { "0" } else { "9999" };
    headers.insert(
        HeaderName::from_static("x-ratelimit-remaining-requests"),
        HeaderValue::from_static(remaining),
    );
    if !limited {
        headers
            .insert(HeaderName::from_static("x-ratelimit-reset-requests"), HeaderValue::from_static("6ms"));
    }
}

/// Waits as long as the first token is to take.
async fn first_token(calls: &CallLog, script: CallScript) {
    pause(script.first_token_ms).await;
    if let Some(tick_ms) = NonZero::new(script.first_token_tick_ms) {
        tokio::time::sleep_until(calls.next_tick(tick_ms).into()).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the simulator is a process of its own at the edge: real latency is its purpose"
)]
async fn pause(milliseconds: u64) {
    if milliseconds > 0 {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "`created` is wall-clock time on the wire, and nothing decides by it"
)]
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
