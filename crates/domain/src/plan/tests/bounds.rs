//! Texts that could cost much time, memory or stack. Costs are counted in pieces, bytes and elements, not in seconds: the scanner
//! visits each character once, so only copied and yielded data could grow faster than the text.

use super::*;

/// Parses a text as a whole. Also returns the bytes of all pieces, which reveal repeated work on the same text.
fn read(text: &str) -> (Result<PlanDraft, ParseError>, usize) {
    let mut stream = PlanStream::new();
    let pieces = stream.push(text);
    let bytes = pieces.iter().map(piece_bytes).sum();
    (stream.finish(), bytes)
}

fn piece_bytes(piece: &PlanPiece) -> usize {
    1 + match piece {
        PlanPiece::Worker { worker: RawId::Name(name), .. } => name.len(),
        PlanPiece::Subtask { text, .. } => text.len(),
        PlanPiece::Access { access: RawAccess::Indices(indices), .. } => indices.len(),
        _ => 0,
    }
}

/// About `bytes` bytes of one pattern.
fn filled(pattern: &str, bytes: usize) -> String {
    pattern.repeat(bytes / pattern.len())
}

fn plan_of(steps: usize) -> String {
    let list = |element: &str| vec![element; steps].join(",");
    format!("model_id=[{}]\nsubtasks=[{}]\naccess_list=[{}]", list("0"), list("'x'"), list("'all'"))
}

#[test]
fn a_text_of_the_longest_length_is_parsed_and_no_longer_one() {
    let plan = plan_of(2);
    let fitting = " ".repeat(TEXT_BYTES_MAX - plan.len()) + &plan;
    assert!(PlanDraft::parse(&fitting).is_ok());
    let too_long = Err(ParseError::TextTooLong { bytes_max: TEXT_BYTES_MAX });
    assert_eq!(PlanDraft::parse(&format!("{fitting} ")), too_long);
    assert_eq!(PlanDraft::parse(&format!("{fitting}é")), too_long);

    let mut stream = PlanStream::new();
    stream.push(&fitting);
    assert!(stream.is_complete());
    assert_eq!(stream.push("é"), []);
    assert_eq!(stream.push(""), []);
    assert!(!stream.is_complete());
    assert_eq!(stream.finish(), too_long);

    let mut stream = PlanStream::new();
    stream.push(&fitting[1..]);
    stream.push("é");
    stream.push("x");
    assert_eq!(stream.finish(), too_long);
}

#[test]
fn a_subtask_of_a_megabyte_is_parsed_but_fails_the_check() {
    let text = "x".repeat(1_000_000);
    let draft = PlanDraft::parse(&format!("model_id=[0]\nsubtasks=['{text}']\naccess_list=[[]]")).unwrap();
    assert_eq!(draft.subtasks, [text]);
    let refused = draft.check(&pool(), &policy()).unwrap_err();
    assert!(matches!(refused, PlanError::SubtaskTooLong { bytes: 1_000_000, .. }), "{refused}");
}

#[test]
fn ten_thousand_steps_are_parsed_and_no_more() {
    let draft = PlanDraft::parse(&plan_of(LIST_ELEMENTS_MAX)).unwrap();
    assert_eq!(draft.access_list.len(), LIST_ELEMENTS_MAX);
    assert!(matches!(draft.check(&pool(), &policy()), Err(PlanError::TooManySteps { steps: 10_000, .. })));

    let refused = PlanDraft::parse(&plan_of(LIST_ELEMENTS_MAX + 1)).unwrap_err().to_string();
    assert_eq!(refused, "model_id has more than 10000 elements, at byte 20010");
    let trailing_comma = plan_of(LIST_ELEMENTS_MAX).replace(']', ",]");
    assert!(PlanDraft::parse(&trailing_comma).is_ok());
}

#[test]
fn a_list_in_a_list_has_the_same_bound() {
    let plan =
        |seen: usize| format!("model_id=[0]\nsubtasks=['x']\naccess_list=[[{}]]", vec!["0"; seen].join(","));
    assert!(PlanDraft::parse(&plan(LIST_ELEMENTS_MAX)).is_ok());
    let refused = PlanDraft::parse(&plan(LIST_ELEMENTS_MAX + 1)).unwrap_err();
    assert!(matches!(refused, ParseError::TooManyElements { field: Field::AccessList, .. }), "{refused}");
}

#[test]
fn a_megabyte_of_brackets_is_too_deep_at_the_ninth() {
    for field in Field::ALL {
        let earlier = Field::ALL.iter().filter(|earlier| **earlier < field);
        let others: Vec<_> = earlier.map(|earlier| format!("{earlier}=[]\n")).collect();
        let label = format!("{}{field}=", others.concat());
        let brackets = "[".repeat(TEXT_BYTES_MAX - label.len());
        let refused = PlanDraft::parse(&format!("{label}{brackets}")).unwrap_err();
        let offset = label.len() + LIST_DEPTH_MAX;
        assert_eq!(refused, ParseError::TooDeep { field, depth_max: LIST_DEPTH_MAX, offset });
    }
}

#[test]
fn the_deepest_nesting_is_parsed_but_is_no_access_list() {
    let access = "[".repeat(LIST_DEPTH_MAX) + &"]".repeat(LIST_DEPTH_MAX);
    let refused =
        PlanDraft::parse(&format!("model_id=[0]\nsubtasks=['x']\naccess_list={access}")).unwrap_err();
    assert!(matches!(refused, ParseError::WrongElement { field: Field::AccessList, .. }), "{refused}");
}

#[test]
fn no_repeated_pattern_makes_pieces_larger_than_the_text() {
    let complete = "model_id=[0]subtasks=['x']access_list=[[]]";
    let patterns = [
        "model_id=[",
        "model_id=[0]",
        "model_id=[0,",
        "model_id=[0]subtasks=['x']",
        "model_id=[0]subtasks=['x\n",
        "subtasks=[",
        "subtasks=['a'",
        "access_list=[[],",
        complete,
        "model_id=[0]subtasks=[x]access_list=[",
        "<think>model_id=[0]</think>",
        "model_id=[0]</think>",
        "<<<<think",
        "model_id=[0]subtasks=['x']access_list=[[]]</think>",
        "[",
        "]",
        ",",
        "'",
        "\"",
        "'''",
        "\\",
        "\0",
        "model_id",
        "model_id ",
        "model_id = ",
        "#",
        "```",
        "’",
    ];
    let beginnings = ["", "model_id=[", "model_id=[0]subtasks=['", "model_id=[0]subtasks=['''", complete];
    for beginning in beginnings {
        for pattern in patterns {
            let text = format!("{beginning}{}", filled(pattern, 20_000));
            let (_, bytes) = read(&text);
            assert!(
                bytes <= text.len(),
                "{bytes} bytes of pieces from {} of {beginning}{pattern}",
                text.len()
            );
        }
    }
}

#[test]
fn many_labels_cost_at_most_a_piece_and_a_restart_each() {
    let labels = 80_000;
    let pieces = |pattern: &str| PlanStream::new().push(&pattern.repeat(labels)).len();
    assert_eq!(pieces("model_id "), 0);
    assert_eq!(pieces("model_id=["), 0);
    assert_eq!(pieces("model_id=[0"), 0);
    assert_eq!(pieces("model_id=[,0]"), 0);
    assert_eq!(pieces("model_id=[0]"), labels + labels - 1);
}

#[test]
fn blanks_after_every_quote_are_copied_once() {
    // Each quote may close the text until the next letter shows that it does not.
    let text = "x' ".repeat(100_000);
    let plan = format!("model_id=[0]\nsubtasks=['{text}x']\naccess_list=[[]]");
    let (draft, bytes) = read(&plan);
    assert_eq!(draft.unwrap().subtasks[0], format!("{text}x"));
    assert!(bytes <= plan.len());
}

#[test]
fn nul_bytes_are_ordinary_characters() {
    let draft =
        PlanDraft::parse("\0model_id\0\0model_id=[0]\0subtasks=['a\0b']\0access_list=[[]]\0").unwrap();
    assert_eq!(draft.subtasks, ["a\0b"]);
    let refused = PlanDraft::parse("model_id=[\0]subtasks=['a']access_list=[[]\0]").unwrap_err().to_string();
    assert_eq!(refused, "access_list has an unexpected '\\0' at byte 41");
    assert!(PlanDraft::parse(&filled("\0", TEXT_BYTES_MAX)).is_err());
}
