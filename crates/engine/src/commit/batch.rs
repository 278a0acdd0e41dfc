//! Carrying out a batch: it takes the runs that it touches from memory or reads them in one query, decides in memory and writes
//! all of it in one commit.

use std::collections::HashMap;
use std::sync::Arc;

use podium_domain::ids::RunId;
use podium_domain::pool::Pool;
use podium_domain::run::{AttemptOutcome, Effect, Run, Task, TaskRef, TaskState};
use podium_domain::time::Timestamp;
use podium_ports::live::Signal;
use podium_ports::store::{Commit, StoreError, Unwritten};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::apart::Apart;
use super::decide::{Change, Decided, InHand, decide_all};
use super::{CONFLICTS_MAX, CommandError, Request};
use crate::claims::leases::Holds;
use crate::commit::run_cache::Known;
use crate::lanes::publisher::Dispatch;
use crate::metrics::{Metrics, Stage};
use crate::options::Parts;
use crate::upkeep::unreadable::Unreadable;

/// Batches whose messages and signals are on their way while later ones are decided.
const FOLLOW_UPS_MAX: usize = 32;

/// What commands are carried out with.
#[derive(Clone)]
pub(crate) struct Sides {
    pub(crate) parts: Parts,
    pub(crate) dispatch: Dispatch,
    pub(crate) holds: Holds,
    pub(crate) known: Known,
    pub(crate) unreadable: Unreadable,
    pub(crate) metrics: Metrics,
}

/// Carries out batches. Several may be under way, of different runs.
pub(super) struct Writer {
    sides: Sides,
    apart: Apart,
    /// What has been committed, and has still to be told.
    follow_ups: Mutex<JoinSet<()>>,
}

impl Writer {
    pub(super) fn new(sides: Sides) -> Self {
        Self { sides, apart: Apart::default(), follow_ups: Mutex::default() }
    }

    /// Returns once all is told.
    pub(super) async fn finish(&self) {
        let mut follow_ups = self.follow_ups.lock().await;
        while follow_ups.join_next().await.is_some() {}
    }

    /// The runs that are written apart.
    pub(super) fn apart(&self) -> &Apart {
        &self.apart
    }

    pub(super) fn now(&self) -> Timestamp {
        self.sides.parts.clock.now()
    }

    /// Answers every request but those that it returns: they are to be carried out anew, the runs in [`Self::apart`] alone.
    pub(super) async fn carry_out(&self, mut requests: Vec<Request>) -> Vec<Request> {
        let mut put_off = Vec::new();
        for _ in 0..CONFLICTS_MAX {
            requests = match self.try_once(requests, &mut put_off).await {
                again if again.is_empty() => return put_off,
                again => again,
            };
            debug!(commands = requests.len(), "deciding anew on what the store says");
        }
        for request in requests {
            let _ = request.reply.send(Err(CommandError::Contended));
        }
        put_off
    }

    /// Decides and commits. Returns the requests to be decided anew: another process has changed their runs meanwhile, or may
    /// have. Of these runs nothing is remembered any more.
    async fn try_once(&self, requests: Vec<Request>, put_off: &mut Vec<Request>) -> Vec<Request> {
        let (requests, mut runs) = match self.take_in_hand(requests).await {
            Ok(taken) => taken,
            Err((requests, error)) => return refuse_all(requests, error),
        };
        let now = self.sides.parts.clock.now();
        let messages = Messages::of(&requests);
        let Decided { requests, unsure: mut again, changes } = decide_all(requests, &mut runs, now);
        let known = &self.sides.known;
        for request in &again {
            known.forget(request.run);
        }
        let mut changed = Vec::with_capacity(changes.len());
        for (id, Change { events, mut effects }) in changes {
            if let Some(InHand { run, booked, .. }) = runs.remove(&id) {
                let kept = messages.put_back(&run, &self.sides.parts.pool, now);
                effects
                    .retain(|effect| !matches!(effect, Effect::Dispatch { task, .. } if kept.contains(task)));
                changed.push((self.sides.dispatch.commit(run, events, &kept).charged(booked), effects));
            }
        }
        // Those of which budgets have to be asked are last.
        changed.sort_by_key(|(commit, _)| commit.booking().is_some());
        let (commits, effects): (Vec<_>, Vec<_>) = changed.into_iter().unzip();
        let (commands, began) = (requests.len(), self.sides.parts.clock.now());
        let committed = self.write(&commits).await;
        let outcomes = match committed {
            Ok(outcomes) => outcomes,
            Err(error) => {
                put_off.extend(self.fail(requests, &commits, error));
                return again;
            }
        };
        let mut after: HashMap<_, _> =
            runs.into_iter().map(|(id, in_hand)| (id, Arc::new(in_hand.run))).collect();
        let (mut follow_ups, mut shortages) = (Vec::with_capacity(commits.len()), HashMap::new());
        for ((commit, effects), outcome) in commits.into_iter().zip(effects).zip(outcomes) {
            match outcome {
                Ok(()) => {
                    let run = Arc::clone(&commit.after);
                    known.note(&run);
                    self.apart.passed(run.id());
                    self.sides.metrics.happened(&run, &commit.events);
                    after.insert(run.id(), run);
                    follow_ups.push((commit, effects));
                }
                Err(unwritten) => {
                    known.forget(commit.after.id());
                    self.apart.passed(commit.after.id());
                    if let Unwritten::OverBudget(shortage) = unwritten {
                        self.sides.metrics.refused(Stage::Run, &shortage);
                        shortages.insert(commit.after.id(), shortage);
                    }
                }
            }
        }
        self.follow_up(follow_ups).await;
        again.extend(answer_all(requests, &after));
        let took = self.sides.parts.clock.now().since(began);
        self.sides.metrics.committed(commands, again.len(), took);
        for request in &mut again {
            request.shortage = shortages.get(&request.run).cloned().or(request.shortage.take());
        }
        again
    }

    /// Nothing of a batch was written, as far as is known. Returns what is to be tried again, each run alone: one of them may be
    /// what the store refuses.
    fn fail(&self, requests: Vec<Request>, commits: &[Commit], error: StoreError) -> Vec<Request> {
        for commit in commits {
            self.sides.known.forget(commit.after.id());
        }
        match (error, commits) {
            (StoreError::Refused(source), [_, _, ..]) => {
                debug!(
                    error = &*source as &dyn std::error::Error,
                    "a batch is refused, each run is tried alone"
                );
                self.apart.suspect(commits.iter().map(|commit| commit.after.id()), self.now());
                requests
            }
            (StoreError::Refused(source), [commit]) => {
                let error = Arc::new(StoreError::Refused(source));
                self.apart.refused(commit.after.id(), Arc::clone(&error), self.now());
                answer_alike(requests, &error);
                Vec::new()
            }
            (error, _) => refuse_all(requests, error),
        }
    }

    /// Commits. Only those that book something, which come last, need to ask budgets.
    async fn write(&self, commits: &[Commit]) -> Result<Vec<Result<(), Unwritten>>, StoreError> {
        let store = &self.sides.parts.store;
        let (free, charged) = commits.split_at(commits.partition_point(|commit| commit.booking().is_none()));
        let write_free = async { if free.is_empty() { Ok(Vec::new()) } else { store.commit(free).await } };
        let write_charged =
            async { if charged.is_empty() { Ok(Vec::new()) } else { store.commit_charged(charged).await } };
        let (free, charged) = futures::future::try_join(write_free, write_charged).await?;
        Ok(free.into_iter().map(|written| written.map_err(Unwritten::from)).chain(charged).collect())
    }

    /// The runs that the requests are about. Requests for runs that there are not, or that cannot be read, are answered.
    async fn take_in_hand(
        &self,
        requests: Vec<Request>,
    ) -> Result<(Vec<Request>, HashMap<RunId, InHand>), (Vec<Request>, StoreError)> {
        let mut ids: Vec<_> = requests.iter().map(|request| request.run).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut runs = HashMap::with_capacity(ids.len());
        ids.retain(|id| match self.sides.known.get(*id) {
            Some(run) => {
                runs.insert(*id, InHand::remembered(&run));
                false
            }
            None => true,
        });
        let (sound, damaged) = match ids.as_slice() {
            [] => (Vec::new(), Vec::new()),
            ids => match self.sides.unreadable.load(ids).await {
                Ok(loaded) => loaded,
                Err(error) => return Err((requests, error)),
            },
        };
        runs.extend(sound.into_iter().map(|run| (run.id(), InHand::loaded(run))));
        let (found, lost): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|request| runs.contains_key(&request.run));
        for request in lost {
            let is_damaged = damaged.contains(&request.run);
            let error = if is_damaged { CommandError::Damaged } else { CommandError::UnknownRun };
            let _ = request.reply.send(Err(error));
        }
        Ok((found, runs))
    }

    /// What has to be done at once is done when this returns; messages and signals are on their way. Losing them is harmless, so
    /// nobody waits for them.
    async fn follow_up(&self, committed: Vec<(Commit, Vec<Effect>)>) {
        for (commit, effects) in &committed {
            let run = commit.after.id();
            for effect in effects {
                match effect {
                    Effect::Stop => self.sides.holds.release_run(run),
                    Effect::CallOff { task } => self.sides.holds.release_task(run, *task),
                    Effect::Dispatch { .. } => {}
                }
            }
        }
        if committed.is_empty() {
            return;
        }
        let mut follow_ups = self.follow_ups.lock().await;
        while follow_ups.try_join_next().is_some() {}
        if follow_ups.len() >= FOLLOW_UPS_MAX {
            // The queue does not keep up. A commit's answer never waits for it: the dispatcher publishes these tasks.
            for (commit, effects) in &committed {
                self.sides.leave(commit, effects);
            }
            return;
        }
        let sides = self.sides.clone();
        follow_ups.spawn(async move {
            let told = committed.iter().map(|(commit, effects)| sides.tell(commit, effects));
            futures::future::join_all(told).await;
        });
    }
}

impl Sides {
    /// Tells watchers, and publishes what became ready.
    async fn tell(&self, commit: &Commit, effects: &[Effect]) {
        let run = &commit.after;
        let live = &self.parts.live;
        let version = run.version();
        let signal = if run.is_ended() { Signal::Ended { version } } else { Signal::Committed { version } };
        if let Err(error) = live.publish(run.id(), signal).await {
            debug!(run = %run.id(), %error, "watchers were not told");
        }
        if may_be_worked_on(run, effects)
            && let Err(error) = live.publish_stop(run.id()).await
        {
            debug!(run = %run.id(), %error, "other processes were not told to stop");
        }
        for (task, not_before) in readied(commit, effects) {
            self.dispatch.publish(commit, task, not_before).await;
        }
    }

    /// Leaves what became ready to the dispatcher, and watchers to their next look at the store.
    fn leave(&self, commit: &Commit, effects: &[Effect]) {
        for (task, _) in readied(commit, effects) {
            self.dispatch.leave(commit, task);
        }
    }
}

/// The tasks that the commit left ready. What one command of a batch readied, a later one may have claimed or ended.
fn readied(commit: &Commit, effects: &[Effect]) -> impl Iterator<Item = (TaskRef, Timestamp)> {
    effects.iter().filter_map(|effect| match *effect {
        Effect::Dispatch { task, not_before } => {
            let found = commit.after.task(task)?;
            matches!(found.state, TaskState::Ready { .. }).then_some((task, not_before))
        }
        Effect::CallOff { .. } | Effect::Stop => None,
    })
}

/// Whether another process may still work on a task that the commit ended or took away.
fn may_be_worked_on(run: &Run, effects: &[Effect]) -> bool {
    let is_cut_off = |task: &Task| {
        task.state.is_final()
            && task
                .attempts
                .iter()
                .any(|a| matches!(a.outcome, AttemptOutcome::Running | AttemptOutcome::Lost))
    };
    effects.iter().any(|effect| match effect {
        Effect::Stop => run.tasks().any(|(_, task)| is_cut_off(task)),
        Effect::CallOff { .. } => true,
        Effect::Dispatch { .. } => false,
    })
}

/// The messages that the senders of a batch's requests hold.
struct Messages(Vec<(RunId, super::InHand)>);

impl Messages {
    fn of(requests: &[Request]) -> Self {
        let held = |request: &Request| request.message.clone().map(|message| (request.run, message));
        Self(requests.iter().filter_map(held).collect())
    }

    /// The tasks of the run whose messages their holders put back.
    fn put_back(&self, run: &Run, pool: &Pool, now: Timestamp) -> Vec<TaskRef> {
        let messages = self.0.iter().filter(|(id, _)| *id == run.id());
        let kept = messages.filter(|(_, message)| message.put_back_for(run, pool, now).is_some());
        kept.map(|(_, message)| message.task).collect()
    }
}

fn refuse_all(requests: Vec<Request>, error: StoreError) -> Vec<Request> {
    warn!(error = &error as &dyn std::error::Error, commands = requests.len(), "the store failed");
    answer_alike(requests, &Arc::new(error));
    Vec::new()
}

fn answer_alike(requests: Vec<Request>, error: &Arc<StoreError>) {
    for request in requests {
        let _ = request.reply.send(Err(CommandError::Store(Arc::clone(error))));
    }
}

/// Returns those whose runs others committed to first.
fn answer_all(requests: Vec<Request>, after: &HashMap<RunId, Arc<Run>>) -> Vec<Request> {
    let mut beaten = Vec::new();
    for request in requests {
        match after.get(&request.run) {
            Some(run) => drop(request.reply.send(Ok(Arc::clone(run)))),
            None => beaten.push(request),
        }
    }
    beaten
}
