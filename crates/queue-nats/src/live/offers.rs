//! Offers: drafts on their way to whoever has room for them, and what comes back.
//!
//! `<prefix>.offer.<lane>` carries a draft to one of the processes that take offers of the lane: they are a queue group. Its
//! reply subject is `<prefix>.end.<offerer>.<run>`, and each process has one subscription for all of its own. There comes the
//! run's end from whoever took it; or word that nobody has: from whoever declines it, or from the server, which knows at once
//! that nobody takes offers of the lane.
//!
//! A draft costs two messages so, and nothing is stored or confirmed: whoever offered it stores it himself if he hears nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures::StreamExt;
use podium_domain::ids::RunId;
use podium_domain::run::SequencedEvent;
use podium_ports::live::{EndSignal, EndSignals, Offer};
use podium_ports::queue::TaskMessage;
use podium_ports::stored::FORMAT;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tracing::debug;

use super::wire;
use crate::error::NatsError;

/// Those who take offers of a lane.
pub(super) const GROUP: &str = "takers";
/// Longest offer. A draft that is longer goes the way of all other runs.
const OFFER_BYTES_MAX: usize = 16 << 10;
/// What waits for one who offered a run: its end, and perhaps that it was declined.
const SIGNALS_MAX: usize = 4;

#[derive(Serialize)]
struct Wire<'a> {
    message: &'a TaskMessage,
    format: i16,
    events: &'a [SequencedEvent],
}

#[derive(Deserialize)]
struct WireRead {
    message: TaskMessage,
    format: i16,
    events: Vec<SequencedEvent>,
}

/// The message of an offer; none if it would be too long.
pub(super) fn write(offer: &Offer) -> Result<Option<Bytes>, NatsError> {
    let wire = Wire { message: &offer.message, format: FORMAT, events: &offer.events };
    let written = serde_json::to_vec(&wire)
        .map_err(|e| NatsError::Client { call: "write an offer", source: Box::new(e) })?;
    Ok((written.len() <= OFFER_BYTES_MAX).then(|| Bytes::from(written)))
}

/// The offer of a message; none if it is of another form.
pub(super) fn read(body: &[u8]) -> Option<Offer> {
    match serde_json::from_slice(body) {
        Ok(WireRead { message, format: FORMAT, events }) if message.version == TaskMessage::VERSION => {
            Some(Offer { message, events })
        }
        Ok(_) => None,
        Err(error) => {
            debug!(%error, "an offer does not read");
            None
        }
    }
}

/// Those in this process who wait for word of what they offered.
#[derive(Debug, Default)]
pub(super) struct Offered {
    waiting: Mutex<HashMap<RunId, mpsc::Sender<EndSignal>>>,
}

impl Offered {
    /// What comes back of a run, until dropped.
    pub(super) fn wait(self: &Arc<Self>, run: RunId) -> EndSignals {
        let (tell, told) = mpsc::channel(SIGNALS_MAX);
        self.lock().insert(run, tell);
        let waiting = Waiting { offered: Arc::clone(self), run, told };
        futures::stream::unfold(waiting, async |mut waiting| {
            let signal = waiting.told.recv().await?;
            Some((signal, waiting))
        })
        .boxed()
    }

    /// Passes on what comes back, for as long as the subscription lasts.
    pub(super) async fn pass_on(self: Arc<Self>, mut messages: Subscriber) {
        while let Some(message) = messages.next().await {
            let run = message.subject.rsplit('.').next().and_then(|run| run.parse().ok());
            let Some(run) = run else { continue };
            if let Some(waiting) = self.lock().get(&run) {
                // Who has as many signals before it as that has reason enough to look.
                let _ = waiting.try_send(signal(&message));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, mpsc::Sender<EndSignal>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a message says. The server says by a status that nobody takes offers.
fn signal(message: &Message) -> EndSignal {
    if message.status.is_some() { EndSignal::Missed } else { wire::read_end(&message.payload) }
}

struct Waiting {
    offered: Arc<Offered>,
    run: RunId,
    told: mpsc::Receiver<EndSignal>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.offered.lock().remove(&self.run);
    }
}

#[cfg(test)]
mod tests {
    use podium_ports::clock::Ids;
    use podium_testkit::{SeededIds, TestClock, an_offer};

    use super::*;

    #[test]
    fn an_offer_is_read_as_it_was_written_unless_it_is_long_or_of_another_form() {
        let offer = an_offer(SeededIds::new(1).run_id(TestClock::START));
        let body = write(&offer).unwrap().unwrap();
        assert_eq!(read(&body).as_ref(), Some(&offer));
        let event = offer.events[0].clone();
        let long = Offer { events: vec![event; OFFER_BYTES_MAX / 100], ..offer };
        assert_eq!(write(&long).unwrap(), None);
        let text = String::from_utf8(body.to_vec()).unwrap();
        for (form, other) in [("\"format\":1", "\"format\":2"), ("\"version\":1", "\"version\":2")] {
            let newer = text.replace(form, other);
            assert_ne!(newer, text);
            assert_eq!(read(newer.as_bytes()), None);
        }
        assert_eq!(read(b"{}"), None);
    }

    #[tokio::test]
    async fn who_waits_no_longer_leaves_nothing_behind() {
        let (offered, run) = (Arc::new(Offered::default()), SeededIds::new(1).run_id(TestClock::START));
        let waiting = offered.wait(run);
        assert_eq!(offered.lock().len(), 1);
        drop(waiting);
        assert!(offered.lock().is_empty());
    }
}
