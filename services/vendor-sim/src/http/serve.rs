//! Serves a call in any wire format: applies the scripted fault, lets the model answer, and sends the answer at the scripted pace.

use std::{
    fmt::Write as _,
    io,
    num::NonZero,
    sync::{Arc, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{Path, State, rejection::BytesRejection},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use futures::stream;
use sha2::{Digest, Sha256};

use super::{
    ask::{Ask, Delivery},
    chat,
    completion::{self, Call, Completion, End, TOKEN_BYTES, limited},
    error::ApiError,
    format::Format,
    gemini, messages, responses,
    spoil::{self, Ending, ResetAtEnd, Spoilt},
};
use podium_demo_workers::{Asked, Model, dice, prompt};

use crate::{
    behaviour::{CallScript, Fault},
    calls::{Arrival, CallEntry, CallLog, Outcome},
    recorded,
    script::ScriptedReply,
    sim::Shared,
};

/// Bytes of a subtask in the log of calls.
const LOGGED_BYTES_MAX: usize = 2_000;

/// A body, or the error of reading it.
type MaybeBody = Result<Bytes, BytesRejection>;

pub(super) async fn chat_completions(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: MaybeBody,
) -> Response {
    let ask = read(body).and_then(|body| chat::parse(&body));
    respond(&shared, Format::Chat, &headers, ask).await
}

pub(super) async fn create_response(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: MaybeBody,
) -> Response {
    let ask = read(body).and_then(|body| responses::parse(&body));
    respond(&shared, Format::Responses, &headers, ask).await
}

pub(super) async fn create_message(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: MaybeBody,
) -> Response {
    let ask = messages::version(&headers)
        .and_then(|version| read(body).and_then(|body| messages::parse(&body, version)));
    respond(&shared, Format::Messages, &headers, ask).await
}

pub(super) async fn generate_content(
    State(shared): State<Arc<Shared>>,
    Path(action): Path<String>,
    headers: HeaderMap,
    body: MaybeBody,
) -> Response {
    let ask = match gemini::action(&action) {
        Some((model, delivery)) => read(body).and_then(|body| gemini::parse(&body, model, delivery)),
        None => Err(ApiError::unknown_model(&action)),
    };
    respond(&shared, Format::Gemini, &headers, ask).await
}

fn read(body: MaybeBody) -> Result<Bytes, ApiError> {
    body.map_err(|_| ApiError::too_large())
}

async fn respond(
    shared: &Arc<Shared>,
    format: Format,
    headers: &HeaderMap,
    ask: Result<Ask, ApiError>,
) -> Response {
    let model = |ask: Ask| match shared.asked(&ask.model) {
        Some(asked) => Ok((asked, ask)),
        None => Err(ApiError::unknown_model(&ask.model)),
    };
    let mut response = match ask.and_then(model) {
        Ok((asked, ask)) => {
            let arrival = arrival(asked.model, &ask, headers);
            called(shared, format, asked, arrival, ask).await
        }
        Err(error) => error.response(format),
    };
    let draw = dice::draw(shared.seed(), &["request", &shared.calls.received().to_string()]);
    let headers = format.headers(&format!("req_{draw:016x}"), response.status());
    response.headers_mut().extend(headers);
    if let Some((limit, mut quota)) = shared.quota() {
        response.headers_mut().extend(quota.standing(Instant::now(), limit).headers(format));
    }
    response
}

async fn called(shared: &Arc<Shared>, format: Format, asked: Asked, arrival: Arrival, ask: Ask) -> Response {
    let model = asked.model;
    let entry = shared.calls.begin(arrival);
    if let Some(wait) = refused_by_limit(shared, &ask) {
        entry.show_fault("limit");
        entry.end(Outcome::Failed);
        return ApiError::rate_limit(model.id(), wait.as_secs() + 1).response(format);
    }
    let script = shared.script(model, entry.sequence());
    if let Some(fault) = script.fault {
        entry.show_fault(fault.name());
    }
    match spoil::refusal(model, format, script.fault) {
        Some(refusal) => {
            entry.end(Outcome::Failed);
            refusal
        }
        None if script.fault == Some(Fault::Hang) => {
            // The entry is kept until the caller disconnects or the simulator stops.
            let _entry = entry;
            std::future::pending().await
        }
        None => answered(shared, format, asked, ask, script, entry).await,
    }
}

/// The time to wait if the account's limit rejects the request.
fn refused_by_limit(shared: &Shared, ask: &Ask) -> Option<Duration> {
    let (limit, mut quota) = shared.quota()?;
    quota.admit(Instant::now(), limit, tokens(prompt_tokens(ask))).err()
}

fn prompt_tokens(ask: &Ask) -> usize {
    ask.turns.iter().map(|turn| turn.text.len().div_ceil(TOKEN_BYTES)).sum()
}

fn tokens(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn arrival(model: Model, ask: &Ask, headers: &HeaderMap) -> Arrival {
    let message = ask.last_user_text();
    let mut subtask = prompt::task(message).subtask;
    let end = (0..=LOGGED_BYTES_MAX.min(subtask.len())).rev().find(|end| subtask.is_char_boundary(*end));
    subtask.truncate(end.unwrap_or(0));
    let digest = Sha256::digest(message.as_bytes());
    let message_sha256 = digest.iter().fold(String::new(), |mut digits, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned);
    Arrival { model, stream: ask.delivery != Delivery::Whole, subtask, message_sha256, traceparent }
}

async fn answered(
    shared: &Arc<Shared>,
    format: Format,
    asked: Asked,
    ask: Ask,
    script: CallScript,
    entry: CallEntry,
) -> Response {
    let delivery = if script.never_streams { Delivery::Whole } else { ask.delivery };
    let Some(completion) = complete(shared, asked, ask, script, entry.sequence()).await else {
        entry.end(Outcome::Failed);
        return ApiError::server_error().response(format);
    };
    if let Some((_, mut quota)) = shared.quota() {
        quota.written(Instant::now(), tokens(completion.completion_tokens()));
    }
    let spoilt = Spoilt::by(script.fault);
    let (frames, content_type) = match delivery {
        Delivery::Whole => {
            let gaps = u64::try_from(completion.pieces.len().saturating_sub(1)).unwrap_or(u64::MAX);
            first_token(&shared.calls, script).await;
            pause(script.token_ms.saturating_mul(gaps)).await;
            let whole = format.whole(&completion);
            if spoilt == Spoilt::NOT {
                entry.end(Outcome::Answered);
                return Json(whole).into_response();
            }
            (spoilt.whole(whole.to_string()), "application/json")
        }
        Delivery::Stream | Delivery::StreamWithUsage => {
            let (frames, last) = format.frames(&completion, delivery);
            let frames = frames.into_iter().chain(last.map(str::to_owned)).collect();
            (spoilt.frames(frames), "text/event-stream; charset=utf-8")
        }
    };
    let script = match delivery {
        Delivery::Whole => CallScript { first_token_ms: 0, first_token_tick_ms: 0, ..script },
        Delivery::Stream | Delivery::StreamWithUsage => script,
    };
    let content_type = if spoilt.has_wrong_type { "application/octet-stream" } else { content_type };
    sent(shared, frames, spoilt.ending, script, entry, content_type)
}

/// Lets the model answer. `None` only if the answering thread panicked.
async fn complete(
    shared: &Arc<Shared>,
    asked: Asked,
    ask: Ask,
    script: CallScript,
    sequence: u64,
) -> Option<Completion> {
    let model = asked.model;
    let turns: Vec<&str> =
        ask.turns.iter().flat_map(|turn| [turn.role.as_str(), ": ", turn.text.as_str(), "\n"]).collect();
    let prompt = turns.concat();
    let prompt_tokens = prompt_tokens(&ask);
    let cached = shared.prompts.lock().unwrap_or_else(PoisonError::into_inner).cached_tokens(model, &prompt);
    let recorded = recorded_answer(shared, &ask);
    let reply = shared.reply(model, &ask.asked());
    let calls = match &reply {
        Some(reply) => scripted_calls(reply, &ask),
        None => completion::calls(&ask),
    };
    let (pieces, end) = if let Some(reply) = reply {
        match limited(&reply.text, &ask.stops, ask.tokens_max) {
            (pieces, End::Stop | End::StopSequence(_)) if !calls.is_empty() => (pieces, End::ToolCalls),
            limited => limited,
        }
    } else if calls.is_empty() {
        let (mut text, is_declined) = match &recorded {
            Some(answer) => (answer.text.clone(), false),
            None => text(shared, asked, &ask, script, sequence).await?,
        };
        for _ in 0..script.stamp_words {
            // Writing to a string cannot fail.
            let _ = write!(text, " call-{sequence}");
        }
        match script.fault {
            Some(Fault::Huge { bytes }) => (spoil::huge(bytes), End::Stop),
            _ => match limited(&text, &ask.stops, ask.tokens_max) {
                (pieces, End::Stop | End::StopSequence(_)) if is_declined => (pieces, End::Declined),
                limited => limited,
            },
        }
    } else {
        (Vec::new(), End::ToolCalls)
    };
    let counted =
        recorded.as_ref().map_or((None, None), |answer| (answer.prompt_tokens, answer.completion_tokens));
    let prompt_tokens = counted.0.unwrap_or(prompt_tokens);
    Some(Completion {
        recorded_tokens: counted.1,
        draw: dice::draw(shared.seed(), &["id", model.id(), &sequence.to_string()]),
        model: model.id(),
        created: now(),
        reasoning: completion::reasoning(&ask),
        pieces,
        calls,
        end,
        stops: ask.stops,
        prompt_tokens,
        cached_tokens: cached.min(prompt_tokens),
    })
}

/// The recorded answer to the request's question, if its model is a recorded one and has an answer to it.
fn recorded_answer(shared: &Shared, ask: &Ask) -> Option<recorded::Answer> {
    let name = ask.model.strip_prefix(recorded::PREFIX)?;
    shared.recorded().answer(name, &prompt::task(ask.last_user_text()).subtask).cloned()
}

fn scripted_calls(reply: &ScriptedReply, ask: &Ask) -> Vec<Call> {
    let calls = reply.calls.iter().take(ask.tools.calls_max);
    calls.map(|call| Call { name: call.name.clone(), arguments: call.arguments_text() }).collect()
}

/// The model's text, and whether it is a refusal.
async fn text(
    shared: &Arc<Shared>,
    asked: Asked,
    ask: &Ask,
    script: CallScript,
    sequence: u64,
) -> Option<(String, bool)> {
    if script.fault == Some(Fault::Garbage) {
        return Some((garbage(shared.seed(), sequence), false));
    }
    let results = ask.last_results();
    if !results.is_empty() && !script.answers_after_tools {
        let text = format!("The tools gave: {}", results.join("; "));
        return Some((completion::in_form(&ask.form, text), false));
    }
    let errors = shared.errors(asked, ask.seed);
    let message = ask.last_user_text().to_owned();
    let answer = tokio::task::spawn_blocking(move || asked.model.answer(&message, &errors)).await.ok()?;
    Some(match answer {
        Ok(answer) => (completion::in_form(&ask.form, answer), false),
        // A refusal ignores the response format.
        Err(refusal) => (refusal, true),
    })
}

/// A meaningless text with unbalanced brackets, to test parsers that search lists in it.
fn garbage(seed: u64, sequence: u64) -> String {
    let draw = dice::draw(seed, &["garbage", &sequence.to_string()]);
    format!("model_id = [[{draw:x}, subtasks = [\"unfinished, access_list = }} zzz {draw:b}")
}

/// A response whose frames are sent at the scripted pace. Its entry ends with the last frame, or is abandoned with the response.
fn sent(
    shared: &Shared,
    frames: Vec<String>,
    ending: Ending,
    script: CallScript,
    entry: CallEntry,
    content_type: &'static str,
) -> Response {
    let state = (frames.into_iter().enumerate().peekable(), Some(entry), Arc::clone(&shared.calls));
    let frames = stream::unfold(state, move |(mut frames, mut entry, calls)| async move {
        let Some((index, frame)) = frames.next() else {
            let kept = entry.take()?;
            // Only an answer with a fault still has its entry here: the last frame of a complete answer ends it.
            pause(script.token_ms).await;
            let entry = match ending {
                Ending::Hang => return spoil::hang(kept).await,
                Ending::Truncated | Ending::Whole => {
                    kept.end(Outcome::Cut);
                    return None;
                }
                Ending::Cut | Ending::Reset => kept,
            };
            // Yields, so that the connection sends its data before the cut.
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
    let mut response = (headers, Body::from_stream(frames)).into_response();
    if ending == Ending::Reset {
        response.extensions_mut().insert(ResetAtEnd);
    }
    response
}

/// Waits for the scripted time of the first token.
async fn first_token(calls: &CallLog, script: CallScript) {
    pause(script.first_token_ms).await;
    if let Some(tick_ms) = NonZero::new(script.first_token_tick_ms) {
        tokio::time::sleep_until(calls.next_tick(tick_ms).into()).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the simulator is a separate process whose purpose is real latency"
)]
async fn pause(milliseconds: u64) {
    if milliseconds > 0 {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "`created` is wall-clock time on the wire; no decision depends on it"
)]
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
