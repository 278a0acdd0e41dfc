//! One request for messages.
//!
//! It asks for no more messages than wanted, because their ack wait starts when the server sends them. With `no_wait` and
//! `expires` the server sends the available messages and ends the request; if it has none, it waits for the first.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures::StreamExt;

use podium_ports::queue::{Delivery, Lane, TaskMessage};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, warn};

use super::api::{CONSUMER, nanoseconds};
use super::reply::NatsReply;
use super::{Shared, body};
use crate::error::NatsError;
use crate::link::Health;

const NOT_FOUND: u16 = 404;
const EXPIRED: u16 = 408;
const CONFLICT: u16 = 409;
const HEARTBEAT: u16 = 100;
/// Delay before the server redelivers a message that this process could not decode.
const UNREADABLE_DELAY: Duration = Duration::from_secs(5);

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With all available messages, or as many as requested.
    Asked,
    /// Without a final status: the consumer or the connection is gone.
    Gone,
}

/// A request in progress. If it is dropped before its end, its messages are put back.
pub(super) struct Pull {
    shared: Arc<Shared>,
    health: watch::Receiver<Health>,
    inbox: String,
    answers: Option<Subscriber>,
    taken: Vec<Taken>,
    wanted: usize,
    give_up_at: Instant,
}

struct Taken {
    message: TaskMessage,
    deliveries: u32,
    reply: NatsReply,
}

impl Pull {
    pub(super) async fn begin(
        shared: Arc<Shared>,
        lane: &Lane,
        wanted: usize,
        wait: Duration,
    ) -> Result<Self, NatsError> {
        const CALL: &str = "fetch messages";
        let link = &shared.api.link;
        let inbox = link.client().new_inbox();
        let answers = link.subscribe(CALL, inbox.clone()).await?;
        let give_up_at = Instant::now() + wait + link.call_max();
        let health = link.health();
        let taken = Vec::new();
        // From here on, a dropped pull puts its messages back.
        let pull =
            Self { shared, health, inbox: inbox.clone(), answers: Some(answers), taken, wanted, give_up_at };
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{CONSUMER}", pull.shared.api.stream_name(lane));
        let body = match nanoseconds(wait) {
            0 => json!({ "batch": wanted, "no_wait": true }),
            expires => json!({ "batch": wanted, "no_wait": true, "expires": expires }),
        };
        let body = Bytes::from(body.to_string());
        pull.shared.api.link.send_for_reply(CALL, subject, inbox, body).await?;
        Ok(pull)
    }

    /// Waits for the end.
    pub(super) async fn run(&mut self) -> Ended {
        let Some(answers) = &mut self.answers else { return Ended::Gone };
        let mut unread = Vec::new();
        let ended = loop {
            if self.taken.len() + unread.len() >= self.wanted {
                break Ended::Asked;
            }
            let answer = tokio::select! {
                answer = timeout_at(self.give_up_at, answers.next()) => answer,
                // The request is lost with the connection.
                _ = self.health.wait_for(|health| !health.is_connected) => break Ended::Gone,
            };
            let Ok(Some(answer)) = answer else { break Ended::Gone };
            match answer.status {
                None => match taken(&self.shared, &answer) {
                    Ok(taken) => self.taken.push(taken),
                    Err(reply) => unread.extend(reply),
                },
                Some(status) => {
                    if let Some(ended) = end(status, answer.description.as_deref()) {
                        break ended;
                    }
                }
            }
        };
        self.put_back_unread(unread);
        ended
    }

    /// Returns the received messages. Later ones are put back.
    pub(super) fn finish(&mut self, ended: Ended) -> Vec<Delivery> {
        if ended == Ended::Asked {
            self.answers = None;
        }
        let delivery =
            |Taken { message, deliveries, reply }| Delivery::new(message, deliveries, Box::new(reply));
        mem::take(&mut self.taken).into_iter().map(delivery).collect()
    }

    fn put_back_unread(&self, unread: Vec<NatsReply>) {
        if !unread.is_empty() {
            self.shared.tasks.spawn(put_back(unread, UNREADABLE_DELAY));
        }
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        let (answers, taken) = (self.answers.take(), mem::take(&mut self.taken));
        if answers.is_none() && taken.is_empty() {
            return;
        }
        // Without a runtime nothing can be done: the messages are redelivered after the ack wait.
        let Ok(runtime) = Handle::try_current() else { return };
        let (shared, inbox, wanted) = (Arc::clone(&self.shared), mem::take(&mut self.inbox), self.wanted);
        let give_back = async move {
            let mut replies: Vec<_> = taken.into_iter().map(|taken| taken.reply).collect();
            if let Some(answers) = answers {
                replies.extend(last_messages(&shared, &inbox, answers, wanted).await);
            }
            put_back(replies, Duration::ZERO).await;
        };
        self.shared.tasks.spawn_on(give_back, &runtime);
    }
}

/// Ends the subscription of an abandoned request. Returns the replies for messages that arrived meanwhile.
///
/// Unsubscribing, or draining the client, would lose messages that the server has sent and the client has not read. So the
/// subscription ends after the largest possible number of messages, and this process sends the missing ones itself.
async fn last_messages(
    shared: &Arc<Shared>,
    inbox: &str,
    mut answers: Subscriber,
    wanted: usize,
) -> Vec<NatsReply> {
    let mut replies = Vec::new();
    let (link, total) = (&shared.api.link, wanted + 1);
    let ending = async {
        answers.unsubscribe_after(total as u64).await.ok()?;
        for _ in 0..total {
            link.send("end a subscription", inbox.to_owned(), Bytes::new()).await.ok()?;
        }
        while let Some(answer) = answers.next().await {
            if answer.status.is_none() {
                replies.extend(reply(shared, &answer));
            }
        }
        Some(())
    };
    if !matches!(timeout(link.call_max(), ending).await, Ok(Some(()))) {
        debug!("a request for messages could not be withdrawn");
    }
    replies
}

async fn put_back(replies: Vec<NatsReply>, delay: Duration) {
    for reply in replies {
        if let Err(error) = reply.put_back(delay).await {
            debug!(error = &error as &dyn std::error::Error, "a message is redelivered after the ack wait");
        }
    }
}

/// Whether a status ends the request.
fn end(status: StatusCode, description: Option<&str>) -> Option<Ended> {
    match status.as_u16() {
        HEARTBEAT => None,
        NOT_FOUND | EXPIRED => Some(Ended::Asked),
        CONFLICT => {
            debug!(description, "the request for messages was ended by the server");
            Some(Ended::Gone)
        }
        // No responders (503), or an unknown status.
        status => {
            debug!(status, description, "the request for messages had no responders");
            Some(Ended::Gone)
        }
    }
}

/// Decodes a message. The error is the reply for one that cannot be decoded.
fn taken(shared: &Arc<Shared>, answer: &Message) -> Result<Taken, Option<NatsReply>> {
    let Some(reply) = reply(shared, answer) else { return Err(None) };
    let message = match body::read(&answer.payload) {
        Ok(message) if message.version <= TaskMessage::VERSION => message,
        Ok(message) => {
            debug!(version = message.version, "a message was written by a newer version");
            return Err(Some(reply));
        }
        Err(error) => {
            warn!(subject = %answer.subject, %error, "a message cannot be decoded");
            return Err(Some(reply));
        }
    };
    Ok(Taken { message, deliveries: deliveries(&reply.subject), reply })
}

fn reply(shared: &Arc<Shared>, answer: &Message) -> Option<NatsReply> {
    let subject = answer.reply.as_ref()?.to_string();
    Some(NatsReply { shared: Arc::clone(shared), subject })
}

/// The delivery count, which the server writes into the reply subject: `$JS.ACK.<stream>.<consumer>.<deliveries>.…`, or with
/// a domain and an account before the stream.
fn deliveries(reply: &str) -> u32 {
    const TOKENS: usize = 9;
    let tokens = reply.split('.').count();
    let place = if tokens > TOKENS { 6 } else { 4 };
    reply.split('.').nth(place).and_then(|count| count.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delivery_count_is_read_from_both_subject_formats() {
        for (reply, count) in [
            ("$JS.ACK.PODIUM-mini-plan.work.3.1.1.1795262105461648041.0", 3),
            ("$JS.ACK._.hash.PODIUM-mini-plan.work.7.1.1.1795262105461648041.0", 7),
            ("$JS.ACK.hub.hash.PODIUM-mini-plan.work.8.1.1.1795262105461648041.0.random", 8),
            ("nonsense", 1),
        ] {
            assert_eq!(deliveries(reply), count, "{reply}");
        }
    }
}
