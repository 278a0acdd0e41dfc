//! Layers around all routes: request ids, the format of errors, processing times, compression, CORS.

use std::io::Write as _;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use podium_api::anthropic;
use podium_domain::trace::TRACE_ID;
use tokio::time::Instant;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::reply::{RUN_ID, Refused, SHOULD_RETRY, status_of};

const REQUEST_ID: &str = "x-request-id";
/// Anthropic's header with the same id.
const ANTHROPIC_REQUEST_ID: &str = "request-id";
/// The version of the API that Anthropic's clients speak. Podium has one version, so the value has no effect.
pub(super) const ANTHROPIC_VERSION: &str = "anthropic-version";
/// OpenAI's header with the milliseconds that a response took; for a stream, until it began.
const PROCESSING_MS: &str = "openai-processing-ms";
/// Shorter answers are not compressed: that would save nothing.
const COMPRESSED_BYTES_MIN: u64 = 1 << 10;
/// Longer answers are not compressed: that would block the processor for too long.
const COMPRESSED_BYTES_MAX: u64 = 256 << 10;
/// Longer answers are compressed on a separate thread, because that takes milliseconds.
const COMPRESS_AT_ONCE_MAX: usize = 64 << 10;
/// How long a browser remembers which requests it may send.
const PREFLIGHT_AGE: Duration = Duration::from_mins(10);

/// Lets web pages of these origins use the API from a browser.
pub(super) fn cors(origins: &[String]) -> CorsLayer {
    let origins = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    let exposed = [REQUEST_ID, ANTHROPIC_REQUEST_ID, PROCESSING_MS, RUN_ID, TRACE_ID, SHOULD_RETRY]
        .map(HeaderName::from_static);
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        // A wildcard would not include `authorization`.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed.into_iter().chain([RETRY_AFTER]).collect::<Vec<_>>())
        .max_age(PREFLIGHT_AGE)
}

/// The id of a request: the client's own, or a new one.
#[derive(Clone, Debug)]
pub(super) struct RequestId(Option<HeaderValue>);

impl RequestId {
    fn of(headers: &HeaderMap) -> Self {
        let own = headers.get(REQUEST_ID).filter(|id| is_usable(id)).cloned();
        Self(own.or_else(|| HeaderValue::from_str(&random_id()).ok()))
    }

    /// The id as text.
    pub(super) fn as_str(&self) -> Option<&str> {
        self.0.as_ref()?.to_str().ok()
    }
}

/// Adds the id of its request and the processing time to each response. Handlers find the id in the request's extensions.
pub(super) async fn add_request_id(mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = RequestId::of(request.headers());
    request.extensions_mut().insert(id.clone());
    let is_anthropic = is_anthropic(&request);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    if let Some(id) = id.0 {
        if is_anthropic {
            headers.insert(ANTHROPIC_REQUEST_ID, id.clone());
        }
        headers.insert(REQUEST_ID, id);
    }
    let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    headers.insert(PROCESSING_MS, took.into());
    response
}

/// Writes the error of a request to the Messages API in Anthropic's format.
pub(super) async fn write_anthropic_errors(request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let is_anthropic = is_anthropic(&request);
    let mut response = next.run(request).await;
    let refused = response.extensions_mut().remove::<Refused>();
    if let Some(Refused(error)) = refused.filter(|_| is_anthropic) {
        let id = id.as_ref().and_then(RequestId::as_str);
        *response.status_mut() = status_of(anthropic::status(error.code));
        *response.body_mut() = Body::from(anthropic::ErrorBody::new(&error, id).to_json());
    }
    response
}

/// Whether a request is one of Anthropic's clients: by its path, or by a header that they always send.
pub(super) fn is_anthropic(request: &Request) -> bool {
    let path = request.uri().path();
    path.strip_prefix("/v1/messages").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        || request.headers().contains_key(ANTHROPIC_VERSION)
}

/// A random id: of a request, for logs and for the client, or of a conversation.
#[expect(clippy::disallowed_methods, reason = "no run depends on it")]
pub(crate) fn random_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn is_usable(id: &HeaderValue) -> bool {
    (1..=128).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

/// Compresses a JSON answer of 1 to 256 KiB if the client accepts gzip. The answer is compressed as a whole, so its length is
/// known and counts as unread. Event streams are not compressed, because they must not wait in a buffer.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    let accepts = accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    if !is_compressible(&response) {
        return response;
    }
    response.headers_mut().append(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
    if !accepts {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // The length is known, so the body is in memory as a whole.
    let Ok(body) = body.collect().await else { return Response::from_parts(parts, Body::empty()) };
    let plain = body.to_bytes();
    let compressed = if plain.len() <= COMPRESS_AT_ONCE_MAX {
        gzip(&plain)
    } else {
        let plain = plain.clone();
        tokio::task::spawn_blocking(move || gzip(&plain)).await.ok().flatten()
    };
    let body = match compressed {
        Some(compressed) => {
            parts.headers.remove(CONTENT_LENGTH);
            parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            compressed
        }
        None => plain,
    };
    Response::from_parts(parts, Body::from(body))
}

fn is_compressible(response: &Response) -> bool {
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let length = response.body().size_hint().exact();
    is_json && length.is_some_and(|length| (COMPRESSED_BYTES_MIN..=COMPRESSED_BYTES_MAX).contains(&length))
}

fn gzip(plain: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 2), Compression::fast());
    encoder.write_all(plain).ok()?;
    Some(encoder.finish().ok()?.into())
}

/// Whether `accept-encoding` names gzip or `*` with a weight above zero.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut accepts = false;
    for item in values.flat_map(|value| value.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let coding = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
        match coding.as_str() {
            "gzip" | "x-gzip" => return weight > 0.0,
            "*" => accepts = weight > 0.0,
            _ => {}
        }
    }
    accepts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_only_if_the_client_accepts_it() {
        for (value, expected) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("*", true),
            ("gzip;q=0, *", false),
            ("gzip; q=0.0", false),
            ("br, zstd", false),
            ("identity", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().unwrap())]);
            assert_eq!(accepts_gzip(&headers), expected, "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
