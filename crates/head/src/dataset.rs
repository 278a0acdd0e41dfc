//! Joins outcomes and hidden states: for each question the head's input, and what each choice is worth.

use std::collections::BTreeMap;

use podium_domain::ids::WorkerId;

use crate::features::Features;
use crate::identity::Input;
use crate::outcomes::Outcomes;
use crate::text::{self, FORM_VALUES};

/// Fewest questions for training and evaluation.
pub const QUESTIONS_MIN: usize = 10;
/// Largest price factor.
pub const PRICE_FACTOR_MAX: f64 = 1e9;

/// The recorded result of a worker for a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recorded {
    /// The mean reward, from 0 to 1.
    pub reward: f64,
    /// The mean cost in dollars, if it was recorded.
    pub cost_usd: Option<f64>,
    /// The reward minus the price factor times the cost; a head is trained for it.
    pub value: f64,
}

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// Its id.
    pub id: String,
    /// Equal for ids with the same question. Folds and held-out sets take or leave a whole group.
    pub group: usize,
    /// Its task, if the outcomes have it.
    pub task: Option<String>,
    /// Its hidden state.
    pub hidden: Vec<f32>,
    /// The [`form`](text::form) of its text, if the outcomes have the text.
    pub form: Option<[f32; FORM_VALUES]>,
    /// The recorded result of each slot's worker; at least one entry exists.
    pub recorded: Vec<Option<Recorded>>,
}

impl Example {
    /// The input of a head for this question.
    pub fn input(&self) -> Input<'_> {
        Input { hidden: &self.hidden, form: self.form.as_ref() }
    }

    /// The value of each slot's worker, where it was recorded.
    pub fn values(&self) -> Vec<Option<f64>> {
        self.recorded.iter().map(|recorded| recorded.map(|recorded| recorded.value)).collect()
    }
}

/// Questions with what was recorded of the slots' workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    slots: Vec<WorkerId>,
    hidden: usize,
    price_factor: f64,
    examples: Vec<Example>,
    without_features: usize,
}

/// Why a data set cannot be used for training.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DatasetError {
    /// Too few questions have both outcomes and features.
    #[error("{questions} questions have outcomes and features, at least {QUESTIONS_MIN} are needed")]
    TooFew {
        /// Different questions with both.
        questions: usize,
    },
    /// Fewer than two workers to choose from.
    #[error("the outcomes are of {workers} of the pool's workers, at least 2 are needed")]
    TooFewWorkers {
        /// Workers with outcomes.
        workers: usize,
    },
    /// The price factor is out of its bounds.
    #[error("price-factor is {factor}, it must be 0 to {PRICE_FACTOR_MAX:e}")]
    PriceFactor {
        /// The given factor.
        factor: f64,
    },
    /// With a price factor every outcome needs a cost.
    #[error(
        "price-factor needs the costs: no outcome of `{worker}` for question `{question}` has cost_nano_usd"
    )]
    NoCost {
        /// The question's id.
        question: String,
        /// The worker.
        worker: WorkerId,
    },
}

impl Dataset {
    /// Joins outcomes and features by question, ordered by id. Outcomes of workers without a slot are ignored. A dollar of cost
    /// is worth as much as `price_factor` right answers.
    pub fn join(
        outcomes: &Outcomes,
        features: &Features,
        slots: &[WorkerId],
        price_factor: f64,
    ) -> Result<Self, DatasetError> {
        if !(0.0..=PRICE_FACTOR_MAX).contains(&price_factor) {
            return Err(DatasetError::PriceFactor { factor: price_factor });
        }
        if slots.len() < 2 {
            return Err(DatasetError::TooFewWorkers { workers: slots.len() });
        }
        let (mut examples, mut without_features, mut groups) = (Vec::new(), 0, BTreeMap::new());
        for id in outcomes.questions() {
            let recorded = slots.iter().map(|worker| recorded(outcomes, id, worker, price_factor));
            let recorded: Vec<_> = recorded.collect::<Result<_, _>>()?;
            if recorded.iter().all(Option::is_none) {
                continue;
            }
            let Some(hidden) = features.of(id) else {
                without_features += 1;
                continue;
            };
            let question = outcomes.text(id);
            let next = groups.len();
            let group = *groups.entry(question.unwrap_or(id)).or_insert(next);
            let form = question.map(text::form);
            let task = outcomes.task(id).map(str::to_owned);
            examples.push(Example {
                id: id.to_owned(),
                group,
                task,
                hidden: hidden.to_vec(),
                form,
                recorded,
            });
        }
        if groups.len() < QUESTIONS_MIN {
            return Err(DatasetError::TooFew { questions: groups.len() });
        }
        let (slots, hidden) = (slots.to_vec(), features.hidden());
        Ok(Self { slots, hidden, price_factor, examples, without_features })
    }

    /// The workers to choose from.
    pub fn slots(&self) -> &[WorkerId] {
        &self.slots
    }

    /// Values in a hidden state.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Right answers that a dollar is worth.
    pub fn price_factor(&self) -> f64 {
        self.price_factor
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

fn recorded(
    outcomes: &Outcomes,
    question: &str,
    worker: &WorkerId,
    price_factor: f64,
) -> Result<Option<Recorded>, DatasetError> {
    let Some(reward) = outcomes.reward(question, worker) else { return Ok(None) };
    let cost_usd = outcomes.cost_usd(question, worker);
    let price = match cost_usd {
        Some(cost) => price_factor * cost,
        None if price_factor > 0.0 => {
            return Err(DatasetError::NoCost { question: question.to_owned(), worker: worker.clone() });
        }
        None => 0.0,
    };
    Ok(Some(Recorded { reward, cost_usd, value: reward - price }))
}
