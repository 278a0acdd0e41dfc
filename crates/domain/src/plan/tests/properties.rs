//! For random texts, cut anywhere: the stream's pieces, its end and the whole-text parser agree.

use proptest::prelude::*;

use super::exercise::exercise;
use super::*;

/// A valid plan, and one of the ways to write it.
#[derive(Clone, Debug)]
struct Written {
    draft: PlanDraft,
    text: String,
}

/// A fragment of a plan's text, or something that breaks one.
fn fragment() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "model_id",
        "subtasks",
        "access_list",
        "MODEL_ID = [",
        "model_id=[",
        "\nsubtasks: [",
        "\"access_list\": [",
        "model_id=[0]",
        "subtasks=['x']",
        "access_list=[[]]",
        "[",
        "]",
        ",",
        "[[",
        "]]",
        "[]",
        "'",
        "\"",
        "'''",
        "\"\"\"",
        "“",
        "”",
        "\\",
        "\\n",
        "\\u",
        "\\ud83d",
        "\\ude00",
        "\\x4",
        "r'",
        "f\"",
        "#",
        "# note\n",
        "\n",
        " ",
        "=",
        ":",
        "0",
        "-1",
        "99999999999999999999",
        "all",
        "\"all\"",
        "none",
        "None",
        "<think>",
        "</think>",
        "<THINKING>",
        "<",
        ">",
        "/",
        "```python\n",
        "```",
        "{",
        "}",
        "(",
        ")",
        "\0",
        "é",
        "🦀",
        "word",
        "x = [1]",
        "\r\n",
        "Bob's",
    ]);
    prop_oneof![
        8 => known.prop_map(str::to_owned),
        1 => "[ -~]{0,12}",
        1 => any::<char>().prop_map(String::from),
    ]
}

fn malformed() -> impl Strategy<Value = String> {
    prop::collection::vec(fragment(), 0..40).prop_map(|parts| parts.concat())
}

fn subtask() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z][A-Za-z ,.'\"\\[\\]#=:-]{0,30}[a-z.]",
        prop::collection::vec(any::<char>(), 1..12).prop_map(|chars| chars.into_iter().collect()),
    ]
    .prop_map(|text: String| text.trim().to_owned())
}

/// A text as a Python or JSON literal in one of the styles.
fn literal(text: &str, style: u8) -> String {
    let escape = |quote: char| {
        let mut literal = String::new();
        for c in text.chars() {
            match c {
                '\\' => literal += "\\\\",
                '\n' => literal += "\\n",
                _ if c == quote => literal.extend(['\\', quote]),
                _ if style & 4 != 0 && !c.is_ascii() => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        literal.extend(["\\u".to_owned(), format!("{unit:04x}")]);
                    }
                }
                _ => literal.push(c),
            }
        }
        literal
    };
    match style & 3 {
        0 => format!("'{}'", escape('\'')),
        1 => format!("'''{}'''", escape('\'')),
        2 => format!("\"\"\"{}\"\"\"", escape('"')),
        _ => format!("\"{}\"", escape('"')),
    }
}

fn step() -> impl Strategy<Value = (RawId, String, RawAccess)> {
    let id = prop_oneof![(0i64..9).prop_map(RawId::Index), "[a-z]{3}-[0-9]".prop_map(RawId::Name),];
    let access = prop_oneof![
        Just(RawAccess::None),
        Just(RawAccess::All),
        prop::collection::vec(-1i64..7, 0..4).prop_map(RawAccess::Indices),
    ];
    (id, subtask(), access)
}

prop_compose! {
    fn written()(
        steps in prop::collection::vec(step(), 0..5),
        styles in prop::collection::vec(any::<u8>(), 5),
        before in "[ -~&&[^<\\[]]{0,20}",
        frame in 0u8..4,
        trailing_comma in any::<bool>(),
    ) -> Written {
        let style = |index: usize| styles[index % styles.len()];
        let mut draft = PlanDraft::default();
        let mut lists = [vec![], vec![], vec![]];
        for (index, (id, subtask, access)) in steps.into_iter().enumerate() {
            lists[0].push(match &id {
                RawId::Index(id) if style(index) & 8 == 0 => id.to_string(),
                RawId::Index(id) => format!("\"{id}\""),
                RawId::Name(name) => literal(name, style(index)),
            });
            lists[1].push(literal(&subtask, style(index)));
            lists[2].push(match &access {
                RawAccess::None => "None".to_owned(),
                RawAccess::All if style(index) & 8 == 0 => "['all']".to_owned(),
                RawAccess::All => "\"all\"".to_owned(),
                RawAccess::Indices(indices) => format!("{indices:?}"),
            });
            draft.model_id.push(id);
            draft.subtasks.push(subtask);
            draft.access_list.push(access);
        }
        let comma = if trailing_comma && !draft.keeps_answer() { ", # last\n" } else { "" };
        let [ids, subtasks, accesses] = lists.map(|list| format!("[{}{comma}]", list.join(",\n ")));
        let text = match frame {
            0 => format!("model_id = {ids}\nsubtasks = {subtasks}\naccess_list = {accesses}"),
            1 => format!("```json\n{{\"model_id\": {ids}, \"subtasks\": {subtasks}, \"access_list\": {accesses}}}\n```"),
            2 => format!("**Model_ID**:{ids} `ACCESS_LIST` : {accesses} subtasks={subtasks} That is all."),
            _ => format!("<think>model_id = [9]</think>\nmodel_id={ids}access_list={accesses}subtasks={subtasks}"),
        };
        Written { draft, text: format!("{before}\n{text}") }
    }
}

/// Valid and invalid plans, and several of both in a row.
fn any_text() -> impl Strategy<Value = String> {
    let whole = prop_oneof![3 => written().prop_map(|written| written.text), 2 => malformed()];
    let mixed = prop::collection::vec(whole, 1..4).prop_map(|parts| parts.concat());
    let damaged = (written(), any::<prop::sample::Index>(), 0usize..6, fragment()).prop_map(
        |(written, at, removed, inserted)| {
            let mut chars: Vec<char> = written.text.chars().collect();
            let at = at.index(chars.len());
            let end = (at + removed).min(chars.len());
            chars.splice(at..end, inserted.chars());
            chars.into_iter().collect()
        },
    );
    prop_oneof![mixed, damaged]
}

proptest! {
    #[test]
    fn a_valid_plan_is_parsed_as_written(written in written()) {
        prop_assert_eq!(PlanDraft::parse(&written.text), Ok(written.draft), "{}", written.text);
    }

    #[test]
    fn any_split_of_any_text_gives_the_same_result(text in any_text(), seed in any::<u8>()) {
        exercise(&[&[seed], text.as_bytes()].concat(), &pool(), &policy());
    }

    #[test]
    fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise(&bytes, &pool(), &policy());
    }

    #[test]
    fn every_prefix_gives_the_same_result_whole_and_in_parts(text in any_text()) {
        let mut stream = PlanStream::new();
        let mut pieces = Vec::new();
        for (at, c) in text.char_indices().take(400) {
            let streamed = stream.clone().finish();
            prop_assert_eq!(&streamed, &PlanDraft::parse(&text[..at]));
            if let Ok(draft) = streamed {
                prop_assert_eq!(folded(pieces.clone()), draft);
            }
            pieces.extend(stream.push(c.encode_utf8(&mut [0; 4])));
        }
    }

    #[test]
    fn a_later_plan_replaces_an_earlier_one(first in written(), second in written()) {
        let mut stream = PlanStream::new();
        let mut pieces = stream.push(&first.text);
        prop_assert!(stream.is_complete());
        prop_assert_eq!(&folded(pieces.clone()), &first.draft);
        pieces.extend(stream.push(&second.text));
        prop_assert_eq!(folded(pieces), second.draft);
    }
}
