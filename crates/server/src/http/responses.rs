//! `/v1/responses`: OpenAI's Responses API.
//!
//! A response is a run. Requests that are stored, which is the default, can be read, continued, and streamed again later.

mod query;
mod relay;
mod socket;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use podium_api::openai::{
    ItemPage, ResponseId, ResponseRequest, ResponseStream, ResponseWriter, TurnKey, compacted, input_tokens,
    removed_response, with_response_names,
};
use podium_api::{ApiError, ErrorCode, StreamEvent, StreamEvents};
use podium_domain::ids::{RequestId, TenantId};
use podium_domain::run::{Run, RunState};
use podium_engine::Submitted;

use super::answer::{AnswerFormat, Asked, Delivery, answer, run_of, streamed, submitted, whole_answer};
use super::disconnect::{CancelOnDisconnect, accept};
use super::reply::{Refusal, json, name_run, name_trace, run_json, unread_json};
use super::{ServerState, idempotency_key, parsed, segment, take_context};
use crate::auth::Caller;
use crate::connections::Unread;
use crate::conversations::known;
use crate::error_mapping;
use crate::use_cases;
use query::{ResponseQuery, item_page_of};

pub(super) use relay::relay;
pub(super) use socket::connect;

/// Makes a response.
pub(super) async fn create(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    Extension(unread): Extension<Unread>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    if state.stopping.is_cancelled() {
        return Err(error_mapping::stopping().into());
    }
    let request = parsed(body, ResponseRequest::parse).await?;
    let (stream, is_background) = (request.stream, request.is_background());
    let key = key_for(&state, request.needs_key()).await?;
    let request_id = idempotency_key(&headers)?;
    let mut asked = asked(&state, &caller.tenant, request, None, request_id.as_ref()).await?;
    take_context(&headers, &mut asked.new_run)?;
    asked.is_findable = is_background || asked.new_run.request_id.is_some();
    let made = if is_background && !stream {
        in_background(&state, caller, asked).await
    } else {
        let delivery = Delivery::of(stream);
        let format = |run: &Run| ResponseFormat::of(run, key, None);
        answer(&state, caller, &unread, asked, delivery, format).await
    };
    made.map_err(|refusal| refusal.with(with_response_names))
}

/// Summarizes a conversation, so that it can be continued with fewer tokens.
pub(super) async fn compact(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    Extension(unread): Extension<Unread>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    if state.stopping.is_cancelled() {
        return Err(error_mapping::stopping().into());
    }
    let request = parsed(body, ResponseRequest::parse_compaction).await?;
    let Asked { mut new_run, .. } = asked(&state, &caller.tenant, request, None, None).await?;
    take_context(&headers, &mut new_run)?;
    let made = whole_answer(&state, caller, &unread, Asked::new(new_run), compacted).await;
    made.map_err(|refusal| refusal.with(with_response_names))
}

/// Estimates the tokens of an input. Nothing is called or stored.
pub(super) async fn count(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Response, Refusal> {
    let request = parsed(body, ResponseRequest::parse_count).await?;
    let Asked { new_run, .. } = asked(&state, &caller.tenant, request, None, None).await?;
    use_cases::check_model(&state.engine, &new_run.model)?;
    Ok(json(input_tokens(&new_run)))
}

/// The run of a request, with the earlier responses that it refers to. `own` may be continued although it was not stored.
/// `request_id` is the client's own name for the request.
async fn asked(
    state: &ServerState,
    tenant: &TenantId,
    mut request: ResponseRequest,
    own: Option<ResponseId>,
    request_id: Option<&RequestId>,
) -> Result<Asked, ApiError> {
    if let Some(key) = key_for(state, request.needs_key()).await? {
        request.open(&key, tenant);
    }
    for id in request.referenced_runs()? {
        // An item of an unknown run stays unresolved, and is reported by its place.
        if let Some(run) = state.conversations().stored_run(tenant, id).await? {
            request.resolve(&run)?;
        }
    }
    let previous = match request.previous() {
        Some(id) if own == Some(id) => {
            Some(use_cases::load_reply(&state.engine, tenant, id.run(), id.reply()).await?)
        }
        Some(id) => Some(stored(state, tenant, id).await?.ok_or_else(|| unknown_previous(state, id))?),
        None => None,
    };
    let (joined, items) = match request.conversation() {
        Some(id) => {
            let (joined, items) = state.conversations().joined(tenant, id, request_id).await?;
            (Some(joined), Some(items))
        }
        None => (None, None),
    };
    Ok(Asked { joined, ..Asked::new(request.into_new_run(previous.as_ref(), items)?) })
}

/// The error for a response that cannot be continued.
fn unknown_previous(state: &ServerState, id: ResponseId) -> ApiError {
    let elsewhere = state.cells.as_ref().and_then(|cells| cells.cell_elsewhere(id.run()));
    let message = match elsewhere {
        Some(cell) => format!(
            "the response of `previous_response_id` is in cell {cell}, and the caller's new responses are in another one; \
             send the conversation as `input`"
        ),
        None => "the response of `previous_response_id` does not exist, or was not stored".to_owned(),
    };
    ApiError::on_field(ErrorCode::PreviousResponseNotFound, "previous_response_id", message)
}

/// The run of a stored response, at the end of its reply; none if the tenant has no such response.
async fn stored(state: &ServerState, tenant: &TenantId, id: ResponseId) -> Result<Option<Run>, ApiError> {
    let run = use_cases::load_reply(&state.engine, tenant, id.run(), id.reply()).await;
    let run = known(run)?.filter(|run| ResponseId::of(run) == id && ResponseWriter::of(run).is_stored());
    Ok(if state.conversations().is_removed(tenant, id).await? { None } else { run })
}

/// Makes a run that goes on without its client, and replies at once.
async fn in_background(state: &ServerState, caller: Caller, asked: Asked) -> Result<Response, Refusal> {
    let tenant = caller.tenant.clone();
    let accepting = submitted(state.clone(), caller, asked);
    let (submitted, _) = accept(state, true, accepting, Submitted::run_id).await?;
    let is_new = matches!(submitted, Submitted::New(_));
    let run = run_of(state, &tenant, submitted).await?;
    let writer = writer_of(state, &run).await?;
    let body = if is_new { writer.accepted(&run) } else { writer.to_json(&run) };
    Ok(run_json(&run, body))
}

/// Reads a response, or streams it again.
pub(super) async fn one(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    Extension(unread): Extension<Unread>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = ResponseQuery::of(query.as_deref().unwrap_or_default())?;
    let run = response(&state, &caller.tenant, path).await?;
    let id = run.id();
    if query.stream {
        let open = state.streams.begin(&caller.tenant)?;
        let guard = CancelOnDisconnect::of(&state, id, true);
        let key = key_for(&state, ResponseWriter::of(&run).needs_key()).await?;
        let format = |run: &Run| ResponseFormat::of(run, key, query.starting_after);
        let trace = run.trace_id();
        let mut response = streamed(&state, Arc::new(run), guard, open, &unread, format).await?;
        name_run(&mut response, id);
        name_trace(&mut response, trace);
        return Ok(response);
    }
    body(&state, &run, &unread).await
}

/// Cancels a response. A cancelled one may be cancelled again.
pub(super) async fn cancel(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    Extension(unread): Extension<Unread>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let run = response(&state, &caller.tenant, path).await?;
    if *run.state() == RunState::Cancelled {
        return body(&state, &run, &unread).await;
    }
    if run.is_suspended() {
        let (response, id) = (ResponseId::of(&run), run.id());
        let message = format!(
            "response `{response}` is complete and has tool calls; `POST /v1/runs/{id}/cancel` cancels the run that waits for their results"
        );
        return Err(ApiError::new(ErrorCode::RunEnded, message).into());
    }
    let cancelled = state.engine.cancel(run.id()).await;
    let run = cancelled.map_err(|e| error_mapping::command_error(run.id(), &e))?;
    body(&state, &run, &unread).await
}

/// Removes a response: it cannot be read or continued any more. Its run stays until old runs are removed.
pub(super) async fn remove(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let run = response(&state, &caller.tenant, path).await?;
    // A run that waits for tool results fails after a time.
    if !run.has_replied(run.reply()) {
        let cancelled = state.engine.cancel(run.id()).await;
        cancelled.map_err(|e| error_mapping::command_error(run.id(), &e))?;
    }
    let id = ResponseId::of(&run).to_string();
    let marked = state.objects.put_object(&caller.tenant, &id, 0, "{}", state.auth.now()).await;
    marked.map_err(|e| error_mapping::store_error(&e))?;
    Ok(run_json(&run, removed_response(&id)))
}

/// The page of items that a query names.
pub(super) fn item_page(query: Option<&str>) -> Result<ItemPage, ApiError> {
    item_page_of(query.unwrap_or_default())
}

/// Lists the items of a response's input.
pub(super) async fn input_items(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    Extension(unread): Extension<Unread>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let page = item_page(query.as_deref())?;
    let run = response(&state, &caller.tenant, path).await?;
    let page = page.of_input(&run).ok_or_else(|| {
        ApiError::on_field(ErrorCode::InvalidValue, "after", "after must be the id of an item of this input")
    })?;
    unread_json(&run, page, &unread)
}

/// The run of the response in a path.
async fn response(
    state: &ServerState,
    tenant: &TenantId,
    path: Result<Path<String>, PathRejection>,
) -> Result<Run, ApiError> {
    let id = segment(path)?;
    let found = match ResponseId::parse(&id) {
        Some(id) => stored(state, tenant, id).await?,
        None => None,
    };
    found.ok_or_else(|| {
        let message = format!("response `{}` does not exist", super::request_checks::shown(&id));
        ApiError::on_field(ErrorCode::ResponseNotFound, "response_id", message)
    })
}

async fn body(state: &ServerState, run: &Run, unread: &Unread) -> Result<Response, Refusal> {
    unread_json(run, writer_of(state, run).await?.to_json(run), unread)
}

async fn writer_of(state: &ServerState, run: &Run) -> Result<ResponseWriter, ApiError> {
    let writer = ResponseWriter::of(run);
    let key = key_for(state, writer.needs_key()).await?;
    Ok(writer.with_key(key))
}

/// The key that seals reasoning items, if one is needed. It is read from the store once.
async fn key_for(state: &ServerState, is_needed: bool) -> Result<Option<Arc<TurnKey>>, ApiError> {
    if !is_needed {
        return Ok(None);
    }
    let read = async || {
        let secret = state.objects.secret().await.map_err(|e| error_mapping::store_error(&e))?;
        TurnKey::new(&secret).map(Arc::new).map_err(|e| error_mapping::defect(&e))
    };
    state.turn_key.get_or_try_init(read).await.cloned().map(Some)
}

/// The format of the Responses API.
pub(super) struct ResponseFormat {
    writer: ResponseWriter,
    stream: ResponseStream,
    /// The first events, until they are sent.
    opening: StreamEvents,
}

impl ResponseFormat {
    /// The format of a run's response; `after` is the last event that the client has.
    fn of(run: &Run, key: Option<Arc<TurnKey>>, after: Option<u64>) -> Self {
        let writer = ResponseWriter::of(run).with_key(key);
        let (mut stream, mut opening) = (ResponseStream::of(run, writer.clone(), after), StreamEvents::new());
        stream.open(run, &mut opening);
        Self { writer, stream, opening }
    }

    fn id(&self) -> ResponseId {
        self.stream.id()
    }
}

impl AnswerFormat for ResponseFormat {
    fn whole(&self, run: &Run) -> Option<String> {
        run.reply_text()?;
        Some(self.writer.to_json(run))
    }

    fn open(&mut self, events: &mut StreamEvents) {
        events.append(&mut self.opening);
    }

    fn reasoning(&mut self, text: &str, _events: &mut StreamEvents) {
        self.stream.reasoning(text);
    }

    fn reasoning_restarted(&mut self) {
        self.stream.restart_reasoning();
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

    fn fail(&mut self, run: &Run, _error: &ApiError, events: &mut StreamEvents) {
        self.stream.close(run, events);
    }

    fn error(&self, error: &ApiError) -> StreamEvent {
        self.stream.error(error)
    }

    fn sign_of_life() -> Option<StreamEvent> {
        None
    }
}
