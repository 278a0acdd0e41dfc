//! Joins outcomes and hidden states: for each question the head's input and the reward of each choice.

use podium_domain::ids::WorkerId;

use crate::features::Features;
use crate::outcomes::Outcomes;

/// Fewest questions for training and evaluation.
pub const QUESTIONS_MIN: usize = 10;

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// Its id.
    pub id: String,
    /// Its hidden state.
    pub hidden: Vec<f32>,
    /// The mean reward of each slot's worker, where it was recorded; at least one is known.
    pub rewards: Vec<Option<f64>>,
}

/// Questions with the rewards of the slots' workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    slots: Vec<WorkerId>,
    hidden: usize,
    examples: Vec<Example>,
    without_features: usize,
}

/// Why a data set cannot be used for training.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// Too few questions have both outcomes and features.
    #[error("{questions} questions have outcomes and features, at least {QUESTIONS_MIN} are needed")]
    TooFew {
        /// Questions with both.
        questions: usize,
    },
    /// Fewer than two workers to choose from.
    #[error("the outcomes are of {workers} of the pool's workers, at least 2 are needed")]
    TooFewWorkers {
        /// Workers with outcomes.
        workers: usize,
    },
}

impl Dataset {
    /// Joins outcomes and features by question, ordered by id. Outcomes of workers without a slot are ignored.
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

    /// The workers to choose from.
    pub fn slots(&self) -> &[WorkerId] {
        &self.slots
    }

    /// Values in a hidden state.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// The questions.
    pub fn examples(&self) -> &[Example] {
        &self.examples
    }

    /// Questions with outcomes but without features.
    pub fn without_features(&self) -> usize {
        self.without_features
    }
}
