//! Opening a database, and the errors if that fails.

use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

use podium_harness::{Fsync, Postgres};
use podium_ports::store::RunStore;
use podium_store_postgres::{OpenError, Options, Store};

/// The password, which no message may contain.
const PASSWORD: &str = "correct-horse";

async fn open(address: &str) -> Result<Store, OpenError> {
    let options = Options { acquire_max: Duration::from_millis(300), ..Options::default() };
    Store::open(address, options).await
}

/// Everything that can be printed of an error.
fn everything(error: &OpenError) -> String {
    let mut text = format!("{error:?}");
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        write!(text, " {error} {error:?}").unwrap();
        cause = error.source();
    }
    text
}

#[tokio::test]
async fn several_processes_can_open_a_new_database_at_once() {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let open = || Store::open(&address, Options::default());
    let (a, b, c) = tokio::join!(open(), open(), open());
    for store in [a, b, c, open().await] {
        let store = store.unwrap();
        store.ping().await.unwrap();
        store.close().await;
    }
}

#[tokio::test]
async fn no_error_contains_a_password() {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let with_password = address.replace("postgres@", &format!("postgres:{PASSWORD}@"));
    let store = Store::open(&with_password, Options::default()).await.unwrap();
    assert!(!format!("{store:?}").contains(PASSWORD));

    let no_database = with_password.replace("/podium_1", "/nowhere");
    let bad_port = format!("postgres://podium:{PASSWORD}@127.0.0.1:port/podium");
    let closed = format!("postgres://podium:{PASSWORD}@127.0.0.1:1/podium");
    let bad_setting = format!("{with_password}?sslmode=perhaps");
    for (address, expected) in [
        (&no_database, "127.0.0.1"),
        (&bad_port, "must look like"),
        (&closed, "database `127.0.0.1:1/podium` cannot be reached"),
        (&bad_setting, "must look like"),
    ] {
        let error = open(address).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!everything(&error).contains(PASSWORD), "{address}");
    }
}
