//! The requirements of a plan, and those of a stored plan that is read again.

use super::*;
use crate::ids::{StepIndex, WorkerId};
use crate::policy::WorkersAllowed;

fn draft(ids: &[i64], access: &[RawAccess]) -> PlanDraft {
    PlanDraft {
        model_id: ids.iter().copied().map(RawId::Index).collect(),
        subtasks: ids.iter().map(|id| format!("do {id}")).collect(),
        access_list: access.to_vec(),
    }
}

fn indices(indices: &[i64]) -> RawAccess {
    RawAccess::Indices(indices.to_vec())
}

fn refusal(draft: &PlanDraft) -> String {
    draft.check(&pool(), &policy()).unwrap_err().to_string()
}

fn steps(steps: impl IntoIterator<Item = StepIndex>) -> Vec<u16> {
    steps.into_iter().map(StepIndex::get).collect()
}

#[test]
fn a_plan_knows_what_each_step_sees() {
    let draft = draft(&[0, 1, 2, 0], &[RawAccess::All, RawAccess::None, indices(&[1, 0, 1]), RawAccess::All]);
    let plan = draft.check(&pool(), &policy()).unwrap();
    let access =
        |step: u16| steps(plan.step(StepIndex::new(step)).unwrap().access.as_slice().iter().copied());
    assert_eq!(plan.len(), 4);
    assert_eq!([access(0), access(1), access(2), access(3)], [vec![], vec![], vec![0, 1], vec![0, 1, 2]]);
    assert_eq!(plan.final_step(), StepIndex::new(3));
    assert_eq!(plan.step(StepIndex::new(4)), None);
    assert_eq!(plan.steps()[2].worker.as_str(), "Coder");
    assert_eq!(plan.steps()[3].subtask, "do 0");
}

#[test]
fn lists_of_different_lengths_are_refused_with_their_lengths() {
    let mut draft = draft(&[0, 1], &[RawAccess::None]);
    draft.subtasks.push("more".into());
    assert_eq!(refusal(&draft), "lists differ in length: 2 in model_id, 3 in subtasks, 1 in access_list");
}

#[test]
fn three_empty_lists_keep_the_answer_and_are_not_a_plan() {
    let empty = PlanDraft::parse("model_id = []\nsubtasks = []\naccess_list = []").unwrap();
    assert!(empty.keeps_answer());
    assert_eq!(refusal(&empty), "plan has no steps");
    assert!(!PlanDraft::single(&WorkerId::new("small").unwrap(), "x").keeps_answer());
}

#[test]
fn too_many_steps_are_refused_by_policy_and_hard_bound() {
    let many = |steps: usize| draft(&vec![0; steps], &vec![RawAccess::All; steps]);
    assert!(many(5).check(&pool(), &policy()).is_ok());
    assert_eq!(refusal(&many(6)), "plan has 6 steps, steps_max is 5");
    let lax = Policy { steps_max: u16::MAX, ..policy() };
    assert!(many(16).check(&pool(), &lax).is_ok());
    let refused = many(LIST_ELEMENTS_MAX).check(&pool(), &lax);
    assert_eq!(refused, Err(PlanError::TooManySteps { steps: LIST_ELEMENTS_MAX, steps_max: 16 }));
}

#[test]
fn a_worker_is_found_by_position_name_or_position_in_text() {
    let pool = pool();
    let found = |id: RawId| id.find(&pool).map(|worker| worker.id.as_str().to_owned());
    let named = |name: &str| found(RawId::Name(name.to_owned()));
    assert_eq!(found(RawId::Index(1)).as_deref(), Some("large"));
    for name in
        ["large", "LARGE", "Model id 1", "model 1", "MODEL_ID: 1", "worker-1", "model id = 1", "model1"]
    {
        assert_eq!(named(name).as_deref(), Some("large"), "{name}");
    }
    for name in
        ["larg", "model", "model id", "model -1", "model 1.5", "model 3", "1 model", "modèle 1", "", "\0"]
    {
        assert_eq!(named(name), None, "{name}");
    }
    for index in [-1, 3, i64::MIN, i64::MAX] {
        assert_eq!(found(RawId::Index(index)), None);
    }
}

#[test]
fn an_unknown_workers_name_is_cut_in_the_error() {
    let mut draft = draft(&[0, 7], &[RawAccess::None, RawAccess::None]);
    assert_eq!(refusal(&draft), "model_id of step 2 is `7`, the pool has positions 0 to 2 and other names");
    draft.model_id[1] = RawId::Name("ü".repeat(100_000));
    assert!(refusal(&draft).len() < 250);
}

#[test]
fn a_worker_that_the_policy_does_not_allow_is_refused() {
    let only = WorkersAllowed::Only([WorkerId::new("small").unwrap()].into());
    let policy = Policy { workers_allowed: only, ..policy() };
    let refused = |id: i64| draft(&[id], &[RawAccess::None]).check(&pool(), &policy);
    assert!(refused(0).is_ok());
    assert_eq!(
        refused(1).unwrap_err().to_string(),
        "worker `large` of step 1 is not among the policy's workers_allowed"
    );
}

#[test]
fn only_earlier_steps_can_be_seen() {
    for value in [1, 2, 3, -1, 65_536, 65_537, i64::MIN, i64::MAX] {
        let draft = draft(&[0, 0, 0], &[RawAccess::None, indices(&[0, value]), RawAccess::None]);
        let refused = draft.check(&pool(), &policy());
        assert_eq!(refused, Err(PlanError::NotAnEarlierStep { step: StepIndex::new(1), value }));
    }
    let first = draft(&[0], &[indices(&[0])]);
    assert_eq!(refusal(&first), "access_list of step 1 has position 0, earlier steps have positions below 0");
}

#[test]
fn a_subtask_is_not_blank_and_short_enough_to_store() {
    let refused = |subtask: String| {
        PlanDraft::single(&WorkerId::new("small").unwrap(), subtask).check(&pool(), &policy())
    };
    assert!(refused("x".repeat(SUBTASK_BYTES_MAX)).is_ok());
    let step = StepIndex::new(0);
    let (bytes, bytes_max) = (SUBTASK_BYTES_MAX + 1, SUBTASK_BYTES_MAX);
    assert_eq!(refused("x".repeat(bytes)), Err(PlanError::SubtaskTooLong { step, bytes, bytes_max }));
    assert_eq!(refused(" \n\t".into()), Err(PlanError::EmptySubtask { step }));
    assert_eq!(refused("a\0".into()), Err(PlanError::NulInSubtask { step, offset: 1 }));
}

#[test]
fn a_stored_plan_is_read_unchanged() {
    let plan = draft(&[0, 1, 2], &[RawAccess::None, RawAccess::All, indices(&[1])]).check(&pool(), &policy());
    let plan = plan.unwrap();
    let of_first_round = r#"{"steps":[{"worker":"small","subtask":"do 0","access":[]},{"worker":"large","subtask":"do 1","access":[0]},{"worker":"Coder","subtask":"do 2","access":[1]}]}"#;
    let of_further_round = of_first_round.replace("[0]}", r#"[0],"sees_earlier_round":true}"#);
    for (plan, expected) in [(plan.of_first_round(), of_first_round), (plan, &of_further_round)] {
        assert_eq!(serde_json::to_string(&plan).unwrap(), expected);
        assert_eq!(serde_json::from_str::<Plan>(expected).unwrap(), plan);
    }
}

#[test]
fn a_stored_plan_that_breaks_an_invariant_is_rejected() {
    let step = |access: &str| format!(r#"{{"worker":"small","subtask":"x","access":{access}}}"#);
    let plan = |steps: &[String]| format!(r#"{{"steps":[{}]}}"#, steps.join(","));
    let read = |json: &str| serde_json::from_str::<Plan>(json);
    for steps in [
        vec![],
        vec![step("[0]")],
        vec![step("[]"), step("[1]")],
        vec![step("[]"), step("[-1]")],
        vec![step("[]"), step("[65536]")],
        vec![step("[]").replace("\"x\"", "\" \"")],
        vec![step("[]").replace("\"x\"", "\"\\u0000\"")],
        vec![step("[]").replace("small", "no such name")],
        vec![step("[]"); 2 * usize::from(crate::policy::STEPS_MAX) + 1],
    ] {
        assert!(read(&plan(&steps)).is_err(), "{steps:?}");
    }
    let unsorted = read(&plan(&[step("[]"), step("[]"), step("[1,0,1]")])).unwrap();
    assert_eq!(unsorted.steps()[2].access.as_slice(), [StepIndex::new(0), StepIndex::new(1)]);
}
