//! The runs that this process worked on last, so that they need not be loaded for each command.
//!
//! What is remembered may be older than what the store holds. That is harmless where it leads to a commit, which says what
//! version it follows and is refused if others were first. Whatever else follows from it has to be looked up.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podium_domain::answer::AnswerForm;
use podium_domain::ids::RunId;
use podium_domain::run::{AttemptOutcome, Run, RunSpec, Task};

/// What a run takes beside its texts, roughly.
const RUN_BYTES: usize = 1024;
/// What a part of a message takes beside its content, roughly.
const PART_BYTES: usize = 64;
/// What a task takes beside its texts, roughly.
const TASK_BYTES: usize = 256;
/// What an attempt takes beside its texts, roughly.
const ATTEMPT_BYTES: usize = 256;

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
    bytes: usize,
    note: u64,
}

impl Known {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, table: Arc::default() }
    }

    /// The run as it was last seen here.
    pub(crate) fn get(&self, id: RunId) -> Option<Arc<Run>> {
        self.lock().runs.get(&id).map(|entry| Arc::clone(&entry.run))
    }

    /// Remembers what was committed or loaded, unless something newer is known. A run that has ended is forgotten: nothing
    /// more is going to happen to it.
    pub(crate) fn note(&self, run: &Arc<Run>) {
        let mut table = self.lock();
        if table.runs.get(&run.id()).is_some_and(|entry| entry.run.version() > run.version()) {
            return;
        }
        table.forget(run.id());
        if run.is_ended() {
            return;
        }
        table.remember(Arc::clone(run));
        while table.runs.len() > self.bounds.runs_max || table.bytes > self.bounds.bytes_max {
            let Some((_, oldest)) = table.order.pop_first() else { return };
            table.forget(oldest);
        }
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
    fn remember(&mut self, run: Arc<Run>) {
        self.notes += 1;
        let (note, bytes) = (self.notes, bytes_of(&run));
        self.order.insert(note, run.id());
        self.bytes += bytes;
        self.runs.insert(run.id(), Entry { run, bytes, note });
    }

    fn forget(&mut self, id: RunId) {
        if let Some(entry) = self.runs.remove(&id) {
            self.order.remove(&entry.note);
            self.bytes -= entry.bytes;
        }
    }
}

/// What a JSON value takes in memory for each byte of its text: many small objects.
const JSON_FACTOR: usize = 4;

/// What a request takes: its messages with images and further parts, the schema of its answer, and its stop sequences.
fn bytes_of_request(spec: &RunSpec) -> usize {
    let messages = spec.conversation.messages().iter();
    let said: usize = messages
        .map(|message| size_of_val(message) + message.bytes() + message.parts.len() * PART_BYTES)
        .sum();
    let answer = match &spec.answer {
        AnswerForm::JsonSchema(form) => form.schema.to_string().len() * JSON_FACTOR,
        AnswerForm::Regex(regex) => regex.len(),
        AnswerForm::Text | AnswerForm::JsonObject => 0,
    };
    said + answer + spec.stops.as_slice().iter().map(String::len).sum::<usize>()
}

/// About what a run takes in memory: what clients, conductors and workers wrote is counted, the rest estimated.
fn bytes_of(run: &Run) -> usize {
    let asked = bytes_of_request(run.spec());
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
    use podium_domain::answer::JsonSchema;
    use podium_domain::content::{Image, Part};
    use podium_domain::conversation::{Conversation, Message, Role};
    use podium_domain::run::{RunEvent, SequencedEvent};
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
    fn images_parts_and_schemas_count_towards_the_bound() {
        let (ids, bounds) = (SeededIds::new(1), Bounds { runs_max: 100, bytes_max: 1 << 20 });
        let image = || Part::Image(Image::Url(format!("https://example.org/{}", "x".repeat(300_000))));
        let long = serde_json::json!({ "enum": vec!["y"; 60_000] });
        let with_image = |spec: &mut RunSpec| {
            let message = Message::new(Role::User, "what is it?").with([image()]);
            spec.conversation = Conversation::new(vec![message]).unwrap();
        };
        let with_text = |spec: &mut RunSpec| {
            let message = Message::new(Role::User, "why?").with([Part::Text("z".repeat(300_000))]);
            spec.conversation = Conversation::new(vec![message]).unwrap();
        };
        let with_schema = |spec: &mut RunSpec| {
            let form = JsonSchema { name: "n".to_owned(), schema: long.clone(), strict: false };
            spec.answer = AnswerForm::JsonSchema(form);
        };
        let changes: [&dyn Fn(&mut RunSpec); 3] = [&with_image, &with_text, &with_schema];
        for change in changes {
            let known = Known::new(bounds);
            for _ in 0..20 {
                let mut spec = a_spec();
                change(&mut spec);
                let events = [SequencedEvent { sequence: 1, at: TestClock::START, event: Run::accept(spec) }];
                known.note(&Arc::new(Run::replay(ids.run_id(TestClock::START), &events).unwrap()));
            }
            assert!(known.lock().runs.len() <= 4, "{} runs are remembered", known.lock().runs.len());
        }
    }

    #[test]
    fn what_is_older_does_not_take_the_place_of_what_is_newer() {
        let (ids, known) = (SeededIds::new(1), Known::new(Bounds { runs_max: 3, bytes_max: 1 << 20 }));
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
        known.note(&Arc::new(newer));
        known.note(&run);
        assert_eq!(known.get(run.id()).unwrap().version(), 2);
        known.note(&cancelled(&run));
        assert!(known.get(run.id()).is_none(), "it has ended");
    }
}
