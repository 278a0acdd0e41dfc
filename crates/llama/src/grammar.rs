//! The grammar of the three lists: built from the pool and the policy, executed by llguidance.
//!
//! It accepts plans over allowed workers with lists of equal length, in which steps see earlier steps only. It is the strict
//! version of what `podium_domain::plan` parses leniently. Every repetition is bounded.

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

/// Most compiled grammars that are cached. Requests differ in the number of steps and the allowed workers only.
const KEPT_MAX: usize = 16;

/// The plans that a request allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanShape {
    workers: Vec<u16>,
    steps_max: u16,
    subtask_chars_max: u16,
    may_keep_answer: MayKeepAnswer,
    /// The question that subtasks are copied from. It is split only when the grammar is built.
    copied_from: Option<Arc<str>>,
}

/// Whether three empty lists, which keep the earlier answer, are a valid plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayKeepAnswer {
    /// An earlier answer exists.
    Yes,
    /// No answer exists that could be kept.
    No,
}

/// The shape allows no plan, or exceeds the grammar's limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// No worker is allowed.
    #[error("a plan needs at least one allowed worker")]
    NoWorkers,
    /// A worker's position exceeds the pool limit.
    #[error("worker {position} is out of range, the limit is {WORKERS_MAX} workers")]
    WorkerOutOfRange {
        /// The position.
        position: u16,
    },
    /// The number of steps is out of range.
    #[error("steps_max is {steps_max}, it must be 1 to {STEPS_MAX}")]
    Steps {
        /// The given value.
        steps_max: u16,
    },
    /// The length of subtasks is out of range.
    #[error("subtask_chars_max is {chars_max}, it must be 1 to {SUBTASK_CHARS_MAX}")]
    SubtaskChars {
        /// The given value.
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

    /// Sets a lower limit for the length of subtasks.
    pub fn with_subtask_chars_max(self, chars_max: u16) -> Result<Self, ShapeError> {
        if !(1..=SUBTASK_CHARS_MAX).contains(&chars_max) {
            return Err(ShapeError::SubtaskChars { chars_max });
        }
        Ok(Self { subtask_chars_max: chars_max, ..self })
    }

    /// Restricts subtasks to parts of `question` around references to earlier results. If the question is too long for that,
    /// subtasks stay free.
    #[must_use]
    pub fn with_subtasks_copied_from(self, question: &str) -> Self {
        Self { copied_from: Some(question.into()), ..self }
    }

    /// The grammar in llguidance's Lark dialect. It has one alternative for each length: all are possible during the first
    /// list, and its end leaves one.
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
        // A subtask begins with a visible character, so none is blank.
        let _ = writeln!(
            lark,
            r#"SUBTASK: /"([^"\\\s\x00-\x1F\x7F]|\\["\\])([^"\\\x00-\x1F\x7F]|\\["\\nt]){{0,{}}}"/"#,
            self.subtask_chars_max - 1
        );
        let _ = writeln!(lark, "FIRST: SUBTASK");
    }
}

/// A regular expression for lists of steps before `step`: each step at most once, in rising order. If an earlier answer
/// exists, `["all"]` differs from the list of all these steps: it includes the previous round.
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

/// Compiles grammars for one vocabulary.
pub(crate) struct Grammars {
    factory: ParserFactory,
    kept: VecDeque<(PlanShape, Matcher)>,
}

/// An error of the grammar library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("grammar: {0}")]
pub struct GrammarError(String);

impl GrammarError {
    pub(crate) fn new(error: impl std::fmt::Display) -> Self {
        // The library's errors can contain all the text so far.
        Self(error.to_string().lines().next().unwrap_or_default().chars().take(300).collect())
    }
}

impl Grammars {
    /// Indexes the vocabulary, which takes up to a second for a large one.
    pub(crate) fn new(vocabulary: &TokEnv) -> Result<Self, GrammarError> {
        let abilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(vocabulary, abilities, &slices).map_err(GrammarError::new)?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self { factory, kept: VecDeque::new() })
    }

    /// A matcher at the start of the grammar.
    pub(crate) fn walk(&mut self, shape: &PlanShape) -> Result<Walk, GrammarError> {
        if let Some(copied) = shape.copied_from.as_deref().and_then(Copied::of) {
            // Each question has a different grammar.
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

/// The state of a grammar, token by token.
pub(crate) struct Walk(Matcher);

impl Walk {
    /// Consumes the tokens that must follow, if the vocabulary defines a canonical tokenisation.
    pub(crate) fn take_forced(&mut self) -> Result<Vec<u32>, GrammarError> {
        let forced = self.0.consume_ff_tokens();
        self.0.get_error().map_or(Ok(forced), |error| Err(GrammarError::new(error)))
    }

    /// Consumes an allowed token.
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
