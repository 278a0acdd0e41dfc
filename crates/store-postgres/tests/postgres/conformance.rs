//! Runs the conformance suite of run stores.

use std::sync::Arc;

use podium_harness::{Fsync, Postgres};
use podium_store_postgres::{Options, Store};
use podium_testkit::accounts::AccountsFixture;
use podium_testkit::objects::ObjectsFixture;
use podium_testkit::operations::OperationsFixture;
use podium_testkit::run_store::StoreFixture;

async fn fixture() -> StoreFixture {
    // No requirement is about a machine that loses power.
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let options = Options::default();
    StoreFixture {
        first: Arc::new(Store::open(&address, options).await.unwrap()),
        second: Arc::new(Store::open(&address, options).await.unwrap()),
        dispatch_grace: options.dispatch_grace,
        keep: Box::new(postgres),
    }
}

podium_testkit::run_store_suite! { #[tokio::test] fixture() }

async fn accounts_fixture() -> AccountsFixture {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let store = Store::open(&address, Options::default()).await.unwrap();
    AccountsFixture {
        runs: Arc::new(store.clone()),
        other_runs: Arc::new(Store::open(&address, Options::default()).await.unwrap()),
        accounts: Arc::new(store),
        keep: Box::new(postgres),
    }
}

mod accounts {
    use super::accounts_fixture;

    podium_testkit::accounts_suite! { #[tokio::test] accounts_fixture() }
}

async fn objects_fixture() -> ObjectsFixture {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let store = Store::open(&address, Options::default()).await.unwrap();
    ObjectsFixture {
        first: Arc::new(store.clone()),
        second: Arc::new(Store::open(&address, Options::default()).await.unwrap()),
        runs: Arc::new(store),
        keep: Box::new(postgres),
    }
}

mod objects {
    use super::objects_fixture;

    podium_testkit::objects_suite! { #[tokio::test] objects_fixture() }
}

async fn operations_fixture() -> OperationsFixture {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let store = Store::open(&address, Options::default()).await.unwrap();
    OperationsFixture {
        runs: Arc::new(store.clone()),
        accounts: Arc::new(store.clone()),
        operations: Arc::new(store),
        keep: Box::new(postgres),
    }
}

mod operations {
    use super::operations_fixture;

    podium_testkit::operations_suite! { #[tokio::test] operations_fixture() }
}

mod ratings {
    use super::fixture;

    podium_testkit::ratings_suite! { #[tokio::test] fixture() }
}
