//! Databases of older and newer versions, and roles without the right to create tables.

use podium_harness::{Fsync, Postgres};
use podium_ports::store::{Lack, RunCatalog as _, RunFilter, RunLog as _, RunStore as _};
use podium_store_postgres::{Migrate, OpenError, Options, Store};
use podium_testkit::{Driven, SeededIds, a_tenant, plan_of};
use sqlx::{Connection as _, PgConnection};

/// The tables of the first version, as sqlx leaves them.
const FIRST_VERSION: &str = include_str!("../../../../migrations/postgres/0001_create_runs.sql");
const FIRST_MIGRATIONS: &str = "
    CREATE TABLE _sqlx_migrations (
        version BIGINT PRIMARY KEY, description TEXT NOT NULL, installed_on TIMESTAMPTZ NOT NULL DEFAULT now(),
        success BOOLEAN NOT NULL, checksum BYTEA NOT NULL, execution_time BIGINT NOT NULL
    );";
const NEWER: &str = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                     VALUES (9999, 'newer', TRUE, '', 0)";

fn never() -> Options {
    Options { migrate: Migrate::Never, ..Options::default() }
}

/// An empty database, its address, and a connection to it.
async fn a_database() -> (Postgres, String, PgConnection) {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let raw = PgConnection::connect(&address).await.unwrap();
    (postgres, address, raw)
}

/// A database as the first version leaves it.
async fn a_database_of_the_first_version() -> (Postgres, String, PgConnection) {
    let (postgres, address, mut raw) = a_database().await;
    sqlx::raw_sql(FIRST_VERSION).execute(&mut raw).await.unwrap();
    sqlx::raw_sql(FIRST_MIGRATIONS).execute(&mut raw).await.unwrap();
    let note = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                VALUES (1, 'create runs', TRUE, sha384(convert_to($1, 'UTF8')), 0)";
    sqlx::query(note).bind(FIRST_VERSION).execute(&mut raw).await.unwrap();
    (postgres, address, raw)
}

async fn is_usable(store: &Store) {
    let mut run = Driven::accepted(&SeededIds::new(1));
    store.append(&[run.commit()]).await.unwrap();
    assert_eq!(store.load(&[run.id()]).await.unwrap(), [Some(run.run)]);
}

#[tokio::test]
async fn a_database_of_the_first_version_is_migrated_when_it_opens() {
    let (_postgres, address, mut raw) = a_database_of_the_first_version().await;
    let pending = Store::pending_migrations(&address, Options::default()).await.unwrap();
    assert!(pending.0.contains(&2) && !pending.0.contains(&1), "{pending}");
    is_usable(&Store::open(&address, Options::default()).await.unwrap()).await;
    assert_eq!(Store::pending_migrations(&address, Options::default()).await.unwrap().0, [0; 0]);
    // Columns that the statements of the first version omit have defaults.
    let old =
        "INSERT INTO run_states (run_id, version, state, deadline_ms, steps, cost_nano_usd, wasted_nano_usd,
                                       saved_nano_usd, fallbacks, hedges)
               VALUES ('00000000-0000-0000-0000-000000000001', 1, 'active', 0, 0, 0, 0, 0, 0, 0)";
    sqlx::query(old).execute(&mut raw).await.unwrap();
}

/// A process of the previous version next to this one: its statements neither name the columns of later migrations nor change them.
#[tokio::test]
async fn a_list_knows_nothing_of_an_answer_of_the_previous_version() {
    let (_postgres, address, mut raw) = a_database().await;
    let store = Store::open(&address, Options::default()).await.unwrap();
    let (ids, mut run) = (SeededIds::new(1), Driven::accepted(&SeededIds::new(1)));
    store.append(&[run.commit()]).await.unwrap();
    let end = "UPDATE run_states SET version = version + 1, state = 'succeeded', ended_ms = 1";
    sqlx::query(end).execute(&mut raw).await.unwrap();
    let listed = async || store.list(&a_tenant(), &RunFilter::default(), None, 1).await.unwrap().remove(0);
    let ended = listed().await;
    assert_eq!((ended.state.as_str(), ended.sums.lack), ("succeeded", None));
    // A later commit of this version fills them in, as it does for a result that comes late.
    sqlx::query("UPDATE run_states SET version = version - 1").execute(&mut raw).await.unwrap();
    run.plan(plan_of(&[("quick", "answer", &[])]), &ids);
    run.step(0, "fine", &ids);
    store.append(&[run.commit()]).await.unwrap().remove(0).unwrap();
    assert_eq!(listed().await.sums.lack, Some(Lack::default()));
}

#[tokio::test]
async fn a_process_that_may_not_migrate_reports_what_to_do() {
    let (_postgres, address, _) = a_database_of_the_first_version().await;
    let refused = Store::open(&address, never()).await.unwrap_err();
    assert!(matches!(refused, OpenError::Behind { .. }), "{refused:?}");
    let words = refused.to_string();
    assert!(words.contains("lacks migration") && words.contains("podium migrate"), "{words}");
    let applied = Store::migrate(&address, never()).await.unwrap();
    assert!(applied.0.contains(&2), "{applied}");
    assert_eq!(Store::migrate(&address, never()).await.unwrap().0, [0; 0]);
    is_usable(&Store::open(&address, never()).await.unwrap()).await;
}

#[tokio::test]
async fn a_role_without_ddl_rights_opens_a_migrated_database() {
    let (_postgres, address, mut raw) = a_database().await;
    Store::migrate(&address, Options::default()).await.unwrap();
    let role = "REVOKE CREATE ON SCHEMA public FROM PUBLIC;
                CREATE ROLE worker LOGIN;
                GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker";
    sqlx::raw_sql(role).execute(&mut raw).await.unwrap();
    let as_worker = address.replace("postgres@", "worker@");
    assert_ne!(as_worker, address);
    for options in [never(), Options::default()] {
        Store::open(&as_worker, options).await.unwrap().ping().await.unwrap();
    }
    is_usable(&Store::open(&as_worker, never()).await.unwrap()).await;
    // The role cannot migrate; the error names the command.
    let last = "DELETE FROM _sqlx_migrations WHERE version = 2";
    sqlx::query(last).execute(&mut raw).await.unwrap();
    let refused = Store::open(&as_worker, Options::default()).await.unwrap_err();
    assert!(matches!(refused, OpenError::Migrate { .. }), "{refused:?}");
    assert!(refused.to_string().contains("podium migrate"), "{refused}");
    sqlx::raw_sql("REVOKE SELECT ON schema_floor FROM worker").execute(&mut raw).await.unwrap();
    let refused = Store::open(&as_worker, Options::default()).await.unwrap_err();
    assert!(refused.to_string().contains("SELECT on _sqlx_migrations"), "{refused}");
}

#[tokio::test]
async fn a_process_works_with_a_newer_database_down_to_its_floor() {
    let (_postgres, address, mut raw) = a_database().await;
    Store::migrate(&address, Options::default()).await.unwrap();
    sqlx::query(NEWER).execute(&mut raw).await.unwrap();
    // As an older process that is restarted, or to which the installation is rolled back.
    is_usable(&Store::open(&address, Options::default()).await.unwrap()).await;
    Store::open(&address, never()).await.unwrap();
    sqlx::query("UPDATE schema_floor SET version = 9999").execute(&mut raw).await.unwrap();
    let refused = Store::open(&address, Options::default()).await.unwrap_err();
    assert!(matches!(refused, OpenError::Unusable { .. }), "{refused:?}");
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("requires migration 9999"), "{why}");
}

#[tokio::test]
async fn a_migration_that_was_edited_is_named() {
    let (_postgres, address, mut raw) = a_database().await;
    Store::migrate(&address, Options::default()).await.unwrap();
    sqlx::query("UPDATE _sqlx_migrations SET checksum = '' WHERE version = 1")
        .execute(&mut raw)
        .await
        .unwrap();
    let refused = Store::open(&address, Options::default()).await.unwrap_err();
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("migration 1"), "{why}");
}

#[tokio::test]
async fn a_server_without_free_connections_is_named_as_such() {
    let (_postgres, address, mut raw) = a_database().await;
    let role = "CREATE ROLE worker LOGIN CONNECTION LIMIT 0";
    sqlx::raw_sql(role).execute(&mut raw).await.unwrap();
    let refused = Store::open(&address.replace("postgres@", "worker@"), never()).await.unwrap_err();
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("postgres_connections"), "{why}");
}
