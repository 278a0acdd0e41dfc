//! A conductor that is a program: it splits the question into clauses with the generalist's reader and answers with the
//! three lists. It serves to test the callers of conductors, not planning quality.

use crate::{
    prompt,
    skills::{self, Skill, Task},
};

/// Steps of a plan, unless the prompt gives another limit.
const STEPS_MAX: usize = 5;
/// Slot of the generalist in the demo pool. The skills have the slots before it, in their own order.
const GENERALIST_SLOT: usize = 6;

/// The answer to a planning prompt.
pub(crate) fn answer(message: &str) -> String {
    // A follow-up round asks whether the answer is good. This conductor cannot tell, so it keeps the answer.
    if message.contains("reply with three empty lists") {
        return lists("The answer stands.", &[], &[], &[]);
    }
    let question = prompt::question(message);
    let team = Team::described_in(message);
    let task = Task::question(&question);
    let operations = skills::read_all(&task, &|_, _, answer| answer).unwrap_or_default();
    if operations.is_empty() || operations.len() > steps_max(message) {
        let slot = team.generalist;
        return lists(&format!("Parts: general {slot}."), &[slot], &[question], &[Vec::new()]);
    }
    let failed = failed_slots(message);
    let slot =
        |skill| Some(team.slot(skill)).filter(|slot| !failed.contains(slot)).unwrap_or(team.generalist);
    let slots: Vec<usize> = operations.iter().map(|operation| slot(operation.skill)).collect();
    let parts: Vec<String> = operations
        .iter()
        .zip(&slots)
        .map(|(operation, slot)| format!("{} {slot}", operation.skill))
        .collect();
    let subtasks: Vec<String> = operations.iter().map(|operation| operation.subtask.clone()).collect();
    let access: Vec<Vec<usize>> = operations.iter().map(|operation| operation.uses.clone()).collect();
    lists(&format!("Parts: {}.", parts.join(", ")), &slots, &subtasks, &access)
}

/// The slots of the workers that failed in the previous round.
fn failed_slots(message: &str) -> Vec<usize> {
    let steps = message.split("<earlier step=").skip(1);
    let failed = steps.filter(|step| step.contains("<output>\n(failed: "));
    failed.filter_map(|step| step.split("model=\"").nth(1)?.split('"').next()?.parse().ok()).collect()
}

fn lists(reasoning: &str, slots: &[usize], subtasks: &[String], access: &[Vec<usize>]) -> String {
    let subtasks = serde_json::Value::from(subtasks.to_vec());
    let subtasks =
        subtasks.as_array().into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("{reasoning}\nmodel_id = {slots:?}\nsubtasks = [{subtasks}]\naccess_list = {access:?}")
}

/// The slot of each worker.
struct Team {
    skills: [Option<usize>; 6],
    generalist: usize,
}

impl Team {
    /// The slots given by lines such as "Model id 2: Dates and durations.", or else those of the demo pool.
    fn described_in(message: &str) -> Self {
        let mut team = Self { skills: [None; 6], generalist: GENERALIST_SLOT };
        let mut described = false;
        for line in message.lines() {
            let Some((number, description)) =
                line.strip_prefix("Model id ").and_then(|rest| rest.split_once(':'))
            else {
                continue;
            };
            let Ok(number) = number.trim().parse() else { continue };
            described = true;
            let description = description.to_lowercase();
            // The strengths name a worker's skill; its description may name skills that it lacks.
            let strengths =
                description.split_once("good at:").map_or(description.as_str(), |(_, strengths)| strengths);
            let words: Vec<&str> = strengths.split(|character: char| !character.is_alphabetic()).collect();
            let named: Vec<usize> =
                (0..6).filter(|index| words.contains(&Skill::ALL[*index].name())).collect();
            match named.as_slice() {
                [index] => team.skills[*index] = team.skills[*index].or(Some(number)),
                _ => team.generalist = number,
            }
        }
        if !described {
            team.skills = std::array::from_fn(Some);
        }
        team
    }

    fn slot(&self, skill: Skill) -> usize {
        let index = Skill::ALL.iter().position(|other| *other == skill).unwrap_or_default();
        self.skills[index].unwrap_or(self.generalist)
    }
}

fn steps_max(message: &str) -> usize {
    let stated = message.split_once("workflow of 1 to ").and_then(|(_, rest)| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    stated.unwrap_or(STEPS_MAX)
}

#[cfg(test)]
mod tests {
    use super::answer;

    const QUESTION: &str = "Take the number of days between 3 March 2024 and 17 May 2025, multiply it by 12, and write the result in words.";

    #[test]
    fn a_chain_becomes_a_plan_over_the_demo_pool() {
        assert_eq!(
            answer(QUESTION),
            "Parts: dates 2, arithmetic 0, words 1.\nmodel_id = [2, 0, 1]\nsubtasks = [\"the number of days between \
             3 March 2024 and 17 May 2025\", \"multiply the result by 12\", \"write the result in words\"]\n\
             access_list = [[], [0], [1]]"
        );
    }

    #[test]
    fn a_join_names_both_results() {
        let plan = answer(
            "Add the number of days between 3 March 2024 and 17 May 2025 to the atomic number of gold.",
        );
        assert!(plan.contains("model_id = [2, 5, 0]"), "{plan}");
        assert!(plan.contains("\"add result 1 to result 2\""), "{plan}");
        assert!(plan.contains("access_list = [[], [], [0, 1]]"), "{plan}");
    }

    #[test]
    fn workers_described_in_the_prompt_get_their_own_numbers() {
        let prompt = format!(
            "Write a workflow of 1 to 4 steps.\nModel id 0: Knows all. Good at: words, dates.\nModel id 3: x Good at: dates.\n\
             Model id 9: y Good at: arithmetic.\n<question>\n{QUESTION}\n</question>"
        );
        assert!(answer(&prompt).contains("model_id = [3, 9, 0]"), "{}", answer(&prompt));
    }

    #[test]
    fn an_unsplittable_question_goes_to_the_generalist() {
        let plan = answer("Write a \"poem\" about the sea.");
        assert_eq!(
            plan,
            "Parts: general 6.\nmodel_id = [6]\nsubtasks = [\"Write a \\\"poem\\\" about the sea.\"]\naccess_list = [[]]"
        );
    }

    #[test]
    fn a_follow_up_round_keeps_the_answer() {
        let plan = answer("If its final output answers the question, reply with three empty lists.");
        assert!(plan.ends_with("model_id = []\nsubtasks = []\naccess_list = []"));
    }
}
