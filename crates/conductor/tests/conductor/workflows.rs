//! `podium-max`: a head chooses among workflows.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use podium_conductor::{DirectConductor, PLANNED, Planner, SetError, WorkflowHead, WorkflowSet};
use podium_domain::ids::WorkerId;
use podium_domain::policy::{FailedStep, Policy, WorkersAllowed};
use podium_domain::pool::Pool;
use podium_head::{Choices, Identity, LinearHead, words};
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanRequest};
use podium_testkit::a_pool;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::planned;

const SUM: &str = "What is 17 + 4?";
const SENTENCE: &str = "Name a river in France.";

fn id(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn request(question: &str) -> PlanRequest {
    PlanRequest { question: question.to_owned(), ..crate::request() }
}

/// A folder with two workflows and the file that lists them.
struct Folder(TempDir);

impl Folder {
    fn new(lines: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write(
            "one.yaml",
            "{ name: one, version: '1', steps: [{ worker: careful, subtask: '{{ question }}' }] }",
        );
        folder.write(
            "cascade.yaml",
            "{ name: cascade, version: '1', steps: [ { worker: quick, subtask: '{{ question }}' },
               { worker: checker, subtask: '{{ question }}' },
               { worker: careful, subtask: '{{ question }}', unless_agree: [1, 2] }] }",
        );
        folder.write(
            "max.yaml",
            &format!("name: mine\nversion: '1'\nhead: head.safetensors\nworkflows: [one.yaml, cascade.yaml]\n{lines}"),
        );
        folder
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn set(&self) -> WorkflowSet {
        WorkflowSet::read(&self.path("max.yaml"), Arc::new(a_pool())).unwrap()
    }

    /// Writes a head that chooses each of `choices` for the question next to it.
    fn train(&self, choices: &[(&str, &str)]) {
        let slots: Vec<_> = choices.iter().map(|(choice, _)| id(choice)).collect();
        let pool_sha256 = self.set().hash(&slots).unwrap();
        let identity = Identity { choices: Choices::Workflows, slots, pool_sha256, source: words::source() };
        let weights = choices.iter().flat_map(|(_, question)| words::vector(question)).collect();
        let head = LinearHead::with_identity(identity, weights).unwrap();
        fs::write(self.path("head.safetensors"), head.to_bytes().unwrap()).unwrap();
    }

    fn read(&self, planner: Planner) -> Result<WorkflowHead, SetError> {
        WorkflowHead::read(&self.path("max.yaml"), Arc::new(a_pool()), planner)
    }
}

fn elsewhere() -> Planner {
    Planner::Elsewhere(Abilities { steps_max: 5, rounds_max: 3, failed_step: FailedStep::Replan })
}

fn workers(conductor: &WorkflowHead, request: &PlanRequest) -> Option<Vec<String>> {
    let outcome = conductor.plan_at_once(request)?;
    Some(planned(&outcome).plan.steps().iter().map(|step| step.worker.to_string()).collect())
}

#[tokio::test]
async fn the_head_chooses_the_workflow_of_each_question() {
    let folder = Folder::new("");
    folder.train(&[("one-1", SENTENCE), ("cascade-1", SUM)]);
    let conductor = folder.read(elsewhere()).unwrap();
    assert_eq!((conductor.id(), conductor.abilities().rounds_max), ("mine-1", 1));
    assert_eq!(conductor.abilities().steps_max, 3, "the conductor's plan is not a choice");
    assert_eq!(workers(&conductor, &request(SENTENCE)).unwrap(), ["careful"]);
    assert_eq!(workers(&conductor, &request("What is 23 + 4?")).unwrap(), ["quick", "checker", "careful"]);
    let outcome = conductor.plan(&request(SUM), &|_| {}, &CancellationToken::new()).await.unwrap();
    let planned = planned(&outcome);
    assert_eq!(planned.reasoning, "The head chose the workflow `cascade-1`.");
    assert_eq!(planned.plan.steps()[2].unless_agree.as_slice().len(), 2);
}

#[test]
fn a_workflow_that_the_policy_forbids_is_not_chosen() {
    let folder = Folder::new("");
    folder.train(&[("one-1", SENTENCE), ("cascade-1", SUM)]);
    let conductor = folder.read(elsewhere()).unwrap();
    let under = |policy: Policy| PlanRequest { policy, ..request(SUM) };
    let short = Policy { steps_max: 2, ..request(SUM).policy };
    assert_eq!(workers(&conductor, &under(short)).unwrap(), ["careful"]);
    let only = |names: &[&str]| {
        let allowed: BTreeSet<_> = names.iter().map(|name| id(name)).collect();
        under(Policy { workers_allowed: WorkersAllowed::Only(allowed), ..request(SUM).policy })
    };
    assert_eq!(workers(&conductor, &only(&["careful", "quick"])).unwrap(), ["careful"]);
    assert_eq!(workers(&conductor, &only(&["quick"])), None);
}

#[tokio::test]
async fn the_conductor_plans_if_the_head_chooses_that() {
    let folder = Folder::new("planned: true\n");
    folder.train(&[("one-1", SENTENCE), (PLANNED, SUM)]);
    let inner = DirectConductor::to_worker(Arc::new(a_pool()), id("checker")).unwrap();
    let here = folder.read(Planner::Here(Arc::new(inner))).unwrap();
    assert_eq!(workers(&here, &request(SUM)).unwrap(), ["checker"]);
    assert_eq!(workers(&here, &request(SENTENCE)).unwrap(), ["careful"]);
    let there = folder.read(elsewhere()).unwrap();
    assert_eq!((workers(&there, &request(SUM)), there.abilities().steps_max), (None, 5));
    let error = there.plan(&request(SUM), &|_| {}, &CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, ConductorError::Absent { .. }), "{error}");
}

#[test]
fn a_head_for_other_workflows_is_refused() {
    let folder = Folder::new("");
    folder.train(&[("one-1", SENTENCE), ("cascade-1", SUM)]);
    folder.read(elsewhere()).unwrap();
    let yaml = fs::read_to_string(folder.path("cascade.yaml")).unwrap();
    folder.write("cascade.yaml", &yaml.replace("worker: checker", "worker: quick"));
    let changed = folder.read(elsewhere()).err().unwrap().to_string();
    assert!(changed.contains("other steps or models than in training"), "{changed}");
    folder.write("cascade.yaml", &yaml.replace("version: '1'", "version: '2'"));
    let renamed = folder.read(elsewhere()).err().unwrap().to_string();
    assert!(renamed.contains("may choose `cascade-1`, which the file does not offer"), "{renamed}");
    folder.write("cascade.yaml", &yaml);

    let workers = Identity {
        choices: Choices::Workers,
        slots: vec![id("quick"), id("careful")],
        pool_sha256: "0".repeat(64),
        source: words::source(),
    };
    let weights = vec![0.0; 2 * words::VALUES];
    let mini = LinearHead::with_identity(workers, weights).unwrap();
    fs::write(folder.path("head.safetensors"), mini.to_bytes().unwrap()).unwrap();
    let mini = folder.read(elsewhere()).err().unwrap().to_string();
    assert!(mini.contains("chooses among workers, not workflows"), "{mini}");
    fs::write(folder.path("head.safetensors"), "no head").unwrap();
    let broken = folder.read(elsewhere()).err().unwrap();
    assert!(broken.to_string().contains("max.yaml cannot be used") && broken.source().is_some(), "{broken}");
}

#[test]
fn a_file_that_cannot_work_is_refused_with_its_problem() {
    let folder = Folder::new("");
    let read = |text: &str| {
        folder.write("max.yaml", text);
        let pool: Arc<Pool> = Arc::new(a_pool());
        let error = WorkflowHead::read(&folder.path("max.yaml"), pool, elsewhere());
        error.err().map(|error| error.to_string()).unwrap_or_default()
    };
    for (text, wanted) in [
        ("name: a b\nversion: '1'\nhead: h\nworkflows: [one.yaml]", "name and version: "),
        ("name: m\nversion: '1'\nhead: h\nworkflows: []", "workflows has 0 entries, it must have 1 to 64"),
        (
            "name: m\nversion: '1'\nhead: h\nworkflows: [one.yaml, one.yaml]",
            "two choices have the name `one-1`",
        ),
        ("name: m\nversion: '1'\nworkflows: [one.yaml]", "max.yaml has no `head`"),
        ("name: m\nversion: '1'\nhead: h\nworkflows: [other.yaml]", "other.yaml cannot be read"),
        ("name: m\nversion: '1'\nhead: h\nworkflow: [one.yaml]", "max.yaml cannot be parsed"),
    ] {
        let error = read(text);
        assert!(error.contains(wanted), "{text:?}: {error}");
    }
    let missing = WorkflowSet::read(Path::new("/nonexistent/max.yaml"), Arc::new(a_pool())).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/max.yaml cannot be read"), "{missing}");
}
