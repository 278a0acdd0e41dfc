//! A damaged file gives an error that names the run, and does not affect other runs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

use std::error::Error;
use std::path::PathBuf;

use podium_domain::ids::RunId;
use podium_domain::run::TaskRef;
use podium_ports::store::{RunLog, StoreError, TaskBoard};
use podium_store_format::Damage;
use podium_store_sqlite::{Options, Store};
use podium_testkit::{Driven, SeededIds, a_plan};
use rusqlite::Connection;
use tempfile::TempDir;

struct Scene {
    _folder: TempDir,
    path: PathBuf,
    store: Store,
    /// The run that will be damaged, with events 1 to 5.
    run: Driven,
    other: Driven,
}

async fn a_scene() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("podium.db");
    let store = Store::open(&path, Options::default()).await.unwrap();
    let ids = SeededIds::new(1);
    let [mut run, mut other] = [(); 2].map(|()| Driven::accepted(&ids));
    run.plan(a_plan(), &ids);
    store.append(&[run.commit(), other.commit()]).await.unwrap();
    Scene { _folder: folder, path, store, run, other }
}

impl Scene {
    fn damage(&self, sql: &str) {
        let raw = Connection::open(&self.path).unwrap();
        raw.pragma_update(None, "foreign_keys", true).unwrap();
        let damaged = raw.execute(sql, [self.run.id().as_uuid().as_bytes()]).unwrap();
        assert!(damaged > 0, "{sql} damages nothing");
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
            "UPDATE run_events SET data = '{\"kind\":\"nap\"}' WHERE run_id = ? AND sequence = 2",
            "event 2 cannot be decoded",
        ),
        ("UPDATE run_events SET data = 'no' WHERE run_id = ? AND sequence = 3", "event 3 cannot be decoded"),
        ("UPDATE run_events SET format = 2 WHERE run_id = ? AND sequence = 4", "event 4 is in format 2"),
        (
            "DELETE FROM run_events WHERE run_id = ? AND sequence = 5",
            "the run has version 5, its last event is 4",
        ),
        ("DELETE FROM run_events WHERE run_id = ? AND sequence = 2", "the last one was 1"),
        ("DELETE FROM run_events WHERE run_id = ?", "a run begins with `accepted`"),
    ];
    for (sql, expected) in cases {
        let scene = a_scene().await;
        scene.damage(sql);
        let (run, why) = named(scene.store.load(&[scene.other.id(), scene.run.id()]).await);
        assert_eq!(run, scene.run.id());
        assert!(why.contains(expected), "{sql}: {why}");
        let others = scene.store.load(&[scene.other.id()]).await.unwrap();
        assert_eq!(others, [Some(scene.other.run)]);
    }
}

#[tokio::test]
async fn a_damaged_row_is_named() {
    let scene = a_scene().await;
    scene.damage("UPDATE tasks SET task = 'nap.1' WHERE run_id = ? AND task = 'step.0.0'");
    let end = scene.run.run.spec().deadline_at;
    let (run, why) = named(scene.store.due(end, end, 10, &[]).await);
    assert_eq!((run, why.as_str()), (scene.run.id(), "column `tasks.task` has the invalid value `nap.1`"));
}

#[tokio::test]
async fn a_commit_with_a_gap_is_refused_with_its_whole_batch() {
    let mut scene = a_scene().await;
    let ids = SeededIds::new(2);
    let unchanged = [scene.run.run.clone(), scene.other.run.clone()].map(Some);
    scene.other.claim(TaskRef::Plan { round: 0 }, &ids);
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
