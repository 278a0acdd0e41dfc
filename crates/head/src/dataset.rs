//! Outcomes and hidden states put together: for each question what a head sees, and what each choice would have brought.

use podium_domain::ids::WorkerId;

use crate::features::Features;
use crate::outcomes::Outcomes;

/// Fewer questions can be neither learned from nor measured on.
pub const QUESTIONS_MIN: usize = 10;

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// Its id.
    pub id: String,
    /// Its hidden state.
    pub hidden: Vec<f32>,
    /// The mean reward of each slot's worker, where it was recorded; at least one was.
    pub rewards: Vec<Option<f64>>,
}

/// Questions with what the workers of some slots made of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    slots: Vec<WorkerId>,
    hidden: usize,
    examples: Vec<Example>,
    without_features: usize,
}

/// Why there is nothing to learn from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// Too few questions have both.
    #[error("{questions} questions have outcomes and features, at least {QUESTIONS_MIN} are needed")]
    TooFew {
        /// How many have.
        questions: usize,
    },
    /// Nothing to choose between.
    #[error("the outcomes are of {workers} of the pool's workers, at least 2 are needed")]
    TooFewWorkers {
        /// How many.
        workers: usize,
    },
}

impl Dataset {
    /// Puts together what belongs together, in the order of the questions' ids. Outcomes of workers that have no slot do not
    /// count.
    pub fn join(outcomes: &Outcomes, features: &Features, slots: &[WorkerId]) -> Result<Self, DatasetError> {
        if slots.len() < 2 {
            return Err(DatasetError::TooFewWorkers { workers: slots.len() });
        }
        let (mut examples, mut without_features) = (Vec::new(), 0);
        for id in outcomes.questions() {
            let rewards: Vec<_> = slots.iter().map(|worker| outcomes.reward(id, worker)).collect();
            if rewards.iter().all(Option::is_none) {
                continue;
            }
            match features.of(id) {
                Some(hidden) => {
                    examples.push(Example { id: id.to_owned(), hidden: hidden.to_vec(), rewards });
                }
                None => without_features += 1,
            }
        }
        if examples.len() < QUESTIONS_MIN {
            return Err(DatasetError::TooFew { questions: examples.len() });
        }
        Ok(Self { slots: slots.to_vec(), hidden: features.hidden(), examples, without_features })
    }

    /// The workers to choose between.
    pub fn slots(&self) -> &[WorkerId] {
        &self.slots
    }

    /// How many numbers a hidden state has.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// The questions.
    pub fn examples(&self) -> &[Example] {
        &self.examples
    }

    /// How many questions have outcomes, but no features.
    pub fn without_features(&self) -> usize {
        self.without_features
    }
}
