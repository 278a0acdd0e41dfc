//! The errors of simulated workers: an operation is right with a fixed probability, and an error is a plausible wrong value, with
//! which later operations continue.

use crate::{
    dice,
    skills::{
        self, Refusal, Skill, Task,
        calendar::{Date, MONTHS, WEEKDAYS},
        number_words,
        rational::Rational,
    },
};

/// Digits of an answer from which its operation is hard.
const HARD_DIGITS: usize = 4;
/// Characters of an answer from which its operation is hard.
const HARD_CHARACTERS: usize = 24;

/// How often a worker errs in one call, and which of its answers are wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Errors {
    /// Seed of the draws: the same seed makes the same errors.
    pub seed: u64,
    /// The probability, 0 to 1, that an operation is right. A hard one, whose answer has four digits or 24 characters or more,
    /// errs twice as often, at most always.
    pub accuracy: f64,
    /// The seed of the request. Its errors then depend on this number and on no text, so another wording has the same luck and
    /// another seed has new luck. `None`: the errors depend on the question and the subtask, so asking again changes nothing.
    pub call: Option<u64>,
}

impl Errors {
    /// A worker that makes none.
    pub const NONE: Self = Self { seed: 0, accuracy: 1.0, call: None };

    /// The answer to the operation at a position of the task: `answer`, or an error.
    pub(crate) fn alter(&self, task: &Task, position: usize, skill: Skill, answer: String) -> String {
        if dice::happens(self.draw(task, "right", position), self.accuracy_of(&answer)) {
            return answer;
        }
        wrong(&answer, skill, self.draw(task, "error", position))
    }

    fn accuracy_of(&self, answer: &str) -> f64 {
        let digits = answer.chars().filter(char::is_ascii_digit).count();
        let is_hard = digits >= HARD_DIGITS || answer.chars().count() >= HARD_CHARACTERS;
        // A call without a seed errs in hard operations as often as in others, as the published figures of such calls did.
        let errors = if is_hard && self.call.is_some() { 2.0 } else { 1.0 };
        1.0 - errors * (1.0 - self.accuracy)
    }

    /// A number for a decision about an operation.
    pub(crate) fn draw(&self, task: &Task, purpose: &str, position: usize) -> u64 {
        let position = position.to_string();
        match (self.call, purpose) {
            (Some(call), purpose) => dice::draw(self.seed, &["call", &call.to_string(), purpose, &position]),
            (None, "error") => dice::draw(self.seed, &["error", &task.question, &position]),
            (None, _) => dice::draw(self.seed, &["generalist", &task.question, &task.subtask, &position]),
        }
    }
}

/// The answer to a task with all skills.
fn solve(task: &Task, errors: &Errors) -> Result<String, Refusal> {
    let alter = |position, skill, answer| errors.alter(task, position, skill, answer);
    let operations = skills::read_all(task, &alter)?;
    operations.into_iter().next_back().map(|operation| operation.answer).ok_or(Refusal::NothingFound)
}

/// The answer of a worker with all skills. The error is the text with which it declines.
pub(crate) fn answer(task: &Task, errors: &Errors) -> Result<String, String> {
    solve(task, errors).map_err(|refusal| match refusal {
        Refusal::NothingFound => {
            format!("I do not know how to answer `{}`.", skills::shortened(&task.subtask))
        }
        refusal => format!("I cannot answer this: {refusal}."),
    })
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
    use super::{Errors, answer, solve, wrong};
    use crate::skills::{Skill, Task};

    const QUESTION: &str = "Take the number of days between 3 March 2024 and 17 May 2025, multiply it by 12, and write the result in words.";

    #[test]
    fn without_errors_it_composes_the_skills() {
        let answer = answer(&Task::question(QUESTION), &Errors::NONE).unwrap();
        assert_eq!(answer, "five thousand two hundred and eighty");
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
            answer(&task, &Errors { seed: 7, accuracy: 0.65, call: None }).unwrap()
                == (number + 1).to_string()
        });
        let count = right.count();
        assert!((230..290).contains(&count), "{count} of 400");
    }

    #[test]
    fn the_same_seed_makes_the_same_errors() {
        let task = Task::question(QUESTION);
        let answers = |seed| answer(&task, &Errors { seed, accuracy: 0.3, call: None }).unwrap();
        assert_eq!(answers(1), answers(1));
        assert!((0..20).any(|seed| answers(seed) != answers(1)));
    }

    #[test]
    fn a_question_without_a_known_operation_is_declined() {
        let declined = answer(&Task::question("Sing a song."), &Errors::NONE).unwrap_err();
        assert_eq!(declined, "I do not know how to answer `Sing a song.`.");
    }

    /// The share of right answers to a question over 1,000 seeds of requests.
    fn accuracy(question: &str, right: &str) -> f64 {
        let task = Task::question(question);
        let count = (0..1_000).filter(|call| {
            solve(&task, &Errors { seed: 7, accuracy: 0.9, call: Some(*call) }).unwrap() == right
        });
        f64::from(u32::try_from(count.count()).unwrap()) / 1_000.0
    }

    #[test]
    fn hard_operations_err_twice_as_often() {
        let (easy, hard) = (accuracy("What is 3 + 4?", "7"), accuracy("What is 3456 + 4?", "3460"));
        assert!((0.87..0.93).contains(&easy), "{easy}");
        assert!((0.76..0.84).contains(&hard), "{hard}");
    }

    #[test]
    fn another_wording_has_the_same_luck_in_a_call_with_a_seed() {
        let wordings = ["What is 3 + 4?", "Add 3 and 4.", "the sum of 3 and 4"].map(Task::question);
        let mut right = 0;
        for call in 0..200 {
            let errors = Errors { seed: 7, accuracy: 0.6, call: Some(call) };
            let answers = wordings.each_ref().map(|task| solve(task, &errors).unwrap());
            assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
            right += u32::from(answers[0] == "7");
        }
        assert!((90..150).contains(&right), "{right} of 200");
    }
}
