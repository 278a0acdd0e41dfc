//! Tests the grammar byte by byte, without a model.

use podium_domain::plan::PlanDraft;
use toktrie::ApproximateTokEnv;

use super::*;
use crate::vocabulary::{Vocabulary, tiny};

fn shape(workers: &[u16], steps_max: u16) -> PlanShape {
    PlanShape::new(workers.iter().copied(), steps_max, MayKeepAnswer::No).unwrap()
}

/// How many bytes of `text` the grammar accepts, and whether it is complete then.
fn walked(shape: &PlanShape, text: &str) -> (usize, bool) {
    let mut grammars = Grammars::new(&ApproximateTokEnv::single_byte_env()).unwrap();
    let mut walk = grammars.walk(shape).unwrap();
    for (at, byte) in text.bytes().enumerate() {
        let token = u32::from(byte);
        let is_allowed = !walk.is_complete() && walk.is_allowed(token).unwrap();
        // The fast check and the mask agree.
        let is_in_mask = !walk.is_complete() && walk.mask().unwrap().borrow().is_allowed(token);
        assert_eq!(is_allowed, is_in_mask, "{text} at {at}");
        if !is_allowed {
            return (at, walk.is_complete());
        }
        walk.take(token).unwrap();
    }
    (text.len(), walk.is_complete())
}

fn accepts(shape: &PlanShape, text: &str) -> bool {
    walked(shape, text) == (text.len(), true)
}

/// Checks that the plan is rejected at the first byte after `good`.
fn rejected_after(shape: &PlanShape, good: &str, bad: &str) {
    let text = format!("{good}{bad}");
    assert_eq!(walked(shape, &text), (good.len(), false), "{text}");
}

const THREE: &str = "model_id = [2, 0, 1]\nsubtasks = [\"a\", \"b\", \"c\"]\naccess_list = [[], [0], [0, 1]]";

#[test]
fn a_plan_of_every_length_is_accepted_and_parsed() {
    let shape = shape(&[0, 1, 2], 3);
    assert!(accepts(&shape, "model_id = [1]\nsubtasks = [\"a\"]\naccess_list = [[]]"));
    assert!(accepts(&shape, "model_id = [1, 1]\nsubtasks = [\"a\", \"b\"]\naccess_list = [[], []]"));
    assert!(accepts(&shape, THREE));
    let draft = PlanDraft::parse(THREE).unwrap();
    assert_eq!(draft.subtasks, ["a", "b", "c"]);
}

#[test]
fn the_quick_check_and_the_mask_agree_on_every_token() {
    let vocabulary = Arc::new(tiny());
    let environment: TokEnv = Arc::<Vocabulary>::clone(&vocabulary);
    let mut walk = Grammars::new(&environment).unwrap().walk(&shape(&[0, 1, 2], 3)).unwrap();
    let size = u32::try_from(vocabulary.speakable().len()).unwrap();
    let mut compared = 0;
    for next in vocabulary.cut(THREE.as_bytes()) {
        let mask = walk.mask().unwrap().borrow().clone();
        assert!(mask.num_set() > 0);
        // If only one text can follow, the mask contains its canonical tokens; any tokens that spell it are allowed.
        let is_forced = !walk.0.compute_ff_bytes().is_empty();
        for token in 0..size {
            let is_allowed = walk.is_allowed(token).unwrap();
            let is_in_mask = mask.is_allowed(token);
            let agree = is_allowed == is_in_mask || (is_forced && is_allowed);
            assert!(agree, "{:?}: {is_allowed} and {is_in_mask}", vocabulary.bytes(token));
        }
        compared += usize::from(!is_forced);
        walk.take(next).unwrap();
    }
    assert!(walk.is_complete() && compared > 5, "{compared} places");
}

#[test]
fn more_steps_than_allowed_are_rejected() {
    rejected_after(&shape(&[0, 1, 2], 2), "model_id = [2, 0", ", 1]");
    assert!(accepts(&shape(&[0], 16), &plan_of(16)));
    rejected_after(&shape(&[0], 1), "model_id = [0", ", 0]");
}

fn plan_of(steps: usize) -> String {
    let list = |element: &str| vec![element; steps].join(", ");
    let access: Vec<_> = (0..steps)
        .map(|step| format!("[{}]", (0..step).map(|s| s.to_string()).collect::<Vec<_>>().join(", ")))
        .collect();
    format!(
        "model_id = [{}]\nsubtasks = [{}]\naccess_list = [{}]",
        list("0"),
        list("\"x\""),
        access.join(", ")
    )
}

#[test]
fn forbidden_workers_are_rejected() {
    let shape = shape(&[1, 10], 2);
    rejected_after(&shape, "model_id = [", "0]");
    rejected_after(&shape, "model_id = [1", "1]");
    assert!(accepts(&shape, "model_id = [10, 1]\nsubtasks = [\"a\", \"b\"]\naccess_list = [[], [0]]"));
}

#[test]
fn lists_of_unequal_length_are_rejected() {
    let shape = shape(&[0, 1, 2], 3);
    rejected_after(&shape, "model_id = [2, 0]\nsubtasks = [\"a\"", "]");
    rejected_after(&shape, "model_id = [2, 0]\nsubtasks = [\"a\", \"b\"", ", \"c\"]");
    rejected_after(&shape, "model_id = [2, 0]\nsubtasks = [\"a\", \"b\"]\naccess_list = [[]", "]");
    rejected_after(&shape, "model_id = [2]\nsubtasks = [\"a\"]\naccess_list = [[]", ", []]");
}

#[test]
fn a_step_sees_each_earlier_step_once_and_no_later_one() {
    let shape = shape(&[0], 3);
    let begin = "model_id = [0, 0, 0]\nsubtasks = [\"a\", \"b\", \"c\"]\naccess_list = [[";
    rejected_after(&shape, begin, "0], [], []]");
    rejected_after(&shape, &format!("{begin}], ["), "1], []]");
    rejected_after(&shape, &format!("{begin}], [], ["), "2]]");
    rejected_after(&shape, &format!("{begin}], [], [1"), ", 0]]");
    rejected_after(&shape, &format!("{begin}], [], [0, "), "0]]");
}

#[test]
fn a_subtask_is_bounded_visible_and_escaped() {
    let shape = shape(&[0], 1).with_subtask_chars_max(5).unwrap();
    let plan = |subtask: &str| format!("model_id = [0]\nsubtasks = [\"{subtask}\"]\naccess_list = [[]]");
    for good in ["a", "abcde", "12345", r"\\", r#"\""#, r"a\nb\t", "äöü€𝄞", "a    ", "a\u{a0}"] {
        assert!(accepts(&shape, &plan(good)), "{good:?}");
        assert_eq!(PlanDraft::parse(&plan(good)).unwrap().subtasks.len(), 1);
    }
    for bad in ["", "abcdef", "äöü€𝄞x", " a", r"\na", "\u{a0}a", "a\nb", "a\u{1}", r"\q", "a\0b", "\u{7f}"]
    {
        assert!(!accepts(&shape, &plan(bad)), "{bad:?}");
    }
}

#[test]
fn keeping_the_answer_needs_an_answer() {
    let empty = "model_id = []\nsubtasks = []\naccess_list = []";
    rejected_after(&shape(&[0], 2), "model_id = [", "]");
    let recursive = PlanShape::new([0], 2, MayKeepAnswer::Yes).unwrap();
    assert!(accepts(&recursive, empty));
    assert!(PlanDraft::parse(empty).unwrap().keeps_answer());
    assert!(accepts(&recursive, "model_id = [0]\nsubtasks = [\"a\"]\naccess_list = [[]]"));
    rejected_after(&recursive, "model_id = []\nsubtasks = [", "\"a\"]");
}

#[test]
fn all_shows_the_round_before_and_needs_one() {
    let begun = "model_id = [0, 0]\nsubtasks = [\"a\", \"b\"]\naccess_list = [[";
    rejected_after(&shape(&[0], 2), begun, "\"all\"]");
    let recursive = PlanShape::new([0], 2, MayKeepAnswer::Yes).unwrap();
    for lists in ["\"all\"], [\"all\"]]", "], [0]]", "\"all\"], [0]]"] {
        assert!(accepts(&recursive, &format!("{begun}{lists}")), "{lists}");
    }
}

#[test]
fn nothing_follows_a_complete_plan() {
    let (taken, complete) = walked(&shape(&[0, 1, 2], 3), &format!("{THREE}\nmodel_id"));
    assert_eq!((taken, complete), (THREE.len(), true));
}

#[test]
fn a_shape_without_plans_is_rejected() {
    assert_eq!(PlanShape::new([], 1, MayKeepAnswer::No), Err(ShapeError::NoWorkers));
    assert_eq!(
        PlanShape::new([64], 1, MayKeepAnswer::No),
        Err(ShapeError::WorkerOutOfRange { position: 64 })
    );
    assert_eq!(PlanShape::new([0], 0, MayKeepAnswer::No), Err(ShapeError::Steps { steps_max: 0 }));
    assert_eq!(PlanShape::new([0], 17, MayKeepAnswer::No), Err(ShapeError::Steps { steps_max: 17 }));
    assert_eq!(shape(&[0], 1).with_subtask_chars_max(0), Err(ShapeError::SubtaskChars { chars_max: 0 }));
}

#[test]
fn kept_grammars_are_bounded_and_fresh_each_time() {
    let mut grammars = Grammars::new(&ApproximateTokEnv::single_byte_env()).unwrap();
    for chars in 1..=40 {
        let shape = shape(&[0], 1).with_subtask_chars_max(chars).unwrap();
        for _ in 0..2 {
            let mut walk = grammars.walk(&shape).unwrap();
            assert_eq!(walk.take_forced().unwrap().len(), "model_id = [0]\nsubtasks = [\"".len());
        }
    }
    assert_eq!(grammars.kept.len(), KEPT_MAX);
}

const COPIED: &str =
    "Take the days between 3 March 2024 and 17 May 2025, multiply it by 11.5. Then spell \"it\".";

fn copied(subtasks: &[&str]) -> String {
    let list =
        |element: &dyn Fn(usize) -> String| (0..subtasks.len()).map(element).collect::<Vec<_>>().join(", ");
    let quoted = |step: usize| format!("\"{}\"", subtasks[step].replace('"', "\\\""));
    format!(
        "model_id = [{}]\nsubtasks = [{}]\naccess_list = [{}]",
        list(&|_| "0".to_owned()),
        list(&quoted),
        list(&|_| "[]".to_owned())
    )
}

#[test]
fn copied_subtasks_are_parts_of_the_question_around_references() {
    let shape = shape(&[0], 3).with_subtasks_copied_from(COPIED);
    let good =
        ["the days between 3 March 2024 and 17 May 2025", "multiply the result by 11.5", "then spell \"it\""];
    assert!(accepts(&shape, &copied(&good)), "{:?}", walked(&shape, &copied(&good)));
    assert!(accepts(&shape, &copied(&[COPIED])));
    for bad in [
        "the days between 3 March 2024 and 17 May 2024",
        "the day",
        "multiply it by 11",
        "the result",
        "",
        " ",
        "words",
    ] {
        assert!(!accepts(&shape, &copied(&[bad])), "{bad}");
    }
    assert!(accepts(&shape, &copied(&["Take", "result 1 and result 2"])));
    assert!(!accepts(&shape, &copied(&["Take", "result 1 or result 2"])));
}

#[test]
fn a_question_too_long_to_copy_from_leaves_subtasks_free() {
    let shape = shape(&[0], 1).with_subtasks_copied_from(&"word ".repeat(1000));
    assert!(accepts(&shape, &copied(&["anything at all"])));
}
