//! Checks of a request before its body is read: its origin, its caller, and whether its body can be JSON.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, ORIGIN, TRANSFER_ENCODING,
};
use axum::http::uri::{Authority, PathAndQuery, Uri};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use podium_api::{ApiError, ErrorCode};
use tokio::time::timeout;

use super::reply::Refusal;
use super::{BODY_BYTES_MAX, ServerState};
use crate::slots::held;

/// Anthropic's header with the key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Bytes of a header's line without its name and its value.
const LINE_BYTES: usize = ": \r\n".len();
/// Most bytes of a body that is too long which are read before the response.
const DISCARDED_BYTES_MAX: usize = 16 << 20;
/// Longest wait for the next bytes of such a body.
const DISCARD_WAIT: Duration = Duration::from_secs(1);
/// Most characters of a client's text that an error repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// Rejects a request by its head, or adds its caller to its extensions.
pub(super) async fn check(
    State(state): State<ServerState>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let slot = state.requests.begin()?;
    let headers = request.headers();
    let authorization = authorization(headers);
    let authorization = authorization.as_deref();
    if !state.auth.needs_key() && !state.auth.is_key(authorization) {
        same_machine(&request, &state.hosts_allowed, &state.cors_origins)?;
    }
    let caller = state.auth.caller(authorization).await?;
    if request.method() == Method::POST
        && let Err(error) = is_json(request.headers())
    {
        // A client that expects to be asked for its body has not sent it.
        if error.code == ErrorCode::BodyTooLarge && !request.headers().contains_key(EXPECT) {
            discard(request.into_body()).await;
        }
        return Err(error.into());
    }
    request.extensions_mut().insert(caller);
    Ok(held(next.run(request).await, slot))
}

/// Rejects a head that is longer than `bytes_max`. HTTP/1 connections reject it too, but only if it arrives in pieces.
pub(super) async fn bound_head(State(bytes_max): State<usize>, request: Request, next: Next) -> Response {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let headers =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + LINE_BYTES);
    if target + headers.sum::<usize>() > bytes_max {
        return StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response();
    }
    next.run(request).await
}

/// Reads and forgets the rest of a body that is too long. A client that is still sending when the connection is closed gets a
/// network error instead of the response.
pub(super) async fn discard(mut body: Body) {
    let mut bytes = 0;
    while let Ok(Some(Ok(frame))) = timeout(DISCARD_WAIT, body.frame()).await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > DISCARDED_BYTES_MAX {
            return;
        }
    }
}

/// The credential of a request: the header `authorization`, or a key in Anthropic's header. A header that is not text cannot hold
/// a key.
pub(super) fn authorization(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    let key = || text(API_KEY).map(|key| Cow::Owned(format!("Bearer {key}")));
    text(AUTHORIZATION).map(Cow::Borrowed).or_else(key)
}

/// Rejects web pages while no key is required, because a page in a browser on this machine could use the server. `Origin` names
/// the page. `Host` reveals a page whose own domain resolves to this machine.
fn same_machine(request: &Request, allowed: &[String], origins: &[String]) -> Result<(), ApiError> {
    let headers = request.headers();
    let is_allowed =
        |host: &str| is_loopback(host) || allowed.iter().any(|name| name.eq_ignore_ascii_case(host));
    let is_known = |origin: &HeaderValue| origins.iter().any(|known| origin == known.as_str());
    if let Some(origin) = headers.get(ORIGIN).filter(|origin| !is_known(origin)) {
        let uri = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
        if !uri.as_ref().and_then(Uri::host).is_some_and(is_allowed) {
            return Err(foreign("origin", origin));
        }
    }
    // HTTP/2 has the host in its target.
    let named = headers.get(HOST).map(HeaderValue::as_bytes);
    let target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    for host in [named, target].into_iter().flatten() {
        let authority = Authority::try_from(host).ok();
        // A name can be made to resolve to this machine; an address cannot.
        let is_fine = |host: &str| is_allowed(host) || address(host).is_some();
        if !authority.as_ref().is_some_and(|authority| is_fine(authority.host())) {
            let host = HeaderValue::from_bytes(host).unwrap_or(HeaderValue::from_static("?"));
            return Err(foreign("host", &host));
        }
    }
    Ok(())
}

fn is_loopback(host: &str) -> bool {
    let name = host.to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || address(host).is_some_and(|address| address.is_loopback())
}

fn address(host: &str) -> Option<std::net::IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn foreign(header: &str, value: &HeaderValue) -> ApiError {
    let message = format!(
        "the request's {header} `{}` is not allowed while the server requires no key; \
         add it to cors_origins or its host to hosts_allowed, or set keys_required",
        shown(&String::from_utf8_lossy(value.as_bytes()))
    );
    ApiError::new(ErrorCode::ForeignOrigin, message)
}

/// Checks by the headers that a body is JSON and not too long.
fn is_json(headers: &HeaderMap) -> Result<(), ApiError> {
    if let Some(coding) = headers.get(TRANSFER_ENCODING)
        && !coding.as_bytes().eq_ignore_ascii_case(b"chunked")
    {
        let message = "the request's transfer-encoding is not supported; send the body chunked or with a content-length";
        return Err(ApiError::new(ErrorCode::UnsupportedTransferCoding, message));
    }
    if let Some(coding) = headers.get(CONTENT_ENCODING)
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        let message =
            format!("the body's content-encoding {coding:?} is not supported; send it uncompressed");
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType, message));
    }
    if let Some(media_type) = headers.get(CONTENT_TYPE)
        && !essence(media_type.as_bytes()).eq_ignore_ascii_case(b"application/json")
    {
        let message = format!(
            "the body's content-type `{}` is not supported; send application/json",
            shown(&String::from_utf8_lossy(media_type.as_bytes()))
        );
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType, message));
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > BODY_BYTES_MAX as u64) { Err(too_large()) } else { Ok(()) }
}

/// A media type without its parameters.
fn essence(media_type: &[u8]) -> &[u8] {
    media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

/// The error for a body that is too long.
pub(super) fn too_large() -> ApiError {
    let message = format!("the request's body is longer than the limit of {BODY_BYTES_MAX} bytes");
    ApiError::new(ErrorCode::BodyTooLarge, message)
}

/// The beginning of a client's text, for an error.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

/// Removes the trailing slash of the path, which several clients add.
pub(super) fn without_slash(mut request: Request) -> Request {
    let uri = request.uri();
    let path = uri.path();
    if path.len() < 2 || !path.ends_with('/') {
        return request;
    }
    let path = path.trim_end_matches('/');
    let shorter = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(shorter).ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().uri("/v1/models");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn requests_of_this_machine_pass_and_web_pages_do_not() {
        let allowed = ["podium.internal".to_owned()];
        for headers in [
            &[][..],
            &[("host", "localhost:8080")],
            &[("host", "LOCALHOST")],
            &[("host", "127.0.0.1:8080"), ("origin", "http://localhost:3000")],
            &[("host", "[::1]:8080"), ("origin", "http://[::1]")],
            &[("host", "app.localhost")],
            // An address cannot be made to resolve to this machine.
            &[("host", "192.168.1.5:8080")],
            &[("host", "podium.internal"), ("origin", "https://Podium.internal")],
        ] {
            assert_eq!(same_machine(&asked(headers), &allowed, &[]), Ok(()), "{headers:?}");
        }
        for headers in [
            &[("host", "evil.example")][..],
            &[("host", "localhost.evil.example")],
            &[("host", "127.0.0.1.evil.example:8080")],
            &[("host", "")],
            &[("host", "localhost"), ("origin", "https://evil.example")],
            &[("host", "localhost"), ("origin", "http://192.168.1.5")],
            &[("host", "localhost"), ("origin", "null")],
            &[("host", "localhost"), ("origin", "file://")],
        ] {
            let error = same_machine(&asked(headers), &allowed, &[]).unwrap_err();
            assert_eq!(error.code, ErrorCode::ForeignOrigin, "{headers:?}");
        }
        let origins = ["https://app.example".to_owned()];
        let from = |origin| same_machine(&asked(&[("origin", origin)]), &[], &origins).is_ok();
        assert!(from("https://app.example"));
        assert!(!from("http://app.example") && !from("https://app.example:444"));
    }

    #[test]
    fn a_body_must_be_json_by_its_headers() {
        let code = |headers: &[(&str, &str)]| is_json(asked(headers).headers()).map_err(|error| error.code);
        for headers in [
            &[][..],
            &[("content-type", "application/json")],
            &[("content-type", "Application/JSON ; charset=utf-8"), ("content-encoding", "identity")],
            &[("transfer-encoding", "chunked")],
            &[("content-length", "2097152")],
        ] {
            assert_eq!(code(headers), Ok(()), "{headers:?}");
        }
        for (headers, expected) in [
            (("content-type", "text/plain"), ErrorCode::UnsupportedMediaType),
            (("content-type", "application/json2"), ErrorCode::UnsupportedMediaType),
            (("content-type", "application/x-www-form-urlencoded"), ErrorCode::UnsupportedMediaType),
            (("content-encoding", "gzip"), ErrorCode::UnsupportedMediaType),
            (("transfer-encoding", "gzip, chunked"), ErrorCode::UnsupportedTransferCoding),
            (("content-length", "2097153"), ErrorCode::BodyTooLarge),
            (("content-length", "10000000000"), ErrorCode::BodyTooLarge),
        ] {
            assert_eq!(code(&[headers]), Err(expected), "{headers:?}");
        }
    }

    #[test]
    fn only_the_trailing_slash_of_a_path_is_removed() {
        for (path, expected) in [
            ("/v1/models/", "/v1/models"),
            ("/v1/models/?a=b/", "/v1/models?a=b/"),
            ("/v1/models", "/v1/models"),
            ("/", "/"),
        ] {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            assert_eq!(without_slash(request).uri(), expected);
        }
    }
}
