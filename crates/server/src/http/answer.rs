//! Answers a request for a run: as a whole after its end, or streamed while it is under way. Each API has its own format.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use podium_api::{ApiError, ErrorCode, NewRun, StreamEvent, StreamEvents};
use podium_domain::content::ToolCall;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::run::{Progress, Run, StepRun};
use podium_engine::{AnswerError, AnswerPart, Submitted};
use tokio_util::sync::CancellationToken;

use super::ServerState;
use super::disconnect::{CancelOnDisconnect, accept};
use super::reply::{Refusal, name_run, name_trace, unread_json};
use crate::auth::Caller;
use crate::connections::{Held, Unread};
use crate::conversations::Joined;
use crate::error_mapping;
use crate::tenant_streams::OpenStream;
use crate::use_cases;

/// Silence on a stream after which its format's sign of life is sent, so that neither a proxy nor the client gives it up.
pub(super) const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(8);

/// Longest piece of a finished answer that is streamed. A character is never longer.
const PIECE_BYTES_MAX: usize = 4096;

/// The format of one API's responses to a request for a run.
pub(super) trait AnswerFormat: Send + 'static {
    /// The whole response; none if the run did not succeed.
    fn whole(&self, run: &Run) -> Option<String>;
    /// The events that begin a stream.
    fn open(&mut self, events: &mut StreamEvents);
    /// The events for the next reasoning, which comes before any text and call. Only a request that asks for it gets it.
    fn reasoning(&mut self, text: &str, events: &mut StreamEvents);
    /// The reasoning so far is void, because another attempt began.
    fn reasoning_restarted(&mut self) {}
    /// The events for the next text of the answer.
    fn text(&mut self, text: &str, events: &mut StreamEvents);
    /// The events for the next tool call of the answer, of which only the id and the name are known. `index` counts from 0.
    fn call_begun(&mut self, index: usize, id: &str, name: &str, events: &mut StreamEvents);
    /// The events for the next piece of the arguments of a call that has begun.
    fn call_arguments(&mut self, index: usize, text: &str, events: &mut StreamEvents);
    /// The events after the last text and call of a run that succeeded.
    fn close(&mut self, run: &Run, events: &mut StreamEvents);
    /// The event for an error, which ends the stream.
    fn error(&self, error: &ApiError) -> StreamEvent;
    /// The events after the last text of a run that ended without an answer, for this reason.
    fn fail(&mut self, _run: &Run, error: &ApiError, events: &mut StreamEvents) {
        events.push_back(self.error(error));
    }
    /// The event that is sent on a silent stream. None: a comment.
    fn sign_of_life() -> Option<StreamEvent>;
    /// The piece that is sent on a silent stream if the policy shows the steps.
    fn progress(&self, progress: &Progress) -> Sent {
        Sent::Comment(progress.to_string())
    }
}

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// An event of the API.
    Event(StreamEvent),
    /// A comment, which clients skip.
    Comment(String),
}

/// How a client wants its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// As one body, after the end of the run.
    Whole,
    /// As events, while the run is under way.
    Streamed,
}

impl Delivery {
    /// The delivery for the parameter `stream`.
    pub(super) const fn of(stream: bool) -> Self {
        if stream { Self::Streamed } else { Self::Whole }
    }
}

/// A run to make.
pub(super) struct Asked {
    pub(super) new_run: NewRun,
    /// Whether the client can find the run later, so that it goes on if the client disconnects.
    pub(super) is_findable: bool,
    /// The conversation that it joins.
    pub(super) joined: Option<Joined>,
}

impl Asked {
    /// A client finds a run again by its own name for the request.
    pub(super) fn new(new_run: NewRun) -> Self {
        Self { is_findable: new_run.request_id.is_some(), new_run, joined: None }
    }
}

/// Makes a run, or finds the one that an earlier request made, and answers with it.
pub(super) async fn answer<F: AnswerFormat>(
    state: &ServerState,
    caller: Caller,
    unread: &Unread,
    asked: Asked,
    delivery: Delivery,
    format: impl FnOnce(&Run) -> F,
) -> Result<Response, Refusal> {
    if delivery == Delivery::Whole {
        return whole_answer(state, caller, unread, asked, |run| format(run).whole(run)).await;
    }
    let tenant = caller.tenant.clone();
    let open = state.streams.begin(&tenant)?;
    let is_findable = asked.is_findable;
    let accepting = submitted(state.clone(), caller, asked);
    let (submitted, guard) = accept(state, is_findable, accepting, Submitted::run_id).await?;
    let run = run_of(state, &tenant, submitted).await?;
    let (id, trace) = (run.id(), run.trace_id());
    let mut response = streamed(state, run, guard, open, unread, format).await?;
    name_run(&mut response, id);
    name_trace(&mut response, trace);
    Ok(response)
}

/// Makes the run, which joins its conversation.
pub(super) async fn submitted(
    state: ServerState,
    caller: Caller,
    asked: Asked,
) -> Result<Submitted, ApiError> {
    let tenant = caller.tenant.clone();
    let submitted = use_cases::submit(&state.engine, caller, asked.new_run).await?;
    state.conversations().join(&tenant, asked.joined, &submitted).await?;
    Ok(submitted)
}

/// The run of a request: new, or as it is in the reply to the request.
pub(super) async fn run_of(
    state: &ServerState,
    tenant: &TenantId,
    submitted: Submitted,
) -> Result<Arc<Run>, ApiError> {
    match submitted {
        Submitted::New(run) => Ok(run),
        Submitted::Existing(_) | Submitted::Continued { .. } => {
            let (id, reply) = (submitted.run_id(), submitted.reply());
            use_cases::load_reply(&state.engine, tenant, id, reply).await.map(Arc::new)
        }
    }
}

type Answer = BoxStream<'static, Result<AnswerPart, AnswerError>>;

pub(super) async fn streamed<F: AnswerFormat>(
    state: &ServerState,
    run: Arc<Run>,
    guard: CancelOnDisconnect,
    open: OpenStream,
    unread: &Unread,
    format: impl FnOnce(&Run) -> F,
) -> Result<Response, ApiError> {
    let streaming = streaming(state, run, guard, open, unread, format).await?;
    Ok(Sse::new(streaming.into_events()).keep_alive(keep_alive::<F>()).into_response())
}

/// The events of a run's response.
pub(super) async fn streaming<F: AnswerFormat>(
    state: &ServerState,
    run: Arc<Run>,
    guard: CancelOnDisconnect,
    open: OpenStream,
    unread: &Unread,
    format: impl FnOnce(&Run) -> F,
) -> Result<Streaming<F>, ApiError> {
    let (id, reply, mut format) = (run.id(), run.reply(), format(&run));
    let (answer, held) = if run.has_replied(reply) {
        // The whole run is in memory, with the outputs of all steps, and counts as held until the client has read the answer.
        let steps = run.rounds().iter().flat_map(|round| &round.steps);
        let calls = |step: &StepRun| step.calls.iter().map(ToolCall::bytes).sum::<usize>() * 2;
        let turns = |step: &StepRun| step.turns.iter().map(|turn| turn.bytes()).sum::<usize>();
        let texts = |step: &StepRun| step.output.as_ref().map_or(0, String::len) + step.reasoning_text.len();
        let bytes = steps.map(|step| texts(step) + calls(step) + turns(step)).sum();
        (replayed(run), Some(unread.hold(bytes).map_err(|_| error_mapping::overloaded(id))?))
    } else {
        drop(run);
        (state.engine.reply(id, reply).await.map_err(|e| error_mapping::watch_error(id, &e))?, None)
    };
    let mut events = StreamEvents::new();
    format.open(&mut events);
    let cut = state.cut.clone();
    Ok(Streaming { id, guard, format, answer, cut, events, is_over: false, _held: held, _open: open })
}

fn keep_alive<F: AnswerFormat>() -> KeepAlive {
    let keep_alive = KeepAlive::new().interval(SIGN_OF_LIFE_EVERY);
    match F::sign_of_life() {
        Some(event) => keep_alive.event(written(Sent::Event(event))),
        None => keep_alive.text("keep-alive"),
    }
}

fn written(sent: Sent) -> Event {
    match sent {
        Sent::Event(StreamEvent { name: Some(name), data }) => Event::default().event(name).data(data),
        Sent::Event(StreamEvent { name: None, data }) => Event::default().data(data),
        Sent::Comment(text) => Event::default().comment(text),
    }
}

/// The reply of a run that has ended or is suspended, in pieces.
fn replayed(run: Arc<Run>) -> Answer {
    let mut pieces = VecDeque::new();
    for (index, call) in run.tool_calls().into_iter().enumerate() {
        let text = call.arguments;
        pieces.push_back(AnswerPart::CallBegun { index, id: call.id, name: call.name });
        pieces.push_back(AnswerPart::CallArguments { index, text });
    }
    let reasoning = Some(run.reply_reasoning().to_owned()).filter(|text| !text.is_empty());
    let reasoning = stream::iter(reasoning.map(|text| Ok(AnswerPart::Reasoning(text))));
    let rest = stream::unfold(Some((run, 0, pieces)), |state| async {
        let (run, at, mut calls) = state?;
        let rest = run.reply_text().map_or("", |answer| &answer[at..]);
        if !rest.is_empty() {
            let piece = rest[..rest.floor_char_boundary(PIECE_BYTES_MAX)].to_owned();
            let at = at + piece.len();
            return Some((Ok(AnswerPart::Text(piece)), Some((run, at, calls))));
        }
        match calls.pop_front() {
            Some(part) => Some((Ok(part), Some((run, at, calls)))),
            None => Some((Ok(AnswerPart::Ended(Box::new(Arc::unwrap_or_clone(run)))), None)),
        }
    });
    reasoning.chain(rest).boxed()
}

/// Makes a run, finds the one that an earlier request made, or continues a suspended one, and answers after the end of its reply.
/// `write` writes the body; none if the run did not succeed.
pub(super) async fn whole_answer(
    state: &ServerState,
    caller: Caller,
    unread: &Unread,
    asked: Asked,
    write: impl FnOnce(&Run) -> Option<String>,
) -> Result<Response, Refusal> {
    let Asked { new_run, is_findable, joined } = asked;
    let at_work = state.clone();
    let accepting = async move {
        let tenant = caller.tenant.clone();
        let (submitted, ending) = use_cases::ask(&at_work.engine, caller, new_run).await?;
        at_work.conversations().join(&tenant, joined, &submitted).await?;
        Ok((submitted, ending))
    };
    let (asked, mut guard) =
        accept(state, is_findable, accepting, |(submitted, _)| submitted.run_id()).await?;
    let (submitted, mut ending) = asked;
    let id = submitted.run_id();
    let ended = tokio::select! {
        run = ending.run() => run.map_err(|e| error_mapping::watch_error(id, &e)),
        () = state.cut.cancelled() => {
            Err(error_mapping::stopping())
        }
    };
    guard.disarm();
    let run = ended.map_err(|e| Refusal::of_run(e, id))?;
    match (write(&run), error_mapping::run_error(&run)) {
        (Some(body), None) => unread_json(&run, body, unread),
        (_, Some(error)) => Err(Refusal::of_loaded_run(error, &run)),
        (None, None) => Err(Refusal::of_loaded_run(no_output(id), &run)),
    }
}

fn no_output(run: RunId) -> ApiError {
    ApiError::new(ErrorCode::Internal, format!("run {run} succeeded without an output"))
}

/// A stream under way.
pub(super) struct Streaming<F> {
    id: RunId,
    guard: CancelOnDisconnect,
    format: F,
    answer: Answer,
    cut: CancellationToken,
    /// Events that are written and not sent yet.
    events: StreamEvents,
    /// Nothing follows `events`.
    is_over: bool,
    _held: Option<Held>,
    _open: OpenStream,
}

impl<F: AnswerFormat> Streaming<F> {
    fn into_events(self) -> BoxStream<'static, Result<Event, Infallible>> {
        stream::unfold(self, |mut streaming| async {
            let event = streaming.next().await?;
            Some((Ok(written(event)), streaming))
        })
        .boxed()
    }

    pub(super) fn format(&self) -> &F {
        &self.format
    }

    /// The next piece. The wait may be dropped and repeated.
    pub(super) async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(Sent::Event(event));
            }
            if self.is_over {
                return None;
            }
            let part = tokio::select! {
                part = self.answer.next() => part,
                () = self.cut.cancelled() => {
                    self.fail(&error_mapping::stopping_stream(self.id));
                    continue;
                }
            };
            match part? {
                Ok(AnswerPart::Reasoning(text)) => self.format.reasoning(&text, &mut self.events),
                Ok(AnswerPart::ReasoningRestarted) => self.format.reasoning_restarted(),
                Ok(AnswerPart::Text(text)) => self.format.text(&text, &mut self.events),
                Ok(AnswerPart::CallBegun { index, id, name }) => {
                    self.format.call_begun(index, &id, &name, &mut self.events);
                }
                Ok(AnswerPart::CallArguments { index, text }) => {
                    self.format.call_arguments(index, &text, &mut self.events);
                }
                Ok(AnswerPart::Progress(progress)) => return Some(self.format.progress(&progress)),
                Ok(AnswerPart::Ended(run)) => self.end(&run),
                Err(error) => self.fail(&error_mapping::answer_error(self.id, &error)),
            }
        }
    }

    fn end(&mut self, run: &Run) {
        self.guard.disarm();
        self.is_over = true;
        match error_mapping::run_error(run) {
            Some(error) => self.format.fail(run, &error, &mut self.events),
            None => self.format.close(run, &mut self.events),
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.guard.disarm();
        self.is_over = true;
        self.events.push_back(self.format.error(error));
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::time::Instant;

    use super::*;
    use crate::http::chat::ChatFormat;
    use crate::http::messages::MessagesFormat;
    use crate::http::responses::ResponseFormat;

    async fn first_sign<F: AnswerFormat>() -> (Duration, String) {
        let silent = stream::pending::<Result<Event, Infallible>>();
        let mut body = Sse::new(silent).keep_alive(keep_alive::<F>()).into_response().into_body();
        let begun = Instant::now();
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        (begun.elapsed(), String::from_utf8(frame.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_of_each_api_shows_a_sign_of_life_within_ten_seconds() {
        let (after, ping) = first_sign::<MessagesFormat>().await;
        assert_eq!(ping, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
        assert!(after <= Duration::from_secs(10), "{after:?}");
        for (after, comment) in [first_sign::<ChatFormat>().await, first_sign::<ResponseFormat>().await] {
            assert_eq!(comment, ": keep-alive\n\n");
            assert!(after <= Duration::from_secs(10), "{after:?}");
        }
    }
}
