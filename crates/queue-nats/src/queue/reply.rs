//! Replies to deliveries. The server confirms each reply, because an unconfirmed one may be lost with the connection.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use podium_ports::queue::{QueueError, Reply};
use serde_json::json;

use super::Shared;
use super::api::nanoseconds;
use crate::error::NatsError;

pub(super) struct NatsReply {
    pub(super) shared: Arc<Shared>,
    /// The reply subject.
    pub(super) subject: String,
}

impl NatsReply {
    async fn answer(&self, call: &'static str, body: impl Into<Bytes>) -> Result<(), QueueError> {
        let link = &self.shared.api.link;
        match link.within(call, link.ask(call, self.subject.clone(), body.into())).await {
            // The consumer is gone, and the message with it.
            Ok(_) | Err(NatsError::NoResponders { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn put_back(&self, delay: Duration) -> Result<(), QueueError> {
        let body = match nanoseconds(delay) {
            0 => "-NAK".to_owned(),
            delay => format!("-NAK {}", json!({ "delay": delay })),
        };
        self.answer("put a message back", body).await
    }
}

#[async_trait]
impl Reply for NatsReply {
    async fn ack(self: Box<Self>) -> Result<(), QueueError> {
        self.answer("remove a message", "+ACK").await
    }

    async fn nak(self: Box<Self>, delay: Duration) -> Result<(), QueueError> {
        self.put_back(delay).await
    }
}
