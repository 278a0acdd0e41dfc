//! Carries out a batch: takes its runs from the run cache or loads them with one query, decides in memory and writes all changes
//! in one commit.

use std::collections::HashMap;
use std::sync::Arc;

use podium_domain::budget::Shortage;
use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_domain::time::Timestamp;
use podium_ports::store::{Appended, Commit, StoreError, Unwritten};
use tracing::{debug, warn};

use super::decide::{Change, Decided, Subject, decide_all};
use super::follow_up::{Committed, FollowUps};
use super::refused_runs::RefusedRuns;
use super::request::{CONFLICTS_MAX, CommandError, Request};
use super::run_cache::RunCache;
use super::unreadable::UnreadableRuns;
use crate::claims::leases::ClaimRegistry;
use crate::lanes::publisher::Publisher;
use crate::metrics::{Metrics, Stage};
use crate::parts::Parts;

/// The components that a batch needs.
pub(crate) struct WriterParts {
    pub(crate) parts: Parts,
    pub(crate) publisher: Publisher,
    pub(crate) leases: ClaimRegistry,
    pub(crate) run_cache: RunCache,
    pub(crate) unreadable: UnreadableRuns,
    pub(crate) metrics: Metrics,
}

/// Carries out batches. Several may be in flight, of different runs.
pub(super) struct BatchWriter {
    parts: Parts,
    publisher: Publisher,
    run_cache: RunCache,
    unreadable: UnreadableRuns,
    metrics: Metrics,
    refused_runs: RefusedRuns,
    follow_ups: FollowUps,
}

impl BatchWriter {
    pub(super) fn new(parts: WriterParts) -> Self {
        let WriterParts { parts, publisher, leases, run_cache, unreadable, metrics } = parts;
        let follow_ups = FollowUps::new(Arc::clone(&parts.live), publisher.clone(), leases);
        let refused_runs = RefusedRuns::default();
        Self { parts, publisher, run_cache, unreadable, metrics, refused_runs, follow_ups }
    }

    /// Returns once all follow-ups of its commits are done.
    pub(super) async fn finish(&self) {
        self.follow_ups.finish().await;
    }

    pub(super) fn refused_runs(&self) -> &RefusedRuns {
        &self.refused_runs
    }

    pub(super) fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    /// Answers every request except those that it returns. The caller must carry those out again; runs in [`Self::refused_runs`]
    /// alone.
    pub(super) async fn carry_out(&self, mut requests: Vec<Request>) -> Vec<Request> {
        let mut put_off = Vec::new();
        for _ in 0..CONFLICTS_MAX {
            requests = self.try_once(requests, &mut put_off).await;
            if requests.is_empty() {
                return put_off;
            }
            debug!(commands = requests.len(), "commands are decided again on the stored runs");
        }
        for request in requests {
            request.answer(Err(CommandError::Contended));
        }
        put_off
    }

    /// Decides and commits. Returns the requests to decide again, because another process has committed to their runs, or may have.
    /// These runs are outdated in the run cache.
    async fn try_once(&self, requests: Vec<Request>, put_off: &mut Vec<Request>) -> Vec<Request> {
        let ids = unique(requests.iter().map(|request| request.run));
        let Loaded { mut subjects, damaged } = match self.load(ids).await {
            Ok(loaded) => loaded,
            Err(error) => {
                refuse_all(requests, error);
                return Vec::new();
            }
        };
        let requests = answer_missing(requests, &subjects, &damaged);
        let now = self.now();
        let Decided { requests, unsure: mut again, changes } = decide_all(requests, &mut subjects, now);
        for request in &again {
            self.run_cache.outdate(request.run);
        }
        let mut changed = Vec::with_capacity(changes.len());
        for (id, change) in changes {
            if let Some(subject) = subjects.remove(&id) {
                changed.push(self.commit_of(subject, change));
            }
        }
        // Commits that book something come last: only they involve budgets.
        changed.sort_by_key(|committed| committed.commit.booking().is_some());
        let (commits, effects): (Vec<_>, Vec<_>) =
            changed.into_iter().map(|Committed { commit, effects }| (commit, effects)).unzip();
        let (commands, began) = (requests.len(), self.now());
        let outcomes = match self.write(&commits).await {
            Ok(outcomes) => outcomes,
            Err(error) => {
                put_off.extend(self.fail(requests, &commits, error));
                return again;
            }
        };
        let unchanged = subjects.into_iter().map(|(id, subject)| (id, Arc::new(subject.run)));
        let (mut after, mut written, mut shortages) =
            (unchanged.collect::<HashMap<_, _>>(), Vec::new(), HashMap::new());
        for ((commit, effects), outcome) in commits.into_iter().zip(effects).zip(outcomes) {
            let run = Arc::clone(&commit.after);
            match self.note(&commit, outcome) {
                Ok(()) => {
                    after.insert(run.id(), run);
                    written.push(Committed { commit, effects });
                }
                Err(shortage) => shortages.extend(shortage.map(|shortage| (run.id(), shortage))),
            }
        }
        self.follow_ups.follow_up(written).await;
        again.extend(answer_all(requests, &after));
        self.metrics.committed(commands, again.len(), self.now().since(began));
        for request in &mut again {
            request.shortage = shortages.get(&request.run).cloned().or(request.shortage.take());
        }
        again
    }

    fn commit_of(&self, Subject { run, booked, .. }: Subject, change: Change) -> Committed {
        let Change { events, effects } = change;
        Committed { commit: self.publisher.commit(run, events).charged(booked), effects }
    }

    /// Notes whether a commit was written. The error is the shortage of a budget, if that is why it was not.
    fn note(&self, commit: &Commit, outcome: Result<Appended, Unwritten>) -> Result<(), Option<Shortage>> {
        let run = &commit.after;
        self.refused_runs.passed(run.id());
        if outcome == Ok(Appended::New) {
            self.run_cache.note(run);
            self.metrics.happened(run, &commit.events);
            return Ok(());
        }
        self.run_cache.outdate(run.id());
        let Err(Unwritten::OverBudget(shortage)) = outcome else { return Err(None) };
        self.metrics.refused(Stage::Run, &shortage);
        Err(Some(shortage))
    }

    /// Handles a batch that failed as a whole, as far as is known. Returns the requests to try again, each run alone: the store may
    /// refuse only one of them.
    fn fail(&self, requests: Vec<Request>, commits: &[Commit], error: StoreError) -> Vec<Request> {
        let runs = || commits.iter().map(|commit| commit.after.id());
        runs().for_each(|run| self.run_cache.outdate(run));
        let StoreError::Refused(_) = &error else {
            refuse_all(requests, error);
            return Vec::new();
        };
        if let [commit] = commits {
            let error = Arc::new(error);
            self.refused_runs.refused(commit.after.id(), Arc::clone(&error), self.now());
            answer_alike(requests, &error);
            return Vec::new();
        }
        debug!(
            error = &error as &dyn std::error::Error,
            "the store refuses a batch; each run is tried alone"
        );
        self.refused_runs.suspect(runs(), self.now());
        requests
    }

    /// Commits. Only the last ones, which book something, involve budgets.
    async fn write(&self, commits: &[Commit]) -> Result<Vec<Result<Appended, Unwritten>>, StoreError> {
        let store = &self.parts.store;
        let (free, charged) = commits.split_at(commits.partition_point(|commit| commit.booking().is_none()));
        let write_free = async { if free.is_empty() { Ok(Vec::new()) } else { store.append(free).await } };
        let write_charged =
            async { if charged.is_empty() { Ok(Vec::new()) } else { store.append(charged).await } };
        let (free, charged) = futures::future::try_join(write_free, write_charged).await?;
        Ok(free.into_iter().chain(charged).collect())
    }

    /// Takes runs from the run cache and loads the others. Only the newer events of outdated runs are loaded.
    async fn load(&self, mut ids: Vec<RunId>) -> Result<Loaded, StoreError> {
        let mut subjects = HashMap::with_capacity(ids.len());
        ids.retain(|id| match self.run_cache.get(*id) {
            Some(run) => subjects.insert(*id, Subject::cached(&run)).is_some(),
            None => true,
        });
        let (sound, damaged) =
            if ids.is_empty() { Default::default() } else { self.unreadable.load(&ids).await? };
        subjects.extend(sound.into_iter().map(|run| (run.id(), Subject::loaded(run))));
        Ok(Loaded { subjects, damaged })
    }
}

/// The runs of a batch.
struct Loaded {
    subjects: HashMap<RunId, Subject>,
    /// The runs that cannot be read.
    damaged: Vec<RunId>,
}

fn unique(ids: impl Iterator<Item = RunId>) -> Vec<RunId> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Answers the requests for runs that do not exist or cannot be read, and returns the others.
fn answer_missing(
    requests: Vec<Request>,
    found: &HashMap<RunId, Subject>,
    damaged: &[RunId],
) -> Vec<Request> {
    let (found, missing): (Vec<_>, Vec<_>) =
        requests.into_iter().partition(|request| found.contains_key(&request.run));
    for request in missing {
        let is_damaged = damaged.contains(&request.run);
        request.answer(Err(if is_damaged { CommandError::Damaged } else { CommandError::UnknownRun }));
    }
    found
}

fn refuse_all(requests: Vec<Request>, error: StoreError) {
    warn!(error = &error as &dyn std::error::Error, commands = requests.len(), "the store failed");
    answer_alike(requests, &Arc::new(error));
}

fn answer_alike(requests: Vec<Request>, error: &Arc<StoreError>) {
    for request in requests {
        request.answer(Err(CommandError::Store(Arc::clone(error))));
    }
}

/// Answers the requests whose decisions hold. Returns those whose runs another process committed to first.
fn answer_all(requests: Vec<Request>, after: &HashMap<RunId, Arc<Run>>) -> Vec<Request> {
    let mut beaten = Vec::new();
    for request in requests {
        match after.get(&request.run).cloned() {
            Some(run) => request.answer(Ok(run)),
            None => beaten.push(request),
        }
    }
    beaten
}
