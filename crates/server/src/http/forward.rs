//! Forwards requests of other cells to gateways there.

use axum::Extension;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body::Frame;
use podium_api::openai::{ErrorBody, ResponseId};
use podium_api::{ApiError, ErrorCode, anthropic};
use podium_domain::ids::RunId;

use super::layers::is_anthropic;
use super::reply::{RUN_ID, Refusal};
use super::{ServerState, responses, whole};
use crate::auth::Caller;
use crate::cells::{CellRouter, GuardedBody, LastFrames, OtherCell};
use crate::connections::{Occupied, Protocol};
use crate::error_mapping;

/// The state of [`forward`].
#[derive(Clone)]
pub(super) struct Forwarding {
    pub(super) state: ServerState,
    pub(super) cells: CellRouter,
}

/// The part of a request that decides its cell.
#[derive(Debug, PartialEq, Eq)]
enum Subject {
    Run(RunId),
    /// The caller's tenant.
    Tenant,
    /// None: every gateway gives the same answer.
    Neither,
}

impl Subject {
    fn of(path: &str) -> Self {
        if path == "/v1/models" || path.starts_with("/v1/models/") {
            return Self::Neither;
        }
        let id = |rest: &str| rest.split('/').next().unwrap_or_default().to_owned();
        // The handlers reject an invalid id.
        if let Some(rest) = path.strip_prefix("/v1/runs/") {
            return id(rest).parse().map_or(Self::Neither, Self::Run);
        }
        match path.strip_prefix("/v1/responses/") {
            None | Some("compact" | "input_tokens") => Self::Tenant,
            Some(rest) => ResponseId::parse(&id(rest)).map_or(Self::Neither, |id| Self::Run(id.run())),
        }
    }
}

/// Forwards a request that is about a run or a tenant of another cell.
pub(super) async fn forward(
    State(Forwarding { state, cells }): State<Forwarding>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let other = match Subject::of(request.uri().path()) {
        Subject::Run(id) => cells.of_run(id, request.headers())?,
        Subject::Tenant => cells.of_tenant(&caller.tenant, request.headers())?,
        Subject::Neither => None,
    };
    let Some(other) = other else { return Ok(next.run(request).await) };
    if state.stopping.is_cancelled() {
        return Err(error_mapping::stopping().into());
    }
    let write = if is_anthropic(&request) { anthropic_event } else { openai_event };
    let occupied = request.extensions().get::<Occupied>().cloned();
    let (mut head, body) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut head, &()).await;
    if let (Ok(upgrade), Some(occupied)) = (upgrade, occupied) {
        return Ok(responses::relay(&state, other, occupied, head, upgrade).await?);
    }
    let body = whole(body).await?;
    let response = tokio::select! {
        response = other.forward(head, body, Protocol::Http) => response?,
        () = state.cut.cancelled() => return Err(error_mapping::stopping().into()),
    };
    Ok(guarded(response, &state, other, write))
}

/// Adds an error event to a stream that ends early, so that the client learns the reason.
fn guarded(
    response: Response,
    state: &ServerState,
    other: &OtherCell,
    write: fn(&ApiError) -> String,
) -> Response {
    let headers = response.headers();
    if headers.get(CONTENT_TYPE).is_none_or(|kind| !kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    let rest = run_id(headers).map(|id| format!("; GET /v1/runs/{id} shows it")).unwrap_or_default();
    let event = |error: ApiError| {
        let error = ApiError::new(error.code, format!("{}{rest}", error.message));
        Frame::data(Bytes::from(write(&error)))
    };
    let stopped = ApiError::new(ErrorCode::Stopping, "the server is stopping");
    let last = LastFrames { stopped: event(stopped), broken: event(other.broke_off()) };
    let cut = state.cut.clone();
    response.map(|body| Body::new(GuardedBody::new(body, cut, last)))
}

fn openai_event(error: &ApiError) -> String {
    format!("data: {}\n\n", ErrorBody::new(error).to_json())
}

fn anthropic_event(error: &ApiError) -> String {
    format!("event: error\ndata: {}\n\n", anthropic::ErrorBody::new(error, None).to_json())
}

fn run_id(headers: &HeaderMap) -> Option<RunId> {
    headers.get(RUN_ID)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_what_its_request_is_about() {
        let id: RunId = "01890a5d-ac96-8001-bfce-b302099a8057".parse().unwrap();
        for (path, subject) in [
            (format!("/v1/runs/{id}"), Subject::Run(id)),
            (format!("/v1/runs/{id}/cancel"), Subject::Run(id)),
            (format!("/v1/responses/resp_{}", id.as_uuid().simple()), Subject::Run(id)),
            (format!("/v1/responses/resp_{}/cancel", id.as_uuid().simple()), Subject::Run(id)),
            ("/v1/responses".to_owned(), Subject::Tenant),
            ("/v1/responses/compact".to_owned(), Subject::Tenant),
            ("/v1/responses/input_tokens".to_owned(), Subject::Tenant),
            ("/v1/conversations".to_owned(), Subject::Tenant),
            ("/v1/conversations/conv_1/items".to_owned(), Subject::Tenant),
            ("/v1/responses/x".to_owned(), Subject::Neither),
            ("/v1/runs/x".to_owned(), Subject::Neither),
            ("/v1/runs".to_owned(), Subject::Tenant),
            ("/v1/chat/completions".to_owned(), Subject::Tenant),
            ("/v1/messages".to_owned(), Subject::Tenant),
            ("/v1/budgets".to_owned(), Subject::Tenant),
            ("/v1/models".to_owned(), Subject::Neither),
            ("/v1/models/podium-mini".to_owned(), Subject::Neither),
        ] {
            assert_eq!(Subject::of(&path), subject, "{path}");
        }
    }
}
