//! Graders: whether an answer is right. `podium eval` and `podium rollout` share them.

mod code;
mod judge;
mod math;
mod text;

use std::num::NonZero;

use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::pool::Pool;
use podium_engine::Engine;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use code::{CodeLimits, StdinTest};

/// How an answer is compared with the expected one. In JSON, an object with `kind` and its options, or the kind alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Grader {
    /// The same words, without case, outer and doubled blanks and a final period.
    #[default]
    Exact,
    /// The same number. The last number of the answer counts, or the last one that is boxed.
    Numeric {
        /// The largest difference, as a share of the expected number.
        #[serde(default = "text::default_tolerance")]
        tolerance: f64,
    },
    /// The same option: one of the letters A to J.
    Choice,
    /// A regular expression, which is the expected answer, matches a part of the answer.
    Regex,
    /// The same formula after a few rules for `LaTeX`, or the same number. It does no algebra.
    Math,
    /// The answer's Python code passes tests: those in `stdin_tests`, or the statements of the expected answer.
    Code {
        /// Inputs and outputs of the program. Without them, the expected answer is Python code that raises no error after the answer's.
        #[serde(default)]
        stdin_tests: Vec<StdinTest>,
        /// The bounds of the process.
        #[serde(default)]
        limits: CodeLimits,
    },
    /// A worker of the pool says whether the answer means the same as the expected one.
    Judge {
        /// The worker.
        worker: WorkerId,
    },
}

/// Reads a grader, or its kind alone.
pub(crate) fn by_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Grader, D::Error> {
    let value = match Value::deserialize(deserializer)? {
        Value::String(kind) => json!({ "kind": kind }),
        other => other,
    };
    serde_json::from_value(value).map_err(|error| D::Error::custom(format!("grader: {error}")))
}

impl Grader {
    /// Whether it needs an expected answer.
    fn needs_answer(&self) -> bool {
        !matches!(self, Self::Code { stdin_tests, .. } if !stdin_tests.is_empty())
    }

    /// Checks its options and the expected answer. The problem names the field.
    pub(crate) fn check(&self, expected: &str) -> Result<(), String> {
        if self.needs_answer() && expected.trim().is_empty() {
            return Err("answer must not be blank".to_owned());
        }
        match self {
            Self::Exact | Self::Math | Self::Judge { .. } => Ok(()),
            Self::Numeric { tolerance } if !(0.0..=1.0).contains(tolerance) => {
                Err(format!("grader.tolerance is {tolerance}, it must be 0 to 1"))
            }
            Self::Numeric { .. } => match text::last_number(expected) {
                Some(_) => Ok(()),
                None => Err(format!("answer `{expected}` has no number, which the grader `numeric` needs")),
            },
            Self::Choice => match text::option_of(expected) {
                Some(_) => Ok(()),
                None => Err(format!("answer `{expected}` is not a letter from A to J")),
            },
            Self::Regex => text::expression(expected)
                .map(drop)
                .map_err(|error| format!("answer is not a regular expression: {error}")),
            Self::Code { limits, .. } => limits.check(),
        }
    }

    /// Checks that the pool has its worker.
    pub(crate) fn check_pool(&self, pool: &Pool) -> Result<(), String> {
        match self {
            Self::Judge { worker } if pool.worker(worker).is_none() => {
                Err(format!("grader.worker: pool {} has no worker `{worker}`", pool.version()))
            }
            _ => Ok(()),
        }
    }
}

/// The result of grading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Whether the answer is right.
    pub(crate) is_right: bool,
    /// The cost of a judge.
    pub(crate) cost: Cost,
}

impl From<bool> for Verdict {
    fn from(is_right: bool) -> Self {
        Self { is_right, cost: Cost::ZERO }
    }
}

/// The answer could not be graded, which says nothing about it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GradeError {
    /// The process for code cannot be started.
    #[error("python3 cannot be started to grade code: {0}")]
    Sandbox(#[source] std::io::Error),
    /// The judge's run failed.
    #[error("the judge `{worker}` did not answer: {problem}")]
    Judge {
        /// The judge.
        worker: WorkerId,
        /// The failure of its run.
        problem: String,
    },
    /// The judge wrote neither verdict.
    #[error("the judge `{worker}` wrote neither CORRECT nor INCORRECT but `{reply}`")]
    Undecided {
        /// The judge.
        worker: WorkerId,
        /// The beginning of its reply.
        reply: String,
    },
}

/// A question, with the answer that is expected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// The question, which a judge reads.
    pub(crate) question: &'a str,
    /// The expected answer, as its grader understands it.
    pub(crate) answer: &'a str,
    /// The grader.
    pub(crate) grader: &'a Grader,
    /// The seed of a judge's run.
    pub(crate) seed: u32,
}

/// Grades answers. Runs as many processes for code at a time as the machine has processors.
pub(crate) struct Graders {
    engine: Engine,
    processes: Semaphore,
}

impl Graders {
    /// Graders whose judges are workers of this engine.
    pub(crate) fn new(engine: Engine) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { engine, processes: Semaphore::new(processors) }
    }

    /// The engine of the judges.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Grades an answer.
    pub(crate) async fn grade(&self, expected: Expected<'_>, answer: &str) -> Result<Verdict, GradeError> {
        let is_right = match expected.grader {
            Grader::Exact => text::normalised(answer) == text::normalised(expected.answer),
            Grader::Numeric { tolerance } => text::is_same_number(answer, expected.answer, *tolerance),
            Grader::Choice => text::chosen_option(answer) == text::option_of(expected.answer),
            Grader::Regex => {
                text::expression(expected.answer).is_ok_and(|expression| expression.is_match(answer))
            }
            Grader::Math => math::is_same(answer, expected.answer),
            Grader::Code { stdin_tests, limits } => {
                // The semaphore is never closed.
                let _permit = self.processes.acquire().await;
                code::passes(code::code_of(answer), expected.answer, stdin_tests, limits).await?
            }
            Grader::Judge { worker } => return judge::judge(&self.engine, worker, expected, answer).await,
        };
        Ok(is_right.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Grader, String> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        by_name(&mut deserializer).map_err(|error| error.to_string())
    }

    #[test]
    fn a_grader_is_a_kind_or_an_object() {
        assert_eq!(read(r#""numeric""#), Ok(Grader::Numeric { tolerance: 1e-6 }));
        assert_eq!(read(r#"{"kind":"numeric","tolerance":0.01}"#), Ok(Grader::Numeric { tolerance: 0.01 }));
        assert_eq!(read(r#""exact""#), Ok(Grader::Exact));
        let judge = Grader::Judge { worker: WorkerId::new("w").unwrap() };
        assert_eq!(read(r#"{"kind":"judge","worker":"w"}"#), Ok(judge));
        for (text, said) in [
            (r#""exakt""#, "unknown variant `exakt`"),
            (r#""judge""#, "missing field `worker`"),
            (r#"{"kind":"numeric","slack":1}"#, "unknown field `slack`"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains("grader: ") && problem.contains(said), "{problem}");
        }
    }

    #[test]
    fn an_expected_answer_must_suit_its_grader() {
        for (grader, expected, said) in [
            (r#""exact""#, " ", "answer must not be blank"),
            (r#""numeric""#, "many", "has no number"),
            (r#"{"kind":"numeric","tolerance":2}"#, "1", "grader.tolerance is 2, it must be 0 to 1"),
            (r#""choice""#, "K", "not a letter from A to J"),
            (r#""regex""#, "(", "not a regular expression"),
            (r#"{"kind":"code","limits":{"cpu_s":0}}"#, "assert f(1) == 2", "grader.limits.cpu_s is 0"),
        ] {
            let problem = read(grader).unwrap().check(expected).unwrap_err();
            assert!(problem.contains(said), "{problem}");
        }
        let with_tests = r#"{"kind":"code","stdin_tests":[{"stdin":"1","stdout":"2"}]}"#;
        assert_eq!(read(with_tests).unwrap().check(""), Ok(()));
    }
}
