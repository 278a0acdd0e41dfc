//! Forwards calls of other cells to gateways there.

use std::io::Read as _;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::Response;
use bytes::{Buf as _, Bytes};
use flate2::read::GzDecoder;
use http_body::Frame;
use podium_api::v1::podium_service_server::SERVICE_NAME;
use podium_api::{ApiError, v1};
use podium_domain::ids::RunId;
use prost::Message as _;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::REQUEST_BYTES_MAX;
use crate::auth::Caller;
use crate::cells::{CellRouter, GuardedBody, LastFrames, OtherCell};
use crate::connections::Protocol;
use crate::error_mapping;
use crate::http::whole;

/// The calls whose request begins with the id of a run.
const OF_A_RUN: [&str; 5] = ["WatchRun", "GetRun", "CancelRun", "RateRun", "SubmitToolResults"];
/// The calls about the caller's tenant.
const OF_A_TENANT: [&str; 9] = [
    "CreateRun",
    "ListRuns",
    "EstimateRun",
    "ListBudgets",
    "ListOutcomes",
    "CreateConversation",
    "GetConversation",
    "ListConversationItems",
    "DeleteConversation",
];
/// The calls that every gateway answers itself.
#[cfg(test)]
const OF_NEITHER: [&str; 2] = ["ListModels", "GetModel"];
/// The call whose stream ends as soon as the server begins to stop, so that its client watches elsewhere.
const WATCHING: &str = "WatchRun";

/// The state of [`forward`].
#[derive(Clone)]
pub(super) struct Forwarding {
    pub(super) cells: CellRouter,
    /// The server stops.
    pub(super) stop: CancellationToken,
}

/// Forwards a call that is about a run or a tenant of another cell.
pub(super) async fn forward(
    State(Forwarding { cells, stop }): State<Forwarding>,
    caller: Option<Extension<Caller>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(Extension(caller)) = caller else { return next.run(request).await };
    match answered(&cells, &stop, &caller, request).await {
        Ok(Answered::Elsewhere(response)) => response,
        Ok(Answered::Here(request)) => next.run(request).await,
        Err(error) => Status::from(error).into_http(),
    }
}

enum Answered {
    Elsewhere(Response),
    Here(Request),
}

async fn answered(
    cells: &CellRouter,
    stop: &CancellationToken,
    caller: &Caller,
    request: Request,
) -> Result<Answered, ApiError> {
    let method = method(request.uri().path()).unwrap_or_default().to_owned();
    let (head, body) = request.into_parts();
    let (other, body) = if OF_A_RUN.contains(&method.as_str()) {
        let body = whole(body).await?;
        let other = run_of(&body).map(|id| cells.of_run(id, &head.headers)).transpose()?.flatten();
        (other, Body::from(body))
    } else if OF_A_TENANT.contains(&method.as_str()) {
        (cells.of_tenant(&caller.tenant, &head.headers)?, body)
    } else {
        (None, body)
    };
    let Some(other) = other else { return Ok(Answered::Here(Request::from_parts(head, body))) };
    if stop.is_cancelled() {
        return Err(error_mapping::stopping());
    }
    let body = whole(body).await?;
    let response = other.forward(head, body, Protocol::Grpc).await?;
    let stop = if method == WATCHING { stop.clone() } else { CancellationToken::new() };
    Ok(Answered::Elsewhere(guarded(response, stop, other)))
}

/// The call's name, if it belongs to `podium.v1`.
fn method(path: &str) -> Option<&str> {
    path.strip_prefix('/')?.strip_prefix(SERVICE_NAME)?.strip_prefix('/')
}

/// The run that a request is about. None if it cannot be decoded; the handler then rejects it.
fn run_of(body: &Bytes) -> Option<RunId> {
    let mut body = body.clone();
    if body.len() < 5 {
        return None;
    }
    let (compression, length) = (body.get_u8(), body.get_u32());
    let message = body.get(..usize::try_from(length).ok()?)?;
    // All of these requests have the run's id in the same field. Their other fields are skipped.
    let request = match compression {
        0 => v1::GetRunRequest::decode(message),
        _ => v1::GetRunRequest::decode(&*unzipped(message)?),
    };
    request.ok()?.run_id.parse().ok()
}

fn unzipped(message: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    GzDecoder::new(message).take(REQUEST_BYTES_MAX as u64).read_to_end(&mut plain).ok()?;
    Some(plain)
}

/// Adds a status to a response that ends early.
fn guarded(response: Response, stop: CancellationToken, other: &OtherCell) -> Response {
    let trailers = |error: ApiError| {
        let mut headers = Status::from(error).into_http::<Body>().into_parts().0.headers;
        headers.remove(CONTENT_TYPE);
        Frame::trailers(headers)
    };
    let last =
        LastFrames { stopped: trailers(error_mapping::stopping()), broken: trailers(other.broke_off()) };
    response.map(|body| Body::new(GuardedBody::new(body, stop, last)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use prost_types::FileDescriptorSet;

    use super::*;

    /// A new call must be added to one of the lists.
    #[test]
    fn every_call_is_about_a_run_a_tenant_or_neither() {
        let set = FileDescriptorSet::decode(podium_api::FILE_DESCRIPTORS).unwrap();
        let ours: Vec<_> = set.file.iter().filter(|file| file.package() == "podium.v1").collect();
        let messages: Vec<_> = ours.iter().flat_map(|file| &file.message_type).collect();
        let service = ours.iter().flat_map(|file| &file.service).next().unwrap();
        for method in &service.method {
            let request = method.input_type().rsplit('.').next().unwrap();
            let request = messages.iter().find(|message| message.name() == request).unwrap();
            let has_run = request.field.iter().any(|field| field.name() == "run_id" && field.number() == 1);
            assert_eq!(has_run, OF_A_RUN.contains(&method.name()), "{}", method.name());
            let is_of_tenant = !has_run && !OF_NEITHER.contains(&method.name());
            assert_eq!(is_of_tenant, OF_A_TENANT.contains(&method.name()), "{}", method.name());
        }
    }

    #[test]
    fn the_run_is_read_from_plain_and_compressed_requests() {
        let id: RunId = "01890a5d-ac96-8001-bfce-b302099a8057".parse().unwrap();
        let request = v1::WatchRunRequest { run_id: id.to_string(), after_sequence: 7 }.encode_to_vec();
        let framed = |flag: u8, message: &[u8]| {
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            Bytes::from([&[flag][..], &length, message].concat())
        };
        let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
        zipped.write_all(&request).unwrap();
        let zipped = zipped.finish().unwrap();
        assert_eq!(run_of(&framed(0, &request)), Some(id));
        assert_eq!(run_of(&framed(1, &zipped)), Some(id));
        for broken in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x09abc", b"\x01\0\0\0\x03abc"] {
            assert_eq!(run_of(&Bytes::copy_from_slice(broken)), None, "{broken:?}");
        }
    }
}
