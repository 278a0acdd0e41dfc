//! A response of another cell, on its way to the client.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The last frame of a response that ends early.
pub(crate) struct LastFrames {
    /// If this server stops.
    pub(crate) stopped: Frame<Bytes>,
    /// If the other gateway breaks off.
    pub(crate) broken: Frame<Bytes>,
}

/// A body that ends with one of [`LastFrames`] if this server stops or the other gateway breaks off.
pub(crate) struct GuardedBody {
    body: Body,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    /// None once the body has ended.
    last: Option<LastFrames>,
}

impl GuardedBody {
    /// The server stops when `stop` is cancelled.
    pub(crate) fn new(body: Body, stop: CancellationToken, last: LastFrames) -> Self {
        Self { body, stop: Box::pin(stop.cancelled_owned()), last: Some(last) }
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.last.is_none() {
            return Poll::Ready(None);
        }
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Err(_))) => Poll::Ready(self.last.take().map(|last| Ok(last.broken))),
            Poll::Ready(None) => {
                self.last = None;
                Poll::Ready(None)
            }
            Poll::Pending if self.stop.as_mut().poll(context).is_ready() => {
                Poll::Ready(self.last.take().map(|last| Ok(last.stopped)))
            }
            frame => frame,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
