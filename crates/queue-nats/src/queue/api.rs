//! JetStream requests: create, describe and remove the lanes' streams and consumers.
//!
//! Requests contain only fields that every supported server knows: newer servers reject unknown fields. The caller must
//! limit the time of each request.

use std::time::Duration;

use bytes::Bytes;
use podium_ports::queue::Lane;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::info;

use super::body::BODY_BYTES_MAX;
use super::options::{QueueOptions, Storage};
use crate::error::NatsError;
use crate::link::{Link, read};
use crate::subjects;

pub(super) const STREAM_NOT_FOUND: u64 = 10_059;
const CONSUMER_NOT_FOUND: u64 = 10_014;
const STREAM_IS_DIFFERENT: u64 = 10_058;
/// The stream did not store a message; only the text gives the reason.
pub(super) const NOT_STORED: u64 = 10_077;
/// Most waiting fetches per lane, of all processes together.
const FETCHES_MAX: usize = 4096;
/// The one consumer of each stream.
pub(super) const CONSUMER: &str = "work";
/// Longest message in bytes: its body, its subject and the server's overhead.
const MESSAGE_BYTES_MAX: usize = BODY_BYTES_MAX + 1024;

/// JetStream, for the streams of one queue.
pub(super) struct Api {
    pub(super) link: Link,
    pub(super) options: QueueOptions,
}

#[derive(Deserialize)]
struct Answer {
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// An answer whose fields are not used.
#[derive(Deserialize)]
struct Nothing {}

/// A consumer's counters.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct ConsumerInfo {
    num_pending: usize,
    num_ack_pending: usize,
    #[serde(default)]
    delivered: Sequence,
    /// All messages up to it are acked.
    #[serde(default)]
    ack_floor: Sequence,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Sequence {
    stream_seq: u64,
}

impl ConsumerInfo {
    /// Number of messages that the consumer knows: waiting and in flight.
    pub(super) const fn known(self) -> usize {
        self.num_pending.saturating_add(self.num_ack_pending)
    }

    /// Whether the consumer knows messages that were never stored, or acks of messages that still exist. `stream` must have
    /// been requested after the consumer.
    pub(super) const fn is_ahead_of(self, stream: StreamState) -> bool {
        stream.last_seq < self.delivered.stream_seq
            || stream.messages > 0 && stream.first_seq <= self.ack_floor.stream_seq
    }
}

#[derive(Deserialize)]
struct StreamInfo {
    state: StreamState,
}

#[derive(Deserialize)]
struct StreamConfig {
    config: StreamStorage,
}

#[derive(Deserialize)]
struct StreamStorage {
    storage: String,
}

/// The state of a lane's stream.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct StreamState {
    /// Number of messages, including those in flight.
    pub(super) messages: usize,
    /// Sequence number of the oldest message.
    #[serde(default)]
    pub(super) first_seq: u64,
    #[serde(default)]
    pub(super) last_seq: u64,
}

impl Api {
    /// Creates a lane's stream. Updates an existing one to the options only if `may_change`.
    pub(super) async fn ensure_stream(&self, lane: &Lane, may_change: bool) -> Result<(), NatsError> {
        let (name, stream) = (self.stream_name(lane), self.stream(lane));
        match self.ask::<Nothing>("create a stream", &format!("STREAM.CREATE.{name}"), &stream).await {
            Err(NatsError::Refused { code: STREAM_IS_DIFFERENT, .. }) if !may_change => Ok(()),
            Err(NatsError::Refused { code: STREAM_IS_DIFFERENT, .. }) => {
                if self.has_other_storage(&name).await? {
                    // NATS cannot change a stream's storage. The sweepers republish its messages from the store.
                    info!(stream = name, "recreating the stream with the configured storage");
                    self.remove_stream(&name).await?;
                    let subject = format!("STREAM.CREATE.{name}");
                    return self.ask::<Nothing>("create a stream", &subject, &stream).await.map(drop);
                }
                info!(stream = name, "updating the stream to the configured options");
                let subject = format!("STREAM.UPDATE.{name}");
                self.ask::<Nothing>("update a stream", &subject, &stream).await.map(drop)
            }
            made => made.map(drop),
        }
    }

    /// Whether the stream exists with a storage other than the configured one.
    async fn has_other_storage(&self, name: &str) -> Result<bool, NatsError> {
        let subject = format!("STREAM.INFO.{name}");
        match self.ask::<StreamConfig>("describe a stream", &subject, &Value::Null).await {
            Err(NatsError::Refused { code: STREAM_NOT_FOUND, .. }) => Ok(false),
            info => Ok(info?.config.storage != self.storage()),
        }
    }

    async fn remove_stream(&self, name: &str) -> Result<(), NatsError> {
        let subject = format!("STREAM.DELETE.{name}");
        match self.ask::<Nothing>("remove a stream", &subject, &Value::Null).await {
            Err(NatsError::Refused { code: STREAM_NOT_FOUND, .. }) => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// The configured storage, as NATS names it.
    pub(super) const fn storage(&self) -> &'static str {
        match self.options.storage {
            Storage::File => "file",
            Storage::Memory => "memory",
        }
    }

    /// Creates or updates a lane's consumer. The stream must exist.
    pub(super) async fn ensure_consumer(&self, lane: &Lane) -> Result<(), NatsError> {
        let (stream, filter) = (self.stream_name(lane), subjects::filter(&self.options.prefix, lane));
        let subject = format!("CONSUMER.CREATE.{stream}.{CONSUMER}.{filter}");
        self.ask::<Nothing>("create a consumer", &subject, &self.consumer(&stream, &filter)).await.map(drop)
    }

    pub(super) async fn remove_consumer(&self, lane: &Lane) -> Result<(), NatsError> {
        let subject = format!("CONSUMER.DELETE.{}.{CONSUMER}", self.stream_name(lane));
        match self.ask::<Nothing>("remove a consumer", &subject, &Value::Null).await {
            Err(NatsError::Refused { code: CONSUMER_NOT_FOUND | STREAM_NOT_FOUND, .. }) => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// A lane's consumer; `None` if it does not exist.
    pub(super) async fn consumer_info(&self, lane: &Lane) -> Result<Option<ConsumerInfo>, NatsError> {
        let subject = format!("CONSUMER.INFO.{}.{CONSUMER}", self.stream_name(lane));
        match self.ask("describe a consumer", &subject, &Value::Null).await {
            Err(NatsError::Refused { code: CONSUMER_NOT_FOUND | STREAM_NOT_FOUND, .. }) => Ok(None),
            info => info.map(Some),
        }
    }

    /// State of a lane's stream; empty if it does not exist.
    pub(super) async fn state(&self, lane: &Lane) -> Result<StreamState, NatsError> {
        let subject = format!("STREAM.INFO.{}", self.stream_name(lane));
        match self.ask::<StreamInfo>("describe a stream", &subject, &Value::Null).await {
            Err(NatsError::Refused { code: STREAM_NOT_FOUND, .. }) => Ok(StreamState::default()),
            info => Ok(info?.state),
        }
    }

    /// Whether JetStream answers.
    pub(super) async fn answers(&self) -> Result<(), NatsError> {
        self.ask::<Nothing>("report its state", "INFO", &Value::Null).await.map(drop)
    }

    /// Name of a lane's stream.
    pub(super) fn stream_name(&self, lane: &Lane) -> String {
        subjects::stream(&self.options.stream, lane)
    }

    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        call: &'static str,
        subject: &str,
        body: &Value,
    ) -> Result<T, NatsError> {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let answer = self.link.ask(call, format!("$JS.API.{subject}"), body).await?;
        accept(call, &answer.payload)
    }

    fn stream(&self, lane: &Lane) -> Value {
        let options = &self.options;
        let bytes_max = match options.storage {
            Storage::File => i64::try_from(options.lane_messages_max * MESSAGE_BYTES_MAX).unwrap_or(i64::MAX),
            // The number of messages is the bound: the server would reserve the memory of a bound in bytes.
            Storage::Memory => -1,
        };
        json!({
            "name": self.stream_name(lane),
            "description": "podium: tasks that may be ready",
            "subjects": [subjects::filter(&options.prefix, lane)],
            "retention": "workqueue",
            "storage": self.storage(),
            "num_replicas": options.replicas,
            // One message per task, queued or in flight; a second one is rejected.
            "max_msgs_per_subject": 1,
            "discard": "new",
            "discard_new_per_subject": true,
            "max_msgs": options.lane_messages_max,
            "max_bytes": bytes_max,
            "max_age": nanoseconds(options.message_age_max),
        })
    }

    fn consumer(&self, stream: &str, filter: &str) -> Value {
        let options = &self.options;
        json!({
            "stream_name": stream,
            "config": {
                "name": CONSUMER,
                "durable_name": CONSUMER,
                "filter_subject": filter,
                "deliver_policy": "all",
                "replay_policy": "instant",
                "ack_policy": "explicit",
                "ack_wait": nanoseconds(options.ack_wait),
                // The store counts attempts. With a limit, the stream would keep a message that was delivered too often.
                "max_deliver": -1,
                // The whole lane: the bound is the free slots of the fetching processes.
                "max_ack_pending": options.lane_messages_max,
                "max_waiting": FETCHES_MAX,
            }
        })
    }
}

/// The body of an answer, or the error that it contains.
pub(super) fn accept<T: DeserializeOwned>(call: &'static str, body: &[u8]) -> Result<T, NatsError> {
    let answer: Answer = read(call, body)?;
    match answer.error {
        Some(Refusal { err_code: code, description: message }) => {
            Err(NatsError::Refused { call, code, message })
        }
        None => read(call, body),
    }
}

pub(super) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_body_or_a_refusal() {
        let info = accept::<ConsumerInfo>("ask", br#"{"type":"x","num_pending":2,"num_ack_pending":0}"#);
        assert_eq!(info.unwrap().known(), 2);
        let refused = accept::<ConsumerInfo>(
            "ask",
            br#"{"type":"x","error":{"code":404,"err_code":10014,"description":"consumer not found"}}"#,
        );
        assert!(matches!(refused, Err(NatsError::Refused { code: CONSUMER_NOT_FOUND, .. })));
        for garbled in [&b"{}"[..], b"", b"no"] {
            assert!(matches!(accept::<ConsumerInfo>("ask", garbled), Err(NatsError::Undecodable { .. })));
        }
    }
}
