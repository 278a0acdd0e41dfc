//! Checks Postgres' query plan of each statement, on tables with many ended runs and a long backlog: no statement scans a table,
//! and each uses exactly the indexes that are named here.
//!
//! A statement is prepared and explained as the store's own connections would run it, with a plan for its arguments and with a
//! generic one. It is explained once more with the planner's own cost of sequential scans, so that the test does not merely show
//! the effect of `enable_seqscan = off`. A new file in `queries/` needs a line in [`STATEMENTS`].
//!
//! On purpose, no hot statement is index-only: these statements lock or change the rows that they find, and so visit them anyway.

use std::collections::BTreeSet;
use std::path::Path;

use podium_domain::ids::RequestId;
use podium_domain::run::{Command, RunSpec, TaskRef};
use podium_harness::{Fsync, Postgres};
use podium_ports::clock::Ids;
use podium_ports::store::{PublishBy, RunLog};
use podium_testkit::{Driven, SeededIds, a_spec, plan_of};
use serde_json::Value;
use sqlx::{Connection, Executor, PgConnection};

use crate::{Options, Store};

/// The number of ended runs.
const ENDED_RUNS: i64 = 100_000;
/// Tables that no statement may scan.
const TABLES: [&str; 9] =
    ["runs", "run_states", "run_events", "tasks", "ratings", "keys", "budgets", "budget_sums", "objects"];

/// A statement and its expected plan.
struct Statement {
    file: &'static str,
    /// Its arguments as SQL, in order.
    arguments: &'static [&'static str],
    /// The indexes that it must use: these and no others.
    indexes: &'static [&'static str],
    /// Indexes that it may scan, because they only have active rows.
    whole: &'static [&'static str],
}

/// The tenth of the ended runs; see [`fill`].
const RUN: &str = "copied_id(10, 10)";
const RUNS: &str = "ARRAY[copied_id(10, 10), copied_id(11, 11)]";
const TWO: &str = "ARRAY[7, 8]::bigint[]";
const TEXTS: &str = "ARRAY['plan.0', 'plan.0']";
const PAYERS: &str = "ARRAY['tenant:acme', 'key:key_1']";
const LANE: &str = "'ultra.plan'";
const LANES: &str = "ARRAY['ultra.plan', 'ultra.plan']";
const STATES: &str = "ARRAY['active', 'succeeded']";

/// Statements of operators and of metrics. They read all open work, or all sums, and the planner chooses among several indexes for that.
/// The store's sessions have sequential scans off, which is the only case to check.
const OPERATORS: [&str; 5] = [
    "list_actions.sql",
    "list_lane_loads.sql",
    "list_open_runs.sql",
    "list_reservations.sql",
    "list_stuck_tasks.sql",
];

const STATEMENTS: &[Statement] = &[
    Statement {
        file: "add_key.sql",
        arguments: &["'key_1'", "'acme'", "'\\x00'::bytea", "8::bigint", "1000::bigint"],
        indexes: &["keys_tenant"],
        whole: &[],
    },
    Statement {
        file: "add_object.sql",
        arguments: &["'acme'", "'conv_1'", "'{}'", "8::bigint"],
        indexes: &[],
        whole: &[],
    },
    Statement {
        file: "append_one.sql",
        arguments: &[
            RUN,
            "8::bigint",
            "8::bigint",
            "'active'",
            "8::bigint",
            "8::bigint",
            "8::bigint",
            "8::bigint",
            "8::bigint",
            "8::bigint",
            "false",
            "NULL",
            "NULL",
            "NULL",
            "8::bigint",
            "8::bigint",
            "'run_started'",
            "1::smallint",
            "'[]'",
            TEXTS,
            STATES,
            LANES,
            TEXTS,
            TWO,
            TWO,
            RUNS,
            RUNS,
            TWO,
            TEXTS,
            "8::bigint",
        ],
        indexes: &["run_states_pkey", "tasks_pkey"],
        whole: &[],
    },
    Statement {
        file: "change_object.sql",
        arguments: &["'acme'", "'conv_1'", "'{}'", "8::bigint", "1::bigint"],
        indexes: &["objects_pkey"],
        whole: &[],
    },
    Statement {
        file: "commit.sql",
        arguments: &[
            RUNS,
            TEXTS,
            TEXTS,
            TEXTS,
            TEXTS,
            TWO,
            TWO,
            RUNS,
            TWO,
            TWO,
            STATES,
            TWO,
            TWO,
            TWO,
            TWO,
            TWO,
            TWO,
            "ARRAY[true, false]",
            "ARRAY[NULL, 1]::bigint[]",
            "ARRAY[NULL, true]",
            "ARRAY[NULL, true]",
            "1::smallint",
            RUNS,
            TWO,
            TWO,
            TEXTS,
            TEXTS,
            RUNS,
            TEXTS,
            STATES,
            LANES,
            TEXTS,
            TWO,
            TWO,
            RUNS,
            RUNS,
            TWO,
            RUNS,
            TEXTS,
            RUNS,
            PAYERS,
            "ARRAY['day', NULL]",
            TWO,
            TWO,
            TWO,
            "ARRAY[true, false]",
            TWO,
        ],
        indexes: &["budget_sums_pkey", "budgets_pkey", "run_states_pkey", "tasks_pkey"],
        whole: &[],
    },
    Statement {
        file: "correct_sum.sql",
        arguments: &["'tenant:acme'", "8::bigint", "8::bigint", "-8::bigint"],
        indexes: &[],
        whole: &[],
    },
    Statement { file: "disown.sql", arguments: &[RUNS, TEXTS, RUNS], indexes: &["tasks_pkey"], whole: &[] },
    Statement {
        file: "extend_lease.sql",
        arguments: &["copied_id(9, 9)", "4000::bigint", "3600000::bigint"],
        // All leases are read once in the life of a process, at its start.
        indexes: &["process_leases_pkey"],
        whole: &["process_leases_pkey"],
    },
    Statement {
        file: "find_backlogs.sql",
        arguments: &[],
        // It stops at the first row.
        indexes: &["tasks_backlog"],
        whole: &["tasks_backlog"],
    },
    Statement {
        file: "find_created.sql",
        arguments: &[RUNS, TEXTS, TEXTS],
        indexes: &["runs_pkey", "runs_request"],
        whole: &[],
    },
    Statement {
        file: "find_expired.sql",
        arguments: &["8::bigint", "256::bigint", RUNS],
        indexes: &["process_leases_pkey", "tasks_process"],
        whole: &[],
    },
    Statement {
        file: "find_held.sql",
        arguments: &[RUNS, TEXTS, RUNS],
        indexes: &["tasks_pkey"],
        whole: &[],
    },
    Statement { file: "find_key.sql", arguments: &["'\\x00'::bytea"], indexes: &["keys_hash"], whole: &[] },
    Statement {
        file: "find_object.sql",
        arguments: &["'acme'", "'conv_1'"],
        indexes: &["objects_pkey"],
        whole: &[],
    },
    Statement {
        file: "find_overdue.sql",
        arguments: &["8::bigint", "256::bigint", RUNS],
        indexes: &["run_states_active", "run_states_suspended"],
        whole: &[],
    },
    Statement {
        file: "find_unsettled.sql",
        arguments: &[RUN, "8::bigint", "64::bigint"],
        indexes: &["run_states_unsettled"],
        whole: &[],
    },
    Statement {
        file: "hold_lanes.sql",
        arguments: &["ARRAY['ultra.plan', 'mini.plan']", "copied_id(9, 9)", "1500::bigint"],
        indexes: &["lane_dispatchers_pkey"],
        whole: &[],
    },
    Statement {
        file: "hold_sweep.sql",
        arguments: &["copied_id(9, 9)", "2000::bigint"],
        indexes: &["lane_dispatchers_pkey", "tasks_backlog"],
        // As in find_backlogs.
        whole: &["tasks_backlog"],
    },
    Statement {
        file: "list_actions.sql",
        arguments: &["100::bigint"],
        indexes: &["operator_actions_pkey"],
        whole: &["operator_actions_pkey"],
    },
    Statement {
        file: "list_budgets.sql",
        arguments: &["'acme'", "1001::bigint"],
        indexes: &["budgets_tenant"],
        whole: &[],
    },
    Statement {
        file: "list_keys.sql",
        arguments: &["'acme'", "1000::bigint"],
        indexes: &["keys_tenant"],
        whole: &[],
    },
    // Statements of operators read all open work.
    Statement {
        file: "list_lane_loads.sql",
        arguments: &[],
        indexes: &["tasks_backlog", "tasks_outstanding", "tasks_process", "tasks_told"],
        whole: &[],
    },
    Statement {
        file: "list_open_runs.sql",
        arguments: &["NULL", "'acme'", "8::bigint", RUN, "100::bigint"],
        indexes: &["run_states_active", "run_states_suspended", "runs_pkey", "runs_tenant"],
        whole: &[],
    },
    Statement {
        file: "list_rated.sql",
        arguments: &["'tenant_1'", "copied_id(10, 10)", "copied_id(9000, 9000)", "100::bigint"],
        indexes: &["ratings_tenant"],
        whole: &[],
    },
    Statement {
        file: "list_reservations.sql",
        arguments: &["100::bigint"],
        indexes: &["budget_sums_pkey"],
        whole: &[],
    },
    Statement {
        file: "list_runs.sql",
        arguments: &[
            "'acme'",
            "copied_id(1, 1)",
            RUN,
            "ARRAY['failed', 'suspended']",
            "'podium-ultra'",
            "'podium-ultra'",
            "50::bigint",
        ],
        indexes: &["run_states_pkey", "runs_tenant"],
        whole: &[],
    },
    Statement {
        file: "list_stuck_tasks.sql",
        arguments: &["8::bigint", "100::bigint"],
        indexes: &[
            "process_leases_pkey",
            "tasks_backlog",
            "tasks_outstanding",
            "tasks_process",
            "tasks_told",
        ],
        whole: &[],
    },
    Statement {
        file: "load_runs.sql",
        arguments: &[RUNS, TWO],
        indexes: &["run_events_pkey", "run_states_pkey"],
        whole: &[],
    },
    Statement {
        file: "lock_ended.sql",
        arguments: &[RUN, "8::bigint", "1::bigint", "64::bigint", "copied_id(1, 1)"],
        indexes: &["run_states_pkey"],
        whole: &[],
    },
    // Checks whether there is any run, so it stops at the first.
    Statement { file: "open_sums.sql", arguments: &[PAYERS, TWO], indexes: &[], whole: &[] },
    Statement { file: "ping.sql", arguments: &[], indexes: &["runs_pkey"], whole: &["runs_pkey"] },
    Statement { file: "put_back.sql", arguments: &[RUNS, TEXTS], indexes: &["tasks_pkey"], whole: &[] },
    Statement {
        file: "rate_run.sql",
        arguments: &[RUN, "'acme'", "0.5::double precision", "NULL::text", "8::bigint"],
        indexes: &["run_states_pkey", "runs_pkey"],
        whole: &[],
    },
    Statement { file: "read_clock.sql", arguments: &[], indexes: &[], whole: &[] },
    Statement {
        file: "read_events.sql",
        arguments: &[RUN, "0::bigint", "256::bigint"],
        indexes: &["run_events_pkey"],
        whole: &[],
    },
    Statement { file: "read_secret.sql", arguments: &[], indexes: &[], whole: &[] },
    Statement {
        file: "read_sums.sql",
        arguments: &[PAYERS, TWO],
        indexes: &["budget_sums_pkey"],
        whole: &[],
    },
    Statement {
        file: "record_action.sql",
        arguments: &["8::bigint", "'ann'", "'cancel'", "'run_1'", "''"],
        indexes: &[],
        whole: &[],
    },
    Statement {
        file: "remove_budget.sql",
        arguments: &["'tenant:acme'"],
        indexes: &["budgets_pkey"],
        whole: &[],
    },
    Statement {
        file: "remove_object.sql",
        arguments: &["'acme'", "'conv_1'"],
        indexes: &["objects_pkey"],
        whole: &[],
    },
    Statement {
        file: "remove_old_objects.sql",
        arguments: &["8::bigint", "1::bigint", "64::bigint"],
        indexes: &["objects_changed"],
        whole: &[],
    },
    Statement {
        file: "remove_runs.sql",
        arguments: &[RUNS],
        indexes: &["ratings_pkey", "run_events_pkey", "run_states_pkey", "runs_pkey", "tasks_pkey"],
        whole: &[],
    },
    Statement {
        file: "remove_sums.sql",
        arguments: &["8::bigint", "1::bigint"],
        indexes: &["budget_sums_from"],
        whole: &[],
    },
    Statement {
        file: "revoke_key.sql",
        arguments: &["'key_1'", "'acme'", "8::bigint"],
        indexes: &["keys_pkey"],
        whole: &[],
    },
    Statement {
        file: "set_budget.sql",
        arguments: &["'tenant:acme'", "'acme'", "'day'", "8::bigint"],
        indexes: &[],
        whole: &[],
    },
    Statement {
        file: "take_tasks.sql",
        arguments: &[LANE, "8::bigint", "9::bigint", "256::bigint", "1000::bigint"],
        indexes: &["tasks_backlog", "tasks_outstanding", "tasks_pkey"],
        whole: &[],
    },
    Statement {
        file: "tell_ready.sql",
        arguments: &["8::bigint", "9::bigint", "256::bigint", RUNS, "8::bigint", "8::bigint"],
        indexes: &["tasks_pkey", "tasks_told"],
        whole: &[],
    },
];

/// Twenty thousand rated runs, and as many tenants with a budget; a thousand of them have ten keys and sums of ten days.
const FILL_ACCOUNTS: &str = "
    INSERT INTO keys SELECT 'key_' || n, 'tenant_' || n % 1000, sha256(n::text::bytea), n, NULL
    FROM generate_series(1, 10000) AS n;
    INSERT INTO budgets SELECT 'tenant:tenant_' || n, 'tenant_' || n, 'day', n FROM generate_series(1, 20000) AS n;
    INSERT INTO ratings SELECT copied_id(n, n), 'tenant_' || n % 1000, 0.5, NULL, n FROM generate_series(1, 20000) AS n;
    INSERT INTO budget_sums SELECT 'tenant:tenant_' || n % 1000, n / 1000, n, 0 FROM generate_series(1, 10000) AS n;
    INSERT INTO objects SELECT 'tenant_' || n % 1000, 'conv_' || n, 1, '{}', n FROM generate_series(1, 20000) AS n";
/// Far more lanes and processes than exist, so that their indexes are useful. Two of these processes hold tasks.
const FILL_LEASES: &str = "
    INSERT INTO lane_dispatchers SELECT 'lane-' || n, gen_random_uuid(), 0 FROM generate_series(1, 20000) AS n;
    INSERT INTO process_leases SELECT copied_id(n, n), n FROM generate_series(1, 20000) AS n;
    UPDATE tasks SET process = copied_id(1 + abs(hashtext(run_id::text)) % 2, 7) WHERE state = 'running'";
const COPY_RUNS: &str = include_str!("../tests/postgres/copy_runs.sql");
/// Runs whose task waits in the backlog.
const BACKLOG_RUNS: i64 = 20_000;
/// Active runs: half of them have a published task, the others a claimed one.
const ACTIVE_RUNS: i64 = 100;

/// The tables and indexes that a plan reads, from its JSON.
#[derive(Debug, Default)]
struct Reading {
    /// Tables that it scans.
    sequential: BTreeSet<String>,
    /// Indexes that it searches.
    searched: BTreeSet<String>,
    /// Indexes that it scans.
    whole: BTreeSet<String>,
}

impl Reading {
    fn of(plan: &Value) -> Self {
        let mut reading = Self::default();
        reading.add(plan);
        reading
    }

    fn add(&mut self, node: &Value) {
        let text = |key: &str| node[key].as_str().unwrap_or_default();
        let table = text("Relation Name");
        if text("Node Type").ends_with("Seq Scan") && TABLES.contains(&table) {
            self.sequential.insert(table.to_owned());
        }
        if let Some(index) = node["Index Name"].as_str() {
            let of = if node["Index Cond"].is_null() { &mut self.whole } else { &mut self.searched };
            of.insert(index.to_owned());
        }
        for child in node["Plans"].as_array().into_iter().flatten() {
            self.add(child);
        }
    }
}

impl Statement {
    fn sql(&self) -> String {
        std::fs::read_to_string(queries().join(self.file)).unwrap()
    }

    /// The JSON of the statement's plan under the given settings.
    async fn plan(&self, connection: &mut PgConnection, cache_mode: &str, sequential: &str) -> Value {
        let settings = format!("SET plan_cache_mode = {cache_mode}; SET enable_seqscan = {sequential}");
        execute(connection, settings).await;
        execute(connection, format!("PREPARE explained AS {}", self.sql())).await;
        let arguments = match self.arguments {
            [] => String::new(),
            arguments => format!("({})", arguments.join(", ")),
        };
        let explain = format!("EXPLAIN (FORMAT JSON) EXECUTE explained{arguments}");
        let explained = sqlx::query_scalar::<_, Value>(sqlx::AssertSqlSafe(explain));
        let mut explained = explained.persistent(false).fetch_one(&mut *connection).await.unwrap();
        execute(connection, "DEALLOCATE explained".to_owned()).await;
        explained[0]["Plan"].take()
    }

    /// The differences between its plan and the expected one.
    async fn faults(&self, connection: &mut PgConnection) -> Vec<String> {
        let mut faults = Vec::new();
        for cache_mode in ["force_custom_plan", "force_generic_plan"] {
            for sequential in ["off", "on"] {
                let plan = self.plan(connection, cache_mode, sequential).await;
                let reading = Reading::of(&plan);
                let used: BTreeSet<_> = reading.searched.union(&reading.whole).map(String::as_str).collect();
                let whole: Vec<_> =
                    reading.whole.iter().filter(|i| !self.whole.contains(&i.as_str())).collect();
                // Where it may choose, it may also stop at the first row of a table.
                let is_right = used == self.indexes.iter().copied().collect()
                    && whole.is_empty()
                    && reading.sequential.is_empty();
                let stops_early = sequential == "on" && self.file == "ping.sql";
                if OPERATORS.contains(&self.file) {
                    let is_known = |index: &&str| self.indexes.contains(index);
                    if sequential == "off" && !(used.iter().all(is_known) && reading.sequential.is_empty()) {
                        faults.push(format!("{}, {cache_mode}: {reading:?}\n{plan:#}", self.file));
                    }
                    continue;
                }
                if !is_right && !stops_early {
                    let case = format!("{}, {cache_mode}, enable_seqscan {sequential}", self.file);
                    faults.push(format!("{case}: {reading:?}\n{plan:#}"));
                }
            }
        }
        faults
    }
}

fn queries() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("queries")
}

async fn execute(connection: &mut PgConnection, sql: String) {
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.unwrap();
}

/// Run number n is accepted n ms after the epoch; the active ones come after the ended ones.
async fn fill(store: &Store, raw: &mut PgConnection) {
    let ids = SeededIds::new(1);
    let request_id = Some(RequestId::new("request-").unwrap());
    let spec = RunSpec { request_id, ..a_spec() };
    let mut ended = Driven::accept(ids.run_id(spec.accepted_at), spec);
    let [mut waiting, mut ready, mut claimed] = [(); 3].map(|()| Driven::accepted(&ids));
    waiting.publish_by = PublishBy::Dispatcher;
    ended.plan(plan_of(&[("quick", "Do it.", &[])]), &ids);
    ended.drive(&Command::Cancel);
    claimed.claim(TaskRef::Plan { round: 0 }, &ids);
    store.append(&[ended.commit(), waiting.commit(), ready.commit(), claimed.commit()]).await.unwrap();
    execute(raw, COPY_RUNS.to_owned()).await;
    let mut last = 0;
    let templates =
        [(ended, ENDED_RUNS), (waiting, BACKLOG_RUNS), (ready, ACTIVE_RUNS / 2), (claimed, ACTIVE_RUNS / 2)];
    for (template, count) in templates {
        let (first, id) = (last + 1, template.id());
        last += count;
        execute(raw, format!("SELECT copy_run('{id}', {first}, {last}, 0, 1)")).await;
    }
    execute(raw, FILL_ACCOUNTS.to_owned()).await;
    execute(raw, FILL_LEASES.to_owned()).await;
    execute(raw, "VACUUM ANALYZE".to_owned()).await;
    // Active rows are rare, and a sample may miss them. This one has 300 rows for each of 2,000, so it has all rows.
    execute(raw, "SET default_statistics_target = 2000".to_owned()).await;
    execute(raw, "ANALYZE tasks, run_states".to_owned()).await;
}

#[test]
fn every_statement_has_an_expected_plan() {
    let mut files: Vec<_> = std::fs::read_dir(queries())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, STATEMENTS.iter().map(|statement| statement.file).collect::<Vec<_>>());
}

#[tokio::test]
async fn no_statement_scans_a_table_and_each_uses_its_indexes() {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let store = Store::open(&address, Options::default()).await.unwrap();
    let mut raw = PgConnection::connect(&address).await.unwrap();
    fill(&store, &mut raw).await;
    let mut connection = store.connections.pool().acquire().await.unwrap();
    let mut faults = Vec::new();
    for statement in STATEMENTS {
        faults.extend(statement.faults(&mut connection).await);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
