//! `POST /v1/messages`, `POST /v1/messages/count_tokens` and `HEAD /api/hello`: Anthropic's Messages API.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use podium_api::anthropic::{MessageStream, MessageWriter, MessagesRequest, TokenCount, error_event, ping};
use podium_api::{ApiError, StreamEvent, StreamEvents};
use podium_domain::run::{Progress, Run};

use super::answer::{AnswerFormat, Asked, Delivery, Sent, answer};
use super::layers::RequestId;
use super::reply::{Refusal, json};
use super::{ServerState, parsed, take_context};
use crate::auth::Caller;
use crate::connections::Unread;
use crate::error_mapping;
use crate::use_cases;

pub(super) async fn create(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    Extension(unread): Extension<Unread>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    if state.stopping.is_cancelled() {
        return Err(error_mapping::stopping().into());
    }
    let MessagesRequest { mut new_run, stream } = parsed(body, MessagesRequest::parse).await?;
    take_context(&headers, &mut new_run)?;
    let format = |run: &Run| {
        let stream = MessageStream::new(MessageWriter::of(run));
        MessagesFormat { stream, request_id }
    };
    answer(&state, caller, &unread, Asked::new(new_run), Delivery::of(stream), format).await
}

/// Estimates the tokens of a prompt. Nothing is called.
pub(super) async fn count_tokens(State(state): State<ServerState>, body: Body) -> Result<Response, Refusal> {
    let count = parsed(body, TokenCount::parse).await?;
    use_cases::check_model(&state.engine, &count.model)?;
    Ok(json(count.to_json()))
}

/// Clients ask here whether the server can be reached.
pub(super) async fn hello() {}

pub(super) struct MessagesFormat {
    stream: MessageStream,
    request_id: RequestId,
}

impl AnswerFormat for MessagesFormat {
    fn whole(&self, run: &Run) -> Option<String> {
        self.stream.writer().whole(run)
    }

    fn open(&mut self, events: &mut StreamEvents) {
        self.stream.open(events);
    }

    fn reasoning(&mut self, text: &str, events: &mut StreamEvents) {
        self.stream.thinking(text, events);
    }

    fn text(&mut self, text: &str, events: &mut StreamEvents) {
        self.stream.text(text, events);
    }

    fn call_begun(&mut self, _index: usize, id: &str, name: &str, events: &mut StreamEvents) {
        self.stream.call_begun(id, name, events);
    }

    fn call_arguments(&mut self, index: usize, text: &str, events: &mut StreamEvents) {
        self.stream.call_arguments(index, text, events);
    }

    fn close(&mut self, run: &Run, events: &mut StreamEvents) {
        self.stream.close(run, events);
    }

    fn error(&self, error: &ApiError) -> StreamEvent {
        error_event(error, self.request_id.as_str())
    }

    fn sign_of_life() -> Option<StreamEvent> {
        Some(ping(None))
    }

    fn progress(&self, progress: &Progress) -> Sent {
        Sent::Event(ping(Some(progress)))
    }
}
