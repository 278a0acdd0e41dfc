//! The tasks that have a row.

use podium_domain::budget::{BudgetRef, Payer};
use podium_domain::ids::StepIndex;
use podium_domain::money::Cost;
use podium_domain::run::{Command, RunSpec, TaskRef};
use podium_harness::{Fsync, Postgres};
use podium_ports::clock::Ids;
use podium_ports::store::{Commit, RunLog};
use podium_store_postgres::{Options, Store};
use podium_testkit::{Driven, SeededIds, TestClock, a_plan, a_spec, a_tenant};
use sqlx::{Connection, PgConnection};

use crate::PLAN;

const FIRST: TaskRef = TaskRef::Step { round: 0, step: StepIndex::new(0) };

/// Runs with the same commits: the statement that writes them depends on their number, and on whether they have budgets.
struct Scene {
    _postgres: Postgres,
    store: Store,
    raw: PgConnection,
    ids: SeededIds,
    runs: Vec<Driven>,
}

impl Scene {
    async fn new(runs: usize, budgets: Vec<BudgetRef>) -> Self {
        let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
        let address = postgres.database().await.unwrap();
        let store = Store::open(&address, Options::default()).await.unwrap();
        let raw = PgConnection::connect(&address).await.unwrap();
        let ids = SeededIds::new(1);
        let spec = RunSpec { budgets, hold: Cost::from_nano_usd(7), ..a_spec() };
        let accept = |_| Driven::accept(ids.run_id(spec.accepted_at), spec.clone());
        let mut runs: Vec<_> = (0..runs).map(accept).collect();
        let creates: Vec<Commit> = runs.iter_mut().map(Driven::commit).collect();
        assert!(store.append(&creates).await.unwrap().iter().all(Result::is_ok));
        Self { _postgres: postgres, store, raw, ids, runs }
    }

    async fn all(&mut self, drive: impl Fn(&mut Driven, &SeededIds)) {
        for run in &mut self.runs {
            drive(run, &self.ids);
        }
        let commits: Vec<Commit> = self.runs.iter_mut().map(Driven::commit).collect();
        let written = self.store.append(&commits).await.unwrap();
        assert!(written.iter().all(Result::is_ok), "{written:?}");
    }

    /// Task and state of each row; they must be the same for every run.
    async fn rows(&mut self) -> Vec<String> {
        let read = "SELECT task || ' ' || state FROM tasks WHERE run_id = $1 ORDER BY task";
        let mut each = Vec::new();
        for run in &self.runs {
            let id = run.id();
            let rows = sqlx::query_scalar(read).bind(id.as_uuid());
            each.push(rows.fetch_all(&mut self.raw).await.unwrap());
        }
        each.dedup();
        assert_eq!(each.len(), 1, "{each:?}");
        each.remove(0)
    }
}

/// The runs for each of the three statements that write a batch.
async fn scenes() -> [Scene; 3] {
    let budget = BudgetRef { payer: Payer::Tenant(a_tenant()), from: TestClock::START, period: None };
    [Scene::new(1, Vec::new()).await, Scene::new(2, Vec::new()).await, Scene::new(2, vec![budget]).await]
}

#[tokio::test]
async fn a_run_has_rows_for_its_ready_and_its_running_tasks_only() {
    for mut scene in scenes().await {
        assert_eq!(scene.rows().await, ["plan.0 ready"]);
        scene.all(|run, ids| _ = run.claim(PLAN, ids)).await;
        assert_eq!(scene.rows().await, ["plan.0 running"]);
        scene.all(|run, _| run.planned(a_plan(), run.last_claim)).await;
        assert_eq!(scene.rows().await, ["step.0.0 ready", "step.0.1 ready"]);
        scene.all(|run, ids| _ = run.claim(FIRST, ids)).await;
        assert_eq!(scene.rows().await, ["step.0.0 running", "step.0.1 ready"]);
        scene.all(|run, _| drop(run.fail(FIRST, run.last_claim, Some(run.now)))).await;
        assert_eq!(scene.rows().await, ["step.0.0 ready", "step.0.1 ready"]);
        scene.all(|run, ids| _ = run.step(0, "left", ids)).await;
        assert_eq!(scene.rows().await, ["step.0.1 ready"]);
        scene.all(|run, ids| _ = run.step(1, "right", ids)).await;
        assert_eq!(scene.rows().await, ["step.0.2 ready"]);
    }
}

#[tokio::test]
async fn an_ended_run_has_no_rows_of_tasks() {
    for mut scene in scenes().await {
        scene
            .all(|run, ids| {
                run.plan(a_plan(), ids);
                run.step(0, "left", ids);
                run.step(1, "right", ids);
            })
            .await;
        assert_eq!(scene.rows().await, ["step.0.2 ready"]);
        scene.all(|run, ids| _ = run.step(2, "the answer", ids)).await;
        assert_eq!(scene.rows().await, [""; 0]);
    }
    for mut scene in scenes().await {
        scene
            .all(|run, ids| {
                run.plan(a_plan(), ids);
                run.claim(FIRST, ids);
            })
            .await;
        assert_eq!(scene.rows().await, ["step.0.0 running", "step.0.1 ready"]);
        scene.all(|run, _| drop(run.drive(&Command::Cancel))).await;
        assert_eq!(scene.rows().await, [""; 0]);
    }
}
