//! A watch that reports only the end of a run. It has no text to merge, so it needs no bounds.

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures::StreamExt;
use podium_ports::live::EndSignals;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::NatsError;
use crate::link::{Health, Link};

pub(super) struct EndWatch {
    live: Subscriber,
    health: watch::Receiver<Health>,
    /// State of the connection when the subscription began.
    seen: Health,
    /// Whether the end was signalled before the watch was ready.
    is_first: bool,
    stop: CancellationToken,
}

impl EndWatch {
    /// Opens a watch of `subjects`. Returns after the server has registered it, so later signals are not missed. The watch
    /// publishes one message to `own`, one of these subjects, and waits for it.
    pub(super) async fn open(
        link: &Link,
        subjects: String,
        own: String,
        stop: CancellationToken,
    ) -> Result<Self, NatsError> {
        const CALL: &str = "subscribe to a run's end";
        link.connected().await?;
        let health = link.health();
        let seen = *health.borrow();
        let mut live = link.subscribe(CALL, subjects).await?;
        // The server returns the empty message. A message of another waiter, or a signal, proves the subscription as well.
        link.send(CALL, own, Bytes::new()).await?;
        let Some(message) = live.next().await else {
            return Err(NatsError::Client { call: CALL, source: "the client has stopped".into() });
        };
        Ok(Self { live, health, seen, is_first: is_signal(&message), stop })
    }

    pub(super) fn into_signals(self) -> EndSignals {
        futures::stream::unfold(self, async |mut watch| {
            watch.next().await?;
            Some(((), watch))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<()> {
        if std::mem::take(&mut self.is_first) {
            return Some(());
        }
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return None,
                message = self.live.next() => {
                    if is_signal(&message?) {
                        return Some(());
                    }
                }
                changed = self.health.changed() => {
                    changed.ok()?;
                    let now = *self.health.borrow_and_update();
                    if now.has_lost_since(&self.seen) {
                        self.seen = now;
                        return Some(());
                    }
                }
            }
        }
    }
}

/// Whether the message is a reason to read the store. A waiter's message to itself is empty. The content is ignored: messages
/// of earlier versions contain the run.
fn is_signal(message: &Message) -> bool {
    !message.payload.is_empty()
}
