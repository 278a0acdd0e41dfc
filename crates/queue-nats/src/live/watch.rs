//! One watch: passes signals from the subscriptions to the watcher.

use std::time::Duration;

use async_nats::{Message, Subscriber};
use futures::{FutureExt, StreamExt};
use podium_ports::live::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::merge::Merge;
use super::outlet::Outlet;
use super::pace::Channel;
use super::wire;
use crate::link::Health;

/// How long a live piece waits for earlier text. The process that writes it normally answers within a round trip. No process
/// answers if the text exceeded a bound.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Most signals that wait for an answer.
const HELD_MAX: usize = 256;

pub(super) struct Watch {
    /// The published signals.
    pub(super) live: Subscriber,
    /// The answers with buffered text.
    pub(super) answers: Subscriber,
    pub(super) health: watch::Receiver<Health>,
    /// State of the connection when the subscriptions began.
    pub(super) seen: Health,
    pub(super) outlet: Outlet,
    pub(super) stop: CancellationToken,
}

impl Watch {
    /// Passes signals on until the watcher is gone. It never waits for the watcher before it reads: the client drops
    /// messages that are not read in time.
    pub(super) async fn run(mut self) {
        let mut merge = Merge::default();
        let mut release_at = Instant::now();
        let stop = self.stop.clone();
        loop {
            let waited = merge.held();
            tokio::select! {
                () = stop.cancelled() => return,
                is_there = self.outlet.attend() => if !is_there { return },
                message = self.answers.next() => match message {
                    Some(message) => if let Some(Signal::Frame(frame)) = signal(&message) {
                        // Live signals that arrived before the answer go first: the answer may include them.
                        while let Some(Some(message)) = self.live.next().now_or_never() {
                            merge_live(&mut merge, &message);
                        }
                        merge.answer(&frame);
                        // A long text comes in several answers.
                        release_at = Instant::now() + ANSWER_WAIT;
                    },
                    None => return,
                },
                message = self.live.next() => match message {
                    Some(message) => merge_live(&mut merge, &message),
                    None => return,
                },
                changed = self.health.changed() => {
                    let now = *self.health.borrow_and_update();
                    if changed.is_err() {
                        return;
                    }
                    // The watcher is notified after the reconnect, and then subscribes again.
                    if now.has_lost_since(&self.seen) {
                        self.seen = now;
                        self.outlet.miss();
                    }
                }
                () = sleep_until(release_at), if waited > 0 => merge.release(),
            }
            if merge.held() > HELD_MAX {
                merge.release();
            }
            if waited == 0 && merge.held() > 0 {
                release_at = Instant::now() + ANSWER_WAIT;
            }
            while let Some(signal) = merge.next() {
                self.outlet.push(signal);
            }
        }
    }
}

/// Whether the message is from a channel: the wildcard of a watch of all channels matches other subjects of the run too.
fn is_of_channel(message: &Message) -> bool {
    message.subject.rsplit('.').nth(1).is_some_and(|name| Channel::named(name).is_some())
}

fn merge_live(merge: &mut Merge, message: &Message) {
    if !is_of_channel(message) {
        return;
    }
    if let Some(signal) = signal(message) {
        merge.live(signal);
    }
}

fn signal(message: &Message) -> Option<Signal> {
    match wire::read(&message.payload) {
        Ok(signal) => signal,
        Err(error) => {
            debug!(subject = %message.subject, %error, "a signal cannot be decoded");
            None
        }
    }
}
