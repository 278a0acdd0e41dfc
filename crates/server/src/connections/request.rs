//! The time limit for the body of a request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use podium_api::{ApiError, ErrorCode};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::activity::RequestGuard;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body took too long to arrive. Its source is the gRPC status that a caller gets.
#[derive(Debug, thiserror::Error)]
#[error("the request's body did not arrive within {} ms", limit.as_millis())]
pub(crate) struct BodyTimeout {
    limit: Duration,
    #[source]
    status: Box<Status>,
}

impl BodyTimeout {
    fn new(limit: Duration) -> Self {
        let message = format!("the request's body did not arrive within {} ms", limit.as_millis());
        Self { limit, status: Box::new(ApiError::new(ErrorCode::RequestTimeout, message).into()) }
    }
}

/// A body that fails with [`BodyTimeout`].
pub(super) struct TimedBody<B> {
    body: B,
    request: Arc<RequestGuard>,
    limit: Duration,
    due: Instant,
    /// The timer; starts when the body is first waited for.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<B: Body> TimedBody<B> {
    /// A body whose time limit starts now.
    pub(super) fn new(body: B, limit: Duration, request: Arc<RequestGuard>) -> Self {
        if body.is_end_stream() {
            request.received();
        }
        Self { body, request, limit, due: Instant::now() + limit, waiting: None }
    }
}

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if frame.is_none() || self.body.is_end_stream() {
                self.request.received();
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let (due, limit) = (self.due, self.limit);
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep_until(due)));
        waiting.as_mut().poll(context).map(|()| Some(Err(BodyTimeout::new(limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
