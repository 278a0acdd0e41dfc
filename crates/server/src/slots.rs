//! Bounds on what a server does at the same time for all clients together.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use podium_api::{ApiError, ErrorCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A bound on the number of things of one kind. Clones share the count.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    things: &'static str,
    setting: &'static str,
    most: usize,
    free: Arc<Semaphore>,
}

/// One of the things. Dropping it makes a place for another one.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
}

impl Slots {
    /// `requests_in_flight_max`: requests whose response is not sent yet.
    pub(crate) fn of_requests(most: usize) -> Self {
        Self::new("requests under way", "requests_in_flight_max", most)
    }

    /// `websockets_max`: open connections of the WebSocket kind.
    pub(crate) fn of_sockets(most: usize) -> Self {
        Self::new("open WebSockets", "websockets_max", most)
    }

    fn new(things: &'static str, setting: &'static str, most: usize) -> Self {
        let free = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self { things, setting, most, free }
    }

    /// A place for one more. At the limit, an error that clients may retry.
    pub(crate) fn begin(&self) -> Result<Slot, ApiError> {
        let Self { things, setting, most, free } = self;
        let permit = Arc::clone(free).try_acquire_owned().map_err(|_| {
            let message =
                format!("the server has {most} {things}, which is its limit ({setting}); try again later");
            ApiError::new(ErrorCode::Overloaded, message)
        })?;
        Ok(Slot { _permit: permit })
    }
}

/// Holds a place until the response is sent or given up.
pub(crate) fn held(response: Response, slot: Slot) -> Response {
    response.map(|body| Body::new(Holding { body, _slot: slot }))
}

struct Holding {
    body: Body,
    _slot: Slot,
}

impl http_body::Body for Holding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_once_its_response_is_dropped() {
        let slots = Slots::of_requests(1);
        let response = held(Response::new(Body::from("answer")), slots.begin().unwrap());
        let refused = slots.begin().unwrap_err();
        assert_eq!(refused.code, ErrorCode::Overloaded);
        assert!(
            refused.message.contains("1 requests under way")
                && refused.message.contains("requests_in_flight_max")
        );
        assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(6));
        drop(response);
        assert!(slots.begin().is_ok());
    }
}
