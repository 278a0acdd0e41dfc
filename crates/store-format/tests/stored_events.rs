//! Stored events stay readable: the fixture has each kind of event in the form that format 1 has had from its beginning. Add lines
//! to the fixture; never change one. An incompatible form needs a new format with a fixture of its own.

use podium_domain::ids::RunId;
use podium_domain::run::RunEvent;
use podium_ports::store::StoreError;
use podium_store_format::{EventToStore, StoredEvent};
use uuid::Uuid;

const FIXTURE: &str = include_str!("fixtures/events-v1.json");
const KINDS: usize = 19;

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
    }
}

#[test]
fn every_kind_of_event_in_format_1_reads_and_is_written_as_it_was() {
    let run = RunId::new(Uuid::nil());
    let fixture: Vec<serde_json::Value> = serde_json::from_str(FIXTURE).unwrap();
    let mut kinds = Vec::new();
    for (sequence, data) in (2..).zip(&fixture) {
        let row = StoredEvent { sequence, at_ms: 7, format: 1, data: &data.to_string() };
        let event = row.read(run).unwrap();
        assert_eq!(data["kind"], event.event.name());
        let written = EventToStore::new(run, &event).unwrap();
        assert_eq!((written.sequence, written.at_ms, written.kind), (sequence, 7, event.event.name()));
        // Nothing was lost or misread: the event is still written in the same form.
        assert_eq!(serde_json::from_str::<serde_json::Value>(&written.data).unwrap(), *data);
        kinds.push(kind(&event.event));
    }
    kinds.dedup();
    assert_eq!(kinds, (0..KINDS).collect::<Vec<_>>());
}

#[test]
fn an_unknown_format_is_refused_with_its_number() {
    let row = StoredEvent { sequence: 3, at_ms: 7, format: 2, data: r#"{"kind":"cancelled"}"# };
    let StoreError::Inconsistent { source, .. } = row.read(RunId::new(Uuid::nil())).unwrap_err() else {
        unreachable!("an unknown format is not an outage")
    };
    assert_eq!(source.to_string(), "event 3 is in format 2, this version reads format 1");
}
