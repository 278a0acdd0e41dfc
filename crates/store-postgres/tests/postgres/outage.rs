//! A server that crashes, and one that is unreachable.

use std::time::Duration;

use podium_harness::{Fsync, Postgres, Wire};
use podium_ports::store::{Appended, RunLog, RunStore, StoreError, Unwritten};
use podium_store_postgres::{Options, Store};
use podium_testkit::{Driven, SeededIds};
use tokio::time::{Instant, interval};

use crate::PLAN;

#[tokio::test]
async fn acknowledged_commits_survive_a_crash_and_the_store_continues() {
    let mut postgres = Postgres::start().await.unwrap();
    let address = postgres.database().await.unwrap();
    let store = Store::open(&address, Options::default()).await.unwrap();
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    let create = run.commit();
    store.append(std::slice::from_ref(&create)).await.unwrap();
    run.claim(PLAN, &ids);
    let claim = run.commit();
    store.append(std::slice::from_ref(&claim)).await.unwrap();

    postgres.restart().await.unwrap();
    // Connections from before the crash fail, once each.
    let mut asking = interval(Duration::from_millis(5));
    while let Err(error) = store.ping().await {
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        asking.tick().await;
    }
    assert_eq!(store.load(&[run.id()]).await.unwrap(), [Some(run.run.clone())]);
    // A caller that lost the answer in the crash repeats the call.
    assert_eq!(store.append(&[create]).await.unwrap(), [Ok(Appended::Already)]);
    assert_eq!(store.append(&[claim]).await.unwrap(), [Err(Unwritten::Conflict)]);
    assert_eq!(store.load(&[run.id()]).await.unwrap(), [Some(run.run)]);
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_within_the_connect_timeout() {
    let postgres = Postgres::start_with(podium_harness::Fsync::Off).await.unwrap();
    let options = Options { acquire_max: Duration::from_millis(200), ..Options::default() };
    let store = Store::open(&postgres.database().await.unwrap(), options).await.unwrap();
    store.ping().await.unwrap();
    drop(postgres);
    for _ in 0..3 {
        let error = store.ping().await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_network_that_drops_everything_is_an_error_in_time() {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let database = postgres.database().await.unwrap();
    let wire = Wire::start(postgres.address()).await.unwrap();
    let address = database.replace(&postgres.address().to_string(), &wire.address().to_string());
    let (statement_max, acquire_max) = (Duration::from_secs(1), Duration::from_secs(1));
    let options = Options { statement_max, acquire_max, ..Options::default() };
    let store = Store::open(&address, options).await.unwrap();
    store.ping().await.unwrap();
    wire.hold();
    // First on the existing connection, then on a new one.
    for _ in 0..2 {
        let asked = Instant::now();
        store.ping().await.unwrap_err();
        assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    }
    wire.release();
    store.ping().await.unwrap();
}
