//! The grammar that the three lists are written under: built from the pool and the policy, walked by llguidance.
//!
//! What it lets through is a plan over allowed workers whose lists are equally long and whose steps see earlier steps
//! only. It is the strict form of what `podium_domain::plan` reads leniently. Every repetition in it is bounded.

mod copied;

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory};
use podium_domain::policy::STEPS_MAX;
use podium_domain::pool::WORKERS_MAX;
use toktrie::{InferenceCapabilities, SimpleVob, TokEnv};

use crate::grammar::copied::Copied;
use crate::sampler::Choice;

/// Most characters of a subtask.
pub const SUBTASK_CHARS_MAX: u16 = 600;

/// Compiled grammars that are kept. Requests differ in few ways: in how many steps they may have and in who may do them.
const KEPT_MAX: usize = 16;

/// What plans a request allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanShape {
    workers: Vec<u16>,
    steps_max: u16,
    subtask_chars_max: u16,
    may_keep_answer: MayKeepAnswer,
    /// The question that subtasks are copied from. Cut into pieces only when the grammar is made.
    copied_from: Option<Arc<str>>,
}

/// Whether three empty lists, which say that the earlier answer is good, are a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayKeepAnswer {
    /// There is an earlier answer.
    Yes,
    /// There is none to keep.
    No,
}

/// A shape that allows no plan, or more than the grammar is made for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// No worker is left.
    #[error("a plan needs at least one allowed worker")]
    NoWorkers,
    /// A worker's position is beyond what a pool can have.
    #[error("worker {position} is out of range, the limit is {WORKERS_MAX} workers")]
    WorkerOutOfRange {
        /// The position.
        position: u16,
    },
    /// Too few or too many steps.
    #[error("steps_max is {steps_max}, it must be 1 to {STEPS_MAX}")]
    Steps {
        /// What it was.
        steps_max: u16,
    },
    /// Subtasks could not say anything, or too much.
    #[error("subtask_chars_max is {chars_max}, it must be 1 to {SUBTASK_CHARS_MAX}")]
    SubtaskChars {
        /// What it was.
        chars_max: u16,
    },
}

impl PlanShape {
    /// Plans of 1 to `steps_max` steps over the workers at these positions of the pool.
    pub fn new(
        workers: impl IntoIterator<Item = u16>,
        steps_max: u16,
        may_keep_answer: MayKeepAnswer,
    ) -> Result<Self, ShapeError> {
        let mut workers: Vec<u16> = workers.into_iter().collect();
        workers.sort_unstable();
        workers.dedup();
        let last = *workers.last().ok_or(ShapeError::NoWorkers)?;
        if usize::from(last) >= WORKERS_MAX {
            return Err(ShapeError::WorkerOutOfRange { position: last });
        }
        if !(1..=STEPS_MAX).contains(&steps_max) {
            return Err(ShapeError::Steps { steps_max });
        }
        Ok(Self {
            workers,
            steps_max,
            subtask_chars_max: SUBTASK_CHARS_MAX,
            may_keep_answer,
            copied_from: None,
        })
    }

    /// The same with shorter subtasks.
    pub fn with_subtask_chars_max(self, chars_max: u16) -> Result<Self, ShapeError> {
        if !(1..=SUBTASK_CHARS_MAX).contains(&chars_max) {
            return Err(ShapeError::SubtaskChars { chars_max });
        }
        Ok(Self { subtask_chars_max: chars_max, ..self })
    }

    /// The same, with subtasks that are parts of `question` around references to earlier results. A question too long for
    /// that leaves them free.
    #[must_use]
    pub fn with_subtasks_copied_from(self, question: &str) -> Self {
        Self { copied_from: Some(question.into()), ..self }
    }

    /// The grammar in the Lark dialect of llguidance. Equal lengths are had by one alternative for each length: while the
    /// first list is open all are alive, and its end leaves one.
    fn lark(&self, copied: Option<&Copied>) -> String {
        let mut lark = String::from("start: ");
        let shortest = u16::from(self.may_keep_answer == MayKeepAnswer::No);
        let alternatives: Vec<_> = (shortest..=self.steps_max).map(|steps| format!("plan{steps}")).collect();
        let _ = writeln!(lark, "{}", alternatives.join(" | "));
        for steps in shortest..=self.steps_max {
            let list = |element: &dyn Fn(u16) -> String| {
                (0..steps).map(element).collect::<Vec<_>>().join(r#" ", " "#)
            };
            let _ = writeln!(
                lark,
                r#"plan{steps}: "model_id = [" {} "]\nsubtasks = [" {} "]\naccess_list = [" {} "]""#,
                list(&|_| "WORKER".to_owned()),
                list(&|step| if step == 0 { "FIRST" } else { "SUBTASK" }.to_owned()),
                list(&|step| format!("ACCESS{step}")),
            );
        }
        let workers: Vec<_> = self.workers.iter().map(u16::to_string).collect();
        let _ = writeln!(lark, "WORKER: /{}/", workers.join("|"));
        match copied {
            Some(copied) => copied.write(&mut lark),
            None => self.write_free_subtasks(&mut lark),
        }
        for step in 0..self.steps_max {
            let _ = writeln!(lark, "ACCESS{step}: /{}/", access(step, self.may_keep_answer));
        }
        lark
    }

    fn write_free_subtasks(&self, lark: &mut String) {
        // A subtask begins with a character that can be seen, so none is blank.
        let _ = writeln!(
            lark,
            r#"SUBTASK: /"([^"\\\s\x00-\x1F\x7F]|\\["\\])([^"\\\x00-\x1F\x7F]|\\["\\nt]){{0,{}}}"/"#,
            self.subtask_chars_max - 1
        );
        let _ = writeln!(lark, "FIRST: SUBTASK");
    }
}

/// The lists of steps before `step`, each step at most once and in rising order, as a regular expression. Where there is an earlier
/// answer, `["all"]` is more than the list of all these steps: it shows the round before as well.
fn access(step: u16, earlier: MayKeepAnswer) -> String {
    let beginning_with = |first: u16| {
        (first + 1..step).fold(first.to_string(), |mut list, next| {
            let _ = write!(list, "(, {next})?");
            list
        })
    };
    let all = (earlier == MayKeepAnswer::Yes).then(|| r#""all""#.to_owned());
    let lists: Vec<_> = (0..step).map(beginning_with).chain(all).collect();
    if lists.is_empty() { r"\[\]".to_owned() } else { format!(r"\[({})?\]", lists.join("|")) }
}

/// Makes walks of grammars over one vocabulary.
pub(crate) struct Grammars {
    factory: ParserFactory,
    kept: VecDeque<(PlanShape, Matcher)>,
}

/// The grammar library refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("grammar: {0}")]
pub struct GrammarError(String);

impl GrammarError {
    pub(crate) fn new(error: impl std::fmt::Display) -> Self {
        // The library's errors can hold the whole text so far.
        Self(error.to_string().lines().next().unwrap_or_default().chars().take(300).collect())
    }
}

impl Grammars {
    /// Walks the vocabulary once; that takes up to a second for a large one.
    pub(crate) fn new(vocabulary: &TokEnv) -> Result<Self, GrammarError> {
        let abilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(vocabulary, abilities, &slices).map_err(GrammarError::new)?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self { factory, kept: VecDeque::new() })
    }

    /// A walk that stands at the beginning.
    pub(crate) fn walk(&mut self, shape: &PlanShape) -> Result<Walk, GrammarError> {
        if let Some(copied) = shape.copied_from.as_deref().and_then(Copied::of) {
            // Another question has another grammar.
            return self.make(&shape.lark(Some(&copied))).map(Walk);
        }
        let shape = PlanShape { copied_from: None, ..shape.clone() };
        if let Some(at) = self.kept.iter().position(|(kept, _)| *kept == shape) {
            return Ok(Walk(self.kept[at].1.deep_clone()));
        }
        let matcher = self.make(&shape.lark(None))?;
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((shape, matcher.deep_clone()));
        Ok(Walk(matcher))
    }

    fn make(&self, lark: &str) -> Result<Matcher, GrammarError> {
        let parser = self.factory.create_parser(TopLevelGrammar::from_lark(lark.to_owned()));
        Ok(Matcher::new(Ok(parser.map_err(GrammarError::new)?)))
    }
}

/// A walk through a grammar, token by token.
pub(crate) struct Walk(Matcher);

impl Walk {
    /// Takes the tokens that alone can follow, if the vocabulary says how a text is cut into tokens.
    pub(crate) fn take_forced(&mut self) -> Result<Vec<u32>, GrammarError> {
        let forced = self.0.consume_ff_tokens();
        self.0.get_error().map_or(Ok(forced), |error| Err(GrammarError::new(error)))
    }

    /// Takes a token that may follow.
    pub(crate) fn take(&mut self, token: u32) -> Result<(), GrammarError> {
        self.0.consume_token(token).map_err(GrammarError::new)
    }

    /// Whether the plan is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.0.is_stopped() && !self.0.is_error()
    }
}

impl Choice for Walk {
    type Error = GrammarError;

    fn is_allowed(&mut self, token: u32) -> Result<bool, GrammarError> {
        let valid = self.0.validate_tokens(&[token]).map_err(GrammarError::new)?;
        Ok(valid == 1)
    }

    fn mask(&mut self) -> Result<impl Borrow<SimpleVob>, GrammarError> {
        self.0.compute_mask().map_err(GrammarError::new)
    }
}

#[cfg(test)]
mod tests;
