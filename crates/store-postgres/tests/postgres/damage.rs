//! A damaged database gives an error that names the run, and does not affect other runs.

use std::error::Error;
use std::sync::Arc;

use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_harness::{Fsync, Postgres};
use podium_ports::store::{Appended, RunLog, StoreError, TaskBoard, ToLoad};
use podium_store_format::Damage;
use podium_store_postgres::{Options, Store};
use podium_testkit::{Driven, SeededIds, a_plan};
use sqlx::{Connection, PgConnection};

use crate::PLAN;

struct Scene {
    store: Store,
    raw: PgConnection,
    /// The run that will be damaged, with event 1, event 2, and events 3 to 5 in one row.
    run: Driven,
    /// The same run after event 2.
    earlier: Run,
    other: Driven,
}

impl Scene {
    async fn new(postgres: &Postgres) -> Self {
        let address = postgres.database().await.unwrap();
        let store = Store::open(&address, Options::default()).await.unwrap();
        let raw = PgConnection::connect(&address).await.unwrap();
        let ids = SeededIds::new(1);
        let [mut run, mut other] = [(); 2].map(|()| Driven::accepted(&ids));
        store.append(&[run.commit(), other.commit()]).await.unwrap();
        let claim = run.claim(PLAN, &ids);
        assert_eq!(store.append(&[run.commit()]).await.unwrap(), [Ok(Appended::New)]);
        let earlier = run.run.clone();
        run.planned(a_plan(), claim);
        assert_eq!(store.append(&[run.commit()]).await.unwrap(), [Ok(Appended::New)]);
        Self { store, raw, run, earlier, other }
    }

    async fn damage(&mut self, sql: &'static str) {
        let damaged = sqlx::query(sql).bind(self.run.id().as_uuid()).execute(&mut self.raw).await.unwrap();
        assert!(damaged.rows_affected() > 0, "{sql} damages nothing");
    }
}

/// The run in the error, and the error's message.
fn named<T: std::fmt::Debug>(result: Result<T, StoreError>) -> (RunId, String) {
    match result.unwrap_err() {
        StoreError::Inconsistent { run, source } => (run, source.to_string()),
        other => panic!("{other:?} names no run"),
    }
}

#[tokio::test]
async fn a_damaged_log_is_named_and_leaves_other_runs_alone() {
    let cases = [
        (
            "UPDATE run_events SET data = replace(data, '\"claimed\"', '\"nap\"')
             WHERE run_id = $1 AND last_sequence = 2",
            "event 2 cannot be decoded",
        ),
        (
            "UPDATE run_events SET data = 'no' WHERE run_id = $1 AND last_sequence = 5",
            "event 3 cannot be decoded",
        ),
        (
            "UPDATE run_events SET data = replace(data, '\"step_ready\"', '\"nap\"')
             WHERE run_id = $1 AND last_sequence = 5",
            "event 4 cannot be decoded",
        ),
        (
            "UPDATE run_events SET data = left(data, -1) WHERE run_id = $1 AND last_sequence = 5",
            "event 5 cannot be decoded",
        ),
        (
            "UPDATE run_events SET data = (data::json -> 0)::text WHERE run_id = $1 AND last_sequence = 2",
            "event 2 cannot be decoded",
        ),
        (
            "UPDATE run_events SET data = '[' || (data::json -> 0) || ',' || (data::json -> 2) || ']'
             WHERE run_id = $1 AND last_sequence = 5",
            "event 4 is missing or out of order",
        ),
        (
            "UPDATE run_events SET data = '[' || (data::json -> 0) || ',' || (data::json -> 1) || ']'
             WHERE run_id = $1 AND last_sequence = 5",
            "event 5 is missing or out of order",
        ),
        (
            "UPDATE run_events SET last_sequence = 4 WHERE run_id = $1 AND last_sequence = 5",
            "event 5 is missing or out of order",
        ),
        (
            "UPDATE run_events SET format = 2 WHERE run_id = $1 AND last_sequence = 5",
            "event 3 is in format 2",
        ),
        (
            "DELETE FROM run_events WHERE run_id = $1 AND last_sequence = 5",
            "the run has version 5, its last event is 2",
        ),
        ("DELETE FROM run_events WHERE run_id = $1 AND last_sequence = 2", "the last one was 1"),
        ("DELETE FROM run_events WHERE run_id = $1", "a run begins with `accepted`"),
    ];
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    for (sql, expected) in cases {
        let mut scene = Scene::new(&postgres).await;
        scene.damage(sql).await;
        let (run, why) = named(scene.store.load(&[scene.other.id(), scene.run.id()]).await);
        assert_eq!(run, scene.run.id());
        assert!(why.contains(expected), "{sql}: {why}");
        let others = scene.store.load(&[scene.other.id()]).await.unwrap();
        assert_eq!(others, [Some(scene.other.run)]);
    }
}

/// Events are large, and each conflict loads a run.
#[tokio::test]
async fn the_events_before_a_known_version_are_not_read() {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let mut scene = Scene::new(&postgres).await;
    scene.damage("UPDATE run_events SET data = 'no' WHERE run_id = $1 AND last_sequence = 1").await;
    let id = scene.run.id();
    named(scene.store.load(&[id]).await);
    let known = [ToLoad { id, known: Some(Arc::new(scene.earlier)) }];
    assert_eq!(scene.store.load_newer(&known).await.unwrap(), [Some(scene.run.run)]);
}

#[tokio::test]
async fn a_damaged_row_is_named() {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let mut scene = Scene::new(&postgres).await;
    scene.damage("UPDATE tasks SET task = 'nap.1' WHERE run_id = $1 AND task = 'step.0.0'").await;
    let end = scene.run.run.spec().deadline_at;
    let (run, why) = named(scene.store.due(end, end, 10, &[]).await);
    assert_eq!((run, why.as_str()), (scene.run.id(), "column `tasks.task` has the invalid value `nap.1`"));
}

#[tokio::test]
async fn a_commit_with_a_gap_is_refused_with_its_whole_batch() {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let mut scene = Scene::new(&postgres).await;
    let ids = SeededIds::new(2);
    let unchanged = [scene.run.run.clone(), scene.other.run.clone()].map(Some);
    scene.other.claim(PLAN, &ids);
    scene.run.step(0, "done", &ids);
    let good = scene.other.commit();
    let mut gap = scene.run.commit();
    gap.events.pop();
    let mut empty = good.clone();
    empty.events.clear();
    for bad in [gap, empty] {
        let refused = scene.store.append(&[good.clone(), bad.clone()]).await.unwrap_err();
        let damage = refused.source().and_then(|source| source.downcast_ref());
        assert!(matches!(damage, Some(Damage::Gap { .. })), "{refused:?}");
        named(scene.store.append(&[bad]).await);
    }
    assert_eq!(scene.store.load(&[scene.run.id(), scene.other.id()]).await.unwrap(), unchanged);
}
