//! Stored events stay readable and keep their meaning.
//!
//! `fixtures/events` has events in every form that was ever stored, `fixtures/runs` whole runs with their outcome. No file there is
//! ever changed: a new form gets a new file and a line in `SHA256SUMS`.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::fs;
use std::path::{Path, PathBuf};

use podium_domain::ids::RunId;
use podium_domain::run::{Attempt, AttemptOutcome, Run, RunEvent, RunState, Task, TaskRef};
use podium_ports::store::StoreError;
use podium_store_format::{EventToStore, StoredEvent, StoredEvents};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

const KINDS: usize = 23;

/// A number for each kind of event. A new kind does not compile until it is added here and to the fixture.
fn kind(event: &RunEvent) -> usize {
    match event {
        RunEvent::Accepted { .. } => 0,
        RunEvent::Claimed { .. } => 1,
        RunEvent::PlanReady { .. } => 2,
        RunEvent::AnswerKept { .. } => 3,
        RunEvent::StepReady { .. } => 4,
        RunEvent::StepDone { .. } => 5,
        RunEvent::AttemptFailed { .. } => 6,
        RunEvent::LeaseExpired { .. } => 7,
        RunEvent::TaskFailed { .. } => 8,
        RunEvent::ResultUnused { .. } => 9,
        RunEvent::RoundOpened { .. } => 10,
        RunEvent::Succeeded { .. } => 11,
        RunEvent::Failed { .. } => 12,
        RunEvent::Cancelled => 13,
        RunEvent::StepsPlanned { .. } => 14,
        RunEvent::StepsSuperseded { .. } => 15,
        RunEvent::FellBack { .. } => 16,
        RunEvent::Hedged { .. } => 17,
        RunEvent::RoundAbandoned { .. } => 18,
        RunEvent::StepCalled { .. } => 19,
        RunEvent::Suspended => 20,
        RunEvent::ResultsGiven { .. } => 21,
        RunEvent::StepSkipped { .. } => 22,
    }
}

const RUN: RunId = RunId::new(Uuid::nil());

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The files of a folder with their names, in order.
fn files(folder: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(fixtures().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            (format!("{folder}/{name}"), fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{folder} has no files");
    files
}

#[test]
fn a_fixture_never_changes() {
    let sums = fs::read_to_string(fixtures().join("SHA256SUMS")).unwrap();
    let recorded: Vec<_> = sums.lines().map(str::to_owned).collect();
    let of = |(name, text): &(String, String)| {
        let sum = Sha256::digest(text).iter().fold(String::new(), |sum, byte| sum + &format!("{byte:02x}"));
        format!("{sum}  {name}")
    };
    let found: Vec<_> = ["events", "runs"].into_iter().flat_map(files).map(|file| of(&file)).collect();
    assert_eq!(found, recorded, "restore a changed file and put the new form into a new one");
}

#[test]
fn every_stored_event_reads_and_is_written_as_it_was() {
    let mut kinds = Vec::new();
    for (file, text) in files("events") {
        let fixture: Vec<Value> = serde_json::from_str(&text).unwrap();
        for (sequence, data) in (2..).zip(&fixture) {
            let row = StoredEvent { sequence, at_ms: 7, format: 1, data: &data.to_string() };
            let event = row.read(RUN).unwrap_or_else(|e| panic!("{file}: {data}: {e:?}"));
            assert_eq!(data["kind"], event.event.name());
            let written = EventToStore::new(RUN, &event).unwrap();
            assert_eq!((written.sequence, written.at_ms, written.kind), (sequence, 7, event.event.name()));
            // Nothing was lost or misread: the event is still written in the same form.
            assert_eq!(serde_json::from_str::<Value>(&written.data).unwrap(), *data, "{file}");
            kinds.push(kind(&event.event));
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (0..KINDS).collect::<Vec<_>>());
}

/// Each run of the fixtures: its name, its log and its outcome.
fn stored_runs() -> Vec<(String, Vec<Value>, Value)> {
    let runs = files("runs").into_iter().flat_map(|(_, text)| {
        let runs: Vec<Value> = serde_json::from_str(&text).unwrap();
        runs
    });
    runs.map(|run| {
        let log = run["log"].as_array().unwrap().clone();
        (run["name"].as_str().unwrap().to_owned(), log, run["outcome"].clone())
    })
    .collect()
}

#[test]
fn a_stored_run_keeps_its_meaning() {
    for (name, log, expected) in stored_runs() {
        let (data, last_sequence) = (Value::from(log.clone()).to_string(), i64::try_from(log.len()).unwrap());
        let mut events = Vec::new();
        let row = StoredEvents { first_sequence: 1, last_sequence, format: 1, data: &data };
        row.read(RUN, &mut events).unwrap();
        let run = Run::replay(RUN, &events).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(outcome(&run), expected, "{name}: {:#}", outcome(&run));
    }
}

/// The outcome of a run, in words that do not depend on the types of this version.
fn outcome(run: &Run) -> Value {
    let state = match run.state() {
        RunState::Succeeded { round, step } => format!("succeeded by step {round}.{}", step.get()),
        RunState::Failed { reason } => format!("failed: {}", reason.code()),
        other => other.as_str().to_owned(),
    };
    let tasks = run.tasks().map(|(task, found)| (task.to_string(), Value::from(describe(run, task, found))));
    json!({
        "state": state,
        "answer": run.answer(),
        "cost": run.cost().nano_usd(),
        "wasted": run.wasted_cost().nano_usd(),
        "saved": run.saved().cost.nano_usd(),
        "prompt_tokens": run.usage().prompt_tokens,
        "fallbacks": run.fallbacks(),
        "spent": run.booked().spent.nano_usd(),
        "reserved": run.booked().reserved.nano_usd(),
        "abandoned": run.rounds().iter().filter(|round| round.abandoned.is_some()).count(),
        "corrects": run.rounds().iter().filter(|round| round.corrects.is_some()).count(),
        "tasks": tasks.collect::<serde_json::Map<_, _>>(),
    })
}

fn describe(run: &Run, task: TaskRef, found: &Task) -> String {
    let worker = run.worker_of(task).map_or("planner", |worker| worker.as_str());
    let attempts: Vec<_> = found.attempts.iter().map(describe_attempt).collect();
    format!("{} by {worker}: {}", found.state.as_str(), attempts.join(", "))
}

fn describe_attempt(attempt: &Attempt) -> String {
    let worker = attempt.worker.as_ref().map_or("planner", |worker| worker.as_str());
    let ended = match &attempt.outcome {
        AttemptOutcome::Running => "running",
        AttemptOutcome::Accepted => "accepted",
        AttemptOutcome::Failed(_) => "failed",
        AttemptOutcome::HandedBack => "handed back",
        AttemptOutcome::Lost => "lost",
        AttemptOutcome::Unused => "unused",
    };
    format!("{worker} {ended} for {}", attempt.cost.nano_usd())
}

#[test]
fn an_unknown_format_is_refused_with_its_number() {
    let row = StoredEvent { sequence: 3, at_ms: 7, format: 2, data: r#"{"kind":"cancelled"}"# };
    let StoreError::Inconsistent { source, .. } = row.read(RUN).unwrap_err() else {
        unreachable!("an unknown format is not an outage")
    };
    assert_eq!(source.to_string(), "event 3 is in format 2, this version reads format 1");
}
