//! Connections to a test's own server.

use std::time::Duration;

use podium_harness::Nats;
use podium_queue_nats::{ConnectionOptions, NatsQueue, QueueOptions};

/// Time limit of a call: long, because tests share the machine.
pub(crate) const CALL_MAX: Duration = Duration::from_secs(3);

pub(crate) fn to(server: &Nats) -> ConnectionOptions {
    ConnectionOptions { call_max: CALL_MAX, ..ConnectionOptions::new(server.url()) }
}

pub(crate) async fn a_queue(server: &Nats, options: QueueOptions) -> NatsQueue {
    NatsQueue::connect(&to(server), options).await.unwrap()
}
