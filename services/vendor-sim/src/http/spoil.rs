//! Applies scripted faults to responses.

use std::{
    convert::Infallible,
    time::{Duration, SystemTime},
};

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};

use super::{error::ApiError, format::Format};
use podium_demo_workers::Model;

use crate::{behaviour::Fault, calls::CallEntry};

/// Bytes per chunk of an answer that is too long.
const HUGE_CHUNK_BYTES: usize = 64 << 10;

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Completely.
    Whole,
    /// The connection is closed before the end.
    Cut,
    /// The connection is reset before the end.
    Reset,
    /// Regularly, but before the end.
    Truncated,
    /// Never.
    Hang,
}

/// Marks a response whose connection is reset when its body breaks off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResetAtEnd;

/// The effect of a fault on an answer in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spoilt {
    pub(super) ending: Ending,
    pub(super) has_wrong_type: bool,
    chunks: usize,
    is_garbled: bool,
}

impl Spoilt {
    /// No effect.
    pub(super) const NOT: Self =
        Self { ending: Ending::Whole, has_wrong_type: false, chunks: usize::MAX, is_garbled: false };

    /// The effect of this fault.
    pub(super) fn by(fault: Option<Fault>) -> Self {
        let ends = |ending, chunks| Self { ending, chunks, ..Self::NOT };
        match fault {
            Some(Fault::CutStream { after_chunks }) => ends(Ending::Cut, after_chunks),
            Some(Fault::Reset { after_chunks }) => ends(Ending::Reset, after_chunks),
            Some(Fault::Truncate { after_chunks }) => ends(Ending::Truncated, after_chunks),
            Some(Fault::HangAfter { after_chunks }) => ends(Ending::Hang, after_chunks),
            Some(Fault::GarbledJson) => Self { is_garbled: true, ..Self::NOT },
            Some(Fault::WrongType) => Self { has_wrong_type: true, ..Self::NOT },
            _ => Self::NOT,
        }
    }

    /// The frames of a stream that are sent.
    pub(super) fn frames(self, mut frames: Vec<String>) -> Vec<String> {
        let next = frames.get(self.chunks).cloned();
        frames.truncate(self.chunks);
        if let Some(next) = next.filter(|_| self.ending == Ending::Truncated) {
            frames.push(half(next));
        }
        if self.is_garbled {
            frames = frames.iter().map(|frame| frame.replacen('{', "{]", 1)).collect();
        }
        frames
    }

    /// The part of an unstreamed answer that is sent.
    pub(super) fn whole(self, whole: String) -> Vec<String> {
        vec![match self.ending {
            Ending::Whole if self.is_garbled => whole.replacen('{', "{]", 1),
            Ending::Whole => whole,
            Ending::Cut | Ending::Reset | Ending::Truncated | Ending::Hang => half(whole),
        }]
    }
}

fn half(mut text: String) -> String {
    let half = (0..=text.len() / 2).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(half);
    text
}

/// An answer of this many letters, in pieces.
pub(super) fn huge(bytes: usize) -> Vec<String> {
    let chunk = "x".repeat(HUGE_CHUNK_BYTES.min(bytes));
    let mut pieces = vec![chunk.clone(); bytes / HUGE_CHUNK_BYTES];
    pieces.extend(
        (!bytes.is_multiple_of(HUGE_CHUNK_BYTES)).then(|| chunk[..bytes % HUGE_CHUNK_BYTES].to_owned()),
    );
    pieces
}

/// Waits for ever. The entry is kept until the caller disconnects or the simulator stops.
pub(super) async fn hang<T>(_entry: CallEntry) -> T {
    let never: Infallible = std::future::pending().await;
    match never {}
}

/// The response of a fault that replaces the model's answer.
pub(super) fn refusal(model: Model, format: Format, fault: Option<Fault>) -> Option<Response> {
    match fault? {
        Fault::RateLimit { retry_after_s } => {
            Some(ApiError::rate_limit(model.id(), retry_after_s).response(format))
        }
        Fault::ServerError => Some(ApiError::server_error().response(format)),
        Fault::Overloaded => Some(ApiError::overloaded().response(format)),
        Fault::RateLimitBare => Some((StatusCode::TOO_MANY_REQUESTS, "Too many requests").into_response()),
        Fault::RateLimitDate { retry_after_s, skew_s } => {
            Some(rate_limit_date(model, format, retry_after_s, skew_s))
        }
        Fault::Status { status } => {
            let (_, body) = format.error(&ApiError::server_error());
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Some((status, Json(body)).into_response())
        }
        Fault::WebPage => {
            Some(Html("<!doctype html><title>Sign in</title><p>Sign in to go on.").into_response())
        }
        Fault::Unpaid => Some(ApiError::unpaid(format).response(format)),
        Fault::BillingOff => Some(ApiError::billing_off(format).response(format)),
        Fault::Hang
        | Fault::CutStream { .. }
        | Fault::SlowFirstToken { .. }
        | Fault::Garbage
        | Fault::HangAfter { .. }
        | Fault::Reset { .. }
        | Fault::Truncate { .. }
        | Fault::GarbledJson
        | Fault::Huge { .. }
        | Fault::WrongType => None,
    }
}

/// 429 with a point in time, as each vendor sends it: an HTTP date, milliseconds since 1970, or RFC 3339.
fn rate_limit_date(model: Model, format: Format, retry_after_s: u64, skew_s: i64) -> Response {
    let skew = Duration::from_secs(skew_s.unsigned_abs());
    let clock = if skew_s < 0 { now() - skew } else { now() + skew };
    // `Date` has whole seconds, so the times relative to it have, too.
    let clock = clock - Duration::from_nanos(nanoseconds(clock));
    let at = clock + Duration::from_secs(retry_after_s);
    let (_, mut body) = format.error(&ApiError::rate_limit(model.id(), retry_after_s));
    // Gemini's body contains a duration; here a header contains the point in time.
    if let Some(error) = body["error"].as_object_mut() {
        error.remove("details");
    }
    let mut response = (StatusCode::TOO_MANY_REQUESTS, Json(body)).into_response();
    let mut put = |name, value: String| {
        HeaderValue::try_from(value).ok().map(|value| response.headers_mut().insert(name, value))
    };
    put(header::DATE, httpdate::fmt_http_date(clock));
    match format {
        Format::Chat | Format::Gemini => put(header::RETRY_AFTER, httpdate::fmt_http_date(at)),
        Format::Responses => {
            let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            put(header::HeaderName::from_static("x-ratelimit-reset"), since.as_millis().to_string())
        }
        Format::Messages => {
            let name = header::HeaderName::from_static("anthropic-ratelimit-requests-reset");
            put(name, rfc_3339(at))
        }
    };
    response
}

fn nanoseconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| u64::from(since.subsec_nanos()))
}

/// Formats a time as RFC 3339, in UTC and whole seconds. The fields of an HTTP date have fixed positions.
fn rfc_3339(time: SystemTime) -> String {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let http = httpdate::fmt_http_date(time);
    let month = MONTHS.find(&http[8..11]).unwrap_or_default() / 3 + 1;
    format!("{}-{month:02}-{}T{}Z", &http[12..16], &http[5..7], &http[17..25])
}

#[expect(
    clippy::disallowed_methods,
    reason = "this simulates another machine's clock; no decision depends on it"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_formatted_as_anthropic_does() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_283_445);
        assert_eq!(rfc_3339(time), "2026-11-21T17:50:45Z");
    }

    #[test]
    fn a_huge_answer_has_its_length() {
        for bytes in [1, HUGE_CHUNK_BYTES, HUGE_CHUNK_BYTES * 3 + 7] {
            assert_eq!(huge(bytes).concat().len(), bytes);
        }
    }
}
