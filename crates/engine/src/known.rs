//! The runs that this process worked on last, so that they need not be loaded for each command.
//!
//! What is remembered may be older than what the store holds. That is harmless where it leads to a commit, which says what
//! version it follows and is refused if others were first. Whatever else follows from it has to be looked up.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::{AttemptOutcome, Run, SequencedEvent, Task};
use podium_domain::time::Timestamp;
use tracing::debug;

/// What a run takes beside its texts, roughly.
const RUN_BYTES: usize = 1024;
/// What a task takes beside its texts, roughly.
const TASK_BYTES: usize = 256;
/// What an attempt takes beside its texts, roughly.
const ATTEMPT_BYTES: usize = 256;

/// A run that was not stored for so long after it was asked for is not stored by a claim any more: who asked has stored it
/// himself by then. So a message that comes ages later brings no run back that has ended and was removed.
pub(crate) const DRAFT_AGE_MAX: Duration = Duration::from_secs(1);

/// How much is remembered. Beyond either bound, what was noted longest ago is forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) runs_max: usize,
    pub(crate) bytes_max: usize,
}

/// Remembered runs. Clones are the same.
#[derive(Clone)]
pub(crate) struct Known {
    bounds: Bounds,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    runs: HashMap<RunId, Entry>,
    /// By when they were noted.
    order: BTreeMap<u64, RunId>,
    notes: u64,
    bytes: usize,
}

struct Entry {
    run: Arc<Run>,
    /// The events that make it, if the store may not have it yet.
    draft: Vec<SequencedEvent>,
    bytes: usize,
    note: u64,
}

impl Known {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, table: Arc::default() }
    }

    /// The run as it was last seen here, and, where it may not be stored yet, the events that make it.
    pub(crate) fn get_with_draft(&self, id: RunId) -> Option<(Arc<Run>, Vec<SequencedEvent>)> {
        self.lock().runs.get(&id).map(|entry| (Arc::clone(&entry.run), entry.draft.clone()))
    }

    /// The run as it was last seen here.
    pub(crate) fn get(&self, id: RunId) -> Option<Arc<Run>> {
        self.lock().runs.get(&id).map(|entry| Arc::clone(&entry.run))
    }

    /// Remembers what was committed or loaded, unless something newer is known. A run that has ended is forgotten: nothing
    /// more is going to happen to it.
    pub(crate) fn note(&self, run: &Arc<Run>) {
        self.note_with(run, Vec::new());
    }

    fn note_with(&self, run: &Arc<Run>, draft: Vec<SequencedEvent>) {
        let mut table = self.lock();
        if table.runs.get(&run.id()).is_some_and(|entry| entry.run.version() > run.version()) {
            return;
        }
        table.forget(run.id());
        if run.is_ended() {
            return;
        }
        table.remember(Arc::clone(run), draft);
        while table.runs.len() > self.bounds.runs_max || table.bytes > self.bounds.bytes_max {
            let Some((_, oldest)) = table.order.pop_first() else { return };
            table.forget(oldest);
        }
    }

    /// Remembers a stored run by the events that came with a message, unless something is known of it.
    pub(crate) fn note_history(&self, id: RunId, history: &[SequencedEvent]) {
        if history.is_empty() || self.is_known(id) {
            return;
        }
        match Run::replay(id, history) {
            Ok(run) => self.note(&Arc::new(run)),
            Err(error) => debug!(run = %id, %error, "a history does not read"),
        }
    }

    /// Remembers a draft by its events. Not one of which something is known already, nor one that is older than
    /// [`DRAFT_AGE_MAX`]: that is stored by now, or given up.
    ///
    /// Returns whether it is remembered, and so may be claimed.
    pub(crate) fn note_draft(&self, id: RunId, events: Vec<SequencedEvent>, now: Timestamp) -> bool {
        if self.is_known(id) {
            return false;
        }
        match Run::replay(id, &events) {
            Ok(run) => {
                let is_new = now.since(run.spec().accepted_at) <= DRAFT_AGE_MAX;
                if is_new {
                    self.note_with(&Arc::new(run), events);
                }
                is_new
            }
            Err(error) => {
                debug!(run = %id, %error, "a draft does not read");
                false
            }
        }
    }

    fn is_known(&self, id: RunId) -> bool {
        self.lock().runs.contains_key(&id)
    }

    /// What was known of the run is wrong.
    pub(crate) fn forget(&self, id: RunId) {
        self.lock().forget(id);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn remember(&mut self, run: Arc<Run>, draft: Vec<SequencedEvent>) {
        self.notes += 1;
        let (note, mut bytes) = (self.notes, bytes_of(&run));
        if !draft.is_empty() {
            // Its events have the same texts once more.
            bytes *= 2;
        }
        self.order.insert(note, run.id());
        self.bytes += bytes;
        self.runs.insert(run.id(), Entry { run, draft, bytes, note });
    }

    fn forget(&mut self, id: RunId) {
        if let Some(entry) = self.runs.remove(&id) {
            self.order.remove(&entry.note);
            self.bytes -= entry.bytes;
        }
    }
}

/// About what a run takes in memory: what clients, conductors and workers wrote is counted, the rest estimated.
fn bytes_of(run: &Run) -> usize {
    let asked: usize = run.spec().conversation.messages().iter().map(|message| message.text.len()).sum();
    let rounds = run.rounds().iter().map(|round| {
        let reasoning = round.planned.as_ref().map_or(0, |planned| planned.reasoning.len());
        let subtasks: usize = round.known_steps().iter().map(|step| step.subtask.len()).sum();
        reasoning
            + subtasks
            + round.steps.iter().filter_map(|step| step.output.as_ref()).map(String::len).sum::<usize>()
    });
    RUN_BYTES
        + asked
        + rounds.sum::<usize>()
        + run.tasks().map(|(_, task)| bytes_of_task(task)).sum::<usize>()
}

fn bytes_of_task(task: &Task) -> usize {
    let messages = task.attempts.iter().map(|attempt| match &attempt.outcome {
        AttemptOutcome::Failed(message) => message.len(),
        _ => 0,
    });
    TASK_BYTES + task.attempts.len() * ATTEMPT_BYTES + messages.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use podium_domain::run::RunEvent;
    use podium_ports::clock::Ids as _;
    use podium_testkit::{SeededIds, TestClock, a_spec};

    use super::*;

    fn a_run(ids: &SeededIds, question: &str) -> Arc<Run> {
        let mut spec = a_spec();
        spec.conversation = podium_domain::conversation::Conversation::question_only(question).unwrap();
        let events = [SequencedEvent { sequence: 1, at: TestClock::START, event: Run::accept(spec) }];
        Arc::new(Run::replay(ids.run_id(TestClock::START), &events).unwrap())
    }

    fn cancelled(run: &Run) -> Arc<Run> {
        let mut run = run.clone();
        let event = SequencedEvent { sequence: 2, at: TestClock::START, event: RunEvent::Cancelled };
        run.apply(&event).unwrap();
        Arc::new(run)
    }

    #[test]
    fn no_more_is_remembered_than_may_be_and_the_oldest_goes_first() {
        let (ids, bounds) = (SeededIds::new(1), Bounds { runs_max: 3, bytes_max: 10_000 });
        let known = Known::new(bounds);
        let runs: Vec<_> = (0..5).map(|_| a_run(&ids, "why?")).collect();
        for run in &runs {
            known.note(run);
        }
        let remembered: Vec<_> = runs.iter().map(|run| known.get(run.id()).is_some()).collect();
        assert_eq!(remembered, [false, false, true, true, true]);
        known.note(&a_run(&ids, &"y".repeat(6_000)));
        assert!(known.get(runs[2].id()).is_none() && known.get(runs[4].id()).is_some());
        known.note(&a_run(&ids, &"y".repeat(20_000)));
        let table = known.lock();
        assert_eq!((table.runs.len(), table.order.len(), table.bytes), (0, 0, 0), "it is too long for all");
    }

    #[test]
    fn a_draft_is_remembered_with_its_events_until_it_is_stored_or_old() {
        let (ids, known) = (SeededIds::new(1), Known::new(Bounds { runs_max: 3, bytes_max: 1 << 20 }));
        let (id, accepted_at) = (ids.run_id(TestClock::START), a_spec().accepted_at);
        let events = vec![SequencedEvent { sequence: 1, at: TestClock::START, event: Run::accept(a_spec()) }];
        let too_late = accepted_at.after(DRAFT_AGE_MAX + Duration::from_millis(1));
        assert!(!known.note_draft(id, events.clone(), too_late));
        assert!(known.get(id).is_none(), "it is to be looked up");
        assert!(known.note_draft(id, events.clone(), accepted_at.after(DRAFT_AGE_MAX)));
        assert!(!known.note_draft(id, events.clone(), accepted_at), "it is known already");
        let (run, draft) = known.get_with_draft(id).unwrap();
        assert_eq!((run.version(), draft), (1, events));
        known.note(&run);
        assert_eq!(known.get_with_draft(id).unwrap().1, []);
    }

    #[test]
    fn what_is_older_does_not_take_the_place_of_what_is_newer() {
        let (ids, known) = (SeededIds::new(1), Known::new(Bounds { runs_max: 3, bytes_max: 1 << 20 }));
        let run = a_run(&ids, "why?");
        let mut newer = (*run).clone();
        let claim = podium_domain::run::Claim {
            id: ids.claim_id(),
            executor: "e".to_owned(),
            lease_until: TestClock::START,
            reserve: podium_domain::money::Cost::ZERO,
            hedge: podium_domain::money::Cost::ZERO,
        };
        let task = podium_domain::run::TaskRef::Plan { round: 0 };
        let decision =
            run.decide(&podium_domain::run::Command::Claim { task, claim }, TestClock::START).unwrap();
        for event in decision.events {
            newer.apply(&SequencedEvent { sequence: 2, at: TestClock::START, event }).unwrap();
        }
        known.note(&Arc::new(newer));
        known.note(&run);
        assert_eq!(known.get(run.id()).unwrap().version(), 2);
        known.note(&cancelled(&run));
        assert!(known.get(run.id()).is_none(), "it has ended");
    }
}
