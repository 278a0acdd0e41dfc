//! A worker that answers whole questions with all skills and makes errors: each operation is right with a fixed probability,
//! which depends on seed, question and position. An error is a plausible wrong value, with which later operations continue.

use crate::{
    dice,
    skills::{
        self, Refusal, Skill, Task,
        calendar::{Date, MONTHS, WEEKDAYS},
        number_words,
        rational::Rational,
    },
};

/// A worker with all skills, and its error rate.
#[derive(Debug, Clone, Copy)]
pub struct Generalist {
    /// Seed of its errors: the same seed makes the same errors.
    pub seed: u64,
    /// The probability, 0 to 1, that one operation is right.
    pub accuracy: f64,
}

impl Generalist {
    /// Answers the task. The error is the text with which it declines.
    pub(crate) fn answer(self, task: &Task) -> Result<String, String> {
        self.solve(task).map_err(|refusal| match refusal {
            Refusal::NothingFound => {
                format!("I do not know how to answer `{}`.", skills::shortened(&task.subtask))
            }
            refusal => format!("I cannot answer this: {refusal}."),
        })
    }

    fn solve(self, task: &Task) -> Result<String, Refusal> {
        let alter = |position: usize, skill: Skill, answer: String| {
            let position = position.to_string();
            let labels = ["generalist", task.question.as_str(), task.subtask.as_str(), position.as_str()];
            if dice::happens(dice::draw(self.seed, &labels), self.accuracy) {
                return answer;
            }
            wrong(
                &answer,
                skill,
                dice::draw(self.seed, &["error", task.question.as_str(), position.as_str()]),
            )
        };
        let operations = skills::read_all(task, &alter)?;
        operations.into_iter().next_back().map(|operation| operation.answer).ok_or(Refusal::NothingFound)
    }
}

/// A different value of the same kind.
fn wrong(answer: &str, skill: Skill, draw: u64) -> String {
    let pick = |count: usize| usize::try_from(draw % (count.max(1) as u64)).unwrap_or_default();
    let found = wrong_number(answer, draw)
        .or_else(|| wrong_date(answer, draw))
        .or_else(|| wrong_weekday(answer, draw))
        .or_else(|| wrong_number_words(answer, draw))
        .or_else(|| {
            let others = if skill == Skill::Facts { skills::facts::values_like(answer) } else { Vec::new() };
            others.get(pick(others.len())).map(|other| (*other).to_owned())
        })
        .or_else(|| wrong_list(answer, draw))
        .unwrap_or_else(|| wrong_text(answer, draw));
    if found == answer { format!("{answer}e") } else { found }
}

fn wrong_number(answer: &str, draw: u64) -> Option<String> {
    const SLIPS: [i128; 8] = [1, -1, 2, 10, -10, 9, -9, 100];
    let number = Rational::parse(answer).ok()??;
    let slip = SLIPS[usize::try_from(draw % 8).unwrap_or_default()];
    number.plus(Rational::whole(slip)).ok().map(|number| number.to_string())
}

fn wrong_date(answer: &str, draw: u64) -> Option<String> {
    const SLIPS: [i64; 6] = [1, -1, 7, -7, 30, -2];
    let mut parts = answer.split(' ');
    let day = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)?;
    let date = Date::new(parts.next()?.parse().ok()?, i64::try_from(month + 1).ok()?, day)?;
    let slip = SLIPS[usize::try_from(draw % 6).unwrap_or_default()];
    date.plus_days(slip).map(|date| date.to_string())
}

fn wrong_weekday(answer: &str, draw: u64) -> Option<String> {
    let day = WEEKDAYS.iter().position(|weekday| *weekday == answer)?;
    let slip = usize::try_from(draw % 6).unwrap_or_default() + 1;
    Some(WEEKDAYS[(day + slip) % 7].to_owned())
}

fn wrong_number_words(answer: &str, draw: u64) -> Option<String> {
    let words: Vec<&str> = answer.split([' ', '-']).collect();
    let (number, taken) = number_words::from_words(&words)?;
    let slip = i128::from(draw % 9) + 1;
    (taken == words.len()).then(|| number_words::to_words(number.saturating_add(slip)))
}

/// Swaps two neighbours of a list, or removes its last item.
fn wrong_list(answer: &str, draw: u64) -> Option<String> {
    let mut items: Vec<&str> = answer.split(", ").collect();
    if items.len() < 2 {
        return None;
    }
    let at = usize::try_from(draw % (items.len() as u64 - 1)).unwrap_or_default();
    if items[at] == items[at + 1] {
        items.pop();
    } else {
        items.swap(at, at + 1);
    }
    Some(items.join(", "))
}

/// Swaps two different neighbouring letters. A text of equal letters loses or doubles one.
fn wrong_text(answer: &str, draw: u64) -> String {
    let mut letters: Vec<char> = answer.chars().collect();
    let differing: Vec<usize> =
        (1..letters.len()).filter(|index| letters[*index] != letters[index - 1]).collect();
    let at = usize::try_from(draw % (differing.len().max(1) as u64)).unwrap_or_default();
    match differing.get(at) {
        Some(index) => letters.swap(*index, index - 1),
        None if letters.len() > 1 => {
            letters.pop();
        }
        None => letters = letters.iter().flat_map(|letter| [*letter, *letter]).collect(),
    }
    letters.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::{Generalist, wrong};
    use crate::skills::{Skill, Task};

    const QUESTION: &str = "Take the number of days between 3 March 2024 and 17 May 2025, multiply it by 12, and write the result in words.";

    #[test]
    fn without_errors_it_composes_the_skills() {
        let generalist = Generalist { seed: 7, accuracy: 1.0 };
        assert_eq!(
            generalist.answer(&Task::question(QUESTION)).unwrap(),
            "five thousand two hundred and eighty"
        );
    }

    #[test]
    fn an_error_is_a_different_value_of_the_same_kind() {
        for draw in 0..200 {
            for (answer, skill) in [
                ("440", Skill::Dates),
                ("-0.5", Skill::Arithmetic),
                ("17 May 2025", Skill::Dates),
                ("Tuesday", Skill::Dates),
                ("forty-two", Skill::Words),
                ("Paris", Skill::Facts),
                ("a, b, c", Skill::Lists),
                ("aa", Skill::Words),
                ("a", Skill::Words),
                ("", Skill::Words),
            ] {
                assert_ne!(wrong(answer, skill, draw), answer);
            }
        }
        assert!(wrong("17 May 2025", Skill::Dates, 3).ends_with("2025"));
        assert!(wrong("Paris", Skill::Facts, 3).starts_with(char::is_uppercase));
    }

    #[test]
    fn single_operations_have_the_configured_accuracy() {
        let right = (0..400).filter(|number| {
            let task = Task::question(&format!("What is {number} + 1?"));
            Generalist { seed: 7, accuracy: 0.65 }.answer(&task).unwrap() == (number + 1).to_string()
        });
        let count = right.count();
        assert!((230..290).contains(&count), "{count} of 400");
    }

    #[test]
    fn the_same_seed_makes_the_same_errors() {
        let task = Task::question(QUESTION);
        let answers = |seed| Generalist { seed, accuracy: 0.3 }.answer(&task).unwrap();
        assert_eq!(answers(1), answers(1));
        assert!((0..20).any(|seed| answers(seed) != answers(1)));
    }

    #[test]
    fn a_question_without_a_known_operation_is_declined() {
        let generalist = Generalist { seed: 7, accuracy: 1.0 };
        let declined = generalist.answer(&Task::question("Sing a song.")).unwrap_err();
        assert_eq!(declined, "I do not know how to answer `Sing a song.`.");
    }
}
