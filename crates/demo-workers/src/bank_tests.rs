//! Tests the skills on the shared wording bank and the evaluation questions, whose answers another program computed.

use std::{collections::HashMap, fs, path::PathBuf};

use serde::Deserialize;

use crate::skills::{self, Skill, Task, Visible};

/// Minimal accuracy on the evaluation sets. Some questions are truly ambiguous.
const RIGHT_PERCENT_MIN: usize = 95;

#[derive(Deserialize)]
struct Bank {
    op: Vec<Operation>,
    unit: Vec<Units>,
    subject: Vec<Subjects>,
}

#[derive(Deserialize)]
struct Operation {
    id: String,
    skill: String,
    train: HashMap<String, Vec<String>>,
    test: HashMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Units {
    names: Vec<String>,
}

#[derive(Deserialize)]
struct Subjects {
    op: String,
    names: Vec<String>,
}

#[derive(Deserialize)]
struct Question {
    id: String,
    #[serde(rename = "question")]
    text: String,
    answer: String,
}

fn training(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../training").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn bank() -> Bank {
    toml::from_str(&training("wordings.toml")).expect("the wording bank is valid TOML")
}

fn skill(name: &str) -> Skill {
    Skill::ALL
        .into_iter()
        .find(|skill| skill.name() == name)
        .unwrap_or_else(|| panic!("unknown skill `{name}`"))
}

/// Test data of an operation: its slots, the forms of its main input, that input as an earlier output, the answer.
struct Trial {
    slots: &'static [(&'static str, &'static str)],
    literals: &'static [&'static str],
    output: &'static str,
    answer: &'static str,
}

const fn trial(
    slots: &'static [(&'static str, &'static str)],
    literals: &'static [&'static str],
    output: &'static str,
    answer: &'static str,
) -> Trial {
    Trial { slots, literals, output, answer }
}

const DATE: &[&str] = &["3 March 2024", "March 3, 2024", "2024-03-03"];
const WORD: &[&str] = &["the word Lantern", "Lantern", "'Lantern'", "the word \"Lantern\""];
const NUMBERS: &[&str] = &["7, 30, 7, 12"];

fn trial_of(operation: &str) -> Trial {
    match operation {
        "days_between" => trial(&[("a", "3 March 2024"), ("b", "May 17, 2025")], &[""], "", "440"),
        "weekday" => trial(&[], DATE, "3 March 2024", "Sunday"),
        "add_days" => trial(&[("n", "3"), ("p", "weeks")], DATE, "3 March 2024", "24 March 2024"),
        "subtract_days" => trial(&[("n", "3"), ("p", "days")], DATE, "3 March 2024", "29 February 2024"),
        "year_of" => trial(&[], DATE, "3 March 2024", "2024"),
        "day_of_year" => trial(&[], DATE, "3 March 2024", "63"),
        "minutes_between" => trial(&[("a", "09:40"), ("b", "14:05")], &[""], "", "265"),
        "add" => trial(&[("n", "12")], &["30"], "30", "42"),
        "subtract" => trial(&[("n", "12")], &["30"], "30", "18"),
        "multiply" => trial(&[("n", "12")], &["30"], "30", "360"),
        "divide" => trial(&[("n", "12")], &["30"], "30", "2.5"),
        "square" => trial(&[], &["30"], "30", "900"),
        "remainder" => trial(&[("n", "12")], &["30"], "30", "6"),
        "percent" => trial(&[("n", "12")], &["30"], "30", "3.6"),
        "expression" => trial(&[("e", "17 * (4 + 3)")], &[""], "", "119"),
        "join_add" => trial(&[], &["30"], "30", "42"),
        "join_subtract" => trial(&[], &["30"], "30", "-18"),
        "join_minus" => trial(&[], &["30"], "30", "18"),
        "join_multiply" => trial(&[], &["30"], "30", "360"),
        "join_divide" => trial(&[], &["30"], "30", "2.5"),
        "spell" => trial(&[], &["5280"], "5280", "five thousand two hundred and eighty"),
        "unspell" => trial(&[], &["forty-two", "'forty-two'"], "forty-two", "42"),
        "reverse" => trial(&[], WORD, "Lantern", "nretnaL"),
        "upper" => trial(&[], WORD, "Lantern", "LANTERN"),
        "lower" => trial(&[], WORD, "Lantern", "lantern"),
        "letters" => trial(&[], WORD, "Lantern", "7"),
        "vowels" => trial(&[], WORD, "Lantern", "2"),
        "first_letter" => trial(&[], WORD, "Lantern", "L"),
        "last_letter" => trial(&[], WORD, "Lantern", "n"),
        "word_count" => trial(&[], &["'old lantern blue'", "lantern velvet moss"], "old lantern blue", "3"),
        "sort_letters" => trial(&[], WORD, "Lantern", "aelnnrt"),
        "convert" => trial(&[("u", "hours"), ("v", "minutes")], &["5"], "5", "300"),
        "sort_ascending" => trial(&[], NUMBERS, "7, 30, 7, 12", "7, 7, 12, 30"),
        "sort_descending" => trial(&[], NUMBERS, "7, 30, 7, 12", "30, 12, 7, 7"),
        "sort_words" => trial(&[], &["pear, Apple, fig"], "pear, Apple, fig", "Apple, fig, pear"),
        "list_sum" => trial(&[], NUMBERS, "7, 30, 7, 12", "56"),
        "largest" => trial(&[], NUMBERS, "7, 30, 7, 12", "30"),
        "smallest" => trial(&[], NUMBERS, "7, 30, 7, 12", "7"),
        "list_count" => trial(&[], NUMBERS, "7, 30, 7, 12", "4"),
        "nth" => trial(&[("k", "second")], NUMBERS, "7, 30, 7, 12", "30"),
        "reverse_list" => trial(&[], NUMBERS, "7, 30, 7, 12", "12, 7, 30, 7"),
        "unique" => trial(&[], NUMBERS, "7, 30, 7, 12", "7, 30, 12"),
        "average" => trial(&[], NUMBERS, "7, 30, 7, 12", "14"),
        "capital" => trial(&[("s", "Iceland")], &[""], "", "Reykjavik"),
        "currency" => trial(&[("s", "South Africa")], &[""], "", "rand"),
        "atomic_number" => trial(&[("s", "gold")], &[""], "", "79"),
        "symbol" => trial(&[("s", "potassium")], &[""], "", "K"),
        "legs" => trial(&[("s", "a spider")], &[""], "", "8"),
        "sides" => trial(&[("s", "an octagon")], &[""], "", "8"),
        "strings" => trial(&[("s", "a standard guitar")], &[""], "", "6"),
        "players" => trial(&[("s", "a cricket team")], &[""], "", "11"),
        "quantity" => trial(&[("s", "cards in a standard deck")], &[""], "", "52"),
        "event_year" => trial(&[("s", "the fall of the Berlin Wall")], &[""], "", "1989"),
        unknown => panic!("no trial for operation `{unknown}`"),
    }
}

/// Every text that a template stands for: one alternative of each `[a|b|]`.
fn expansions(template: &str) -> Vec<String> {
    let Some((before, rest)) = template.split_once('[') else {
        return vec![template.split_whitespace().collect::<Vec<_>>().join(" ")];
    };
    let (choices, after) = rest.split_once(']').expect("brackets are balanced");
    choices.split('|').flat_map(|choice| expansions(&format!("{before}{choice}{after}"))).collect()
}

/// The subtasks of a clause, with the operation's literals and with references to earlier outputs.
fn tasks(clause: &str, trial: &Trial) -> Vec<Task> {
    let mut filled = clause.to_owned();
    for (slot, value) in trial.slots {
        filled = filled.replace(&format!("{{{slot}}}"), value);
    }
    let has = |slot: &str| filled.contains(slot);
    let task = |subtask: String, outputs: &[&str]| {
        let visible = outputs
            .iter()
            .zip(1..)
            .map(|(output, number)| Visible { number, output: Some((*output).to_owned()) });
        Task { question: subtask.clone(), subtask, visible: visible.collect() }
    };
    if has("{y}") {
        return vec![task(
            filled.replace("{x}", "result 1").replace("{y}", "result 2"),
            &[trial.output, "12"],
        )];
    }
    let mut tasks = Vec::new();
    if !has("{r}") {
        let inputs: &[&str] = if has("{x}") || has("{l}") { trial.literals } else { &[""] };
        tasks.extend(
            inputs.iter().map(|literal| task(filled.replace("{x}", literal).replace("{l}", literal), &[])),
        );
    }
    if (has("{x}") || has("{r}")) && !has("{l}") {
        tasks.push(task(filled.replace("{x}", "the result").replace("{r}", "the result"), &[trial.output]));
    }
    tasks
}

#[test]
fn every_wording_is_understood_by_its_skill_worker() {
    let mut wrong = Vec::new();
    let mut tried = 0;
    for operation in bank().op {
        let trial = trial_of(&operation.id);
        let clauses = operation.train.values().chain(operation.test.values()).flatten();
        for task in clauses.flat_map(|clause| expansions(clause)).flat_map(|clause| tasks(&clause, &trial)) {
            tried += 1;
            let answer = skills::answer(skill(&operation.skill), &task);
            if answer != trial.answer {
                wrong.push(format!("{}: `{}` gave `{answer}`", operation.id, task.subtask));
            }
        }
    }
    assert!(tried > 800, "only {tried} clauses were tried");
    assert!(wrong.is_empty(), "{} of {tried} clauses:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_unit_and_subject_of_the_bank_is_known() {
    let bank = bank();
    for group in &bank.unit {
        for (from, to) in group.names.iter().flat_map(|from| group.names.iter().map(move |to| (from, to))) {
            let task = Task::question(&format!("convert 3 {from} to {to}"));
            assert!(skills::solve(Skill::Units, &task).is_ok(), "{from} to {to}");
        }
    }
    for subjects in &bank.subject {
        let operation =
            bank.op.iter().find(|operation| operation.id == subjects.op).expect("the operation exists");
        let clause = expansions(&operation.train["noun"][0]).remove(0);
        for name in &subjects.names {
            let task = Task::question(&clause.replace("{s}", name));
            assert!(skills::solve(Skill::Facts, &task).is_ok(), "{}: {name}", subjects.op);
        }
    }
}

fn questions(path: &str) -> Vec<Question> {
    training(path).lines().map(|line| serde_json::from_str(line).expect("a question a line")).collect()
}

fn assert_mostly_right(path: &str, answer: impl Fn(&str) -> String) {
    let questions = questions(path);
    let wrong: Vec<String> = questions
        .iter()
        .map(|question| (question, answer(&question.text)))
        .filter(|(question, answer)| *answer != question.answer)
        .map(|(question, answer)| {
            format!("{}: `{}` gave `{answer}` for `{}`", question.id, question.text, question.answer)
        })
        .collect();
    let right = questions.len() - wrong.len();
    assert!(
        right * 100 >= questions.len() * RIGHT_PERCENT_MIN,
        "{right} of {} right in {path}:\n{}",
        questions.len(),
        wrong.join("\n")
    );
}

#[test]
fn the_generalist_without_errors_answers_the_evaluation_questions() {
    for path in ["eval/heldout.jsonl", "eval/seen.jsonl"] {
        assert_mostly_right(path, |question| {
            skills::solve_whole(&Task::question(question)).unwrap_or_else(|refusal| refusal.to_string())
        });
    }
}

#[test]
fn the_skill_workers_answer_the_evaluation_questions_step_by_step() {
    for path in ["eval/heldout.jsonl", "eval/seen.jsonl"] {
        assert_mostly_right(path, |question| {
            let operations =
                skills::read_all(&Task::question(question), &|_, _, answer| answer).unwrap_or_default();
            let mut outputs: Vec<String> = Vec::new();
            for operation in &operations {
                let visible = operation
                    .uses
                    .iter()
                    .map(|used| Visible { number: used + 1, output: Some(outputs[*used].clone()) });
                let task = Task {
                    subtask: operation.subtask.clone(),
                    visible: visible.collect(),
                    question: question.to_owned(),
                };
                outputs.push(skills::answer(operation.skill, &task));
            }
            outputs.pop().unwrap_or_default()
        });
    }
}

#[derive(Deserialize)]
struct Planned {
    id: String,
    answer: String,
    plan: Vec<PlannedStep>,
}

#[derive(Deserialize)]
struct PlannedStep {
    skill: String,
    subtask: String,
    sees: Vec<usize>,
}

/// Nobody tests the workers on these questions themselves, so that a wrong answer is the fault of a plan.
#[test]
fn the_skill_workers_carry_out_the_plans_of_the_everyday_questions() {
    let questions: Vec<Planned> = training("eval/everyday.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a question a line"))
        .collect();
    assert!(questions.len() >= 100, "only {} questions", questions.len());
    let mut wrong = Vec::new();
    for question in &questions {
        let mut outputs: Vec<String> = Vec::new();
        for step in &question.plan {
            let visible = step
                .sees
                .iter()
                .map(|seen| Visible { number: seen + 1, output: Some(outputs[*seen].clone()) });
            let task = Task { visible: visible.collect(), ..Task::question(&step.subtask) };
            outputs.push(skills::answer(skill(&step.skill), &task));
        }
        if outputs.last() != Some(&question.answer) {
            wrong.push(format!("{}: {outputs:?} instead of `{}`", question.id, question.answer));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), questions.len(), wrong.join("\n"));
}
