//! `written_by_sqlx.db` was written by the last version whose store used sqlx, before migration 6. It has an ended and an active run,
//! a key, a budget, a rating, an object and a lease. Do not write it again: it stands for the files that users have.

use std::fs;
use std::path::Path;
use std::time::Duration;

use podium_domain::ids::RequestId;
use podium_domain::money::Cost;
use podium_domain::run::RunSpec;
use podium_ports::accounts::{Accounts, KeyHash};
use podium_ports::clock::Ids as _;
use podium_ports::objects::Objects;
use podium_ports::store::{Appended, RunCatalog, RunFilter, RunLog, TaskBoard};
use podium_store_sqlite::{Options, Store};
use podium_testkit::{Driven, SeededIds, TestClock, a_spec, a_tenant};
use rusqlite::Connection;

#[tokio::test]
async fn a_file_written_through_sqlx_is_migrated_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("podium.db");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/written_by_sqlx.db");
    fs::copy(fixture, &path).unwrap();
    let store = Store::open(&path, Options::default()).await.unwrap();

    let listed = store.list(&a_tenant(), &RunFilter::default(), None, 10).await.unwrap();
    let [active, ended] = [&listed[0], &listed[1]];
    let runs = store.load(&[active.id, ended.id]).await.unwrap();
    let [active_run, ended_run] = [0, 1].map(|at| runs[at].clone().unwrap());
    assert!(ended_run.answer().is_some_and(|answer| answer.starts_with("twenty words")), "{ended_run:?}");
    assert_eq!(ended.sums.cost, Cost::from_nano_usd(120_000));
    assert_eq!(store.find_key(&KeyHash([7; 32])).await.unwrap().unwrap().tenant, a_tenant());
    let budgets = store.budgets(&a_tenant()).await.unwrap();
    assert_eq!(budgets[0].cap, Some(Cost::from_nano_usd(1_000_000_000)));
    let charged = store.charges(&ended_run.spec().budgets).await.unwrap();
    assert_eq!(charged[0].spent, Cost::from_nano_usd(120_000));
    let rated = store.rated(&a_tenant(), None, active.id, 10).await.unwrap();
    assert_eq!(rated[0].rating.comment(), Some("fine"));
    assert_eq!(store.find_object(&a_tenant(), "conv_1").await.unwrap().unwrap().body, "{\"a\":1}");

    // The active run is found by its request id, its claim ends with the lease of its process, and it goes on.
    let spec = RunSpec { request_id: Some(RequestId::new("one").unwrap()), ..a_spec() };
    let again = Driven::accept(SeededIds::new(9).run_id(spec.accepted_at), spec).commit();
    assert_eq!(store.append(&[again]).await.unwrap(), [Ok(Appended::Existing(active.id))]);
    let late = TestClock::START.after(Duration::from_secs(5));
    let due = store.due(late, late, 10, &[]).await.unwrap();
    assert_eq!(due.expired.iter().map(|claim| claim.run).collect::<Vec<_>>(), [active.id]);
    let mut driven = Driven::resume(active_run, late);
    driven.step_under(0, "done", due.expired[0].claim);
    assert_eq!(store.append(&[driven.commit()]).await.unwrap(), [Ok(Appended::New)]);
    assert_eq!(store.load(&[active.id]).await.unwrap(), [Some(driven.run)]);
    store.close().await;

    // sqlx would find each migration applied as if it had done so itself.
    let raw = Connection::open(&path).unwrap();
    let applied = "SELECT version, success, length(checksum) FROM _sqlx_migrations ORDER BY version";
    let mut applied = raw.prepare(applied).unwrap();
    let applied = applied.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let applied: Vec<(i64, bool, i64)> = applied.collect::<Result<_, _>>().unwrap();
    assert_eq!(applied[..6], (1..=6).map(|version| (version, true, 48)).collect::<Vec<_>>()[..]);
}
