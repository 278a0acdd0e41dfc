//! The skill workers beyond the wording bank: references, refusals, limits, and robustness against panics.

use proptest::prelude::*;

use super::{Refusal, Skill, Task, Visible, answer, solve, solve_whole};

fn task(subtask: &str, outputs: &[&str]) -> Task {
    let visible = outputs
        .iter()
        .zip(1..)
        .map(|(output, number)| Visible { number, output: Some((*output).to_owned()) });
    Task { subtask: subtask.to_owned(), visible: visible.collect(), question: subtask.to_owned() }
}

fn solved(skill: Skill, subtask: &str, outputs: &[&str]) -> String {
    answer(skill, &task(subtask, outputs))
}

fn whole(question: &str) -> String {
    solve_whole(&Task::question(question)).unwrap_or_else(|refusal| format!("refused: {refusal}"))
}

#[test]
fn references_point_at_the_outputs_in_their_order() {
    for (subtask, expected) in [
        ("subtract result 1 from result 2", "7"),
        ("subtract the second result from the first", "-7"),
        ("multiply the two results", "30"),
        ("double it", "20"),
        ("add 5 to the result of step 1", "8"),
        ("add 5 to that number", "15"),
    ] {
        assert_eq!(solved(Skill::Arithmetic, subtask, &["3", "10"]), expected, "{subtask}");
    }
}

#[test]
fn a_step_is_found_by_the_number_that_it_was_shown_with() {
    let visible = vec![
        Visible { number: 2, output: Some("40".to_owned()) },
        Visible { number: 4, output: Some("2".to_owned()) },
    ];
    let task = Task { subtask: "add 1 to the result of step 2".to_owned(), visible, question: String::new() };
    assert_eq!(answer(Skill::Arithmetic, &task), "41");
}

#[test]
fn a_worker_declines_other_tasks_plainly() {
    assert_eq!(
        solved(Skill::Dates, "what is 3 + 4", &[]),
        "I can only do date questions: I found no date operation in `what is 3 + 4`."
    );
    assert_eq!(
        solved(Skill::Arithmetic, "divide 5 by 0", &[]),
        "I cannot answer this arithmetic question: a division by zero has no result."
    );
    assert_eq!(
        solved(Skill::Arithmetic, "double the result", &["Paris"]),
        "I cannot answer this arithmetic question: I need a number, but `Paris` is not one."
    );
    assert_eq!(solve(Skill::Words, &task("reverse the result", &[])), Err(Refusal::NoEarlierResult));
}

#[test]
fn a_result_is_written_in_words_if_the_question_asks() {
    let visible = vec![Visible { number: 1, output: Some("391".to_owned()) }];
    let question = "What is 17 times 23, in words?".to_owned();
    let task = Task { subtask: "what is the result".to_owned(), visible, question };
    assert_eq!(answer(Skill::Words, &task), "three hundred and ninety-one");
    let other = Task { question: "What is 17 times 23?".to_owned(), ..task };
    assert_eq!(solve(Skill::Words, &other), Err(Refusal::NothingFound));
}

#[test]
fn a_missing_output_is_reported_by_its_step() {
    let visible = vec![Visible { number: 3, output: None }];
    let task = Task { subtask: "double the result".to_owned(), visible, question: String::new() };
    assert_eq!(solve(Skill::Arithmetic, &task), Err(Refusal::MissingOutput { number: 3 }));
}

#[test]
fn a_question_outside_every_skill_is_not_answered() {
    for question in ["Write a poem about the sea.", "Who invented chess?", "Compare tea and coffee."] {
        assert_eq!(solve_whole(&Task::question(question)), Err(Refusal::NothingFound), "{question}");
        for skill in Skill::ALL {
            assert!(
                answer(skill, &Task::question(question)).starts_with("I can only do"),
                "{skill}: {question}"
            );
        }
    }
}

#[test]
fn chains_joins_and_nested_questions_are_composed() {
    for (question, expected) in [
        (
            "Take the number of days between 3 March 2024 and 17 May 2025, multiply it by 12, and write the result in words.",
            "five thousand two hundred and eighty",
        ),
        ("Add the number of days between 3 March 2024 and 17 May 2025 to the atomic number of gold.", "519"),
        (
            "Write in words the product of 12 and the number of days between 3 March 2024 and 17 May 2025.",
            "five thousand two hundred and eighty",
        ),
        ("Take 17, square it, then double it.", "578"),
        ("Square it, where the input is the number of legs of a spider.", "64"),
        (
            "Find the number of letters in \"banana\" and the number of legs of a spider. Then multiply the two results.",
            "48",
        ),
        ("Convert 20\u{b0}C to Fahrenheit.", "68"),
        ("What is 2 - 15 * 81?", "-1213"),
        ("Reverse the letters of the capital of France.", "siraP"),
        ("Sort pear, fig and apple alphabetically, then take the first item of it.", "apple"),
    ] {
        assert_eq!(whole(question), expected, "{question}");
    }
}

#[test]
fn too_large_numbers_are_declined() {
    let large = "9".repeat(38);
    assert!(solved(Skill::Arithmetic, &format!("multiply {large} by {large}"), &[]).contains("too large"));
    assert!(solved(Skill::Arithmetic, &format!("add 1 to {}", "9".repeat(60)), &[]).contains("too large"));
    assert!(
        solved(Skill::Dates, "the date 999999999999 weeks after 3 March 2024", &[])
            .contains("outside the years")
    );
}

#[test]
fn long_texts_are_declined_in_bounded_time() {
    let long = "the number of days between ".repeat(5_000);
    assert!(matches!(solve(Skill::Dates, &task(&long, &[])), Err(Refusal::TooLong { .. })));
    let many_words = "it ".repeat(20_000);
    assert!(matches!(solve(Skill::Words, &task(&many_words, &[])), Err(Refusal::TooLong { .. })));
    let sum = format!("What is {}1?", "1 + ".repeat(600));
    assert_eq!(solve(Skill::Arithmetic, &task(&sum, &[])), Err(Refusal::TooManyOperations));
    assert_eq!(solved(Skill::Arithmetic, &format!("What is {}1?", "1 + ".repeat(400)), &[]), "401");
    let list = vec!["123456"; 8_000].join(", ");
    assert_eq!(solved(Skill::Lists, &format!("count the items of {list}"), &[]), "8000");
}

#[test]
fn adversarial_repetition_ends() {
    for unit in [
        "take the result of ",
        "the letters of the words ",
        "(",
        "\"",
        "1 + ",
        "add 1 to ",
        "the first of ",
        "x, ",
    ] {
        let text = unit.repeat(300);
        let _ = answer(Skill::Arithmetic, &task(&text, &["5"]));
        let _ = answer(Skill::Lists, &task(&text, &["5"]));
        let _ = whole(&text);
    }
}

/// Fragments that the rules react to, so that random texts exercise many rules.
const FRAGMENTS: &[&str] = &[
    "the",
    "number of",
    "days",
    "between",
    "3 March 2024",
    "31 February 2023",
    "and",
    "multiply",
    "by",
    "it",
    "the result",
    "result 2",
    "in words",
    "minus",
    "-",
    "99999999999999999999999999999999999999999",
    "0",
    "%",
    "percent of",
    "(",
    ")",
    "*",
    "/",
    "^",
    "letters",
    "reverse",
    "'x y'",
    "\"",
    "9:75",
    "25:00",
    "sort",
    "4, 9, -2",
    "a, b, c",
    "first",
    "last",
    "item",
    "km",
    "to",
    "\u{b0}C",
    "capital of",
    "France",
    "legs",
    "a spider",
    ".",
    ",",
    "where",
    "is",
    "\0",
    "\u{1f}",
    "\u{202e}",
    "hundred",
    "million million",
    "minus minus two",
    "convert",
    "from",
    "hours",
    "9999-12-31",
    "400 weeks after",
    "square",
    "to the power of",
    "1000",
    "double",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_makes_a_worker_panic(text in any::<String>(), output in any::<String>()) {
        for skill in Skill::ALL {
            prop_assert!(!answer(skill, &task(&text, &[&output])).is_empty());
        }
        let _ = whole(&text);
    }

    #[test]
    fn no_jumble_of_operations_makes_a_worker_panic(
        picks in proptest::collection::vec(0..FRAGMENTS.len(), 1..24),
        outputs in proptest::collection::vec(0..FRAGMENTS.len(), 0..3),
    ) {
        let text = picks.iter().map(|pick| FRAGMENTS[*pick]).collect::<Vec<_>>().join(" ");
        let outputs: Vec<&str> = outputs.iter().map(|pick| FRAGMENTS[*pick]).collect();
        for skill in Skill::ALL {
            let _ = answer(skill, &task(&text, &outputs));
        }
        let _ = solve_whole(&task(&text, &outputs));
    }
}
