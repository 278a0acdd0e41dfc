//! Texts of conductors, valid and invalid, with the expected result. Parsed as a whole and in parts of one character.

use super::*;

/// A text, and the expected draft or error.
struct Example {
    name: &'static str,
    text: &'static str,
    reads_as: Result<&'static str, &'static str>,
}

const fn good(name: &'static str, text: &'static str, draft: &'static str) -> Example {
    Example { name, text, reads_as: Ok(draft) }
}

const fn bad(name: &'static str, text: &'static str, error: &'static str) -> Example {
    Example { name, text, reads_as: Err(error) }
}

/// The layouts of a plan.
const LAYOUTS: &[Example] = &[
    good(
        "as the prompt asks for it",
        "The task needs a draft and a check.\n\nmodel_id = [2, 0]\nsubtasks = [\"Draft it.\", \"Check it.\"]\naccess_list = [[], [\"all\"]]",
        r#"2 0 | "Draft it." "Check it." | [] all"#,
    ),
    good("nothing between", "model_id=[0]subtasks=['a']access_list=[[]]", r#"0 | "a" | []"#),
    good("three empty lists", "The answer stands.\nmodel_id = []\nsubtasks = []\naccess_list = []", " |  | "),
    good(
        "a fence with a language",
        "Here is the workflow:\n```python\nmodel_id = [1]\nsubtasks = [\"Solve.\"]\naccess_list = [[]]\n```\nDone.",
        r#"1 | "Solve." | []"#,
    ),
    good(
        "JSON in a fence",
        "```json\n{\n  \"model_id\": [1, 0],\n  \"subtasks\": [\"a\", \"b\"],\n  \"access_list\": [[], [0]]\n}\n```",
        r#"1 0 | "a" "b" | [] [0]"#,
    ),
    good("compact JSON", r#"{"model_id":[0],"subtasks":["a"],"access_list":["all"]}"#, r#"0 | "a" | all"#),
    good(
        "Markdown emphasis",
        "**model_id** = [0]\n**subtasks:** [\"a\"]\n- `access_list`: `[[]]`",
        r#"0 | "a" | []"#,
    ),
    good("upper case and colons", "MODEL_ID: [0]\nSubtasks : ['a']\nACCESS_LIST:[[]]", r#"0 | "a" | []"#),
    good(
        "one element a line, commas at the end, comments",
        "model_id = [\n  0,  # drafts\n  1,  # checks\n]\nsubtasks = [\n  # first\n  'a',\n  'b',  # the [last] one\n]\naccess_list = [\n  [],\n  [0,],\n]",
        r#"0 1 | "a" "b" | [] [0]"#,
    ),
    good("access before subtasks", "model_id=[0]\naccess_list=[[]]\nsubtasks=['a']", r#"0 | "a" | []"#),
    good(
        "windows line ends",
        "model_id = [0]\r\nsubtasks = ['a']\r\naccess_list = [[]]\r\n",
        r#"0 | "a" | []"#,
    ),
    good(
        "list on the next line",
        "model_id =\n[0]\nsubtasks =\n[\n'a']\naccess_list =\n [[]]",
        r#"0 | "a" | []"#,
    ),
    good(
        "words glued around labels",
        "plan.model_id=[0];subtasks=['a'];access_list=[[]];",
        r#"0 | "a" | []"#,
    ),
    bad(
        "other words that contain labels",
        "my_model_id=[0]\nmodel_ids=[0]",
        "model_id has no list, searched up to byte 29",
    ),
];

/// Several plans in a text, or parts of plans.
const GROUPS: &[Example] = &[
    good(
        "an example first",
        "For instance model_id = [9]\nsubtasks = ['x']\naccess_list = [[]]\nNow for this task:\nmodel_id = [0]\nsubtasks = ['a']\naccess_list = ['all']",
        r#"0 | "a" | all"#,
    ),
    good(
        "labels in the reasoning",
        "I set access_list = [['all']] later. With model_id = [1] alone it fails; model_id: 2 is better.\nmodel_id = [0]\nsubtasks = ['a']\naccess_list = [[]]",
        r#"0 | "a" | []"#,
    ),
    good(
        "remarks after the plan",
        "model_id=[0]\nsubtasks=['a']\naccess_list=[[]]\nHere model_id = [0] is the small one, and access_list: [] as nothing is earlier.",
        r#"0 | "a" | []"#,
    ),
    good(
        "thoughts do not count",
        "<think>model_id=[9] subtasks=['x'] access_list=[[]]</think>model_id=[0]\nsubtasks=['a']\naccess_list=[[]]",
        r#"0 | "a" | []"#,
    ),
    good(
        "thoughts that began in the prompt",
        "so model_id=[9] subtasks=['x'] access_list=[[]] it is</THINK>\nmodel_id=[0]subtasks=['a']access_list=[[]]",
        r#"0 | "a" | []"#,
    ),
    good(
        "a list left open in thoughts",
        "subtasks: [maybe model_id = [two of </thinking> model_id=[0]subtasks=['a']access_list=[[]]",
        r#"0 | "a" | []"#,
    ),
    good(
        "a tag in a subtask",
        "model_id=[0]subtasks=['write <think> and </think>']access_list=[[]]",
        r#"0 | "write <think> and </think>" | []"#,
    ),
    good(
        "a plan in a subtask",
        "model_id=[0]\nsubtasks=['Write model_id = [1], subtasks = [] and access_list = [].']\naccess_list=[[]]",
        r#"0 | "Write model_id = [1], subtasks = [] and access_list = []." | []"#,
    ),
    good(
        "a plan in a subtask of several lines",
        "model_id=[0]\nsubtasks=[\"\"\"Repair:\nmodel_id = [1]\nsubtasks = [\n\"\"\"]\naccess_list=[[]]",
        r#"0 | "Repair:\nmodel_id = [1]\nsubtasks = [" | []"#,
    ),
    good(
        "a plan in a subtask of several lines in plain quotes, not at their beginnings",
        "model_id=[0]\nsubtasks=['Repair:\nit says model_id = [1]\nand more']\naccess_list=[[]]",
        r#"0 | "Repair:\nit says model_id = [1]\nand more" | []"#,
    ),
    good(
        "a text left open, and another plan",
        "model_id=[9]\nsubtasks=[\"Solve it\n  **model_id** = [0]\nsubtasks=['a']\naccess_list=[[]]",
        r#"0 | "a" | []"#,
    ),
    bad(
        "thoughts without an end",
        "<think>model_id=[0]subtasks=['a']access_list=[[]]",
        "text ends inside <think>, opened at byte 7",
    ),
    bad(
        "a plan in thoughts alone",
        "model_id=[0]subtasks=['a']access_list=[[]]</think>",
        "model_id has no list, searched up to byte 50",
    ),
    bad("nothing at all", "", "model_id has no list, searched up to byte 0"),
    bad("an answer in place of a plan", "The answer is 42.", "model_id has no list, searched up to byte 17"),
    bad(
        "a label without a list",
        "model_id: 0, 1\nsubtasks: a, b\naccess_list: all",
        "model_id has no list, searched up to byte 46",
    ),
    bad("no subtasks", "model_id=[0]\naccess_list=[[]]", "subtasks has no list, searched up to byte 29"),
    bad("no access list", "model_id=[0]\nsubtasks=['a']", "access_list has no list, searched up to byte 27"),
    bad(
        "a later plan that is wrong, after one that is right",
        "model_id=[0]subtasks=['x']access_list=[[]]\nmodel_id=[0]\nsubtasks=[,]\naccess_list=[[]]",
        "subtasks has an empty element at index 0, at byte 66",
    ),
    bad(
        "a later plan that is cut off, after one that is right",
        "model_id=[0]subtasks=['x']access_list=[[]]\nmodel_id=[0]\nsubtasks=['Solve the",
        "subtasks is never closed, opened at byte 65",
    ),
    bad(
        "a list given twice",
        "model_id=[0]\nsubtasks=['a']\nsubtasks=['b']\naccess_list=[[]]",
        "subtasks is given twice, again at byte 28",
    ),
];

/// The forms of workers.
const WORKERS: &[Example] = &[
    good(
        "positions in quotes",
        "model_id=['0', \"1\"]subtasks=[a,b]access_list=[[],[]]",
        r#"0 1 | "a" "b" | [] []"#,
    ),
    good(
        "names",
        "model_id=[gpt-5, 'Model id 3', \"large\"]subtasks=[a,b,c]access_list=[[],[],[]]",
        r#""gpt-5" "Model id 3" "large" | "a" "b" "c" | [] [] []"#,
    ),
    good("signs", "model_id=[-1, +2]subtasks=[a,b]access_list=[[],[]]", r#"-1 2 | "a" "b" | [] []"#),
    good("a fraction is a name", "model_id=[1.0]subtasks=[a]access_list=[[]]", r#""1.0" | "a" | []"#),
    bad(
        "nobody",
        "model_id=[None]subtasks=[a]access_list=[[]]",
        "model_id must have a worker's position or name at index 0, at byte 10",
    ),
    bad(
        "a list",
        "model_id=[0,[1]]subtasks=[a,b]access_list=[[],[]]",
        "model_id must have a worker's position or name at index 1, at byte 12",
    ),
    bad(
        "a number that overflows",
        "model_id=[9223372036854775808]subtasks=[a]access_list=[[]]",
        "model_id must have a smaller number at index 0, at byte 10",
    ),
    bad(
        "an object",
        "model_id=[{\"id\": 0}]subtasks=[a]access_list=[[]]",
        "model_id has an unexpected '{' at byte 10",
    ),
    bad(
        "a gap",
        "model_id=[0,,1]subtasks=[a]access_list=[[]]",
        "model_id has an empty element at index 1, at byte 12",
    ),
    bad(
        "left open",
        "model_id=[0, 1\nsubtasks=['a','b']\naccess_list=[[],[]]",
        "model_id is never closed, opened at byte 9",
    ),
];

/// The forms of subtasks.
const SUBTASKS: &[Example] = &[
    good(
        "every quote",
        r#"model_id=[0,0,0,0,0,0]subtasks=['a', "b", '''c''', """d""", “e”, ‘f’]access_list=[[],[],[],[],[],[]]"#,
        r#"0 0 0 0 0 0 | "a" "b" "c" "d" "e" "f" | [] [] [] [] [] []"#,
    ),
    good(
        "escapes",
        r#"model_id=[0]subtasks=["a\n\t\"b\" \\ \'c\' \/ \u00e9 \ud83e\udd80 \x41 \U0001F980"]access_list=[[]]"#,
        r#"0 | "a\n\t\"b\" \\ 'c' / é 🦀 A 🦀" | []"#,
    ),
    good(
        "LaTeX",
        r#"model_id=[0]subtasks=["Bound \frac{\alpha}{\beta} \vec x in \[0, 1\], $x_{\min}$"]access_list=[[]]"#,
        r#"0 | "Bound \\frac{\\alpha}{\\beta} \\vec x in \\[0, 1\\], $x_{\\min}$" | []"#,
    ),
    good(
        "invalid escapes",
        r#"model_id=[0]subtasks=["\u12 \xZ \ud83d. \N{BULLET} \0 \q"]access_list=[[]]"#,
        r#"0 | "\\u12 \\xZ �. \\N{BULLET} \\0 \\q" | []"#,
    ),
    good(
        "raw",
        r#"model_id=[0,0]subtasks=["a", r"\n\"b"]access_list=[[],[]]"#,
        r#"0 0 | "a" "\\n\\\"b" | [] []"#,
    ),
    good(
        "formatted",
        "model_id=[0,0]subtasks=[f'a {x}', Rb'b']access_list=[[],[]]",
        r#"0 0 | "a {x}" "b" | [] []"#,
    ),
    good(
        "joined texts",
        "model_id=[0]subtasks=['one ' 'two'\n  '' '''three'''  # so far\n ' four']access_list=[[]]",
        r#"0 | "one twothree four" | []"#,
    ),
    good("a continued line", "model_id=[0]subtasks=['one \\\ntwo']access_list=[[]]", r#"0 | "one two" | []"#),
    good(
        "an apostrophe that is not escaped",
        "model_id=[0,0]subtasks=['Solve Bob's task', 'Check the boys' work']access_list=[[],[]]",
        r#"0 0 | "Solve Bob's task" "Check the boys' work" | [] []"#,
    ),
    good(
        "quotations that are not escaped",
        r##"model_id=[0]subtasks=["Say "yes" or 'no' or "#1"."]access_list=[[]]"##,
        r##"0 | "Say \"yes\" or 'no' or \"#1\"." | []"##,
    ),
    good(
        "several lines in plain quotes",
        "model_id=[0]\nsubtasks=['Do:\n1. this\n2. model_id\n']\naccess_list=[[]]",
        r#"0 | "Do:\n1. this\n2. model_id" | []"#,
    ),
    good(
        "brackets and commas in quotes",
        "model_id=[0]subtasks=['sort [3, 1], then']access_list=[[]]",
        r#"0 | "sort [3, 1], then" | []"#,
    ),
    good(
        "no quotes",
        "model_id=[0,1]\nsubtasks=[Solve Bob's C# task, Check f(x) = 1]\naccess_list=[[],[all]]",
        r#"0 1 | "Solve Bob's C# task" "Check f(x) = 1" | [] all"#,
    ),
    good("blank", "model_id=[0]subtasks=['  ']access_list=[[]]", r#"0 | "" | []"#),
    bad(
        "some quoted",
        "model_id=[0,0]subtasks=['a', b]access_list=[[],[]]",
        "subtasks mixes quoted and unquoted elements, at byte 29",
    ),
    bad(
        "a quotation before a comma",
        r#"model_id=[0]subtasks=["Say "x", then y"]access_list=[[]]"#,
        "subtasks has an unexpected '\"' at byte 38",
    ),
    bad(
        "an unquoted quotation",
        r#"model_id=[0]subtasks=[Say "x, y"]access_list=[[]]"#,
        "subtasks has an unexpected '\"' at byte 26",
    ),
    bad(
        "unquoted brackets",
        "model_id=[0]subtasks=[sort x[0]]access_list=[[]]",
        "subtasks has an unexpected '[' at byte 28",
    ),
    bad(
        "a number",
        "model_id=[0]subtasks=[1]access_list=[[]]",
        "subtasks must have a text at index 0, at byte 22",
    ),
    bad(
        "nothing",
        "model_id=[0]subtasks=[None]access_list=[[]]",
        "subtasks must have a text at index 0, at byte 22",
    ),
    bad(
        "objects",
        "model_id=[0]subtasks=[{'task': 'a'}]access_list=[[]]",
        "subtasks has an unexpected '{' at byte 22",
    ),
    bad(
        "text after triple quotes",
        "model_id=[0]subtasks=['''a''' b]access_list=[[]]",
        "subtasks has an unexpected 'b' at byte 30",
    ),
    bad(
        "a text left open",
        "model_id=[0]\nsubtasks=[\"Solve it\naccess_list=[[]]",
        "subtasks is never closed, opened at byte 22",
    ),
    bad(
        "a list left open after a text",
        "model_id=[0]\nsubtasks=[\"Solve it\"\naccess_list=[[]]",
        "subtasks is never closed, opened at byte 22",
    ),
    bad(
        "triple quotes left open",
        "model_id=[0]\nsubtasks=['''a\naccess_list=[[]]",
        "subtasks is never closed, opened at byte 22",
    ),
];

/// The forms of access lists.
const ACCESS: &[Example] = &[
    good(
        "every way to say all",
        "model_id=[0,0,0,0]subtasks=[a,b,c,d]access_list=['all', [\"ALL\"], all, [0, all]]",
        r#"0 0 0 0 | "a" "b" "c" "d" | all all all all"#,
    ),
    good(
        "every way to say nothing",
        "model_id=[0,0,0,0,0,0]subtasks=[a,b,c,d,e,f]access_list=[[], None, null, 'none', '', [None]]",
        r#"0 0 0 0 0 0 | "a" "b" "c" "d" "e" "f" | [] none none none none []"#,
    ),
    good(
        "positions",
        "model_id=[0,0,0,0]subtasks=[a,b,c,d]access_list=[[], [0], ['0', 1], 2]",
        r#"0 0 0 0 | "a" "b" "c" "d" | [] [0] [0,1] [2]"#,
    ),
    good(
        "positions out of range are left to the check",
        "model_id=[0]subtasks=[a]access_list=[[-1, 7]]",
        r#"0 | "a" | [-1,7]"#,
    ),
    bad(
        "other words",
        "model_id=[0]subtasks=[a]access_list=[['step 1']]",
        "access_list must have `[]`, \"all\" or a list of step positions at index 0, at byte 37",
    ),
    bad(
        "an extra list",
        "model_id=[0]subtasks=[a]access_list=[[[0]]]",
        "access_list must have `[]`, \"all\" or a list of step positions at index 0, at byte 37",
    ),
    bad(
        "no comma",
        "model_id=[0,0]subtasks=[a,b]access_list=[[] []]",
        "access_list has an unexpected '[' at byte 44",
    ),
    bad(
        "a gap",
        "model_id=[0]subtasks=[a]access_list=[[0,,1]]",
        "access_list has an empty element at index 0, at byte 40",
    ),
    bad(
        "left open",
        "model_id=[0]\nsubtasks=['a']\naccess_list=[[]",
        "access_list is never closed, opened at byte 40",
    ),
    bad(
        "a number that overflows",
        "model_id=[0]subtasks=[a]access_list=[[99999999999999999999]]",
        "access_list must have a smaller number at index 0, at byte 37",
    ),
];

fn all() -> impl Iterator<Item = &'static Example> {
    [LAYOUTS, GROUPS, WORKERS, SUBTASKS, ACCESS].into_iter().flatten()
}

#[test]
fn every_example_gives_its_expected_result() {
    let mut wrong = Vec::new();
    for Example { name, text, reads_as } in all() {
        let found = PlanDraft::parse(text).map(|draft| shown(&draft)).map_err(|error| error.to_string());
        let expected = reads_as.map(str::to_owned).map_err(str::to_owned);
        if found != expected {
            wrong.push(format!("{name}:\n  found    {found:?}\n  expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_example_gives_the_same_result_in_parts() {
    for Example { name, text, .. } in all() {
        let whole = PlanDraft::parse(text);
        let cuts = text.char_indices().map(|(at, _)| vec![&text[..at], &text[at..]]);
        let characters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]).collect();
        for parts in cuts.chain([characters]) {
            let mut stream = PlanStream::new();
            let pieces: Vec<_> = parts.iter().flat_map(|part| stream.push(part)).collect();
            let streamed = stream.finish();
            assert_eq!(streamed, whole, "{name}: {parts:?}");
            if let Ok(draft) = streamed {
                assert_eq!(folded(pieces), draft, "{name}: {parts:?}");
            }
        }
    }
}

#[test]
fn an_element_is_yielded_with_the_character_that_closes_it() {
    let text = "model_id=[2,0]\nsubtasks=['a' , 'b']\naccess_list=[[],[0]]";
    let mut stream = PlanStream::new();
    let mut closed_by = Vec::new();
    for (at, c) in text.char_indices() {
        for piece in stream.push(c.encode_utf8(&mut [0; 4])) {
            let name = match piece {
                PlanPiece::Worker { index, .. } => format!("worker {}", index.get()),
                PlanPiece::Subtask { index, text } => format!("subtask {} {text}", index.get()),
                PlanPiece::Access { index, .. } => format!("access {}", index.get()),
                PlanPiece::Restarted => "restarted".to_owned(),
            };
            closed_by.push(format!("{name} {:?}", &text[at - 1..=at]));
        }
    }
    let expected = [
        "worker 0 \"2,\"",
        "worker 1 \"0]\"",
        "subtask 0 a \" ,\"",
        "subtask 1 b \"']\"",
        "access 0 \"[]\"",
        "access 1 \"0]\"",
    ];
    assert_eq!(closed_by, expected);
}

#[test]
fn void_pieces_are_withdrawn_as_soon_as_known() {
    let mut stream = PlanStream::new();
    let restarts = |pieces: &[PlanPiece]| pieces.iter().filter(|p| **p == PlanPiece::Restarted).count();
    assert_eq!(stream.push("model_id=[9]").len(), 1);
    assert_eq!(stream.push(" no: model_id=["), [PlanPiece::Restarted]);
    assert_eq!(stream.push("8]</think>").last(), Some(&PlanPiece::Restarted));
    assert_eq!(stream.push("model_id=[0]subtasks=['a']access_list=[[]]").len(), 3);
    assert!(stream.is_complete());
    // A remark may look like the beginning of a plan; it withdraws nothing until it is one.
    assert_eq!(stream.push("\nmodel_id=[1] subtasks=['b']"), []);
    assert!(stream.is_complete());
    let pieces = stream.push("access_list=[['all']]");
    assert_eq!((restarts(&pieces), pieces.len(), pieces.first()), (1, 4, Some(&PlanPiece::Restarted)));
    // A complete but invalid plan leaves none.
    assert_eq!(stream.push("model_id=[0]subtasks=[,]access_list=[[]]"), [PlanPiece::Restarted]);
    assert!(!stream.is_complete());
    assert!(stream.finish().is_err());
}

#[test]
fn the_result_has_the_position_of_the_plan() {
    let text =
        "A thought about model_id = [1].\n**Model_id** = [0]\nsubtasks=['a']access_list=[[]]\nmodel_id=[2]";
    let mut stream = PlanStream::new();
    stream.push(text);
    let (_, at) = stream.finish_located().unwrap();
    assert_eq!(&text[..at], "A thought about model_id = [1].\n**");
}
