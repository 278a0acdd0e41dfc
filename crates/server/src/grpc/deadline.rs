//! Answers `DEADLINE_EXCEEDED` when the caller's `grpc-timeout` runs out before a call returns.
//!
//! tonic has a timer for that header, but answers `CANCELLED`, which callers mistake for their own cancellation. This timer
//! fires a moment earlier. It does not limit a stream that has begun: watching may take as long as the run.

use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use futures::future::BoxFuture;
use http::{Request, Response};
use podium_api::{ApiError, ErrorCode};
use tonic::Status;
use tower::{Layer, Service};

/// How much earlier than tonic's timer this one fires.
const HEAD_START: Duration = Duration::from_millis(5);

/// Adds the deadline to a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeadlineLayer;

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline { inner }
    }
}

/// A service whose calls return before the deadline.
#[derive(Clone, Debug)]
pub(super) struct Deadline<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for Deadline<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limit = request.headers().get("grpc-timeout").and_then(|value| timeout(value.to_str().ok()?));
        let call = self.inner.call(request);
        Box::pin(async move {
            let Some(limit) = limit else { return call.await };
            match tokio::time::timeout(limit.saturating_sub(HEAD_START), call).await {
                Ok(response) => response,
                Err(_elapsed) => Ok(exceeded(limit).into_http()),
            }
        })
    }
}

fn exceeded(limit: Duration) -> Status {
    let message = format!("the call did not return within the caller's {} ms", limit.as_millis());
    ApiError::new(ErrorCode::CallDeadlineExceeded, message).into()
}

/// Parses a `grpc-timeout`: at most eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tonic::Code;
    use tower::ServiceExt as _;

    use super::*;

    #[test]
    fn timeouts_are_parsed_in_every_unit() {
        for (text, span) in [
            ("2H", Some(Duration::from_hours(2))),
            ("3M", Some(Duration::from_mins(3))),
            ("4S", Some(Duration::from_secs(4))),
            ("99999999m", Some(Duration::from_millis(99_999_999))),
            ("6u", Some(Duration::from_micros(6))),
            ("7n", Some(Duration::from_nanos(7))),
            ("", None),
            ("S", None),
            ("123456789S", None),
            ("-1S", None),
            ("1x", None),
            ("1é", None),
        ] {
            assert_eq!(timeout(text), span, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_too_long_exceeds_its_deadline() {
        let never = tower::service_fn(|_: Request<()>| async {
            std::future::pending::<Result<Response<Body>, Infallible>>().await
        });
        let request = Request::builder().header("grpc-timeout", "50m").body(()).unwrap();
        let response = DeadlineLayer.layer(never).oneshot(request).await.unwrap();
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    }
}
