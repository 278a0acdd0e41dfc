//! Where commands become events: one loop gathers what waits, reads the runs that it touches in one query, decides in memory
//! and writes all of it in one commit. While a commit is under way the next batch gathers by itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use podium_domain::ids::RunId;
use podium_domain::run::{Command, Effect, Refusal, Run, SequencedEvent};
use podium_ports::live::Signal;
use podium_ports::store::{Commit, StoreError};
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

use crate::dispatch::Dispatch;
use crate::holds::Holds;
use crate::parts::Parts;

/// Times that a batch is decided anew because another process committed first, before its callers are told.
const CONFLICTS_MAX: u32 = 16;

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
    command: Command,
    reply: Reply,
}

/// Sends commands to the loop. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Commands {
    requests: mpsc::Sender<Request>,
}

impl Commands {
    /// The handle and the loop behind it, which ends when the last handle is gone.
    pub(crate) fn new(parts: Parts, dispatch: Dispatch, holds: Holds, bounds: Bounds) -> (Self, CommandLoop) {
        let (requests, waiting) = mpsc::channel(bounds.waiting_max);
        (Self { requests }, CommandLoop { parts, dispatch, holds, waiting, batch_max: bounds.batch_max })
    }

    /// Carries out `command` and returns the run as it is afterwards. The events are durable by then.
    pub(crate) async fn send(&self, run: RunId, command: Command) -> Result<Arc<Run>, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request { run, command, reply }).await.map_err(|_| CommandError::Stopped)?;
        answer.await.map_err(|_| CommandError::Stopped)?
    }
}

/// How much the loop takes on.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) batch_max: usize,
    pub(crate) waiting_max: usize,
}

pub(crate) struct CommandLoop {
    parts: Parts,
    dispatch: Dispatch,
    holds: Holds,
    waiting: mpsc::Receiver<Request>,
    batch_max: usize,
}

/// What a batch does to one run.
struct Change {
    commit: Commit,
    effects: Vec<Effect>,
}

impl CommandLoop {
    pub(crate) async fn run(mut self) {
        let mut batch = Vec::new();
        while self.waiting.recv_many(&mut batch, self.batch_max).await > 0 {
            self.carry_out(std::mem::take(&mut batch)).await;
        }
    }

    async fn carry_out(&self, mut requests: Vec<Request>) {
        for _ in 0..CONFLICTS_MAX {
            requests = match self.try_once(requests).await {
                beaten if beaten.is_empty() => return,
                beaten => beaten,
            };
            debug!(commands = requests.len(), "deciding anew after a conflict");
        }
        for request in requests {
            let _ = request.reply.send(Err(CommandError::Contended));
        }
    }

    /// Decides and commits. Returns the requests whose runs another process changed meanwhile.
    async fn try_once(&self, requests: Vec<Request>) -> Vec<Request> {
        let mut ids: Vec<_> = requests.iter().map(|request| request.run).collect();
        ids.sort_unstable();
        ids.dedup();
        let (sound, damaged) = match self.parts.load_sound(&ids).await {
            Ok(loaded) => loaded,
            Err(error) => return refuse_all(requests, error),
        };
        let (refused, requests): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|request| damaged.contains(&request.run));
        for request in refused {
            let _ = request.reply.send(Err(CommandError::Damaged));
        }
        let mut runs: HashMap<_, _> = sound.into_iter().map(|run| (run.id(), run)).collect();
        let (decided, changes) = self.decide_all(requests, &mut runs);
        let (commits, effects): (Vec<_>, Vec<_>) = changes.into_iter().map(|c| (c.commit, c.effects)).unzip();
        let outcomes =
            if commits.is_empty() { Ok(Vec::new()) } else { self.parts.store.commit(&commits).await };
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => return refuse_all(decided, error),
        };
        let mut beaten = Vec::new();
        for ((commit, effects), outcome) in commits.iter().zip(effects).zip(outcomes) {
            match outcome {
                Ok(()) => self.follow_up(&commit.after, &effects).await,
                Err(_) => beaten.push(commit.after.id()),
            }
        }
        answer_all(decided, &runs, &beaten)
    }

    /// Decides every request in order. Those that are refused are answered; the others are returned with what to commit.
    fn decide_all(
        &self,
        requests: Vec<Request>,
        runs: &mut HashMap<RunId, Run>,
    ) -> (Vec<Request>, Vec<Change>) {
        let now = self.parts.clock.now();
        let mut decided = Vec::with_capacity(requests.len());
        // Ordered: every process writes the runs of a batch in one order, and a simulation can be repeated.
        let mut changes: BTreeMap<RunId, (Vec<SequencedEvent>, Vec<Effect>)> = BTreeMap::new();
        for request in requests {
            let Some(run) = runs.get_mut(&request.run) else {
                let _ = request.reply.send(Err(CommandError::UnknownRun));
                continue;
            };
            let decision = match run.decide(&request.command, now) {
                Ok(decision) => decision,
                Err(refusal) => {
                    let _ = request.reply.send(Err(CommandError::Refused(refusal)));
                    continue;
                }
            };
            let (events, effects) = changes.entry(request.run).or_default();
            for event in decision.events {
                let event = SequencedEvent { sequence: run.version() + 1, at: now, event };
                if let Err(error) = run.apply(&event) {
                    // `decide` and `apply` are held together by a test over every reachable state.
                    tracing::error!(run = %request.run, %error, "a decision does not fold");
                    debug_assert!(false, "a decision does not fold: {error}");
                    break;
                }
                events.push(event);
            }
            effects.extend(decision.effects);
            decided.push(request);
        }
        let changes = changes.into_iter().filter(|(_, (events, _))| !events.is_empty()).filter_map(
            |(id, (events, effects))| {
                Some(Change { commit: Commit { after: runs.get(&id)?.clone(), events }, effects })
            },
        );
        let changes = changes.collect();
        (decided, changes)
    }

    async fn follow_up(&self, run: &Run, effects: &[Effect]) {
        let signal = Signal::Committed { version: run.version() };
        if let Err(error) = self.parts.live.publish(run.id(), signal).await {
            debug!(run = %run.id(), %error, "watchers were not told");
        }
        for effect in effects {
            match *effect {
                // What an earlier command of the batch readied, a later one may have ended.
                Effect::Dispatch { .. } if run.is_ended() => {}
                Effect::Dispatch { task, not_before } => self.dispatch.publish(run, task, not_before).await,
                Effect::Stop => self.holds.release_run(run.id()),
            }
        }
    }
}

fn refuse_all(requests: Vec<Request>, error: StoreError) -> Vec<Request> {
    warn!(error = &error as &dyn std::error::Error, commands = requests.len(), "the store failed");
    let error = Arc::new(error);
    for request in requests {
        let _ = request.reply.send(Err(CommandError::Store(Arc::clone(&error))));
    }
    Vec::new()
}

fn answer_all(requests: Vec<Request>, runs: &HashMap<RunId, Run>, beaten: &[RunId]) -> Vec<Request> {
    let mut shared: HashMap<RunId, Arc<Run>> = HashMap::new();
    let mut again = Vec::new();
    for request in requests {
        if beaten.contains(&request.run) {
            again.push(request);
        } else if let Some(run) = runs.get(&request.run) {
            let run = shared.entry(request.run).or_insert_with(|| Arc::new(run.clone()));
            let _ = request.reply.send(Ok(Arc::clone(run)));
        }
    }
    again
}
