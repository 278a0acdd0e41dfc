//! Runs that Postgres does not write do not delay other runs of the same batches.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use podium_domain::ids::RunId;
use podium_domain::run::RunState;
use podium_engine::Options;
use podium_harness::{Fsync, Postgres};
use podium_store_postgres::{Options as StoreOptions, Store};
use podium_testkit::{Answer, plan_of};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::house::{House, quick, within};

/// More than are tried alone concurrently.
const RUNS: usize = 24;

/// The reason why Postgres does not write a run.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// An operator has locked its row.
    Locked,
    /// The database rejects its events.
    Refused,
    /// Writing its events takes longer than the statement timeout.
    Slow,
}

impl Fault {
    async fn begin(self, raw: &mut PgConnection, run: RunId) {
        let statement = match self {
            Self::Locked => {
                let lock = format!("BEGIN; SELECT FROM run_states WHERE run_id = '{run}' FOR UPDATE");
                sqlx::raw_sql(AssertSqlSafe(lock)).execute(raw).await.unwrap();
                return;
            }
            Self::Refused => "RAISE EXCEPTION 'injected by the test'",
            Self::Slow => "PERFORM pg_sleep(60)",
        };
        let trigger = format!(
            "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {statement}; RETURN NEW; END $$;
             CREATE TRIGGER meddle BEFORE INSERT ON run_events FOR EACH ROW WHEN (NEW.run_id = '{run}')
             EXECUTE FUNCTION meddle()"
        );
        sqlx::raw_sql(AssertSqlSafe(trigger)).execute(raw).await.unwrap();
    }

    async fn end(self, raw: &mut PgConnection) {
        let statement = match self {
            Self::Locked => "ROLLBACK",
            Self::Refused | Self::Slow => "DROP TRIGGER meddle ON run_events; DROP FUNCTION meddle",
        };
        sqlx::raw_sql(statement).execute(raw).await.unwrap();
    }
}

async fn an_unwritable_run_delays_no_other(fault: Fault) {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let second = Duration::from_secs(1);
    let options = StoreOptions { lock_max: second, statement_max: second, ..StoreOptions::default() };
    let store = Store::open(&address, options).await.unwrap();
    let options = Options { batches_max: 2, lease: Duration::from_secs(10), ..quick() };
    let house = House::idle(options, |_| Arc::new(store)).await;
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.vendor.otherwise(Answer::text("fine"));
    let ids = join_all((0..=RUNS).map(|_| house.ask())).await;
    let [bad, others @ ..] = ids.as_slice() else { unreachable!() };

    let mut raw = PgConnection::connect(&address).await.unwrap();
    fault.begin(&mut raw, *bad).await;
    let cancel = |run: &RunId| house.engine.cancel(*run);
    let of_bad = async {
        // The error is returned each time.
        for _ in 0..3 {
            within(cancel(bad)).await.unwrap_err();
        }
    };
    let of_others = async {
        for run in within(join_all(others.iter().map(cancel))).await {
            assert!(matches!(run.unwrap().state(), RunState::Cancelled));
        }
    };
    tokio::join!(of_bad, of_others);
    // Later runs are not delayed either.
    let house = house.at_work();
    let cancel = |run: &RunId| house.engine.cancel(*run);
    let later = join_all((0..8).map(|_| house.ask())).await;
    let insist = async {
        loop {
            cancel(bad).await.unwrap_err();
        }
    };
    let ended = within(join_all(later.into_iter().map(|run| house.ended(run))));
    let ended = tokio::select! {
        ended = ended => ended,
        () = insist => unreachable!(),
    };
    assert!(ended.iter().all(|run| run.answer() == Some("fine")), "{fault:?}");

    fault.end(&mut raw).await;
    assert!(within(house.ended(*bad)).await.is_ended());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_a_locked_row_delays_no_other() {
    an_unwritable_run_delays_no_other(Fault::Locked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_refused_events_delays_no_other() {
    an_unwritable_run_delays_no_other(Fault::Refused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_slow_to_write_delays_no_other() {
    an_unwritable_run_delays_no_other(Fault::Slow).await;
}
