//! `POST /v1/chat/completions`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use podium_api::openai::{ChatRequest, Completion, ErrorBody};
use podium_api::{ApiError, ErrorCode};
use podium_domain::content::ToolCall;
use podium_domain::ids::{RequestId, RunId};
use podium_domain::run::{Run, StepRun};
use podium_engine::{AnswerError, AnswerPart, Ending, Submitted};
use tokio_util::sync::CancellationToken;

use super::disconnect::{CancelOnDisconnect, accept};
use super::reply::{Refusal, json, name_run};
use super::{ServerState, parsed};
use crate::auth::Caller;
use crate::connections::{Held, Unread};
use crate::error_mapping;
use crate::use_cases;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Silence on a stream after which a comment is sent, so that no proxy closes it.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Longest piece of a finished answer that is streamed. A character is never longer.
const PIECE_BYTES_MAX: usize = 4096;

pub(super) async fn complete(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    Extension(unread): Extension<Unread>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    if state.stopping.is_cancelled() {
        return Err(error_mapping::stopping().into());
    }
    let mut request = parsed(body, ChatRequest::parse).await?;
    request.new_run.request_id = idempotency_key(&headers)?;
    let (new_run, engine) = (request.new_run, state.engine.clone());
    let is_findable = new_run.request_id.is_some();
    if !request.stream {
        let accepting = async move { use_cases::ask(&engine, caller, new_run).await };
        let (asked, guard) =
            accept(&state, is_findable, accepting, |(submitted, _)| submitted.run_id()).await?;
        let (submitted, ending) = asked;
        return whole_answer(&state, submitted.run_id(), ending, guard, &unread).await;
    }
    let tenant = caller.tenant.clone();
    let accepting = async move { use_cases::submit(&engine, caller, new_run).await };
    let (submitted, guard) = accept(&state, is_findable, accepting, Submitted::run_id).await?;
    let id = submitted.run_id();
    let run = match submitted {
        Submitted::New(run) => run,
        Submitted::Existing(id) => Arc::new(use_cases::load(&state.engine, &tenant, id).await?),
    };
    let mut response = streamed(&state, run, guard, request.include_usage, &unread).await?;
    name_run(&mut response, id);
    Ok(response)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<RequestId>, ApiError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let wrong = |problem: String| {
        ApiError::on_field(ErrorCode::InvalidValue, IDEMPOTENCY_KEY, format!("{IDEMPOTENCY_KEY}: {problem}"))
    };
    let text = value.to_str().map_err(|_| wrong("must be ASCII".to_owned()))?;
    RequestId::new(text).map(Some).map_err(|e| wrong(e.to_string()))
}

type Answer = BoxStream<'static, Result<AnswerPart, AnswerError>>;

async fn streamed(
    state: &ServerState,
    run: Arc<Run>,
    guard: CancelOnDisconnect,
    include_usage: bool,
    unread: &Unread,
) -> Result<Response, ApiError> {
    let (id, completion) = (run.id(), Completion::of(&run));
    let (answer, held) = if run.is_ended() {
        // The whole run is in memory, with the outputs of all steps, and counts as held until the client has read the answer.
        let steps = run.rounds().iter().flat_map(|round| &round.steps);
        let calls = |step: &StepRun| step.calls.iter().map(ToolCall::bytes).sum::<usize>() * 2;
        let bytes = steps.map(|step| step.output.as_ref().map_or(0, String::len) + calls(step)).sum();
        (replayed(run), Some(unread.hold(bytes).map_err(|_| error_mapping::overloaded(id))?))
    } else {
        drop(run);
        (state.engine.answer(id).await.map_err(|e| error_mapping::watch_error(id, &e))?, None)
    };
    let streaming = Streaming {
        id,
        guard,
        completion,
        include_usage,
        answer,
        cut: state.cut.clone(),
        stage: Stage::Opening,
        _held: held,
    };
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_EVERY).text("keep-alive");
    Ok(Sse::new(streaming.into_events()).keep_alive(keep_alive).into_response())
}

/// The answer of a run that has ended, in pieces.
fn replayed(run: Arc<Run>) -> Answer {
    let mut pieces = VecDeque::new();
    for (index, call) in run.tool_calls().into_iter().enumerate() {
        let text = call.arguments;
        pieces.push_back(AnswerPart::CallBegun { index, id: call.id, name: call.name });
        pieces.push_back(AnswerPart::CallArguments { index, text });
    }
    stream::unfold(Some((run, 0, pieces)), |state| async {
        let (run, at, mut calls) = state?;
        let rest = run.answer().map_or("", |answer| &answer[at..]);
        if !rest.is_empty() {
            let piece = rest[..rest.floor_char_boundary(PIECE_BYTES_MAX)].to_owned();
            let at = at + piece.len();
            return Some((Ok(AnswerPart::Text(piece)), Some((run, at, calls))));
        }
        match calls.pop_front() {
            Some(part) => Some((Ok(part), Some((run, at, calls)))),
            None => Some((Ok(AnswerPart::Ended(Box::new(Arc::unwrap_or_clone(run)))), None)),
        }
    })
    .boxed()
}

async fn whole_answer(
    state: &ServerState,
    id: RunId,
    mut ending: Ending,
    mut guard: CancelOnDisconnect,
    unread: &Unread,
) -> Result<Response, Refusal> {
    let ended = tokio::select! {
        run = ending.run() => run.map_err(|e| error_mapping::watch_error(id, &e)),
        () = state.cut.cancelled() => {
            Err(error_mapping::stopping())
        }
    };
    guard.disarm();
    let run = ended.map_err(|e| Refusal::of_run(e, id))?;
    match (Completion::of(&run).whole(&run), error_mapping::run_error(&run)) {
        (Some(body), None) if unread.admits(body.len()) => {
            let mut response = json(body);
            name_run(&mut response, id);
            Ok(response)
        }
        (Some(_), None) => Err(Refusal::of_run(error_mapping::overloaded(id), id)),
        (_, Some(error)) => Err(Refusal::of_run(error, id)),
        (None, None) => Err(Refusal::of_run(no_output(id), id)),
    }
}

fn no_output(run: RunId) -> ApiError {
    ApiError::new(ErrorCode::Internal, format!("run {run} succeeded without an output"))
}

/// How far a stream of chunks has come.
enum Stage {
    Opening,
    Answering,
    /// The chunks that remain to be sent, in reverse order.
    Closing(Vec<String>),
}

struct Streaming {
    id: RunId,
    guard: CancelOnDisconnect,
    completion: Completion,
    include_usage: bool,
    answer: Answer,
    cut: CancellationToken,
    stage: Stage,
    _held: Option<Held>,
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
            () = self.cut.cancelled() => return Some(self.fail(&error_mapping::stopping_stream(self.id))),
        };
        match part? {
            Ok(AnswerPart::Text(text)) => Some(self.completion.delta(&text, self.include_usage)),
            Ok(AnswerPart::CallBegun { index, id, name }) => {
                Some(self.completion.call_begun(index, &id, &name, self.include_usage))
            }
            Ok(AnswerPart::CallArguments { index, text }) => {
                Some(self.completion.call_arguments(index, &text, self.include_usage))
            }
            Ok(AnswerPart::Ended(run)) => Some(self.end(&run)),
            Err(error) => Some(self.fail(&error_mapping::answer_error(self.id, &error))),
        }
    }

    fn end(&mut self, run: &Run) -> String {
        if let Some(error) = error_mapping::run_error(run) {
            return self.fail(&error);
        }
        self.guard.disarm();
        let mut left = vec!["[DONE]".to_owned()];
        if self.include_usage {
            left.push(self.completion.usage(run));
        }
        self.stage = Stage::Closing(left);
        self.completion.closing(run, self.include_usage)
    }

    /// An error event; nothing follows it.
    fn fail(&mut self, error: &ApiError) -> String {
        self.guard.disarm();
        self.stage = Stage::Closing(Vec::new());
        ErrorBody::new(error).to_json()
    }
}
