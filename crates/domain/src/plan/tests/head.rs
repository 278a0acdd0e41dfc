//! Which steps of a plan are final while the rest is being written.

use super::*;
use crate::ids::WorkerId;
use crate::policy::WorkersAllowed;

const TEXT: &str =
    "Two parts.\nmodel_id = [0, 1, 2]\nsubtasks = [\"a\", \"b\", \"c\"]\naccess_list = [[], [], [0, 1]]\n";

/// The heads' subtasks and access lists, each with the text after which it was first known.
fn heads(text: &str, policy: &Policy, last: LastStep) -> Vec<(String, String)> {
    let (mut stream, mut draft, mut known) = (PlanStream::new(), PlanDraft::default(), Vec::new());
    for (at, c) in text.char_indices() {
        stream.push(c.encode_utf8(&mut [0; 4])).into_iter().for_each(|piece| draft.apply(piece));
        let steps = draft.head(&pool(), policy, last).map(|head| {
            let step = |step: &Step| format!("{}{:?}", step.subtask, step.access.as_slice().len());
            head.steps().iter().map(step).collect::<Vec<_>>().join(" ")
        });
        let steps = steps.unwrap_or_default();
        if known.last().is_none_or(|(before, _)| *before != steps) {
            known.push((steps, text[..=at].rsplit('\n').next().unwrap().to_owned()));
        }
    }
    known
}

fn steps(known: &[(String, String)]) -> Vec<&str> {
    known.iter().map(|(steps, _)| steps.as_str()).collect()
}

#[test]
fn the_first_step_is_final_with_its_subtask_others_with_access() {
    let known = heads(TEXT, &policy(), LastStep::Included);
    assert_eq!(steps(&known), ["", "a0", "a0 b0", "a0 b0 c2"]);
    assert_eq!(known[1].1, "subtasks = [\"a\",");
    assert_eq!(known[2].1, "access_list = [[], []");
    assert_eq!(known[3].1, "access_list = [[], [], [0, 1]");
}

#[test]
fn with_access_lists_first_each_step_is_final_with_its_subtask() {
    let text = "model_id = [0, 1, 2]\naccess_list = [[], [], [1]]\nsubtasks = [\"a\", \"b\", \"c\"]\n";
    let known = heads(text, &policy(), LastStep::Included);
    assert_eq!(steps(&known), ["", "a0", "a0 b0", "a0 b0 c1"]);
    assert_eq!(known[2].1, "subtasks = [\"a\", \"b\",");
}

#[test]
fn the_last_step_can_be_withheld() {
    assert_eq!(steps(&heads(TEXT, &policy(), LastStep::Withheld)), ["", "a0", "a0 b0"]);
    let single = "model_id = [0]\nsubtasks = [\"a\"]\naccess_list = [[]]\n";
    assert_eq!(steps(&heads(single, &policy(), LastStep::Withheld)), [""]);
    assert_eq!(steps(&heads(single, &policy(), LastStep::Included)), ["", "a0"]);
}

#[test]
fn a_plan_begins_with_its_head() {
    let plan = PlanDraft::parse(TEXT).unwrap().check(&pool(), &policy()).unwrap();
    let whole = PlanDraft::parse(TEXT).unwrap().head(&pool(), &policy(), LastStep::Included).unwrap();
    for len in 1..=3 {
        let head = whole.first(len).unwrap();
        assert!(head.len() == len && plan.begins_with(&head) && whole.begins_with(&head));
    }
    assert_eq!(whole.first(0), None);
    assert!(!whole.first(1).unwrap().begins_with(&whole));
    let stored = serde_json::to_string(&whole).unwrap();
    assert_eq!(serde_json::from_str::<PlanHead>(&stored).unwrap(), whole);
    assert!(serde_json::from_str::<PlanHead>("{\"steps\":[]}").is_err());
}

#[test]
fn an_invalid_plan_has_no_head() {
    let only = WorkersAllowed::Only([WorkerId::new("small").unwrap()].into());
    let begun = |text: &str, policy: &Policy| steps(&heads(text, policy, LastStep::Included)).join("|");
    assert_eq!(begun(TEXT, &Policy { workers_allowed: only, ..policy() }), "");
    assert_eq!(begun(TEXT, &Policy { steps_max: 2, ..policy() }), "");
    assert_eq!(begun(&TEXT.replace("1, 2]", "1, 3]"), &policy()), "");
    assert_eq!(begun(&TEXT.replace("\"a\"", "\" \""), &policy()), "");
    assert_eq!(begun(&TEXT.replace("[], [],", "[], [1],"), &policy()), "|a0|", "what was begun stays begun");
    assert_eq!(begun(&TEXT.replace("\"c\"]", "\"c\", \"d\"]"), &policy()), "|a0|");
}

#[test]
fn a_plan_is_joined_to_its_head() {
    let plan = PlanDraft::parse(TEXT).unwrap().check(&pool(), &policy()).unwrap();
    let two = TEXT.replace("[[], [], [0, 1]]", "[[], [0], []]");
    let two = PlanDraft::parse(&two).unwrap().head(&pool(), &policy(), LastStep::Withheld).unwrap();
    let sees = |plan: &Plan| -> Vec<Vec<u16>> {
        let sees = |step: &Step| step.access.as_slice().iter().map(|seen| seen.get()).collect();
        plan.steps().iter().map(sees).collect()
    };
    let none: Vec<u16> = vec![];
    let behind = plan.behind(&two);
    assert_eq!(sees(&behind), [none.clone(), vec![0], none.clone(), none.clone(), vec![2, 3]]);
    let completing = plan.completing(&two);
    assert_eq!(sees(&completing), [none, vec![0], vec![0, 1], vec![0, 1], vec![2, 3]]);
    for joined in [behind, completing] {
        let stored = serde_json::to_string(&joined).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&stored).unwrap(), joined);
    }
}
