//! Passes calls of other cells on to gateways there.

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
use crate::access::Caller;
use crate::asking;
use crate::cells::{CellRouter, Ending, LastWords, Other};
use crate::connections::Protocol;
use crate::http::whole;

/// The calls whose request begins with the id of a run.
const OF_A_RUN: [&str; 4] = ["WatchRun", "GetRun", "CancelRun", "RateRun"];
/// The calls about the caller's tenant.
const OF_A_TENANT: [&str; 5] = ["CreateRun", "ListRuns", "EstimateRun", "ListBudgets", "ListOutcomes"];
/// Those of which a stream ends when the server begins to stop, so that its client watches elsewhere.
const WATCHING: &str = "WatchRun";

/// Passes a call on if it is about a run or a tenant of another cell.
pub(super) async fn pass_on(
    State((cells, stop)): State<(CellRouter, CancellationToken)>,
    caller: Option<Extension<Caller>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(Extension(caller)) = caller else { return next.run(request).await };
    match passed_on(&cells, &stop, &caller, request).await {
        Ok(Answered::Elsewhere(response)) => response,
        Ok(Answered::Here(request)) => next.run(request).await,
        Err(error) => Status::from(error).into_http(),
    }
}

enum Answered {
    Elsewhere(Response),
    Here(Request),
}

async fn passed_on(
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
        return Err(asking::stopping());
    }
    let body = whole(body).await?;
    let response = other.ask((Request::from_parts(head, ()), body), Protocol::Grpc).await?;
    let stop = if method == WATCHING { stop.clone() } else { CancellationToken::new() };
    Ok(Answered::Elsewhere(ending(response, stop, other)))
}

/// The call's name, if it is one of ours.
fn method(path: &str) -> Option<&str> {
    path.strip_prefix('/')?.strip_prefix(SERVICE_NAME)?.strip_prefix('/')
}

/// The run that a request is about. None if it cannot be read: then it is refused where requests are read.
fn run_of(body: &Bytes) -> Option<RunId> {
    let mut body = body.clone();
    if body.len() < 5 {
        return None;
    }
    let (compression, length) = (body.get_u8(), body.get_u32());
    let message = body.get(..usize::try_from(length).ok()?)?;
    // All of these requests have the run's id in the same field, and what else they have is skipped.
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

/// The same response, whose client gets a status if it ends early.
fn ending(response: Response, stop: CancellationToken, other: &Other) -> Response {
    let trailers = |error: ApiError| {
        let mut headers = Status::from(error).into_http::<Body>().into_parts().0.headers;
        headers.remove(CONTENT_TYPE);
        Frame::trailers(headers)
    };
    let last = LastWords { stopped: trailers(asking::stopping()), broken: trailers(other.broke_off()) };
    response.map(|body| Body::new(Ending::new(body, stop, last)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use prost_types::FileDescriptorSet;

    use super::*;

    /// A call that is added has to say whom it is about.
    #[test]
    fn every_call_is_about_a_run_or_a_tenant() {
        let set = FileDescriptorSet::decode(podium_api::FILE_DESCRIPTORS).unwrap();
        let ours: Vec<_> = set.file.iter().filter(|file| file.package() == "podium.v1").collect();
        let messages: Vec<_> = ours.iter().flat_map(|file| &file.message_type).collect();
        let service = ours.iter().flat_map(|file| &file.service).next().unwrap();
        for method in &service.method {
            let request = method.input_type().rsplit('.').next().unwrap();
            let request = messages.iter().find(|message| message.name() == request).unwrap();
            let has_run = request.field.iter().any(|field| field.name() == "run_id" && field.number() == 1);
            assert_eq!(has_run, OF_A_RUN.contains(&method.name()), "{}", method.name());
            assert_eq!(!has_run, OF_A_TENANT.contains(&method.name()), "{}", method.name());
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
