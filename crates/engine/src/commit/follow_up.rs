//! The follow-up of a commit: stops work that is no longer needed, signals watchers, and publishes ready tasks.

use std::sync::Arc;

use podium_domain::run::{AttemptOutcome, Effect, Run, Task, TaskRef, TaskState};
use podium_domain::time::Timestamp;
use podium_ports::live::{LiveStream, Signal};
use podium_ports::store::Commit;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tracing::debug;

use crate::claims::leases::ClaimRegistry;
use crate::lanes::publisher::Publisher;

/// Most batches whose messages and signals may still be in flight while later batches are decided.
const FOLLOW_UPS_MAX: usize = 32;

/// A commit that the store has written, and the effects of its commands.
pub(super) struct Committed {
    pub(super) commit: Commit,
    pub(super) effects: Vec<Effect>,
}

/// Acts on committed effects.
pub(super) struct FollowUps {
    sender: Sender,
    leases: ClaimRegistry,
    /// Batches whose messages and signals are being sent.
    under_way: Mutex<JoinSet<()>>,
}

#[derive(Clone)]
struct Sender {
    live: Arc<dyn LiveStream>,
    publisher: Publisher,
}

impl FollowUps {
    pub(super) fn new(live: Arc<dyn LiveStream>, publisher: Publisher, leases: ClaimRegistry) -> Self {
        Self { sender: Sender { live, publisher }, leases, under_way: Mutex::default() }
    }

    /// Returns once all messages and signals are sent.
    pub(super) async fn finish(&self) {
        let mut under_way = self.under_way.lock().await;
        while under_way.join_next().await.is_some() {}
    }

    /// Stops work that is no longer needed before it returns. Messages and signals are sent later: losing them is harmless, so no
    /// caller waits for them.
    pub(super) async fn follow_up(&self, committed: Vec<Committed>) {
        for Committed { commit, effects } in &committed {
            let run = commit.after.id();
            for effect in effects {
                match effect {
                    Effect::Stop => self.leases.release_run(run),
                    Effect::CallOff { task } => self.leases.release_task(run, *task),
                    Effect::Dispatch { .. } => {}
                }
            }
        }
        if committed.is_empty() {
            return;
        }
        let mut under_way = self.under_way.lock().await;
        while under_way.try_join_next().is_some() {}
        let sender = self.sender.clone();
        if under_way.len() >= FOLLOW_UPS_MAX {
            // The queue is too slow. The answer to a commit never waits for it: the dispatcher publishes these tasks, and watchers
            // find the events when they read the store.
            for committed in &committed {
                committed.ready().for_each(|(task, _)| sender.publisher.leave(&committed.commit, task));
            }
            return;
        }
        under_way.spawn(async move {
            futures::future::join_all(committed.iter().map(|committed| sender.send(committed))).await;
        });
    }
}

impl Sender {
    /// Signals watchers and publishes the tasks that became ready.
    async fn send(&self, committed: &Committed) {
        let run = &committed.commit.after;
        let version = run.version();
        let has_replied = run.is_ended() || run.is_suspended();
        let signal = if has_replied { Signal::Ended { version } } else { Signal::Committed { version } };
        if let Err(error) = self.live.publish(run.id(), signal).await {
            debug!(run = %run.id(), %error, "watchers were not notified");
        }
        if committed.may_stop_others()
            && let Err(error) = self.live.publish_stop(run.id()).await
        {
            debug!(run = %run.id(), %error, "other processes were not notified to stop");
        }
        for (task, not_before) in committed.ready() {
            self.publisher.publish(&committed.commit, task, not_before).await;
        }
    }
}

impl Committed {
    /// The tasks that are ready after the commit, with their earliest times. A later command of the batch may have claimed or ended a
    /// task that an earlier one made ready.
    fn ready(&self) -> impl Iterator<Item = (TaskRef, Timestamp)> {
        self.effects.iter().filter_map(|effect| match *effect {
            Effect::Dispatch { task, not_before } => {
                let found = self.commit.after.task(task)?;
                matches!(found.state, TaskState::Ready { .. }).then_some((task, not_before))
            }
            Effect::CallOff { .. } | Effect::Stop => None,
        })
    }

    /// Whether another process may still work on a task that the commit ended or took away.
    fn may_stop_others(&self) -> bool {
        let run: &Run = &self.commit.after;
        let is_cut_off = |task: &Task| {
            let may_run = |outcome: &_| matches!(outcome, AttemptOutcome::Running | AttemptOutcome::Lost);
            task.state.is_final() && task.attempts.iter().any(|attempt| may_run(&attempt.outcome))
        };
        self.effects.iter().any(|effect| match effect {
            Effect::Stop => run.tasks().any(|(_, task)| is_cut_off(task)),
            Effect::CallOff { .. } => true,
            Effect::Dispatch { .. } => false,
        })
    }
}
