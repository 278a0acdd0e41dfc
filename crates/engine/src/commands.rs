//! Where commands become events: one loop gathers what waits, takes the runs that it touches from memory or reads them in one
//! query, decides in memory and writes all of it in one commit. While a commit is under way the next batch gathers by itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use podium_domain::budget::{Charge, Shortage};
use podium_domain::ids::RunId;
use podium_domain::run::{Command, Effect, Refusal, Run, SequencedEvent, TaskState};
use podium_domain::time::Timestamp;
use podium_ports::live::Signal;
use podium_ports::store::{Commit, StoreError, Unwritten};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::dispatch::Dispatch;
use crate::holds::Holds;
use crate::known::Known;
use crate::metrics::{Metrics, Stage};
use crate::parts::Parts;

/// Times that a batch is decided anew because another process committed first, before its callers are told.
const CONFLICTS_MAX: u32 = 16;
/// Batches whose messages and signals are on their way while later ones are decided.
const FOLLOW_UPS_MAX: usize = 32;

/// Why a command came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommandError {
    /// There is no such run.
    #[error("there is no such run")]
    UnknownRun,
    /// The run does not allow it.
    #[error("the run does not allow it")]
    Refused(#[source] Refusal),
    /// Other processes kept committing to the run first.
    #[error("other processes committed to the run {CONFLICTS_MAX} times in a row")]
    Contended,
    /// The store failed. The command may have been carried out: repeating it is safe.
    #[error("the store failed")]
    Store(#[source] Arc<StoreError>),
    /// What the store holds of the run cannot be read.
    #[error("the run cannot be read")]
    Damaged,
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

type Reply = oneshot::Sender<Result<Arc<Run>, CommandError>>;

struct Request {
    run: RunId,
    command: Arc<Command>,
    /// Decided right after it, for the same commit. It is left out if the run does not allow it.
    then: Option<Command>,
    /// A budget had no room for what it permitted: the run is to end instead.
    shortage: Option<Shortage>,
    reply: Reply,
}

/// Sends commands to the loop. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Commands {
    requests: mpsc::Sender<Request>,
}

impl Commands {
    /// The handle and the loop behind it, which ends when the last handle is gone.
    pub(crate) fn new(sides: Sides, bounds: Bounds) -> (Self, CommandLoop) {
        let (requests, waiting) = mpsc::channel(bounds.waiting_max);
        let (batch_max, follow_ups) = (bounds.batch_max, JoinSet::new());
        (Self { requests }, CommandLoop { sides, waiting, batch_max, follow_ups })
    }

    /// Carries out `command` and returns the run as it is afterwards. The events are durable by then.
    pub(crate) async fn send(&self, run: RunId, command: Command) -> Result<Arc<Run>, CommandError> {
        self.send_both(run, Arc::new(command), None).await
    }

    /// As [`Self::send`], with a further command in the same commit. Whether that one was allowed is seen from the run.
    pub(crate) async fn send_both(
        &self,
        run: RunId,
        command: Arc<Command>,
        then: Option<Command>,
    ) -> Result<Arc<Run>, CommandError> {
        let (reply, answer) = oneshot::channel();
        let request = Request { run, command, then, shortage: None, reply };
        self.requests.send(request).await.map_err(|_| CommandError::Stopped)?;
        answer.await.map_err(|_| CommandError::Stopped)?
    }
}

/// How much the loop takes on.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) batch_max: usize,
    pub(crate) waiting_max: usize,
}

/// What the loop works with.
#[derive(Clone)]
pub(crate) struct Sides {
    pub(crate) parts: Parts,
    pub(crate) dispatch: Dispatch,
    pub(crate) holds: Holds,
    pub(crate) known: Known,
    pub(crate) metrics: Metrics,
}

pub(crate) struct CommandLoop {
    sides: Sides,
    waiting: mpsc::Receiver<Request>,
    batch_max: usize,
    follow_ups: JoinSet<()>,
}

/// A run that commands are decided on.
struct InHand {
    run: Run,
    /// What it weighed on its budgets when it was taken in hand.
    booked: Charge,
    /// It was not read just now: others may have gone on with it since.
    is_remembered: bool,
    /// The events that make it, if the store may not have it yet.
    draft: Vec<SequencedEvent>,
}

impl InHand {
    fn loaded(run: Run) -> Self {
        Self { booked: run.booked(), run, is_remembered: false, draft: Vec::new() }
    }

    fn remembered(run: &Run, draft: Vec<SequencedEvent>) -> Self {
        Self { is_remembered: true, draft, ..Self::loaded(run.clone()) }
    }
}

/// What a batch does to one run.
#[derive(Default)]
struct Change {
    events: Vec<SequencedEvent>,
    effects: Vec<Effect>,
}

/// A batch after deciding.
struct Decided {
    /// To be answered once the changes are committed.
    requests: Vec<Request>,
    /// Refused, or without effect, by what a remembered run says: to be decided anew on what the store says.
    unsure: Vec<Request>,
    /// Ordered: every process writes the runs of a batch in one order, and a simulation can be repeated.
    changes: BTreeMap<RunId, Change>,
}

impl CommandLoop {
    pub(crate) async fn run(mut self) {
        let mut batch = Vec::new();
        while self.waiting.recv_many(&mut batch, self.batch_max).await > 0 {
            self.carry_out(std::mem::take(&mut batch)).await;
        }
        while self.follow_ups.join_next().await.is_some() {}
    }

    async fn carry_out(&mut self, mut requests: Vec<Request>) {
        for _ in 0..CONFLICTS_MAX {
            requests = match self.try_once(requests).await {
                again if again.is_empty() => return,
                again => again,
            };
            debug!(commands = requests.len(), "deciding anew on what the store says");
        }
        for request in requests {
            let _ = request.reply.send(Err(CommandError::Contended));
        }
    }

    /// Decides and commits. Returns the requests to be decided anew: another process has changed their runs meanwhile, or may
    /// have. Of these runs nothing is remembered any more.
    async fn try_once(&mut self, requests: Vec<Request>) -> Vec<Request> {
        let (requests, mut runs) = match self.take_in_hand(requests).await {
            Ok(taken) => taken,
            Err((requests, error)) => return refuse_all(requests, error),
        };
        let Decided { requests, unsure: mut again, changes } =
            decide_all(requests, &mut runs, self.sides.parts.clock.now());
        let known = &self.sides.known;
        for request in &again {
            known.forget(request.run);
        }
        let mut changed = Vec::with_capacity(changes.len());
        for (id, Change { events, effects }) in changes {
            if let Some(InHand { run, booked, draft, .. }) = runs.remove(&id) {
                let events = draft.into_iter().chain(events).collect();
                changed.push((self.sides.dispatch.commit(run, events).charged(booked), effects));
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
                for commit in &commits {
                    known.forget(commit.after.id());
                }
                again.extend(refuse_all(requests, error));
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
                    self.sides.metrics.happened(&run, &commit.events);
                    after.insert(run.id(), run);
                    follow_ups.push((commit, effects));
                }
                Err(unwritten) => {
                    known.forget(commit.after.id());
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
        ids.retain(|id| match self.sides.known.get_with_draft(*id) {
            Some((run, draft)) => {
                runs.insert(*id, InHand::remembered(&run, draft));
                false
            }
            None => true,
        });
        let (sound, damaged) = match ids.as_slice() {
            [] => (Vec::new(), Vec::new()),
            ids => match self.sides.parts.load_sound(ids).await {
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

    /// What has to be done at once is done when this returns; messages and signals are on their way. Losing them is harmless,
    /// so nobody waits for them but a loop that is too far ahead of them.
    async fn follow_up(&mut self, committed: Vec<(Commit, Vec<Effect>)>) {
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
        while self.follow_ups.try_join_next().is_some() {}
        if self.follow_ups.len() >= FOLLOW_UPS_MAX {
            self.follow_ups.join_next().await;
        }
        let sides = self.sides.clone();
        self.follow_ups.spawn(async move {
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
        let told = if run.is_ended() {
            live.publish_end(run).await
        } else {
            live.publish(run.id(), Signal::Committed { version: run.version() }).await
        };
        if let Err(error) = told {
            debug!(run = %run.id(), %error, "watchers were not told");
        }
        for effect in effects {
            // What one command of a batch readied, a later one may have claimed or ended.
            if let Effect::Dispatch { task, not_before } = *effect
                && run.task(task).is_some_and(|task| matches!(task.state, TaskState::Ready { .. }))
            {
                self.dispatch.publish(commit, task, not_before).await;
            }
        }
    }
}

/// Decides every request in order.
fn decide_all(requests: Vec<Request>, runs: &mut HashMap<RunId, InHand>, now: Timestamp) -> Decided {
    let mut decided = Decided {
        requests: Vec::with_capacity(requests.len()),
        unsure: Vec::new(),
        changes: BTreeMap::new(),
    };
    for request in requests {
        let Some(in_hand) = runs.get_mut(&request.run) else {
            let _ = request.reply.send(Err(CommandError::UnknownRun));
            continue;
        };
        match decide(&mut in_hand.run, &request, now) {
            Ok(fresh) if !fresh.events.is_empty() => {
                let change = decided.changes.entry(request.run).or_default();
                change.events.extend(fresh.events);
                change.effects.extend(fresh.effects);
                decided.requests.push(request);
            }
            _ if in_hand.is_remembered => decided.unsure.push(request),
            Ok(_) => decided.requests.push(request),
            Err(refusal) => {
                let _ = request.reply.send(Err(CommandError::Refused(refusal)));
            }
        }
    }
    decided
}

fn decide(run: &mut Run, request: &Request, now: Timestamp) -> Result<Change, Refusal> {
    let mut change = Change::default();
    let shortage = request.shortage.as_ref();
    carry(run, &request.command, shortage, now, &mut change)?;
    if let Some(then) = &request.then
        && let Err(refusal) = carry(run, then, shortage, now, &mut change)
    {
        debug!(run = %run.id(), %refusal, "the second of two commands is left out");
    }
    Ok(change)
}

fn carry(
    run: &mut Run,
    command: &Command,
    shortage: Option<&Shortage>,
    now: Timestamp,
    change: &mut Change,
) -> Result<(), Refusal> {
    let decision = match shortage {
        Some(shortage) => run.decide_over_budget(command, shortage, now)?,
        None => run.decide(command, now)?,
    };
    for event in decision.events {
        let event = SequencedEvent { sequence: run.version() + 1, at: now, event };
        if let Err(error) = run.apply(&event) {
            // `decide` and `apply` are held together by a test over every reachable state.
            tracing::error!(run = %run.id(), %error, "a decision does not fold");
            debug_assert!(false, "a decision does not fold: {error}");
            break;
        }
        change.events.push(event);
    }
    change.effects.extend(decision.effects);
    Ok(())
}

/// Carries out a command on a run in memory: what a commit of it would make of the run, and with which events and effects.
pub(crate) fn rehearse(
    run: &mut Run,
    command: &Command,
    now: Timestamp,
) -> Result<(Vec<SequencedEvent>, Vec<Effect>), Refusal> {
    let mut change = Change::default();
    carry(run, command, None, now, &mut change)?;
    Ok((change.events, change.effects))
}

fn refuse_all(requests: Vec<Request>, error: StoreError) -> Vec<Request> {
    warn!(error = &error as &dyn std::error::Error, commands = requests.len(), "the store failed");
    let error = Arc::new(error);
    for request in requests {
        let _ = request.reply.send(Err(CommandError::Store(Arc::clone(&error))));
    }
    Vec::new()
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
