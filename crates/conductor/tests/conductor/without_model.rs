//! The conductors without a model: one worker for the whole question, and a workflow from a file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use podium_conductor::{DirectConductor, FixedConductor, WORKFLOW_BYTES_MAX, WorkflowError};
use podium_domain::ids::WorkerId;
use podium_domain::plan::{Plan, Step};
use podium_domain::policy::{FailedStep, WorkersAllowed};
use podium_domain::pool::{Pool, SecretRef};
use podium_domain::run::PlanResult;
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanRequest};
use podium_testkit::a_pool;
use tokio_util::sync::CancellationToken;

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn request(question: &str) -> PlanRequest {
    PlanRequest { question: question.to_owned(), ..crate::request() }
}

async fn plan(conductor: &dyn Conductor, request: &PlanRequest) -> Result<Plan, ConductorError> {
    let outcome = conductor.plan(request, &|_| {}, &CancellationToken::new()).await?;
    assert_eq!((outcome.usage.total_tokens(), outcome.cost.nano_usd()), (0, 0));
    match outcome.result {
        PlanResult::Plan(planned) => Ok(planned.plan),
        PlanResult::KeepAnswer => panic!("there was no answer to keep"),
    }
}

/// Each step on a line: worker, what it sees, subtask.
fn lines(plan: &Plan) -> Vec<String> {
    let seen =
        |step: &Step| step.access.as_slice().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    plan.steps().iter().map(|step| format!("{} [{}] {}", step.worker, seen(step), step.subtask)).collect()
}

fn fixed(yaml: &str) -> Result<FixedConductor, WorkflowError> {
    FixedConductor::parse("test.yaml", yaml, Arc::new(a_pool()))
}

fn in_repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn pool_of(path: &str) -> Pool {
    Pool::parse(&std::fs::read_to_string(in_repository(path)).unwrap()).unwrap()
}

#[tokio::test]
async fn a_question_goes_unchanged_to_the_safest_worker() {
    let direct = DirectConductor::to_safest(Arc::new(a_pool()));
    let abilities = Abilities { steps_max: 1, rounds_max: 1, failed_step: FailedStep::Fail };
    assert_eq!((direct.id(), direct.abilities()), ("direct", abilities));
    assert_eq!(
        lines(&plan(&direct, &request("why {{ question }}?")).await.unwrap()),
        ["careful [] why {{ question }}?"]
    );

    let mut cheap = request("why?");
    cheap.policy.workers_allowed = WorkersAllowed::Only(BTreeSet::from([worker("quick"), worker("checker")]));
    assert_eq!(lines(&plan(&direct, &cheap).await.unwrap()), ["checker [] why?"]);
    cheap.policy.workers_allowed = WorkersAllowed::Only(BTreeSet::new());
    assert!(matches!(plan(&direct, &cheap).await, Err(ConductorError::NoPlan { tries: 1, .. })));
}

#[tokio::test]
async fn a_question_goes_to_a_worker_by_name() {
    let pool = Arc::new(a_pool());
    let direct = DirectConductor::to_worker(Arc::clone(&pool), worker("quick")).unwrap();
    assert_eq!(direct.id(), "direct-quick");
    assert_eq!(lines(&plan(&direct, &request("why?")).await.unwrap()), ["quick [] why?"]);
    let mut others = request("why?");
    others.policy.workers_allowed = WorkersAllowed::Only(BTreeSet::from([worker("careful")]));
    assert!(plan(&direct, &others).await.unwrap_err().to_string().contains("workers_allowed"));
    assert_eq!(DirectConductor::to_worker(pool, worker("nobody")).unwrap_err().id, worker("nobody"));
}

#[tokio::test]
async fn a_question_too_long_for_a_subtask_is_referred_to() {
    let long = request(&"why? ".repeat(20_000));
    let direct = DirectConductor::to_safest(Arc::new(a_pool()));
    assert!(plan(&direct, &long).await.unwrap().steps()[0].subtask.len() < 100);
    let fixed =
        fixed("{ name: f, version: '1', steps: [{ worker: any, subtask: 'Criticise: {{ question }}' }] }")
            .unwrap();
    assert!(plan(&fixed, &long).await.unwrap().steps()[0].subtask.starts_with("Criticise: "));
}

#[tokio::test]
async fn a_stopped_conductor_returns() {
    let stop = CancellationToken::new();
    stop.cancel();
    let direct = DirectConductor::to_safest(Arc::new(a_pool()));
    let result = direct.plan(&request("why?"), &|_| {}, &stop).await;
    assert!(matches!(result, Err(ConductorError::Stopped)));
}

#[tokio::test]
async fn a_workflow_is_rendered_with_the_question() {
    let conductor = fixed(
        r#"
        name: draft-and-check
        version: 1
        description: Two drafts and a check.
        steps:
          - worker: quick
            subtask: "{{ question }}"
          - worker: any
            subtask: Answer in at most {{ steps_max * 10 }} words. {% if question is endingwith "?" %}It is a question.{% endif %}
            sees: []
          - { worker: checker, subtask: Check., sees: [2] }
          - { worker: checker, subtask: Decide., sees: all }
        "#,
    )
    .unwrap();
    assert_eq!((conductor.id(), conductor.description()), ("draft-and-check-1", "Two drafts and a check."));
    let abilities = Abilities { steps_max: 4, rounds_max: 1, failed_step: FailedStep::Fail };
    assert_eq!(conductor.abilities(), abilities);
    assert_eq!(
        lines(&plan(&conductor, &request("<why> {{ steps_max }}?")).await.unwrap()),
        [
            "quick [] <why> {{ steps_max }}?",
            "careful [] Answer in at most 50 words. It is a question.",
            "checker [2] Check.",
            "checker [1,2,3] Decide.",
        ]
    );
}

#[tokio::test]
async fn a_step_may_depend_on_whether_answers_agree() {
    let conductor = fixed(
        "{ name: cascade, version: '1', steps: [
           { worker: quick, subtask: a }, { worker: checker, subtask: a },
           { worker: careful, subtask: a, unless_agree: [1, 2] }] }",
    );
    let planned = plan(&conductor.unwrap(), &request("why?")).await.unwrap();
    let named = |step: &Step| step.unless_agree.as_slice().iter().map(|s| s.get()).collect::<Vec<_>>();
    let steps: Vec<_> =
        planned.steps().iter().map(|step| (step.access.as_slice().len(), named(step))).collect();
    assert_eq!(steps, [(0, vec![]), (0, vec![]), (0, vec![0, 1])]);
    for (named, wanted) in [
        ("[1]", "step 2: unless_agree names one step, it must name at least two"),
        ("[1, 2]", "step 2: unless_agree names 2, which is not an earlier step"),
        ("[1, 1]", "step 2: unless_agree names 1 twice"),
        ("all", "line"),
    ] {
        let yaml = format!(
            "{{ name: f, version: '1', steps: [ {{ worker: any, subtask: a }}, \
             {{ worker: any, subtask: a, unless_agree: {named} }}] }}"
        );
        let error = fixed(&yaml).unwrap_err().to_string();
        assert!(error.contains(wanted), "{named}: {error}");
    }
}

#[tokio::test]
async fn a_workflow_beyond_the_policy_is_rejected() {
    let yaml =
        "{ name: f, version: '1', steps: [{ worker: quick, subtask: a }, { worker: careful, subtask: b }] }";
    let conductor = fixed(yaml).unwrap();
    let mut short = request("why?");
    short.policy.steps_max = 1;
    assert!(
        plan(&conductor, &short).await.unwrap_err().to_string().contains("plan has 2 steps, steps_max is 1")
    );
    let mut others = request("why?");
    others.policy.workers_allowed = WorkersAllowed::Only(BTreeSet::from([worker("careful")]));
    let error = plan(&conductor, &others).await.unwrap_err();
    assert!(!error.is_retryable() && error.to_string().contains("`quick`"), "{error}");
}

#[test]
fn every_problem_of_a_workflow_is_listed_with_its_step_and_key() {
    let error = fixed(
        r#"
        name: bad name
        version: "1"
        steps:
          - worker: nobody
            subtask: "{{ question }}"
          - worker: "not a name"
            subtask: "{{ questoin }} {{ history }}"
            sees: [2, 3, 0, -1]
          - worker: quick
            subtask: "{{ question"
            sees: [1, 1]
          - worker: quick
            subtask: "  "
          - worker: quick
            subtask: "{{ question | shout }}"
          - worker: quick
            subtask: "{% for i in range(10000) %}{% for j in range(10000) %}{{ question }}{% endfor %}{% endfor %}"
          - worker: quick
            subtask: "{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}"
        "#,
    )
    .unwrap_err();
    let WorkflowError::Invalid { file, problems } = &error else { panic!("{error}") };
    assert_eq!(file, "test.yaml");
    let begin = |wanted: &str| problems.iter().any(|problem| problem.starts_with(wanted));
    for wanted in [
        "name and version: ",
        "step 1: worker `nobody` is not in pool test-1",
        "step 2: worker is not a valid name: ",
        "step 2: subtask uses unknown names `history`, `questoin`; the known ones are `question`, `steps_max`",
        "step 2: sees 2, which is not an earlier step",
        "step 2: sees 3, which is not an earlier step",
        "step 2: sees 0, which is not an earlier step",
        "step 2: sees -1, which is not an earlier step",
        "step 3: subtask syntax error",
        "step 3: sees 1 twice",
        "step 4: subtask is blank",
        "step 5: subtask unknown filter",
        "step 6: subtask renders more than 16384 bytes",
        "step 7: subtask ",
    ] {
        assert!(begin(wanted), "`{wanted}` is not in {problems:#?}");
    }
    assert_eq!(problems.len(), 14, "{problems:#?}");
    assert!(error.to_string().starts_with("workflow test.yaml is invalid:\n  - "), "{error}");
    assert_eq!(error.to_string().matches("\n  - ").count(), 14, "{error}");
}

#[test]
fn a_workflow_without_or_with_too_many_steps_is_rejected() {
    let step = "{ worker: any, subtask: a }";
    for (steps, good) in [(0, false), (1, true), (16, true), (17, false)] {
        let yaml = format!("{{ name: f, version: '1', steps: [{}] }}", vec![step; steps].join(", "));
        assert_eq!(fixed(&yaml).is_ok(), good, "{steps} steps");
    }
}

#[test]
fn invalid_yaml_is_rejected_with_its_position() {
    for (yaml, wanted) in [
        ("", "unexpected end of input"),
        ("steps: [", "line"),
        ("{ name: f, version: '1', steps: [], color: red }", "color"),
        ("{ name: f, version: '1', steps: [{ worker: any, subtask: a, sees: some }] }", "`all` or a list"),
        ("{ name: f, version: '1', steps: [{ worker: any, subtask: a, sees: [x] }] }", "line"),
        ("{ name: f, name: g, version: '1', steps: [] }", "duplicate"),
        ("{ name: f, version: '1', steps: [{ worker: any }] }", "subtask"),
    ] {
        let error = fixed(yaml).unwrap_err();
        assert!(matches!(error, WorkflowError::Syntax { .. }), "{yaml}: {error}");
        let text = error.to_string();
        assert!(text.contains("test.yaml") && text.contains(wanted), "{yaml}: {text}");
    }
    let long = format!("# {}", "x".repeat(WORKFLOW_BYTES_MAX));
    assert!(matches!(fixed(&long), Err(WorkflowError::TooLong { .. })));
}

#[test]
fn an_alias_bomb_is_rejected_before_it_expands() {
    let mut yaml = String::from("a: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..20 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        yaml = format!("{yaml}b{level}: &a{level} [{aliases}]\n");
    }
    assert!(matches!(fixed(&yaml), Err(WorkflowError::Syntax { .. })));
    let nested = format!("steps: {}", "[".repeat(30_000));
    assert!(matches!(fixed(&nested), Err(WorkflowError::Syntax { .. })));
}

#[test]
fn a_missing_too_long_or_binary_file_is_rejected() {
    let pool = Arc::new(a_pool());
    let read = |path: &std::path::Path| FixedConductor::read(path, Arc::clone(&pool)).unwrap_err();
    let missing = read(&in_repository("conductors/no-such-file.yaml"));
    assert!(
        matches!(&missing, WorkflowError::Unreadable { file, .. } if file.ends_with("no-such-file.yaml"))
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.yaml");
    std::fs::write(&path, "é".repeat(WORKFLOW_BYTES_MAX)).unwrap();
    assert!(matches!(read(&path), WorkflowError::TooLong { .. }));
    std::fs::write(&path, b"name: \xff").unwrap();
    assert!(matches!(read(&path), WorkflowError::Unreadable { .. }));
}

#[tokio::test]
async fn the_shipped_workflows_plan_over_the_demo_pool() {
    let pool = Arc::new(pool_of("pools/demo.toml"));
    let names: Vec<_> = pool.workers().iter().map(|worker| worker.id.as_str()).collect();
    let skills = ["arithmetic", "words", "dates", "units", "lists", "facts", "generalist"];
    assert_eq!(names, skills.map(|skill| format!("sim-{skill}")));
    let shapes = shapes_of("conductors", pool, "sim-generalist").await;
    let shape = |id: &str, seen: &[usize]| (id.to_owned(), seen.to_vec());
    assert_eq!(
        shapes,
        [
            shape("adaptive-self-consistency-1", &[0, 0, 0, 3]),
            shape("mixture-of-agents-1", &[0, 0, 0, 0, 4]),
            shape("reflection-1", &[0, 1, 2]),
            shape("self-consistency-1", &[0, 0, 0, 3]),
        ]
    );
}

#[tokio::test]
async fn the_workflows_of_the_gym_plan_over_its_pool() {
    let pool = Arc::new(pool_of("pools/gym.toml"));
    let model =
        |id: &str| pool.workers().iter().find(|worker| worker.id.as_str() == id).unwrap().model.clone();
    assert!(model("worker-e").starts_with("sim-generalist"));
    assert_eq!((model("worker-b").as_str(), model("worker-d").as_str()), ("sim-voter", "sim-checker@0.90"));
    let shapes = shapes_of("conductors/gym", pool, "worker-e").await;
    let shape = |id: &str, seen: &[usize]| (id.to_owned(), seen.to_vec());
    assert_eq!(
        shapes,
        [
            shape("gym-adaptive-self-consistency-1", &[0, 0, 0, 3]),
            shape("gym-checked-1", &[0, 0, 2]),
            shape("gym-mixture-of-agents-1", &[0, 0, 0, 3]),
            shape("gym-reflection-1", &[0, 1]),
            shape("gym-self-consistency-1", &[0, 0, 0, 3]),
        ]
    );
}

/// The id of each workflow of a folder, and the number of outputs that each of its steps sees. `first` answers the question first.
async fn shapes_of(folder: &str, pool: Arc<Pool>, first: &str) -> Vec<(String, Vec<usize>)> {
    let entries = std::fs::read_dir(in_repository(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    let mut shapes = Vec::new();
    for file in files {
        let conductor = FixedConductor::read(&file, Arc::clone(&pool)).unwrap();
        let plan = plan(&conductor, &request("What is 2 + 2?")).await.unwrap();
        assert_eq!(plan.steps()[0].worker, worker(first));
        assert_eq!(plan.steps()[0].subtask, "What is 2 + 2?");
        let seen: Vec<_> = plan.steps().iter().map(|step| step.access.as_slice().len()).collect();
        shapes.push((conductor.id().to_owned(), seen));
    }
    shapes
}

#[test]
fn the_pool_of_real_models_is_valid() {
    let pool = pool_of("pools/example-real.toml");
    assert_eq!(pool.vendors()[0].keys, [SecretRef::Env("OPENAI_API_KEY".to_owned())]);
    assert_eq!(pool.workers().len(), 3);
}
