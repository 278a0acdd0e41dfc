//! Events that are stored stay readable: the fixture holds each kind in the form that format 1 has had since its beginning.
//! Add lines to it; never change one. A form that cannot be kept needs a new format and a fixture of its own.

use podium_domain::run::RunEvent;
use podium_harness::{Fsync, Postgres};
use podium_ports::store::RunStore;
use podium_store_postgres::{Options, Store};
use podium_testkit::{Driven, SeededIds};
use sqlx::{Connection, PgConnection};

const FIXTURE: &str = include_str!("fixtures/events-v1.json");
const KINDS: usize = 14;

/// A number for each kind. A new kind does not compile until it stands here, and in the fixture.
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
    }
}

#[tokio::test]
async fn every_kind_of_event_in_format_1_reads_from_the_store() {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let store = Store::open(&address, Options::default()).await.unwrap();
    let mut run = Driven::accepted(&SeededIds::new(1));
    store.create(&[run.commit()]).await.unwrap();

    let stored: Vec<serde_json::Value> = serde_json::from_str(FIXTURE).unwrap();
    let mut raw = PgConnection::connect(&address).await.unwrap();
    for (sequence, data) in (2i64..).zip(&stored) {
        sqlx::query(
            "INSERT INTO run_events (run_id, sequence, at_ms, kind, format, data) VALUES ($1, $2, 7, '', 1, $3)",
        )
        .bind(run.id().as_uuid())
        .bind(sequence)
        .bind(data.to_string())
        .execute(&mut raw)
        .await
        .unwrap();
    }
    let read = store.events(run.id(), 1, u32::MAX).await.unwrap();
    assert_eq!(read.len(), stored.len());
    for (event, data) in read.iter().zip(&stored) {
        assert_eq!(data["kind"], event.event.name());
        // Nothing of it was lost or taken for something else: it is written today as it was then.
        assert_eq!(serde_json::to_value(&event.event).unwrap(), *data);
    }
    let mut kinds: Vec<_> = read.iter().map(|event| kind(&event.event)).collect();
    kinds.dedup();
    assert_eq!(kinds, (0..KINDS).collect::<Vec<_>>());
}
