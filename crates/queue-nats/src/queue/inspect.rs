//! Inspects the lanes' streams and consumers for a diagnosis, without creating or changing any.

use std::time::Duration;

use podium_ports::queue::Lane;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::NatsQueue;
use super::api::{Api, STREAM_NOT_FOUND};
use crate::error::NatsError;
use crate::link::ServerVersion;

/// The state of a server and of the lanes.
#[derive(Clone, Debug)]
pub struct QueueFacts {
    /// The server's version.
    pub version: Option<ServerVersion>,
    /// The time of one request to JetStream.
    pub latency: Duration,
    /// The lanes in the order of the request.
    pub lanes: Vec<LaneFacts>,
}

/// The state of a lane's stream and consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneFacts {
    /// The name of the stream.
    pub stream: String,
    /// The stream; `None` if it does not exist, because the lane was never used or the server lost it.
    pub state: Option<StreamFacts>,
}

/// The state of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFacts {
    /// Messages that wait or are being claimed.
    pub messages: usize,
    /// Whether a process has fetched from it: its consumer exists.
    pub has_consumer: bool,
    /// Where it differs from the settings, such as `replicas 1 instead of 3`.
    pub differences: Vec<String>,
}

#[derive(Deserialize)]
struct Described {
    config: Config,
    state: State,
}

#[derive(Deserialize)]
struct Config {
    storage: String,
    num_replicas: usize,
    max_msgs: i64,
}

#[derive(Deserialize)]
struct State {
    messages: usize,
}

impl NatsQueue {
    /// Inspects these lanes. Each request has the connection's time limit.
    pub async fn inspect(&self, lanes: &[Lane]) -> Result<QueueFacts, NatsError> {
        let api = &self.shared.api;
        api.link.within("connect", async { api.link.connected().await.map(drop) }).await?;
        let asked_at = Instant::now();
        api.link.within("report its state", api.answers()).await?;
        let latency = asked_at.elapsed();
        let mut facts = Vec::with_capacity(lanes.len());
        for lane in lanes {
            facts.push(api.link.within("describe a stream", inspect_lane(api, lane)).await?);
        }
        Ok(QueueFacts { version: self.server_version(), latency, lanes: facts })
    }
}

async fn inspect_lane(api: &Api, lane: &Lane) -> Result<LaneFacts, NatsError> {
    let stream = api.stream_name(lane);
    let described = api.ask("describe a stream", &format!("STREAM.INFO.{stream}"), &Value::Null).await;
    let Described { config, state } = match described {
        Err(NatsError::Refused { code: STREAM_NOT_FOUND, .. }) => {
            return Ok(LaneFacts { stream, state: None });
        }
        described => described?,
    };
    let has_consumer = api.consumer_info(lane).await?.is_some();
    let state =
        StreamFacts { messages: state.messages, has_consumer, differences: differences(api, &config) };
    Ok(LaneFacts { stream, state: Some(state) })
}

fn differences(api: &Api, config: &Config) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |what: &str, found: &str, wanted: &str| {
        if found != wanted {
            differences.push(format!("{what} {found} instead of {wanted}"));
        }
    };
    compare("storage", &config.storage, api.storage());
    compare("replicas", &config.num_replicas.to_string(), &api.options.replicas.to_string());
    compare("messages at most", &config.max_msgs.to_string(), &api.options.lane_messages_max.to_string());
    differences
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use podium_domain::policy::Tier;
    use podium_harness::Nats;
    use podium_ports::queue::StepQueue as _;

    use super::*;
    use crate::{ConnectionOptions, QueueOptions};

    #[tokio::test]
    async fn lanes_are_inspected_without_creating_them() {
        let nats = Nats::start().await.unwrap();
        let connection = ConnectionOptions::new(nats.url());
        let queue = NatsQueue::connect(&connection, QueueOptions::default()).await.unwrap();
        let lanes = [Lane::Plan(Tier::Mini), Lane::Plan(Tier::Ultra)];
        for _ in 0..2 {
            let facts = queue.inspect(&lanes).await.unwrap();
            assert!(facts.version.is_some() && facts.latency < Duration::from_secs(2), "{facts:?}");
            assert!(facts.lanes.iter().all(|lane| lane.state.is_none()), "{facts:?}");
        }
        queue.fetch(&lanes[1], 1, Duration::from_millis(10)).await.unwrap();
        let facts = queue.inspect(&lanes).await.unwrap();
        let used = StreamFacts { messages: 0, has_consumer: true, differences: Vec::new() };
        assert_eq!(facts.lanes.iter().map(|lane| lane.state.clone()).collect::<Vec<_>>(), [None, Some(used)]);
        let options = QueueOptions { lane_messages_max: 7, ..QueueOptions::default() };
        let other = NatsQueue::connect(&connection, options).await.unwrap();
        let facts = other.inspect(&lanes).await.unwrap();
        let differences = facts.lanes[1].state.as_ref().map(|state| state.differences.join(", "));
        assert_eq!(differences.as_deref(), Some("messages at most 256 instead of 7"));
    }
}
