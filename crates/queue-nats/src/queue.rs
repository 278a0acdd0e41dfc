//! The step queue on JetStream.
//!
//! Each lane has a separate stream, a work queue with its own bound. It rejects a second message of a task until the first
//! is acked. It has one durable consumer. A stream is created when its lane is first used, a consumer with the first fetch.
//! Both are recreated when a server has lost them, and a consumer also when it has lost track of the stream.

mod api;
mod body;
mod inspect;
mod lanes;
mod options;
mod pull;
mod reply;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use podium_ports::queue::{Delivery, Lane, Published, QueueError, StepQueue, TaskMessage};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::error::NatsError;
use crate::link::{ConnectionOptions, Link, ServerVersion};
use crate::subjects;
use api::{Api, ConsumerInfo};
pub use inspect::{LaneFacts, QueueFacts, StreamFacts};
use lanes::Lanes;
pub use options::{QueueOptions, Storage};
use pull::{Ended, Pull};

/// Name of the call in errors.
const STORE: &str = "store a message";
/// Longest wait of one fetch request. If a request is lost with its connection, this is the longest delay until that is noticed.
const PULL_MAX: Duration = Duration::from_secs(5);
/// Within this time a server removes a message whose ack it has noted.
const REMOVAL_MAX: Duration = Duration::from_millis(250);
/// If the consumer knows some messages, it has lost track when it misses more than a full lane divided by this.
const UNKNOWN_SHARE: usize = 4;
/// How many times in a row one call tries again after recreating a missing stream or consumer.
const TRIES: usize = 2;
/// Most messages of one fetch.
const FETCH_MESSAGES_MAX: usize = 256;
/// Buffer of one subscription: a fetch's messages and the final status.
const SUBSCRIPTION_MESSAGES_MAX: usize = 4 * FETCH_MESSAGES_MAX;

/// A queue on NATS JetStream.
///
/// A message that this version cannot decode is put back for a newer process. A fetch returns at most 256 messages.
#[derive(Clone)]
pub struct NatsQueue {
    shared: Arc<Shared>,
}

struct Shared {
    api: Api,
    lanes: Lanes,
    /// Tasks that put back messages of abandoned fetches.
    tasks: TaskTracker,
}

/// The answer to a published message.
#[derive(Deserialize)]
struct Stored {
    #[serde(rename = "seq")]
    _sequence: u64,
}

impl NatsQueue {
    /// Connects. Streams and consumers are created when they are first needed.
    pub async fn connect(connection: &ConnectionOptions, options: QueueOptions) -> Result<Self, NatsError> {
        options.check()?;
        let link = Link::connect(connection, SUBSCRIPTION_MESSAGES_MAX).await?;
        let (api, lanes, tasks) = (Api { link, options }, Lanes::default(), TaskTracker::new());
        Ok(Self { shared: Arc::new(Shared { api, lanes, tasks }) })
    }

    /// The server's version, if a connection was ever made.
    pub fn server_version(&self) -> Option<ServerVersion> {
        self.shared.api.link.version()
    }

    /// Waits until messages of abandoned fetches are put back, at most for a call's time limit. Without a connection it returns
    /// at once. Must be the last call.
    pub async fn close(&self) {
        self.shared.tasks.close();
        if !self.shared.api.link.is_connected() {
            return;
        }
        if timeout(self.shared.api.link.call_max(), self.shared.tasks.wait()).await.is_err() {
            debug!("messages of abandoned fetches are redelivered after the ack wait");
        }
    }
}

fn unwritable(error: serde_json::Error) -> NatsError {
    NatsError::Client { call: STORE, source: Box::new(error) }
}

impl Shared {
    async fn publish(&self, lane: &Lane, message: &TaskMessage) -> Result<Published, QueueError> {
        let body = body::write(message).map_err(unwritable)?;
        self.store(lane, message, body).await
    }

    async fn store(&self, lane: &Lane, message: &TaskMessage, body: Bytes) -> Result<Published, QueueError> {
        let subject = subjects::subject(&self.api.options.prefix, lane, message);
        let mut tries = TRIES;
        loop {
            let connection = self.ensure_stream(lane).await?;
            tries -= 1;
            let answer = self.api.link.ask(STORE, subject.clone(), body.clone()).await;
            match answer.and_then(|answer| api::accept::<Stored>(STORE, &answer.payload)) {
                Ok(_) => return Ok(Published::Queued),
                Err(NatsError::NoResponders { .. }) if tries > 0 => {
                    self.lanes.forget_stream(lane, connection);
                }
                Err(NatsError::Refused { code: api::NOT_STORED, message, .. }) => {
                    return self.not_stored(lane, message);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Maps the reasons for which JetStream does not store a message: all have one error code.
    fn not_stored(&self, lane: &Lane, message: String) -> Result<Published, QueueError> {
        if message.contains("per subject") {
            return Ok(Published::AlreadyOutstanding);
        }
        if message.contains("maximum messages") || message.contains("maximum bytes") {
            return Err(QueueError::Full {
                lane: lane.to_string(),
                messages_max: self.api.options.lane_messages_max,
            });
        }
        Err(NatsError::Refused { call: STORE, code: api::NOT_STORED, message }.into())
    }

    async fn fetch(
        self: &Arc<Self>,
        lane: &Lane,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let give_up_at = Instant::now() + wait;
        let mut tries = TRIES;
        loop {
            let connection = self.within("create a consumer", self.ensure_lane(lane)).await?;
            let left = give_up_at.saturating_duration_since(Instant::now());
            let (deliveries, ended) = self.pull(lane, max, left.min(PULL_MAX)).await?;
            match ended {
                Ended::Asked => tries = TRIES,
                Ended::Gone => {
                    self.lanes.forget(lane, connection);
                    tries -= 1;
                    if tries == 0 && deliveries.is_empty() {
                        return Err(NatsError::NoResponders { call: "fetch messages" }.into());
                    }
                }
            }
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            if Instant::now() >= give_up_at && matches!(ended, Ended::Asked) {
                self.check_consumer(lane).await;
                return Ok(deliveries);
            }
        }
    }

    /// Sends one request to the lane's consumer and returns its result.
    async fn pull(
        self: &Arc<Self>,
        lane: &Lane,
        max: usize,
        wait: Duration,
    ) -> Result<(Vec<Delivery>, Ended), NatsError> {
        let mut pull = self.within("fetch messages", Pull::begin(Arc::clone(self), lane, max, wait)).await?;
        let ended = pull.run().await;
        Ok((pull.finish(ended), ended))
    }

    async fn within<T, E: From<NatsError>>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.api.link.within(call, work).await
    }

    /// Returns the number of the connection over which the stream was confirmed.
    async fn ensure_stream(&self, lane: &Lane) -> Result<u64, NatsError> {
        let connection = self.api.link.connected().await?;
        if !self.lanes.has_stream(lane, connection) {
            // Only once per process: during a rollout, an old process would otherwise change it back on each reconnect.
            let may_change = !self.lanes.is_configured(lane);
            self.api.ensure_stream(lane, may_change).await?;
            self.lanes.note_stream(lane, connection);
        }
        Ok(connection)
    }

    async fn ensure_lane(&self, lane: &Lane) -> Result<u64, NatsError> {
        let connection = self.ensure_stream(lane).await?;
        if !self.lanes.has_consumer(lane, connection) {
            if let Err(error) = self.api.ensure_consumer(lane).await {
                // The stream may be gone.
                self.lanes.forget_stream(lane, connection);
                return Err(error);
            }
            self.recreate_if_ahead(lane).await?;
            self.lanes.note_consumer(lane, connection);
        }
        Ok(connection)
    }

    /// Recreates a consumer that is ahead of its stream. After a crash or on a full disk, a server may have stored deliveries and
    /// acks, but not the messages or their removal. Then it delivers neither the restored messages nor new ones with the same
    /// numbers, and these messages take up capacity.
    async fn recreate_if_ahead(&self, lane: &Lane) -> Result<(), NatsError> {
        let Some(oldest) = self.ahead_of(lane).await? else { return Ok(()) };
        sleep_until(Instant::now() + REMOVAL_MAX).await;
        if self.ahead_of(lane).await? == Some(oldest) {
            warn!(%lane, "a consumer is ahead of its messages; recreating it");
            self.api.remove_consumer(lane).await?;
            self.api.ensure_consumer(lane).await?;
        }
        Ok(())
    }

    /// Number of the stream's oldest message, or of its next one, if the consumer is ahead of the stream.
    async fn ahead_of(&self, lane: &Lane) -> Result<Option<u64>, NatsError> {
        // The order matters: messages acked before the first answer are usually removed before the second.
        let Some(consumer) = self.api.consumer_info(lane).await? else { return Ok(None) };
        let stream = self.api.state(lane).await?;
        Ok(consumer.is_ahead_of(stream).then_some(stream.first_seq))
    }

    /// Recreates a consumer that has lost track of the stream: the stream has messages, but for some seconds the consumer
    /// has known no messages, or far too few. This happens after a crash of the server: acked messages exist again, are never
    /// delivered, and take up capacity.
    async fn check_consumer(&self, lane: &Lane) {
        let wedged_after = self.api.options.wedged_after;
        if !self.lanes.must_check(lane, wedged_after) {
            return;
        }
        match self.within("describe a consumer", self.seems_wedged(lane)).await {
            Ok(oldest) if self.lanes.is_wedged(lane, oldest, wedged_after) => {
                warn!(%lane, "a consumer has lost track of its messages; recreating it");
                if let Err(error) = self.within("remove a consumer", self.api.remove_consumer(lane)).await {
                    warn!(%lane, error = &error as &dyn std::error::Error, "the consumer could not be removed");
                }
                self.lanes.forget_consumer(lane);
            }
            Ok(_) => {}
            Err(error) => {
                debug!(%lane, error = &error as &dyn std::error::Error, "could not check the lane's consumer");
            }
        }
    }

    /// The stream's oldest message, if the consumer seems to have lost track.
    async fn seems_wedged(&self, lane: &Lane) -> Result<Option<u64>, NatsError> {
        let state = self.api.state(lane).await?;
        if state.messages == 0 {
            return Ok(None);
        }
        let Some(known) = self.api.consumer_info(lane).await?.map(ConsumerInfo::known) else {
            self.lanes.forget_consumer(lane);
            return Ok(None);
        };
        let unknown = state.messages.saturating_sub(known);
        // Under load the two answers may differ slightly.
        let unknown_max = if known == 0 { 0 } else { self.api.options.lane_messages_max / UNKNOWN_SHARE };
        Ok((unknown > unknown_max).then_some(state.first_seq))
    }

    async fn ping(&self) -> Result<(), NatsError> {
        self.api.link.connected().await?;
        self.api.answers().await
    }
}

#[async_trait]
impl StepQueue for NatsQueue {
    async fn publish(&self, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError> {
        self.shared.within(STORE, self.shared.publish(lane, &message)).await
    }

    async fn fetch(&self, lane: &Lane, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.shared.fetch(lane, max.min(FETCH_MESSAGES_MAX), wait).await
    }

    async fn capacity(&self, lane: &Lane) -> Result<usize, QueueError> {
        let shared = &self.shared;
        let messages = shared.within("describe a stream", shared.api.state(lane)).await?.messages;
        if messages > 0 {
            shared.check_consumer(lane).await;
        }
        Ok(shared.api.options.lane_messages_max.saturating_sub(messages))
    }

    async fn ping(&self) -> Result<(), QueueError> {
        Ok(self.shared.within("report its state", self.shared.ping()).await?)
    }
}
