//! Workers that judge the answers of others: a voter, a checker and a merger. They see the outputs of the steps that their step may
//! access, and compute nothing themselves unless it is said.

use std::collections::HashMap;

use crate::{
    dice,
    errors::{self, Errors},
    skills::{self, Task},
};

/// The most frequent output; the earliest of several. The error is the text with which the voter declines.
pub(crate) fn vote(task: &Task) -> Result<String, String> {
    winner(&outputs(task)?).map(|(answer, _)| answer).ok_or_else(nothing_to_judge)
}

/// The first output that the checker takes for right, or else the last one. It judges each output correctly with its accuracy, and
/// needs a question that the skills can answer: its subtask, or else the whole question.
pub(crate) fn check(task: &Task, errors: &Errors) -> Result<String, String> {
    let outputs = outputs(task)?;
    let whole = Task::question(&task.question);
    let right = skills::solve_whole(&Task { visible: Vec::new(), ..task.clone() })
        .or_else(|_| skills::solve_whole(&whole))
        .map_err(|_| format!("I cannot check this: `{}`.", skills::shortened(&task.subtask)))?;
    let passes = |(position, output): &(usize, &&str)| {
        let is_right = normal(output) == normal(&right);
        is_right == dice::happens(errors.draw(task, "judgement", *position), errors.accuracy)
    };
    let accepted = outputs.iter().enumerate().find(passes).map(|(_, output)| *output);
    accepted.or(outputs.last().copied()).map(str::to_owned).ok_or_else(nothing_to_judge)
}

/// The output that more than half of the steps agree on, or else an answer of its own to the whole question, with errors: the
/// aggregator of a Mixture of Agents.
pub(crate) fn merge(task: &Task, errors: &Errors) -> Result<String, String> {
    let outputs = outputs(task)?;
    match winner(&outputs) {
        Some((answer, votes)) if 2 * votes > outputs.len() => Ok(answer),
        _ => errors::answer(&Task::question(&task.question), errors),
    }
}

fn outputs(task: &Task) -> Result<Vec<&str>, String> {
    let outputs: Vec<&str> = task.visible.iter().filter_map(|step| step.output.as_deref()).collect();
    if outputs.is_empty() { Err(nothing_to_judge()) } else { Ok(outputs) }
}

fn nothing_to_judge() -> String {
    "I judge earlier results, and I was given none.".to_owned()
}

/// The most frequent answer and the number of its votes.
fn winner(outputs: &[&str]) -> Option<(String, usize)> {
    let mut votes: HashMap<String, usize> = HashMap::new();
    for output in outputs {
        *votes.entry(normal(output)).or_default() += 1;
    }
    let votes_of = |output: &str| votes.get(&normal(output)).copied().unwrap_or_default();
    let most = votes.values().copied().max()?;
    let first = outputs.iter().find(|output| votes_of(output) == most)?;
    Some(((*first).to_owned(), most))
}

/// The form in which answers are compared.
fn normal(answer: &str) -> String {
    answer.trim().trim_end_matches('.').to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::{check, merge, vote};
    use crate::errors::{Errors, answer};
    use crate::skills::{Task, Visible};

    const QUESTION: &str = "What is 17 + 25?";

    fn judging(outputs: &[&str]) -> Task {
        let visible = outputs.iter().enumerate();
        let visible =
            visible.map(|(index, output)| Visible { number: index + 1, output: Some((*output).to_owned()) });
        Task {
            subtask: "Which is right?".to_owned(),
            visible: visible.collect(),
            question: QUESTION.to_owned(),
        }
    }

    fn with_seed(accuracy: f64, call: u64) -> Errors {
        Errors { seed: 7, accuracy, call: Some(call) }
    }

    #[test]
    fn the_voter_returns_the_most_frequent_output() {
        assert_eq!(vote(&judging(&["41", "42", " 42."])).unwrap(), "42");
        assert_eq!(vote(&judging(&["43", "41", "42"])).unwrap(), "43");
        assert_eq!(
            vote(&Task::question(QUESTION)).unwrap_err(),
            "I judge earlier results, and I was given none."
        );
    }

    #[test]
    fn the_checker_returns_the_output_that_it_takes_for_right() {
        assert_eq!(check(&judging(&["41", "42", "43"]), &Errors::NONE).unwrap(), "42");
        assert_eq!(check(&judging(&["41", "43"]), &Errors::NONE).unwrap(), "43");
        // It rejects the right answer and takes the first wrong one.
        assert_eq!(check(&judging(&["42", "41"]), &with_seed(0.0, 1)).unwrap(), "41");
        let unknown = Task { question: "Sing a song.".to_owned(), ..judging(&["la"]) };
        assert!(check(&unknown, &Errors::NONE).unwrap_err().contains("cannot check"));
    }

    #[test]
    fn the_merger_answers_itself_where_no_majority_agrees() {
        assert_eq!(merge(&judging(&["41", "41", "42"]), &Errors::NONE).unwrap(), "41");
        assert_eq!(merge(&judging(&["41", "43"]), &Errors::NONE).unwrap(), "42");
    }

    /// Three independent answers that are each right in two of three cases.
    #[test]
    fn asking_three_times_and_judging_beats_asking_once() {
        let (mut once, mut voted, mut checked) = (0, 0, 0);
        for run in 0..600 {
            let asked = [0, 1, 2]
                .map(|step| answer(&Task::question(QUESTION), &with_seed(0.66, 3 * run + step)).unwrap());
            let task = judging(&asked.each_ref().map(String::as_str));
            once += i32::from(asked[0] == "42");
            voted += i32::from(vote(&task).unwrap() == "42");
            checked += i32::from(check(&task, &with_seed(0.9, 10_000 + run)).unwrap() == "42");
        }
        assert!(once > 330 && once < 460, "{once}");
        assert!(voted > once + 20, "{voted} with a vote, {once} without");
        assert!(checked > voted + 20, "{checked} with a check, {voted} with a vote");
    }
}
