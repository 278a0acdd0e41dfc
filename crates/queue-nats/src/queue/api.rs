//! What is asked of JetStream: the stream and its consumers, made, described and removed.
//!
//! The requests hold only what every supported server knows: newer ones refuse what they do not know. Each must be made
//! within a time limit.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use podium_ports::queue::Lane;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::info;

use super::options::QueueOptions;
use super::subjects;
use crate::error::NatsError;
use crate::link::{Link, read};

const STREAM_NOT_FOUND: u64 = 10_059;
const CONSUMER_NOT_FOUND: u64 = 10_014;
const STREAM_IS_DIFFERENT: u64 = 10_058;
/// The stream did not store a message; only the text says why.
pub(super) const NOT_STORED: u64 = 10_077;
/// Fetches that wait on one lane, in all processes together.
const FETCHES_MAX: usize = 4096;

/// JetStream, for one stream.
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
    num_pending: u64,
    num_ack_pending: u64,
}

impl ConsumerInfo {
    pub(super) const fn is_idle(self) -> bool {
        self.num_pending == 0 && self.num_ack_pending == 0
    }
}

#[derive(Deserialize)]
struct StreamInfo {
    state: StreamState,
}

#[derive(Deserialize)]
struct StreamState {
    #[serde(default)]
    subjects: Option<HashMap<String, u64>>,
}

impl Api {
    /// Makes the stream, or makes it what the options say.
    pub(super) async fn ensure_stream(&self) -> Result<(), NatsError> {
        let name = &self.options.stream;
        let made =
            self.ask::<Nothing>("make the stream", &format!("STREAM.CREATE.{name}"), &self.stream()).await;
        match made {
            Err(NatsError::Refused { code: STREAM_IS_DIFFERENT, .. }) => {
                info!(stream = name, "changing the stream to what the options say");
                let subject = format!("STREAM.UPDATE.{name}");
                self.ask::<Nothing>("change the stream", &subject, &self.stream()).await.map(drop)
            }
            made => made.map(drop),
        }
    }

    /// Makes a lane's consumer, or changes what can be changed of it. The stream is there.
    pub(super) async fn ensure_consumer(&self, lane: &Lane) -> Result<(), NatsError> {
        let (name, filter) = (subjects::consumer(lane), subjects::filter(&self.options.prefix, lane));
        let subject = format!("CONSUMER.CREATE.{}.{name}.{filter}", self.options.stream);
        self.ask::<Nothing>("make a consumer", &subject, &self.consumer(&name, &filter)).await.map(drop)
    }

    pub(super) async fn remove_consumer(&self, lane: &Lane) -> Result<(), NatsError> {
        let subject = format!("CONSUMER.DELETE.{}.{}", self.options.stream, subjects::consumer(lane));
        match self.ask::<Nothing>("remove a consumer", &subject, &Value::Null).await {
            Err(NatsError::Refused { code: CONSUMER_NOT_FOUND | STREAM_NOT_FOUND, .. }) => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// What a lane's consumer knows; `None` if there is no such consumer.
    pub(super) async fn consumer_info(&self, lane: &Lane) -> Result<Option<ConsumerInfo>, NatsError> {
        let subject = format!("CONSUMER.INFO.{}.{}", self.options.stream, subjects::consumer(lane));
        match self.ask("describe a consumer", &subject, &Value::Null).await {
            Err(NatsError::Refused { code: CONSUMER_NOT_FOUND | STREAM_NOT_FOUND, .. }) => Ok(None),
            info => info.map(Some),
        }
    }

    /// Whether the stream has messages of a lane.
    pub(super) async fn has_messages(&self, lane: &Lane) -> Result<bool, NatsError> {
        let filter = subjects::filter(&self.options.prefix, lane);
        let info = self.describe(&json!({ "subjects_filter": filter })).await?;
        Ok(info.is_some_and(|info| info.state.subjects.is_some_and(|subjects| !subjects.is_empty())))
    }

    /// Whether the stream is there.
    pub(super) async fn has_stream(&self) -> Result<bool, NatsError> {
        Ok(self.describe(&Value::Null).await?.is_some())
    }

    async fn describe(&self, what: &Value) -> Result<Option<StreamInfo>, NatsError> {
        let subject = format!("STREAM.INFO.{}", self.options.stream);
        match self.ask("describe the stream", &subject, what).await {
            Err(NatsError::Refused { code: STREAM_NOT_FOUND, .. }) => Ok(None),
            info => info.map(Some),
        }
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

    fn stream(&self) -> Value {
        let options = &self.options;
        json!({
            "name": options.stream,
            "description": "podium: tasks that may be ready",
            "subjects": [format!("{}.>", options.prefix)],
            "retention": "workqueue",
            "storage": "file",
            "num_replicas": options.replicas,
            // One message a task, queued or in flight; a second one is refused.
            "max_msgs_per_subject": 1,
            "discard": "new",
            "discard_new_per_subject": true,
            "max_msgs": options.messages_max,
            "max_bytes": options.bytes_max,
            "max_age": nanoseconds(options.message_age_max),
        })
    }

    fn consumer(&self, name: &str, filter: &str) -> Value {
        let options = &self.options;
        json!({
            "stream_name": options.stream,
            "config": {
                "name": name,
                "durable_name": name,
                "filter_subject": filter,
                "deliver_policy": "all",
                "replay_policy": "instant",
                "ack_policy": "explicit",
                "ack_wait": nanoseconds(options.ack_wait),
                // Attempts are counted in the store: a message that was delivered too often would stay for ever.
                "max_deliver": -1,
                "max_ack_pending": options.in_flight_max,
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
        assert!(!info.unwrap().is_idle());
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
