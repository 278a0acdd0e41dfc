//! Passes requests of other cells on to gateways there.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body::Frame;
use podium_api::openai::ErrorBody;
use podium_api::{ApiError, ErrorCode};
use podium_domain::ids::RunId;

use super::reply::{RUN_ID, Refusal};
use super::{Door, whole};
use crate::access::Caller;
use crate::asking;
use crate::cells::{CellRouter, Ending, LastWords, Other};
use crate::connections::Protocol;

/// What decides the cell of a request.
#[derive(Debug, PartialEq, Eq)]
enum Subject {
    Run(RunId),
    /// The caller's tenant.
    Tenant,
    /// Nothing: every gateway gives the same answer.
    Neither,
}

impl Subject {
    fn of(path: &str) -> Self {
        if path == "/v1/models" || path.starts_with("/v1/models/") {
            return Self::Neither;
        }
        let Some(rest) = path.strip_prefix("/v1/runs/") else { return Self::Tenant };
        let id = rest.split('/').next().unwrap_or_default();
        // The handler refuses an invalid id.
        id.parse().map_or(Self::Neither, Self::Run)
    }
}

/// Passes a request on if it is about a run or a tenant of another cell.
pub(super) async fn pass_on(
    State((door, cells)): State<(Door, CellRouter)>,
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
    if door.stopping.is_cancelled() {
        return Err(asking::stopping().into());
    }
    let (head, body) = request.into_parts();
    let body = whole(body).await?;
    let response = tokio::select! {
        response = other.ask((Request::from_parts(head, ()), body), Protocol::Http) => response?,
        () = door.cut.cancelled() => return Err(asking::stopping().into()),
    };
    Ok(ending(response, &door, other))
}

/// The same response, whose client learns why if its stream ends early.
fn ending(response: Response, door: &Door, other: &Other) -> Response {
    let headers = response.headers();
    if headers.get(CONTENT_TYPE).is_none_or(|kind| !kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    let rest = run_id(headers).map(|id| format!("; GET /v1/runs/{id} shows it")).unwrap_or_default();
    let event = |error: ApiError| {
        let error = ApiError::new(error.code, format!("{}{rest}", error.message));
        Frame::data(Bytes::from(format!("data: {}\n\n", ErrorBody::new(&error).to_json())))
    };
    let stopped = ApiError::new(ErrorCode::Stopping, "the server is stopping");
    let last = LastWords { stopped: event(stopped), broken: event(other.broke_off()) };
    let cut = door.cut.clone();
    response.map(|body| Body::new(Ending::new(body, cut, last)))
}

fn run_id(headers: &HeaderMap) -> Option<RunId> {
    headers.get(RUN_ID)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_whom_a_request_is_about() {
        let id: RunId = "01890a5d-ac96-8001-bfce-b302099a8057".parse().unwrap();
        for (path, subject) in [
            (format!("/v1/runs/{id}"), Subject::Run(id)),
            (format!("/v1/runs/{id}/cancel"), Subject::Run(id)),
            ("/v1/runs/x".to_owned(), Subject::Neither),
            ("/v1/runs".to_owned(), Subject::Tenant),
            ("/v1/chat/completions".to_owned(), Subject::Tenant),
            ("/v1/budgets".to_owned(), Subject::Tenant),
            ("/v1/models".to_owned(), Subject::Neither),
            ("/v1/models/podium-mini".to_owned(), Subject::Neither),
        ] {
            assert_eq!(Subject::of(&path), subject, "{path}");
        }
    }
}
