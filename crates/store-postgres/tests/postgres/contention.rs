//! Concurrent writers and sweepers on the same rows.

use std::time::Duration;

use futures::future::join_all;
use podium_domain::budget::{Budget, Payer, Period};
use podium_domain::ids::{ProcessId, RequestId};
use podium_domain::money::Cost;
use podium_domain::policy::Tier;
use podium_domain::run::{Command, RunSpec};
use podium_domain::time::Timestamp;
use podium_harness::{Fsync, Postgres};
use podium_ports::accounts::Accounts as _;
use podium_ports::clock::Ids as _;
use podium_ports::queue::Lane;
use podium_ports::store::{
    Appended, ClaimRef, Commit, RunCatalog, RunFilter, RunLog, StoreError, TaskBoard, Turn,
};
use podium_store_postgres::{Options, Store};
use podium_testkit::{Driven, SeededIds, a_plan, a_spec, a_tenant};
use sqlx::{Connection, PgConnection};
use tokio::time::interval;

use crate::PLAN;

const ROUNDS: usize = 25;

struct Scene {
    _postgres: Postgres,
    address: String,
    store: Store,
    ids: SeededIds,
}

impl Scene {
    async fn new(options: Options) -> Self {
        let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
        let address = postgres.database().await.unwrap();
        let store = Store::open(&address, options).await.unwrap();
        Self { _postgres: postgres, address, store, ids: SeededIds::new(1) }
    }

    async fn raw(&self) -> PgConnection {
        PgConnection::connect(&self.address).await.unwrap()
    }

    /// Claims the plans of runs.
    async fn claimed_by(&self, process: ProcessId, runs: &mut [Driven]) -> Vec<ClaimRef> {
        let claimed = runs.iter_mut().map(|run| {
            run.process = Some(process);
            ClaimRef { run: run.id(), task: PLAN, claim: run.claim(PLAN, &self.ids) }
        });
        let holds = claimed.collect();
        let claims: Vec<Commit> = runs.iter_mut().map(Driven::commit).collect();
        assert!(self.store.append(&claims).await.unwrap().iter().all(Result::is_ok));
        holds
    }

    /// Runs that wait for their plan.
    async fn runs(&self, count: usize) -> Vec<Driven> {
        let mut runs: Vec<_> = (0..count).map(|_| Driven::accepted(&self.ids)).collect();
        let creates: Vec<_> = runs.iter_mut().map(Driven::commit).collect();
        self.store.append(&creates).await.unwrap();
        runs
    }
}

/// Waits until a backend of the database waits for a lock.
async fn until_one_waits(raw: &mut PgConnection) {
    let mut asking = interval(Duration::from_millis(5));
    let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock')";
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut *raw).await.unwrap() {
        asking.tick().await;
    }
}

/// Closes a store and waits until its sessions are gone. From then on, the server's statistics include them.
async fn end(store: &Store, raw: &mut PgConnection) {
    store.close().await;
    let mut asking = interval(Duration::from_millis(5));
    let lives = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'podium')";
    while sqlx::query_scalar::<_, bool>(lives).fetch_one(&mut *raw).await.unwrap() {
        asking.tick().await;
    }
}

async fn deadlocks(raw: &mut PgConnection) -> i64 {
    let counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    sqlx::query_scalar(counted).fetch_one(raw).await.unwrap()
}

/// Claims, failures and results for the same runs, written forwards and backwards concurrently: rows of tasks are
/// updated, deleted and inserted.
#[tokio::test]
async fn batches_in_opposite_orders_never_deadlock() {
    let scene = Scene::new(Options::default()).await;
    let other = Store::open(&scene.address, Options::default()).await.unwrap();
    for _ in 0..ROUNDS {
        let mut runs = scene.runs(24).await;
        for run in &mut runs {
            run.claim(PLAN, &scene.ids);
        }
        let claims: Vec<Commit> = runs.iter_mut().map(Driven::commit).collect();
        assert!(scene.store.append(&claims).await.unwrap().iter().all(Result::is_ok));
        for (index, run) in runs.iter_mut().enumerate() {
            let claim = run.last_claim;
            if index % 2 == 0 {
                run.planned(a_plan(), claim);
            } else {
                run.fail(PLAN, claim, Some(run.now));
            }
        }
        let forwards: Vec<Commit> = runs.iter_mut().map(Driven::commit).collect();
        let backwards: Vec<Commit> = forwards.iter().rev().cloned().collect();
        let (first, second) = tokio::join!(scene.store.append(&forwards), other.append(&backwards));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!(first.iter().zip(second.iter().rev()).all(|(a, b)| a.is_ok() != b.is_ok()));
    }
    // Retries would hide a deadlock; the server counts them.
    let mut raw = scene.raw().await;
    other.close().await;
    end(&scene.store, &mut raw).await;
    assert_eq!(deadlocks(&mut raw).await, 0);
}

/// States of runs, then sums of budgets, then request ids: a batch that waits for one holds none that comes later. So a batch that
/// appends and creates, a charged append and a charged create with the same request id never wait for each other in a circle.
#[tokio::test]
async fn batches_lock_states_then_sums_then_request_ids() {
    const STATE: &str = "SELECT FROM run_states WHERE run_id = $1 FOR UPDATE NOWAIT";
    const SUM: &str = "SELECT FROM budget_sums WHERE $1::uuid IS NOT NULL FOR UPDATE NOWAIT";
    let scene = Scene::new(Options { lock_max: Duration::from_mins(1), ..Options::default() }).await;
    let tenant = Payer::Tenant(a_tenant());
    let budget = Budget { payer: tenant, tenant: a_tenant(), period: Period::Month, cap: None };
    scene.store.set_budget(&budget).await.unwrap();
    let run = |request: &str, hold: u64| {
        let request_id = Some(RequestId::new(request).unwrap());
        let spec = RunSpec { request_id, hold: Cost::from_nano_usd(hold), ..a_spec() };
        let budgets = if hold > 0 { vec![budget.at(spec.accepted_at)] } else { Vec::new() };
        Driven::accept(scene.ids.run_id(spec.accepted_at), RunSpec { budgets, ..spec })
    };
    let [mut plain, mut charged] = [("plain", 0), ("charged", 10)].map(|(request, hold)| run(request, hold));
    scene.store.append(&[plain.commit()]).await.unwrap();
    let created = scene.store.append(&[charged.commit()]).await.unwrap();
    assert_eq!(created, [Ok(Appended::New)]);
    let (mut raw, mut other) = (scene.raw().await, scene.raw().await);
    let (plain_id, charged_id) = (*plain.id().as_uuid(), *charged.id().as_uuid());

    // It waits for the state, and the request id is free.
    let mut held = raw.begin().await.unwrap();
    sqlx::query(STATE).bind(plain_id).execute(&mut *held).await.unwrap();
    plain.claim(PLAN, &scene.ids);
    let both = [run("new", 0).commit(), plain.commit()];
    let mut first = run("new", 10);
    let existing = first.id();
    let others = async {
        until_one_waits(&mut other).await;
        let created = scene.store.append(&[first.commit()]).await.unwrap();
        assert_eq!(created, [Ok(Appended::New)]);
        held.rollback().await.unwrap();
    };
    let (written, ()) = tokio::join!(scene.store.append(&both), others);
    assert_eq!(written.unwrap(), [Ok(Appended::Existing(existing)), Ok(Appended::New)]);

    // It waits for the state, and the sum is free.
    let mut held = raw.begin().await.unwrap();
    sqlx::query(STATE).bind(charged_id).execute(&mut *held).await.unwrap();
    charged.drive(&Command::Cancel);
    let cancelled = [charged.commit()];
    let others = async {
        until_one_waits(&mut other).await;
        sqlx::query(SUM).bind(charged_id).execute(&mut other).await.unwrap();
        held.rollback().await.unwrap();
    };
    let (written, ()) = tokio::join!(scene.store.append(&cancelled), others);
    assert_eq!(written.unwrap(), [Ok(Appended::New)]);

    // It waits for the sum, and the request id is free.
    let mut held = raw.begin().await.unwrap();
    sqlx::query(SUM).bind(charged_id).execute(&mut *held).await.unwrap();
    let first = run("newer", 0);
    let charged_runs = [run("newer", 10).commit()];
    let others = async {
        until_one_waits(&mut other).await;
        let created = scene.store.append(&[first.clone().commit()]).await.unwrap();
        assert_eq!(created, [Ok(Appended::New)]);
        held.rollback().await.unwrap();
    };
    let (created, ()) = tokio::join!(scene.store.append(&charged_runs), others);
    assert_eq!(created.unwrap(), [Ok(Appended::Existing(first.id()))]);
}

/// Another client, such as an administrator, locks the same rows in the opposite order.
#[tokio::test]
async fn a_batch_that_is_rolled_back_by_a_deadlock_is_retried() {
    let scene = Scene::new(Options::default()).await;
    let mut raw = scene.raw().await;
    // Only the store's session looks for deadlocks, and late enough for one to exist.
    let settings = "ALTER DATABASE podium_1 SET deadlock_timeout = '3s'; SET deadlock_timeout = '10min'";
    sqlx::raw_sql(settings).execute(&mut raw).await.unwrap();
    let store = Store::open(&scene.address, Options::default()).await.unwrap();
    let mut runs = scene.runs(2).await;
    for run in &mut runs {
        run.claim(PLAN, &scene.ids);
    }
    let commits: Vec<Commit> = runs.iter_mut().map(Driven::commit).collect();

    let lock = "SELECT FROM run_states WHERE run_id = $1 FOR UPDATE";
    let mut transaction = raw.begin().await.unwrap();
    sqlx::query(lock).bind(runs[1].id().as_uuid()).execute(&mut *transaction).await.unwrap();
    let other = async {
        until_one_waits(&mut scene.raw().await).await;
        // From here on, each waits for the other, until the store's statement is rolled back.
        sqlx::query(lock).bind(runs[0].id().as_uuid()).execute(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
    };
    let (committed, ()) = tokio::join!(store.append(&commits), other);
    assert_eq!(committed.unwrap(), [Ok(Appended::New), Ok(Appended::New)]);
    let mut raw = scene.raw().await;
    store.close().await;
    end(&scene.store, &mut raw).await;
    // The store's next try may reach the row before the other is woken, for a second deadlock.
    assert!(deadlocks(&mut raw).await >= 1);
}

#[tokio::test]
async fn a_row_locked_for_too_long_is_an_error_without_effect() {
    let scene = Scene::new(Options { lock_max: Duration::from_millis(100), ..Options::default() }).await;
    let mut runs = scene.runs(2).await;
    let before: Vec<_> = runs.iter().map(|run| Some(run.run.clone())).collect();
    let ids: Vec<_> = runs.iter().map(Driven::id).collect();
    for run in &mut runs {
        run.claim(PLAN, &scene.ids);
    }
    let commits: Vec<Commit> = runs.iter_mut().map(Driven::commit).collect();
    let mut raw = scene.raw().await;
    let mut transaction = raw.begin().await.unwrap();
    let lock = "SELECT FROM run_states WHERE run_id = $1 FOR UPDATE";
    sqlx::query(lock).bind(ids[1].as_uuid()).execute(&mut *transaction).await.unwrap();
    let refused = scene.store.append(&commits).await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused(_)), "{refused:?}");
    assert_eq!(scene.store.load(&ids).await.unwrap(), before);
    transaction.rollback().await.unwrap();
    assert_eq!(scene.store.append(&commits).await.unwrap(), [Ok(Appended::New), Ok(Appended::New)]);
}

/// The clock of the calling process is far ahead.
#[tokio::test]
async fn sums_are_removed_by_the_time_of_the_server() {
    let scene = Scene::new(Options::default()).await;
    let mut raw = scene.raw().await;
    let day_ms = 86_400_000_i64;
    let add = "INSERT INTO budget_sums
               SELECT 'tenant:t' || days, floor(extract(EPOCH FROM clock_timestamp()) * 1000) - days * $1, 1, 0
               FROM unnest(ARRAY[1, 399, 401]) AS days";
    sqlx::query(add).bind(day_ms).execute(&mut raw).await.unwrap();
    let end_of_time = Timestamp::from_unix_ms(i64::MAX.unsigned_abs());
    scene.store.remove_ended(end_of_time, Duration::ZERO, 10).await.unwrap();
    let left = "SELECT payer FROM budget_sums ORDER BY payer";
    let left: Vec<String> = sqlx::query_scalar(left).fetch_all(&mut raw).await.unwrap();
    assert_eq!(left, ["tenant:t1", "tenant:t399"]);
}

/// The index entries of removed runs stay while an old transaction is open. A removal that began with them each time would read ever
/// more of them.
#[tokio::test]
async fn a_removal_goes_on_behind_the_runs_it_removed_and_those_it_cannot() {
    let scene = Scene::new(Options::default()).await;
    let mut runs = scene.runs(7).await;
    let all: Vec<_> = runs.iter().map(Driven::id).collect();
    let mut late = runs.remove(0);
    for run in &mut runs {
        run.drive(&Command::Cancel);
    }
    let ended: Vec<_> = runs.iter_mut().map(Driven::commit).collect();
    assert!(scene.store.append(&ended).await.unwrap().iter().all(Result::is_ok));
    let left_after_removal = async || {
        let end_of_time = Timestamp::from_unix_ms(i64::MAX.unsigned_abs());
        scene.store.remove_ended(end_of_time, Duration::ZERO, 2).await.unwrap();
        let left = scene.store.load(&all).await.unwrap();
        left.iter().map(|run| if run.is_some() { 'x' } else { '.' }).collect::<String>()
    };
    // Another transaction keeps the oldest one.
    let mut raw = scene.raw().await;
    let mut transaction = raw.begin().await.unwrap();
    let lock = "SELECT FROM run_states WHERE run_id = $1 FOR UPDATE";
    sqlx::query(lock).bind(runs[0].id().as_uuid()).execute(&mut *transaction).await.unwrap();
    assert_eq!(left_after_removal().await, "xx..xxx");
    transaction.rollback().await.unwrap();
    // One that was accepted earlier ends later.
    late.drive(&Command::Cancel);
    assert_eq!(scene.store.append(&[late.commit()]).await.unwrap(), [Ok(Appended::New)]);
    assert_eq!(left_after_removal().await, "xx....x");
    // The walk comes to its end and begins again.
    assert_eq!(left_after_removal().await, ".x.....");
    assert_eq!(left_after_removal().await, ".......");
}

/// A sweeper neither waits for the writer of a task nor publishes the task.
#[tokio::test]
async fn a_sweep_skips_tasks_that_are_being_written() {
    let scene = Scene::new(Options::default()).await;
    let runs = scene.runs(3).await;
    let mut raw = scene.raw().await;
    let mut transaction = raw.begin().await.unwrap();
    let lock = "SELECT FROM tasks WHERE run_id = $1 FOR UPDATE";
    sqlx::query(lock).bind(runs[1].id().as_uuid()).execute(&mut *transaction).await.unwrap();
    let now = runs[0].now.after(Options::default().dispatch_grace);
    let again_at = now.after(Duration::from_mins(1));
    let told = async || {
        let ready = scene.store.due(now, again_at, 10, &[]).await.unwrap().ready;
        let mut told: Vec<_> = ready.into_iter().map(|ready| (ready.run, ready.task)).collect();
        told.sort_unstable();
        told
    };
    assert_eq!(told().await, [(runs[0].id(), PLAN), (runs[2].id(), PLAN)]);
    transaction.rollback().await.unwrap();
    assert_eq!(told().await, [(runs[1].id(), PLAN)]);
}

/// A repetition that arrives while the first is still running, as after a timeout.
#[tokio::test]
async fn a_create_that_is_repeated_at_once_creates_once() {
    let scene = Scene::new(Options::default()).await;
    let creates: Vec<Commit> = (0..8).map(|_| Driven::accepted(&scene.ids).commit()).collect();
    let backwards: Vec<Commit> = creates.iter().rev().cloned().collect();
    let repeats = (0..8).map(|index| scene.store.append(if index % 2 == 0 { &creates } else { &backwards }));
    let answers: Vec<_> = join_all(repeats).await.into_iter().flat_map(Result::unwrap).collect();
    assert!(
        answers.iter().all(|created| matches!(created, Ok(Appended::New | Appended::Already))),
        "{answers:?}"
    );
    assert_eq!(answers.iter().filter(|created| **created == Ok(Appended::New)).count(), 8);
    // Also within one batch.
    let twice: Vec<Commit> = creates.iter().chain(&creates).cloned().collect();
    assert_eq!(scene.store.append(&twice).await.unwrap().len(), 16);
    assert_eq!(scene.store.list(&a_tenant(), &RunFilter::default(), None, 100).await.unwrap().len(), 8);
}

/// Two commits to one run in a batch are an error of the caller; only one may be written.
#[tokio::test]
async fn one_of_two_commits_to_a_run_in_a_batch_is_written() {
    let scene = Scene::new(Options::default()).await;
    let mut run = scene.runs(1).await.remove(0);
    let mut left = run.clone();
    run.claim(PLAN, &scene.ids);
    let right = run.commit();
    left.claim(PLAN, &scene.ids);
    let answers = scene.store.append(&[right, left.commit()]).await.unwrap();
    assert!(answers[0].is_ok() && answers[1].is_err(), "{answers:?}");
    assert_eq!(scene.store.load(&[run.id()]).await.unwrap(), [Some(run.run)]);
}

/// Every task is locked, as by a person who does not commit.
#[tokio::test]
async fn a_lease_is_extended_while_all_tasks_are_locked() {
    let minute = Duration::from_mins(1);
    let options = Options { lock_max: minute, statement_max: minute, ..Options::default() };
    let scene = Scene::new(options).await;
    let (process, mut runs) = (scene.ids.process_id(), scene.runs(9).await);
    let holds = scene.claimed_by(process, &mut runs).await;
    let mut raw = scene.raw().await;
    let mut transaction = raw.begin().await.unwrap();
    sqlx::query("SELECT FROM tasks FOR UPDATE").execute(&mut *transaction).await.unwrap();
    let keep = async {
        assert!(!scene.store.extend_lease(process, runs[0].now, minute).await.unwrap());
        assert_eq!(scene.store.held(&holds).await.unwrap(), [true; 9]);
    };
    tokio::time::timeout(minute / 2, keep).await.unwrap();
}

/// Heartbeats must cost the same for any number of calls in flight.
#[tokio::test]
async fn a_heartbeat_updates_one_row_and_no_index() {
    let scene = Scene::new(Options::default()).await;
    let (process, mut runs) = (scene.ids.process_id(), scene.runs(50).await);
    scene.store.extend_lease(process, runs[0].now, Duration::from_mins(1)).await.unwrap();
    scene.claimed_by(process, &mut runs).await;
    let mut raw = scene.raw().await;
    end(&scene.store, &mut raw).await;
    let counted = "SELECT relname::text, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
                   WHERE relname IN ('process_leases', 'tasks') ORDER BY relname";
    let before: Vec<(String, i64, i64)> = sqlx::query_as(counted).fetch_all(&mut raw).await.unwrap();

    let store = Store::open(&scene.address, Options::default()).await.unwrap();
    for _ in 0..10 {
        assert!(store.extend_lease(process, runs[0].now, Duration::from_mins(1)).await.unwrap());
    }
    end(&store, &mut raw).await;
    let after: Vec<(String, i64, i64)> = sqlx::query_as(counted).fetch_all(&mut raw).await.unwrap();
    let updates: Vec<_> = before.iter().zip(&after).map(|(a, b)| (&*b.0, b.1 - a.1, b.2 - a.2)).collect();
    assert_eq!(updates, [("process_leases", 10, 10), ("tasks", 0, 0)]);
}

/// A search for dead processes runs twice a second, so its cost must not depend on the number of calls in flight.
#[tokio::test]
async fn looking_for_dead_processes_does_not_read_all_running_tasks() {
    const RUNNING: i64 = 20_000;
    let scene = Scene::new(Options::default()).await;
    let mut raw = scene.raw().await;
    let fill = "INSERT INTO process_leases
                SELECT uuid(lpad(number::text, 32, '0')), 9000000000000 FROM generate_series(1, 8) AS number";
    sqlx::query(fill).execute(&mut raw).await.unwrap();
    let fill = "INSERT INTO tasks (run_id, task, state, lane, tenant, claim, process, lease_until_ms)
                SELECT gen_random_uuid(), 'step.0.0', 'running', 'ultra.plan', 'acme', gen_random_uuid(),
                    uuid(lpad((1 + number % 8)::text, 32, '0')), 0
                FROM generate_series(1, $1) AS number";
    sqlx::query(fill).bind(RUNNING).execute(&mut raw).await.unwrap();
    // Three dead processes with a claim each.
    let kill = "UPDATE tasks SET process = gen_random_uuid()
                FROM (SELECT run_id FROM tasks LIMIT 3) AS lost WHERE tasks.run_id = lost.run_id";
    sqlx::query(kill).execute(&mut raw).await.unwrap();
    sqlx::raw_sql("VACUUM ANALYZE tasks").execute(&mut raw).await.unwrap();
    let read = "SELECT (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'tasks')
                    + (SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = 'tasks')";
    end(&scene.store, &mut raw).await;
    let before: i64 = sqlx::query_scalar(read).fetch_one(&mut raw).await.unwrap();
    let store = Store::open(&scene.address, Options::default()).await.unwrap();
    let (now, looks) = (Timestamp::from_unix_ms(1), 10);
    for _ in 0..looks {
        assert_eq!(store.due(now, now, 10, &[]).await.unwrap().expired.len(), 3);
    }
    end(&store, &mut raw).await;
    let after: i64 = sqlx::query_scalar(read).fetch_one(&mut raw).await.unwrap();
    assert!((after - before) / looks < 100, "{} rows for each look", (after - before) / looks);
}

/// A backlog may be long, and is read twenty times a second.
#[tokio::test]
async fn taking_from_a_backlog_does_not_read_all_of_it() {
    const BACKLOG: i64 = 20_000;
    let scene = Scene::new(Options::default()).await;
    let mut raw = scene.raw().await;
    let fill = "INSERT INTO tasks (run_id, task, state, lane, tenant, ready_ms)
                SELECT gen_random_uuid(), 'plan.0', 'ready', 'ultra.plan', 'tenant-' || least(number, 10), 0
                FROM generate_series(1, $1) AS number";
    sqlx::query(fill).bind(BACKLOG).execute(&mut raw).await.unwrap();
    let read = "SELECT (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'tasks')
                    + (SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = 'tasks')";
    end(&scene.store, &mut raw).await;
    let before: i64 = sqlx::query_scalar(read).fetch_one(&mut raw).await.unwrap();
    let store = Store::open(&scene.address, Options::default()).await.unwrap();
    let (lane, now) = (Lane::Plan(Tier::Ultra), Timestamp::from_unix_ms(1));
    let looks = 10;
    for _ in 0..looks {
        assert_eq!(store.due(now, now, 10, &[]).await.unwrap().backlogs, std::slice::from_ref(&lane));
        assert_eq!(store.take(&lane, now, now.after(Duration::from_mins(1)), 5).await.unwrap().len(), 5);
    }
    end(&store, &mut raw).await;
    let after: i64 = sqlx::query_scalar(read).fetch_one(&mut raw).await.unwrap();
    assert!((after - before) / looks < BACKLOG / 20, "{} rows for each look", (after - before) / looks);
}

/// One process at a time publishes the backlog of a lane, and the next takes over when its lease expires.
#[tokio::test]
async fn a_lane_has_one_dispatcher_at_a_time() {
    let scene = Scene::new(Options::default()).await;
    let (ids, now) = (SeededIds::new(7), Timestamp::from_unix_ms(1));
    let [first, second] = [(); 2].map(|()| ids.claim_id());
    let [long, short] = [Duration::from_mins(1), Duration::from_millis(1)];
    let plans = Lane::plans();
    let hold = async |holder, lanes: &[Lane], span| {
        let mut held = scene.store.hold_lanes(holder, lanes, now, span).await.unwrap();
        held.sort();
        held
    };
    assert_eq!(hold(first, &plans[..1], long).await, plans[..1]);
    assert_eq!(hold(second, &plans, long).await, plans[1..], "a free lane is given");
    assert_eq!(hold(first, &plans, long).await, plans[..1], "its own is extended");
    // A lease of zero length expires with the next millisecond of the database.
    assert_eq!(hold(first, &plans[..1], short).await, plans[..1]);
    while hold(second, &plans, long).await != plans {}
    assert_eq!(hold(first, &plans, long).await, []);
    let both = futures::future::join_all((0..20).map(|_| hold(ids.claim_id(), &plans, long))).await;
    assert!(both.iter().all(Vec::is_empty), "{both:?}");
}

/// The others learn which lanes have a backlog.
#[tokio::test]
async fn one_process_at_a_time_has_the_turn_to_sweep() {
    let scene = Scene::new(Options::default()).await;
    let (ids, now) = (SeededIds::new(7), Timestamp::from_unix_ms(1));
    let [first, second] = [(); 2].map(|()| ids.claim_id());
    let [long, short] = [Duration::from_mins(1), Duration::from_millis(1)];
    let hold = async |holder, span| scene.store.hold_sweep(holder, now, span).await.unwrap();
    assert_eq!(hold(first, long).await, Turn::Own);
    assert_eq!(hold(second, long).await, Turn::Others { backlogs: Vec::new() });
    let fill = "INSERT INTO tasks (run_id, task, state, lane, tenant, ready_ms)
                SELECT gen_random_uuid(), 'plan.0', 'ready', lane, 'acme', 0
                FROM unnest(ARRAY['ultra.plan', 'mini.plan', 'ultra.plan']) AS lane";
    sqlx::query(fill).execute(&mut scene.raw().await).await.unwrap();
    let backlogs = Lane::plans().to_vec();
    assert_eq!(hold(second, long).await, Turn::Others { backlogs });
    assert_eq!(hold(first, short).await, Turn::Own, "its own is extended");
    while hold(second, long).await != Turn::Own {}
    assert_ne!(hold(first, long).await, Turn::Own);
    let all = join_all((0..20).map(|_| hold(ids.claim_id(), long))).await;
    assert!(all.iter().all(|turn| *turn != Turn::Own), "{all:?}");
}

#[tokio::test]
async fn disowning_waits_for_no_lock_and_says_what_is_locked() {
    let scene = Scene::new(Options::default()).await;
    let process = scene.ids.process_id();
    let mut runs = scene.runs(2).await;
    let holds = scene.claimed_by(process, &mut runs).await;
    scene.store.extend_lease(process, Timestamp::default(), Duration::from_hours(1)).await.unwrap();
    let mut raw = scene.raw().await;
    let mut held = raw.begin().await.unwrap();
    let lock = "SELECT FROM tasks WHERE run_id = $1 FOR UPDATE";
    sqlx::query(lock).bind(*holds[0].run.as_uuid()).execute(&mut *held).await.unwrap();
    assert_eq!(scene.store.disown(&holds).await.unwrap(), [false, true]);
    let now = runs[0].now;
    assert_eq!(scene.store.due(now, now, 10, &[]).await.unwrap().expired, [holds[1]]);
    held.rollback().await.unwrap();
    assert_eq!(scene.store.disown(&holds).await.unwrap(), [true, true]);
    let mut expired = scene.store.due(now, now, 10, &[]).await.unwrap().expired;
    expired.sort_unstable();
    let mut holds = holds;
    holds.sort_unstable();
    assert_eq!(expired, holds);
}
