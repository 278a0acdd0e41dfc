//! Checks `SQLite`'s query plan of each statement: it uses an index and never scans a table.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{StatementStatus, params_from_iter};

use crate::{
    Options, Store, accounts, charged, leases, objects, operations, ratings, read, remove, sweep, write,
};

/// Tables that no statement may scan.
const TABLES: [&str; 8] =
    ["runs", "run_events", "tasks", "ratings", "keys", "budgets", "budget_sums", "objects"];

/// Statements of operators that read all open work, or all sums. They are not part of serving clients.
const WHOLE: [&str; 4] = ["list_lane_loads", "list_open_runs", "list_reservations", "list_stuck_tasks"];

/// All statements by name: each begins with a comment that has its name.
fn statements() -> BTreeMap<&'static str, &'static str> {
    let statements = [
        accounts::ADD_KEY,
        accounts::FIND_KEY,
        accounts::LIST_BUDGETS,
        accounts::LIST_KEYS,
        accounts::READ_SUM,
        accounts::REMOVE_BUDGET,
        accounts::REVOKE_KEY,
        accounts::SET_BUDGET,
        charged::BOOK,
        charged::CORRECT_SUM,
        charged::READ_ROOM,
        leases::DISOWN,
        leases::EXTEND_LEASE,
        leases::FIND_CLAIM,
        leases::READ_LEASE,
        leases::REMOVE_LEASES,
        objects::ADD_OBJECT,
        objects::CHANGE_OBJECT,
        objects::FIND_OBJECT,
        objects::FIND_OLD_OBJECT,
        objects::READ_SECRET,
        objects::REMOVE_OBJECT,
        objects::REMOVE_OLD_OBJECTS,
        operations::LIST_ACTIONS,
        operations::LIST_LANE_LOADS,
        operations::LIST_OPEN_RUNS,
        operations::LIST_RESERVATIONS,
        operations::LIST_STUCK_TASKS,
        operations::RECORD_ACTION,
        ratings::LIST_RATED,
        ratings::RATE_RUN,
        read::FIND_UNSETTLED,
        read::LIST_RUNS,
        read::LOAD_RUN,
        read::READ_EVENTS,
        remove::FIND_ENDED,
        remove::FIND_OLD_SUM,
        remove::REMOVE_EVENTS,
        remove::REMOVE_RATINGS,
        remove::REMOVE_RUNS,
        remove::REMOVE_SUMS,
        remove::REMOVE_TASKS,
        sweep::COUNT_OUTSTANDING,
        sweep::FIND_BACKLOGS,
        sweep::FIND_EXPIRED,
        sweep::FIND_OVERDUE,
        sweep::PUT_BACK,
        sweep::READ_BACKLOG,
        sweep::TELL_READY,
        sweep::TELL_TASK,
        write::FIND_RUN,
        write::INSERT_EVENT,
        write::INSERT_RUN,
        write::READ_VERSION,
        write::UPDATE_RUN,
        write::UPSERT_TASK,
    ];
    let name = |sql: &'static str| sql.lines().next().unwrap().trim_start_matches("-- ");
    statements.into_iter().map(|sql| (name(sql), sql)).collect()
}

#[test]
fn every_statement_of_the_code_is_checked() {
    let mut written = Vec::new();
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let named = text.split("= \"-- ").skip(1).filter_map(|rest| rest.lines().next());
        written.extend(named.map(str::to_owned));
    }
    written.sort();
    assert_eq!(written, statements().into_keys().collect::<Vec<_>>());
}

#[tokio::test]
async fn no_statement_scans_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("podium.db"), Options::default()).await.unwrap();
    for (name, sql) in statements() {
        let explain = format!("EXPLAIN QUERY PLAN {sql}");
        let steps = store.read(move |connection| {
            let mut statement = connection.prepare(&explain).unwrap();
            let unbound = vec![None::<i64>; statement.parameter_count()];
            let steps = statement.query_map(params_from_iter(unbound), |row| row.get("detail")).unwrap();
            Ok(steps.collect::<Result<_, _>>().unwrap())
        });
        let steps: Vec<String> = steps.await.unwrap();
        for step in &steps {
            let scanned = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
            if WHOLE.contains(&name) {
                continue;
            }
            assert!(!scanned.is_some_and(|table| TABLES.contains(&table)), "{name}: {steps:?}");
        }
    }
}

#[tokio::test]
async fn no_statement_is_prepared_again_for_other_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("podium.db"), Options::default()).await.unwrap();
    let mut prepared_again = Vec::new();
    for (name, sql) in statements() {
        let times = store.write(move |connection| {
            let mut statement = connection.prepare(sql).unwrap();
            for number in [1, 2, 3] {
                let numbers = vec![number; statement.parameter_count()];
                // The numbers may be refused; they were bound nevertheless.
                let mut rows = statement.query(params_from_iter(numbers)).unwrap();
                drop(rows.next());
            }
            Ok(statement.get_status(StatementStatus::RePrepare))
        });
        if times.await.unwrap() > 0 {
            prepared_again.push(name);
        }
    }
    assert_eq!(prepared_again, [""; 0]);
}
