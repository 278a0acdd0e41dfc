//! The skills: each parses a task in plain English, finds the operation and its operands, and computes the answer. They are
//! ordinary programs without prepared answers, and they decline tasks of other kinds.

pub(crate) mod arithmetic;
pub mod calendar;
pub(crate) mod dates;
pub(crate) mod facts;
mod facts_table;
pub(crate) mod lists;
pub mod number_words;
pub(crate) mod operand;
pub mod rational;
#[cfg(test)]
mod tests;
pub(crate) mod units;
pub(crate) mod words;

use std::{collections::HashSet, fmt, sync::LazyLock};

use crate::errors::Errors;
pub use crate::language::reader::Visible;
use crate::language::{
    pattern::Pattern,
    reader::{self, Binding, Form, Operands, Operation, Rule},
};

/// A kind of task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Skill {
    /// Exact arithmetic.
    Arithmetic,
    /// Letters, words and the names of numbers.
    Words,
    /// Days, weekdays and clock times.
    Dates,
    /// Conversion of units.
    Units,
    /// Lists of numbers or words.
    Lists,
    /// A small table of general knowledge.
    Facts,
}

impl Skill {
    /// All skills, in the order of the demo pool's slots.
    pub const ALL: [Self; 6] =
        [Self::Arithmetic, Self::Words, Self::Dates, Self::Units, Self::Lists, Self::Facts];

    /// The skill's name in plans and model names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::Words => "words",
            Self::Dates => "dates",
            Self::Units => "units",
            Self::Lists => "lists",
            Self::Facts => "facts",
        }
    }

    /// How its worker names this kind of task in sentences.
    fn kind_of_task(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::Words => "word",
            Self::Dates => "date",
            Self::Units => "unit conversion",
            Self::Lists => "list",
            Self::Facts => "fact",
        }
    }
}

impl fmt::Display for Skill {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Why a task has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The text contains no operation of the skill.
    #[error("no operation was found")]
    NothingFound,
    /// The text is too long.
    #[error(
        "the text is too long to read ({bytes} bytes; {} bytes or 4096 words at most)",
        reader::TEXT_BYTES_MAX
    )]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// The text contains too many operations.
    #[error("there are more than {} operations in the text", reader::OPERATIONS_MAX)]
    TooManyOperations,
    /// The task refers to an earlier result, but none was given.
    #[error("it speaks of an earlier result, and I was given none that fits")]
    NoEarlierResult,
    /// The step whose output is needed failed.
    #[error("the result of step {number} is missing")]
    MissingOutput {
        /// The number of that step.
        number: usize,
    },
    /// An operand has the wrong kind.
    #[error("I need {needed}, but `{}` is not one", shortened(.given))]
    WrongOperand {
        /// The required kind, with its article.
        needed: &'static str,
        /// The operand.
        given: String,
    },
    /// The computation has no result.
    #[error(transparent)]
    Number(#[from] rational::NumberError),
    /// A day outside the years 1 to 9999.
    #[error("the day is outside the years 1 to 9999")]
    OutsideCalendar,
    /// The units have different dimensions.
    #[error("{from} cannot be converted to {to}")]
    UnitsDiffer {
        /// The unit of the value.
        from: String,
        /// The requested unit.
        to: String,
    },
    /// The list has no such item.
    #[error("the list has {count} items")]
    NoSuchItem {
        /// The length of the list.
        count: usize,
    },
    /// The table does not contain the fact.
    #[error("I do not know that of {subject}")]
    UnknownFact {
        /// The subject.
        subject: String,
    },
}

/// A task for a skill worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The instruction.
    pub subtask: String,
    /// The outputs that may be used, in the given order.
    pub visible: Vec<Visible>,
    /// The whole question that the subtask belongs to.
    pub question: String,
}

impl Task {
    /// A task that consists of a question.
    pub fn question(question: &str) -> Self {
        Self { subtask: question.to_owned(), visible: Vec::new(), question: question.to_owned() }
    }
}

/// The skill's answer to the subtask, or why it has none.
pub fn solve(skill: Skill, task: &Task) -> Result<String, Refusal> {
    solve_with_errors(skill, task, &Errors::NONE)
}

fn solve_with_errors(skill: Skill, task: &Task, errors: &Errors) -> Result<String, Refusal> {
    let rules: Vec<&Rule> = RULES.iter().filter(|rule| rule.skill == skill).collect();
    let alter = |position, skill, answer| errors.alter(task, position, skill, answer);
    let read = |text: &str| reader::read(text, &task.visible, &rules, &alter);
    let operations = match read(&task.subtask) {
        Err(Refusal::NothingFound) => read(intended_operation(skill, task).ok_or(Refusal::NothingFound)?)?,
        read => read?,
    };
    operations.into_iter().next_back().map(|operation| operation.answer).ok_or(Refusal::NothingFound)
}

/// The meaning of a subtask that names an earlier result but no operation, such as `what is the result`: the last operation
/// of the whole question.
fn intended_operation(skill: Skill, task: &Task) -> Option<&'static str> {
    let words = |text: &str| {
        let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        parts.map(str::to_lowercase).collect::<Vec<_>>()
    };
    let subtask = words(&task.subtask);
    let names_result =
        ["what is the result", "the result", "what is it"].iter().any(|text| subtask == words(text));
    let ends_in_words = words(&task.question).ends_with(&["in".to_owned(), "words".to_owned()]);
    (skill == Skill::Words && names_result && ends_in_words).then_some("write the result in words")
}

/// The skill worker's reply: the answer, or a text that declines.
pub fn answer(skill: Skill, task: &Task) -> String {
    answer_or_decline(skill, task, &Errors::NONE).unwrap_or_else(|refusal| refusal)
}

/// Like [`answer`], with the declining text as an error.
pub(crate) fn answer_or_decline(skill: Skill, task: &Task, errors: &Errors) -> Result<String, String> {
    solve_with_errors(skill, task, errors).map_err(|refusal| explain(skill, &refusal, task))
}

fn explain(skill: Skill, refusal: &Refusal, task: &Task) -> String {
    let kind = skill.kind_of_task();
    match refusal {
        Refusal::NothingFound => {
            let subtask = shortened(&task.subtask);
            format!("I can only do {kind} questions: I found no {kind} operation in `{subtask}`.")
        }
        refusal => format!("I cannot answer this {kind} question: {refusal}."),
    }
}

/// The answer to a whole question, with all skills and without errors.
pub fn solve_whole(task: &Task) -> Result<String, Refusal> {
    let operations = read_all(task, &|_, _, answer| answer)?;
    operations.into_iter().next_back().map(|operation| operation.answer).ok_or(Refusal::NothingFound)
}

/// All operations of any skill in a text.
pub(crate) fn read_all(task: &Task, alter: reader::Alter<'_>) -> Result<Vec<Operation>, Refusal> {
    let rules: Vec<&Rule> = RULES.iter().collect();
    reader::read(&task.subtask, &task.visible, &rules, alter)
}

/// Every word in the wordings of all operations.
pub(crate) fn vocabulary() -> &'static HashSet<String> {
    static VOCABULARY: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let mut words = Vec::new();
        RULES.iter().flat_map(|rule| &rule.patterns).for_each(|pattern| pattern.words(&mut words));
        words.into_iter().collect()
    });
    &VOCABULARY
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    [
        compiled(Skill::Arithmetic, arithmetic::WORDINGS, arithmetic::FRAGMENTS),
        compiled(Skill::Words, words::WORDINGS, words::FRAGMENTS),
        compiled(Skill::Dates, dates::WORDINGS, dates::FRAGMENTS),
        compiled(Skill::Units, units::WORDINGS, units::FRAGMENTS),
        compiled(Skill::Lists, lists::WORDINGS, lists::FRAGMENTS),
        compiled(Skill::Facts, facts::WORDINGS, facts::FRAGMENTS),
    ]
    .into_iter()
    .flatten()
    .collect()
});

fn compiled(skill: Skill, wordings: &[Wordings], fragments: &[(&str, &str)]) -> Vec<Rule> {
    let rule = |wording: &Wordings, form, sources: &[&str]| Rule {
        skill,
        form,
        patterns: sources.iter().map(|source| Pattern::compile(source, fragments)).collect(),
        binding: wording.binding,
        compute: wording.compute,
    };
    let both = |wording: &Wordings| {
        [rule(wording, Form::Noun, wording.nouns), rule(wording, Form::Verb, wording.verbs)]
    };
    wordings.iter().flat_map(both).collect()
}

/// The wordings of one operation, as patterns of `language::pattern`.
pub(crate) struct Wordings {
    /// Noun phrases.
    pub(crate) nouns: &'static [&'static str],
    /// Imperatives and questions.
    pub(crate) verbs: &'static [&'static str],
    pub(crate) binding: Binding,
    /// Computes the operation from the slots of any of its wordings.
    pub(crate) compute: fn(&Operands) -> Result<String, Refusal>,
}

/// The beginning of a text, for messages.
pub(crate) fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 160;
    let flat: String =
        text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    match flat.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &flat[..end]),
        None => flat,
    }
}
