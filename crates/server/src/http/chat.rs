//! `POST /v1/chat/completions`.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use podium_api::openai::{ChatRequest, Completion, ErrorBody};
use podium_api::{ApiError, StreamEvent, StreamEvents};
use podium_domain::run::Run;

use super::answer::{AnswerFormat, Asked, Delivery, answer};
use super::reply::Refusal;
use super::{ServerState, parsed, take_context};
use crate::auth::Caller;
use crate::connections::Unread;
use crate::error_mapping;

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
    let ChatRequest { mut new_run, stream, include_usage } = parsed(body, ChatRequest::parse).await?;
    take_context(&headers, &mut new_run)?;
    let format = |run: &Run| ChatFormat { completion: Completion::of(run), include_usage };
    answer(&state, caller, &unread, Asked::new(new_run), Delivery::of(stream), format).await
}

pub(super) struct ChatFormat {
    completion: Completion,
    include_usage: bool,
}

impl AnswerFormat for ChatFormat {
    fn whole(&self, run: &Run) -> Option<String> {
        self.completion.whole(run)
    }

    fn open(&mut self, events: &mut StreamEvents) {
        events.push_back(StreamEvent::unnamed(self.completion.opening(self.include_usage)));
    }

    fn reasoning(&mut self, text: &str, events: &mut StreamEvents) {
        events.push_back(StreamEvent::unnamed(self.completion.reasoning(text, self.include_usage)));
    }

    fn text(&mut self, text: &str, events: &mut StreamEvents) {
        events.push_back(StreamEvent::unnamed(self.completion.delta(text, self.include_usage)));
    }

    fn call_begun(&mut self, index: usize, id: &str, name: &str, events: &mut StreamEvents) {
        let chunk = self.completion.call_begun(index, id, name, self.include_usage);
        events.push_back(StreamEvent::unnamed(chunk));
    }

    fn call_arguments(&mut self, index: usize, text: &str, events: &mut StreamEvents) {
        let chunk = self.completion.call_arguments(index, text, self.include_usage);
        events.push_back(StreamEvent::unnamed(chunk));
    }

    fn close(&mut self, run: &Run, events: &mut StreamEvents) {
        events.push_back(StreamEvent::unnamed(self.completion.closing(run, self.include_usage)));
        if self.include_usage {
            events.push_back(StreamEvent::unnamed(self.completion.usage(run)));
        }
        events.push_back(StreamEvent::unnamed("[DONE]".to_owned()));
    }

    fn error(&self, error: &ApiError) -> StreamEvent {
        StreamEvent::unnamed(ErrorBody::new(error).to_json())
    }

    fn sign_of_life() -> Option<StreamEvent> {
        None
    }
}
