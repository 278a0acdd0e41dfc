//! The run cache holds the runs that this process worked on last, so that they are not loaded for each command.
//!
//! A cached run may be older than the stored one. That is harmless for a commit: it names the version that it follows, and the store
//! refuses it if another process committed first. Any other decision needs the stored run.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podium_domain::answer::AnswerForm;
use podium_domain::content::{Reasoning, ToolCall};
use podium_domain::ids::RunId;
use podium_domain::run::{AttemptOutcome, Run, RunSpec, StepRun, Task, ToolTurn};
use podium_domain::tools::ToolUse;
use podium_ports::store::ToLoad;

/// Memory of a run without its texts, estimated.
const RUN_BYTES: usize = 1024;
/// Memory of a message part without its content, estimated.
const PART_BYTES: usize = 64;
/// Memory of a task without its texts, estimated.
const TASK_BYTES: usize = 256;
/// Memory of an attempt without its texts, estimated.
const ATTEMPT_BYTES: usize = 256;

/// The size of the cache. Beyond either bound, the run that was noted longest ago is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) runs_max: usize,
    pub(crate) bytes_max: usize,
}

/// The cache. Clones share it.
#[derive(Clone)]
pub(crate) struct RunCache {
    bounds: Bounds,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    runs: HashMap<RunId, Entry>,
    /// Runs that stay in the cache when they end, with the number of callers that wait for their ends.
    kept: HashMap<RunId, usize>,
    /// The runs in the order in which they were noted.
    order: BTreeMap<u64, RunId>,
    notes: u64,
    bytes: usize,
}

struct Entry {
    run: Arc<Run>,
    /// Whether another process has committed to the run since, or may have.
    is_outdated: bool,
    bytes: usize,
    note: u64,
}

impl RunCache {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, table: Arc::default() }
    }

    /// The run as this process last saw it, unless it is known to be outdated.
    pub(crate) fn get(&self, id: RunId) -> Option<Arc<Run>> {
        self.lock().runs.get(&id).filter(|entry| !entry.is_outdated).map(|entry| Arc::clone(&entry.run))
    }

    /// The run to load, with the cached version, even if that is outdated.
    pub(crate) fn to_load(&self, id: RunId) -> ToLoad {
        ToLoad { id, known: self.lock().runs.get(&id).map(|entry| Arc::clone(&entry.run)) }
    }

    /// Keeps the run in the cache when it ends, for a caller that waits for the end. If this process commits the end, the caller does
    /// not load the run.
    pub(crate) fn keep(&self, id: RunId) -> Kept {
        *self.lock().kept.entry(id).or_default() += 1;
        Kept { cache: self.clone(), id }
    }

    /// Adds a committed or loaded run, unless a newer version is cached. An ended run is removed, because no work on it follows. It
    /// stays if it is [kept](Self::keep).
    pub(crate) fn note(&self, run: &Arc<Run>) {
        let mut table = self.lock();
        let is_newer = |entry: &Entry| !entry.is_outdated && entry.run.version() > run.version();
        if table.runs.get(&run.id()).is_some_and(is_newer) {
            return;
        }
        table.forget(run.id());
        if run.is_ended() && !table.kept.contains_key(&run.id()) {
            return;
        }
        table.insert(Arc::clone(run));
        while table.runs.len() > self.bounds.runs_max || table.bytes > self.bounds.bytes_max {
            let Some((_, oldest)) = table.order.pop_first() else { return };
            table.forget(oldest);
        }
    }

    /// Notes that the cached version of a run is outdated. It stays in the cache, so that only newer events are loaded.
    pub(crate) fn outdate(&self, id: RunId) {
        if let Some(entry) = self.lock().runs.get_mut(&id) {
            entry.is_outdated = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a run in the cache when it ends, until dropped.
pub(crate) struct Kept {
    cache: RunCache,
    id: RunId,
}

impl Kept {
    /// The ended run, if this process has committed its end.
    pub(crate) fn ended(&self) -> Option<Arc<Run>> {
        self.cache.get(self.id).filter(|run| run.is_ended())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut table = self.cache.lock();
        let Some(callers) = table.kept.get_mut(&self.id) else { return };
        *callers -= 1;
        if *callers == 0 {
            table.kept.remove(&self.id);
            if table.runs.get(&self.id).is_some_and(|entry| entry.run.is_ended()) {
                table.forget(self.id);
            }
        }
    }
}

impl Table {
    fn insert(&mut self, run: Arc<Run>) {
        self.notes += 1;
        let (note, bytes) = (self.notes, bytes_of(&run));
        self.order.insert(note, run.id());
        self.bytes += bytes;
        self.runs.insert(run.id(), Entry { run, is_outdated: false, bytes, note });
    }

    fn forget(&mut self, id: RunId) {
        if let Some(entry) = self.runs.remove(&id) {
            self.order.remove(&entry.note);
            self.bytes -= entry.bytes;
        }
    }
}

/// Memory of a JSON value for each byte of its text: it consists of many small objects.
const JSON_FACTOR: usize = 4;

/// Memory of a request: its messages with images and other parts, the schema of its response format, its stop sequences and its tools.
fn bytes_of_request(spec: &RunSpec) -> usize {
    let messages = spec.request.conversation.messages().iter();
    let said: usize = messages
        .map(|message| size_of_val(message) + message.bytes() + message.parts.len() * PART_BYTES)
        .sum();
    let answer = match &spec.request.answer {
        AnswerForm::JsonSchema(form) => form.schema.to_string().len() * JSON_FACTOR,
        AnswerForm::Regex(regex) => regex.len(),
        AnswerForm::Text | AnswerForm::JsonObject => 0,
    };
    let tools = spec.request.tools.as_ref().map_or(0, ToolUse::bytes) * JSON_FACTOR;
    said + answer + tools + spec.request.stops.as_slice().iter().map(String::len).sum::<usize>()
}

/// Estimated memory of a run: the length of texts of clients, conductors and workers, and a constant for each other part.
fn bytes_of(run: &Run) -> usize {
    let asked = bytes_of_request(run.spec());
    let rounds = run.rounds().iter().map(|round| {
        let reasoning = round.planned.as_ref().map_or(0, |planned| planned.reasoning.len());
        let subtasks: usize = round.known_steps().iter().map(|step| step.subtask.len()).sum();
        reasoning + subtasks + round.steps.iter().map(bytes_of_output).sum::<usize>()
    });
    RUN_BYTES
        + asked
        + rounds.sum::<usize>()
        + run.tasks().map(|(_, task)| bytes_of_task(task)).sum::<usize>()
}

fn bytes_of_output(step: &StepRun) -> usize {
    step.output.as_ref().map_or(0, String::len)
        + step.calls.iter().map(ToolCall::bytes).sum::<usize>()
        + step.reasoning.iter().map(Reasoning::bytes).sum::<usize>()
        + step.reasoning_text.len()
        + step.turns.iter().map(|turn| size_of::<ToolTurn>() + turn.bytes()).sum::<usize>()
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
    use podium_domain::answer::JsonSchema;
    use podium_domain::content::{Image, Part};
    use podium_domain::conversation::{Conversation, Message, Role};
    use podium_domain::run::{RunEvent, SequencedEvent};
    use podium_ports::clock::Ids as _;
    use podium_testkit::{SeededIds, TestClock, a_spec};

    use super::*;

    fn a_run(ids: &SeededIds, question: &str) -> Arc<Run> {
        let mut spec = a_spec();
        spec.request.conversation =
            podium_domain::conversation::Conversation::question_only(question).unwrap();
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
    fn the_oldest_run_leaves_a_full_cache() {
        let (ids, bounds) = (SeededIds::new(1), Bounds { runs_max: 3, bytes_max: 10_000 });
        let cache = RunCache::new(bounds);
        let runs: Vec<_> = (0..5).map(|_| a_run(&ids, "why?")).collect();
        for run in &runs {
            cache.note(run);
        }
        let cached: Vec<_> = runs.iter().map(|run| cache.get(run.id()).is_some()).collect();
        assert_eq!(cached, [false, false, true, true, true]);
        cache.note(&a_run(&ids, &"y".repeat(6_000)));
        assert!(cache.get(runs[2].id()).is_none() && cache.get(runs[4].id()).is_some());
        cache.note(&a_run(&ids, &"y".repeat(20_000)));
        let table = cache.lock();
        assert_eq!(
            (table.runs.len(), table.order.len(), table.bytes),
            (0, 0, 0),
            "the run exceeds the whole cache"
        );
    }

    #[test]
    fn images_parts_and_schemas_count_towards_the_bound() {
        let (ids, bounds) = (SeededIds::new(1), Bounds { runs_max: 100, bytes_max: 1 << 20 });
        let image = || Part::Image(Image::Url(format!("https://example.org/{}", "x".repeat(300_000))));
        let long = serde_json::json!({ "enum": vec!["y"; 60_000] });
        let with_image = |spec: &mut RunSpec| {
            let message = Message::new(Role::User, "what is it?").with([image()]);
            spec.request.conversation = Conversation::new(vec![message]).unwrap();
        };
        let with_text = |spec: &mut RunSpec| {
            let message = Message::new(Role::User, "why?").with([Part::Text("z".repeat(300_000))]);
            spec.request.conversation = Conversation::new(vec![message]).unwrap();
        };
        let with_schema = |spec: &mut RunSpec| {
            let form = JsonSchema { name: "n".to_owned(), schema: long.clone(), strict: false };
            spec.request.answer = AnswerForm::JsonSchema(form);
        };
        let changes: [&dyn Fn(&mut RunSpec); 3] = [&with_image, &with_text, &with_schema];
        for change in changes {
            let cache = RunCache::new(bounds);
            for _ in 0..20 {
                let mut spec = a_spec();
                change(&mut spec);
                let events = [SequencedEvent { sequence: 1, at: TestClock::START, event: Run::accept(spec) }];
                cache.note(&Arc::new(Run::replay(ids.run_id(TestClock::START), &events).unwrap()));
            }
            assert!(cache.lock().runs.len() <= 4, "{} runs are cached", cache.lock().runs.len());
        }
    }

    #[test]
    fn an_older_version_does_not_replace_a_newer_one() {
        let (ids, cache) = (SeededIds::new(1), RunCache::new(Bounds { runs_max: 3, bytes_max: 1 << 20 }));
        let run = a_run(&ids, "why?");
        let mut newer = (*run).clone();
        let claim = podium_domain::run::Claim {
            id: ids.claim_id(),
            executor: "e".to_owned(),
            process: ids.process_id(),
            lease_until: TestClock::START,
            reserve: podium_domain::money::Cost::ZERO,
        };
        let task = podium_domain::run::TaskRef::Plan { round: 0 };
        let decision =
            run.decide(&podium_domain::run::Command::Claim { task, claim }, TestClock::START).unwrap();
        for event in decision.events {
            newer.apply(&SequencedEvent { sequence: 2, at: TestClock::START, event }).unwrap();
        }
        cache.note(&Arc::new(newer));
        cache.note(&run);
        assert_eq!(cache.get(run.id()).unwrap().version(), 2);
        cache.note(&cancelled(&run));
        assert!(cache.get(run.id()).is_none(), "the run has ended");
    }

    #[test]
    fn an_outdated_run_is_the_basis_of_the_next_load() {
        let (ids, cache) = (SeededIds::new(1), RunCache::new(Bounds { runs_max: 3, bytes_max: 1 << 20 }));
        let run = a_run(&ids, "why?");
        cache.note(&run);
        cache.outdate(run.id());
        assert!(cache.get(run.id()).is_none());
        assert_eq!(cache.to_load(run.id()).known, Some(Arc::clone(&run)));
        // The store may have lost the version that this process knew.
        cache.note(&run);
        assert_eq!(cache.get(run.id()), Some(run));
    }

    #[test]
    fn an_ended_run_stays_cached_while_a_caller_waits_for_it() {
        let (ids, cache) = (SeededIds::new(1), RunCache::new(Bounds { runs_max: 3, bytes_max: 1 << 20 }));
        let run = a_run(&ids, "why?");
        let (first, second) = (cache.keep(run.id()), cache.keep(run.id()));
        cache.note(&run);
        assert!(first.ended().is_none());
        cache.note(&cancelled(&run));
        drop(first);
        assert_eq!(second.ended(), Some(cancelled(&run)));
        drop(second);
        let table = cache.lock();
        assert_eq!((table.runs.len(), table.kept.len(), table.bytes), (0, 0, 0));
    }
}
