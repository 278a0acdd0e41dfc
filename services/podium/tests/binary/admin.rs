//! `podium admin` on the data folder and on a cluster's Postgres, with runs that no process works on.

use std::path::Path;
use std::sync::Arc;

use podium_domain::ids::{RunId, StepIndex, TenantId};
use podium_domain::run::{RunSpec, TaskRef};
use podium_domain::time::Timestamp;
use podium_harness::{Fsync, Postgres};
use podium_ports::clock::{Clock as _, Ids as _};
use podium_ports::store::{PublishBy, RunStore};
use podium_setup::SystemClock;
use podium_testkit::{Driven, SeededIds, a_spec, a_spec_with_tools, plan_of};
use serde_json::Value;

use crate::support::{podium, stderr, stdout};

const PLAN: TaskRef = TaskRef::Plan { round: 0 };
const HOUR_MS: u64 = 3_600_000;

/// A store under test: how the command finds it, and the store itself.
struct Target {
    flags: Vec<String>,
    runs: Arc<dyn RunStore>,
    ids: SeededIds,
    now: Timestamp,
}

impl Target {
    async fn sqlite(folder: &Path) -> Self {
        let path = folder.join("podium.db");
        let store =
            podium_store_sqlite::Store::open(&path, podium_store_sqlite::Options::default()).await.unwrap();
        Self::new(["--data".to_owned(), folder.display().to_string()], Arc::new(store))
    }

    async fn postgres(address: &str) -> Self {
        let options = podium_store_postgres::Options::default();
        let store = podium_store_postgres::Store::open(address, options).await.unwrap();
        Self::new(["--postgres".to_owned(), address.to_owned()], Arc::new(store))
    }

    fn new(flags: [String; 2], runs: Arc<dyn RunStore>) -> Self {
        Self { flags: flags.into(), runs, ids: SeededIds::new(1), now: SystemClock.now() }
    }

    /// A run that was accepted `age_ms` ago and has a day left.
    fn run(&self, tenant: &str, age_ms: u64, spec: RunSpec) -> Driven {
        let accepted_at = Timestamp::from_unix_ms(self.now.unix_ms() - age_ms);
        let deadline_at = Timestamp::from_unix_ms(self.now.unix_ms() + 24 * HOUR_MS);
        let spec = RunSpec { tenant: TenantId::new(tenant).unwrap(), accepted_at, deadline_at, ..spec };
        Driven { publish_by: PublishBy::Writer, ..Driven::accept(self.ids.run_id(accepted_at), spec) }
    }

    async fn write(&self, run: &mut Driven) {
        let written = self.runs.append(&[run.commit()]).await.unwrap();
        assert!(written.iter().all(Result::is_ok), "{written:?}");
    }

    fn suspended(&self, tenant: &str) -> Driven {
        let mut run = self.run(tenant, 2 * HOUR_MS, a_spec_with_tools());
        run.plan(plan_of(&[("quick", "look", &[])]), &self.ids);
        run.claim(TaskRef::Step { round: 0, step: StepIndex::new(0) }, &self.ids);
        run.call(0, "look");
        run
    }

    /// The exit code, standard output and standard error of a command.
    fn admin(&self, arguments: &[&str]) -> (i32, String, String) {
        let output =
            podium(&[&["admin"], arguments].concat()).args(&self.flags).env("USER", "ann").output().unwrap();
        (output.status.code().unwrap(), stdout(&output), stderr(&output))
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (code, out, err) = self.admin(&[arguments, &["--json"]].concat());
        assert_eq!(code, 0, "{arguments:?}: {err}");
        serde_json::from_str(&out).unwrap()
    }

    async fn state(&self, id: RunId) -> String {
        let run = self.runs.load(&[id]).await.unwrap().pop().flatten().unwrap();
        format!("{:?}", run.state())
    }
}

async fn operators_find_and_repair_work(target: Target) {
    let (mut old, mut young) = (target.run("acme", HOUR_MS, a_spec()), target.run("zeta", 0, a_spec()));
    let mut suspended = target.suspended("zeta");
    for run in [&mut old, &mut young, &mut suspended] {
        target.write(run).await;
    }
    lists(&target, &old, &suspended);
    requeues(&target, &mut old).await;
    cancels(&target, &old, &young).await;

    let (code, out, err) = target.admin(&["expire", &suspended.id().to_string()]);
    assert_eq!((code, out.trim_end().ends_with("failed")), (0, true), "{out}{err}");
    assert!(target.state(suspended.id()).await.contains("SuspensionExpired"));
    let (code, _, err) = target.admin(&["expire", &suspended.id().to_string()]);
    assert_eq!(code, 1, "a run that has ended cannot expire");
    assert!(err.contains("was not changed"), "{err}");
    let log = target.json(&["log"]);
    let actions: Vec<_> =
        log.as_array().unwrap().iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["refused", "expire", "expire", "cancel", "requeue", "requeue"]);
    assert!(log[0]["operator"].as_str().unwrap().starts_with("ann"), "{log}");
    assert_eq!(log[2]["subject"], suspended.id().to_string());
}

fn lists(target: &Target, old: &Driven, suspended: &Driven) {
    let top = podium(&["top", "--once"]).args(&target.flags).output().unwrap();
    let frame = stdout(&top);
    assert!(
        frame.contains("2 active, 1 suspended") && frame.contains("ultra.plan"),
        "{frame}{}",
        stderr(&top)
    );
    let lanes = target.json(&["lanes"]);
    assert_eq!((&lanes[0]["lane"], &lanes[0]["published"]), (&"ultra.plan".into(), &2.into()), "{lanes}");
    assert!(lanes[0]["oldest_ms"].as_u64().unwrap() >= HOUR_MS, "{lanes}");
    let stuck = target.json(&["tasks", "--older", "30m"]);
    assert_eq!((&stuck[0]["run"], &stuck[0]["state"]), (&old.id().to_string().into(), &"published".into()));
    assert_eq!(stuck.as_array().unwrap().len(), 1, "{stuck}");
    let runs = target.json(&["runs", "--state", "suspended"]);
    assert_eq!(runs[0]["run"], suspended.id().to_string());
    assert_eq!(target.json(&["runs"]).as_array().unwrap().len(), 3);
    let (code, out, _) = target.admin(&["runs", "--tenant", "acme"]);
    assert!(code == 0 && out.contains(&old.id().to_string()) && out.contains("active"), "{out}");
    assert_eq!(target.json(&["holds"]), serde_json::json!([]));
}

async fn requeues(target: &Target, old: &mut Driven) {
    let id = old.id().to_string();
    let (code, _, err) = target.admin(&["requeue", &id, "step.9.9"]);
    assert!(code == 1 && err.contains("it has plan.0"), "{err}");
    let (code, out, err) = target.admin(&["requeue", &id, "plan.0"]);
    assert!(code == 0 && out.contains("backlog"), "{out}{err}");
    assert_eq!(target.json(&["tasks", "--older", "30m"])[0]["state"], "backlog");
    old.process = Some(target.ids.process_id());
    old.claim(PLAN, &target.ids);
    target.write(old).await;
    let process = old.process.unwrap();
    target.runs.extend_lease(process, target.now, std::time::Duration::from_hours(1)).await.unwrap();
    assert_eq!(target.json(&["tasks"]), serde_json::json!([]), "its process is alive");
    let (code, out, err) = target.admin(&["requeue", &id, "plan.0"]);
    assert!(code == 0 && out.contains("released"), "{out}{err}");
    assert_eq!(target.json(&["tasks"])[0]["state"], "abandoned");
}

async fn cancels(target: &Target, old: &Driven, young: &Driven) {
    let (code, _, err) = target.admin(&["cancel", "--yes"]);
    assert!(code == 1 && err.contains("a filter"), "{err}");
    let (code, out, err) = target.admin(&["cancel", "--older", "30m", "--state", "active"]);
    assert!(code == 0 && out.contains(&old.id().to_string()), "{out}");
    assert!(err.contains("1 run would be cancelled"), "{err}");
    assert_eq!(target.state(old.id()).await, "Active", "without --yes nothing changes");
    let (code, _, err) = target.admin(&["cancel", "--older", "30m", "--state", "active", "--yes"]);
    assert!(code == 0 && err.contains("1 run cancelled"), "{err}");
    assert_eq!(target.state(old.id()).await, "Cancelled");
    assert_eq!(target.state(young.id()).await, "Active");
    assert_eq!(
        target.json(&["tasks", "--older", "0s"]).as_array().unwrap().len(),
        1,
        "only that of the young run"
    );
}

#[tokio::test]
async fn operators_find_and_repair_work_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    operators_find_and_repair_work(Target::sqlite(folder.path()).await).await;
}

#[tokio::test]
async fn operators_find_and_repair_work_on_postgres() {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    operators_find_and_repair_work(Target::postgres(&address).await).await;
}

#[test]
fn a_correction_of_a_budget_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let run = |arguments: &[&str]| {
        let output = podium(arguments).args(["--data", data]).env("USER", "ann").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    run(&["budget", "set", "--tenant", "acme", "--usd", "5"]);
    run(&["budget", "correct", "--tenant", "acme", "--spent-usd", "-0.5", "--reserved-usd", "2"]);
    let log = run(&["admin", "log"]);
    assert!(log.contains("correct  tenant:acme  spent -0.5, reserved +2 USD"), "{log}");
    assert!(run(&["admin", "holds"]).contains("tenant:acme  $2"), "{log}");
}
