//! What is asked of JetStream: the lanes' streams and their consumers, made, described and removed.
//!
//! The requests hold only what every supported server knows: newer ones refuse what they do not know. Each must be made
//! within a time limit.

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

const STREAM_NOT_FOUND: u64 = 10_059;
const CONSUMER_NOT_FOUND: u64 = 10_014;
const STREAM_IS_DIFFERENT: u64 = 10_058;
/// The stream did not store a message; only the text says why.
pub(super) const NOT_STORED: u64 = 10_077;
/// Fetches that wait on one lane, in all processes together.
const FETCHES_MAX: usize = 4096;
/// The one consumer of each stream.
pub(super) const CONSUMER: &str = "work";
/// Most bytes of a message: its body, its subject, and what the server adds.
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

/// The part of an answer that nobody reads.
#[derive(Deserialize)]
struct Nothing {}

/// What a consumer knows.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct ConsumerInfo {
    num_pending: usize,
    num_ack_pending: usize,
}

impl ConsumerInfo {
    /// How many messages it knows of: those that wait and those in flight.
    pub(super) const fn known(self) -> usize {
        self.num_pending.saturating_add(self.num_ack_pending)
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

/// What a lane's stream holds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct StreamState {
    /// Messages, those in flight included.
    pub(super) messages: usize,
    /// The number of the oldest one.
    #[serde(default)]
    pub(super) first_seq: u64,
}

impl Api {
    /// Makes a lane's stream, or makes it what the options say.
    pub(super) async fn ensure_stream(&self, lane: &Lane) -> Result<(), NatsError> {
        let (name, stream) = (self.stream_name(lane), self.stream(lane));
        match self.ask::<Nothing>("make a stream", &format!("STREAM.CREATE.{name}"), &stream).await {
            Err(NatsError::Refused { code: STREAM_IS_DIFFERENT, .. }) => {
                if self.is_stored_otherwise(&name).await? {
                    // NATS moves no stream. Its messages are published again, by the sweepers and from the store.
                    info!(stream = name, "making the stream again with the storage that the options say");
                    self.remove_stream(&name).await?;
                    let subject = format!("STREAM.CREATE.{name}");
                    return self.ask::<Nothing>("make a stream", &subject, &stream).await.map(drop);
                }
                info!(stream = name, "changing the stream to what the options say");
                let subject = format!("STREAM.UPDATE.{name}");
                self.ask::<Nothing>("change a stream", &subject, &stream).await.map(drop)
            }
            made => made.map(drop),
        }
    }

    /// Whether a stream is there that keeps its messages elsewhere than the options say.
    async fn is_stored_otherwise(&self, name: &str) -> Result<bool, NatsError> {
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

    /// The options' storage, in NATS' words.
    const fn storage(&self) -> &'static str {
        match self.options.storage {
            Storage::File => "file",
            Storage::Memory => "memory",
        }
    }

    /// Makes a lane's consumer, or changes what can be changed of it. The stream is there.
    pub(super) async fn ensure_consumer(&self, lane: &Lane) -> Result<(), NatsError> {
        let (stream, filter) = (self.stream_name(lane), subjects::filter(&self.options.prefix, lane));
        let subject = format!("CONSUMER.CREATE.{stream}.{CONSUMER}.{filter}");
        self.ask::<Nothing>("make a consumer", &subject, &self.consumer(&stream, &filter)).await.map(drop)
    }

    pub(super) async fn remove_consumer(&self, lane: &Lane) -> Result<(), NatsError> {
        let subject = format!("CONSUMER.DELETE.{}.{CONSUMER}", self.stream_name(lane));
        match self.ask::<Nothing>("remove a consumer", &subject, &Value::Null).await {
            Err(NatsError::Refused { code: CONSUMER_NOT_FOUND | STREAM_NOT_FOUND, .. }) => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// What a lane's consumer knows; `None` if there is no such consumer.
    pub(super) async fn consumer_info(&self, lane: &Lane) -> Result<Option<ConsumerInfo>, NatsError> {
        let subject = format!("CONSUMER.INFO.{}.{CONSUMER}", self.stream_name(lane));
        match self.ask("describe a consumer", &subject, &Value::Null).await {
            Err(NatsError::Refused { code: CONSUMER_NOT_FOUND | STREAM_NOT_FOUND, .. }) => Ok(None),
            info => info.map(Some),
        }
    }

    /// What a lane's stream holds; nothing if there is no such stream.
    pub(super) async fn state(&self, lane: &Lane) -> Result<StreamState, NatsError> {
        let subject = format!("STREAM.INFO.{}", self.stream_name(lane));
        match self.ask::<StreamInfo>("describe a stream", &subject, &Value::Null).await {
            Err(NatsError::Refused { code: STREAM_NOT_FOUND, .. }) => Ok(StreamState::default()),
            info => Ok(info?.state),
        }
    }

    /// Whether JetStream answers.
    pub(super) async fn answers(&self) -> Result<(), NatsError> {
        self.ask::<Nothing>("say how it is", "INFO", &Value::Null).await.map(drop)
    }

    /// What a lane's stream is called.
    pub(super) fn stream_name(&self, lane: &Lane) -> String {
        subjects::stream(&self.options.stream, lane)
    }

    async fn ask<T: DeserializeOwned>(
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
            // The server would set so much memory aside. The number of messages is the bound.
            Storage::Memory => -1,
        };
        json!({
            "name": self.stream_name(lane),
            "description": "podium: tasks that may be ready",
            "subjects": [subjects::filter(&options.prefix, lane)],
            "retention": "workqueue",
            "storage": self.storage(),
            "num_replicas": options.replicas,
            // One message a task, queued or in flight; a second one is refused.
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
                // Attempts are counted in the store: a message that was delivered too often would stay for ever.
                "max_deliver": -1,
                // All of the lane: the slots of those who fetch are the bound.
                "max_ack_pending": options.lane_messages_max,
                "max_waiting": FETCHES_MAX,
            }
        })
    }
}

/// The body of an answer that is no refusal.
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
            assert!(matches!(accept::<ConsumerInfo>("ask", garbled), Err(NatsError::Garbled { .. })));
        }
    }
}
