//! A watch for the end alone. There is no text, so nothing to put together and nothing to bound.

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures::StreamExt;
use podium_ports::live::{EndSignal, EndSignals};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::wire;
use crate::error::NatsError;
use crate::link::{Health, Link};

pub(super) struct EndWatch {
    live: Subscriber,
    health: watch::Receiver<Health>,
    /// How the connection was when the subscription began.
    seen: Health,
    /// What came before the watch was ready.
    first: Option<EndSignal>,
    stop: CancellationToken,
}

impl EndWatch {
    /// A watch of `subjects` that the server knows of: what others publish from now on is not missed. `own` is one of these
    /// subjects, to be sent to.
    pub(super) async fn open(
        link: &Link,
        (subjects, own): (String, String),
        stop: CancellationToken,
    ) -> Result<Self, NatsError> {
        const CALL: &str = "subscribe to a run's end";
        link.connected().await?;
        let health = link.health();
        let seen = *health.borrow();
        let mut live = link.subscribe(CALL, subjects).await?;
        // An empty message comes back from the server; that of another waiter, or a signal, says the same.
        link.send(CALL, own, Bytes::new()).await?;
        let Some(message) = live.next().await else {
            return Err(NatsError::Client { call: CALL, source: "the client has stopped".into() });
        };
        Ok(Self { live, health, seen, first: signal(&message), stop })
    }

    pub(super) fn into_signals(self) -> EndSignals {
        futures::stream::unfold(self, async |mut watch| {
            let signal = watch.next().await?;
            Some((signal, watch))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<EndSignal> {
        if let Some(signal) = self.first.take() {
            return Some(signal);
        }
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return None,
                message = self.live.next() => {
                    if let Some(signal) = signal(&message?) {
                        return Some(signal);
                    }
                }
                changed = self.health.changed() => {
                    changed.ok()?;
                    let now = *self.health.borrow_and_update();
                    if now.has_lost_since(&self.seen) {
                        self.seen = now;
                        return Some(EndSignal::Missed);
                    }
                }
            }
        }
    }
}

/// What a message says. One that waiters send to themselves says nothing.
fn signal(message: &Message) -> Option<EndSignal> {
    (!message.payload.is_empty()).then(|| wire::read_end(&message.payload))
}
