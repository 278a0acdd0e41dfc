//! One watch: from the subscriptions to the watcher.

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
use super::wire;
use crate::link::Health;

/// How long a live piece waits for what was written before it. Whoever writes holds that, and answers within a round trip
/// unless it is very busy; only what exceeded a bound is held by nobody.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Most signals that wait for an answer.
const HELD_MAX: usize = 256;

pub(super) struct Watch {
    /// What is published.
    pub(super) live: Subscriber,
    /// What those answer who hold text so far.
    pub(super) answers: Subscriber,
    pub(super) health: watch::Receiver<Health>,
    /// How the connection was when the subscriptions began.
    pub(super) seen: Health,
    pub(super) outlet: Outlet,
    pub(super) stop: CancellationToken,
}

impl Watch {
    /// Passes signals on until the watcher is gone. It never waits for the watcher before it reads: what is not read in
    /// time the client drops.
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
                        // What came live before the answer goes first: the answer may hold it, too.
                        while let Some(Some(message)) = self.live.next().now_or_never() {
                            hear(&mut merge, &message);
                        }
                        merge.answer(&frame);
                        // A long text comes in pieces.
                        release_at = Instant::now() + ANSWER_WAIT;
                    },
                    None => return,
                },
                message = self.live.next() => match message {
                    Some(message) => hear(&mut merge, &message),
                    None => return,
                },
                changed = self.health.changed() => {
                    let now = *self.health.borrow_and_update();
                    if changed.is_err() {
                        return;
                    }
                    // Told once there is a connection again: the watcher will then subscribe anew.
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

fn hear(merge: &mut Merge, message: &Message) {
    if let Some(signal) = signal(message) {
        merge.live(signal);
    }
}

fn signal(message: &Message) -> Option<Signal> {
    match wire::read(&message.payload) {
        Ok(signal) => signal,
        Err(error) => {
            debug!(subject = %message.subject, %error, "a signal does not read");
            None
        }
    }
}
