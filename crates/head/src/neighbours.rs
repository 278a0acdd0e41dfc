//! The neighbours head: outcomes as memory. A worker's score is its mean value for the most similar recorded questions.
//!
//! There is nothing to train but the number of neighbours, so new outcomes count as soon as they are added.

use std::collections::BTreeMap;

use crate::dataset::Dataset;
use crate::file::{FileError, Matrix, Parsed};
use crate::identity::{
    self, HIDDEN_MAX, HeadError, Identity, Kind, MEMORY_VALUES_MAX, Metadata, SCHEMA_KINDS, check_matrix,
};
use crate::vector::{dot, unit};

/// Most neighbours.
pub const NEIGHBOURS_MAX: usize = 10_000;

const STATES: &str = "neighbours.states";
const VALUES: &str = "neighbours.values";
/// 1 where a value was recorded, else 0.
const KNOWN: &str = "neighbours.known";

/// A question to remember.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// The hidden state, of any length; the head stores its direction.
    pub state: Vec<f32>,
    /// The value of each slot's worker, where it was recorded.
    pub values: Vec<Option<f32>>,
}

/// Chooses the worker with the highest mean value for the most similar recorded questions.
#[derive(Clone, Debug, PartialEq)]
pub struct NeighboursHead {
    identity: Identity,
    hidden: usize,
    neighbours: usize,
    price_factor: f64,
    /// By question id. States have length 1.
    memory: BTreeMap<String, Memory>,
    /// The mean value of each slot's worker.
    means: Vec<f32>,
}

impl NeighboursHead {
    /// Creates a head that remembers these questions. A worker's score is the mean over the `neighbours` most similar questions
    /// for which it was recorded, and its mean over all questions as one more.
    pub fn new(
        identity: Identity,
        neighbours: usize,
        price_factor: f64,
        memory: BTreeMap<String, Memory>,
    ) -> Result<Self, HeadError> {
        identity.check()?;
        if !(1..=NEIGHBOURS_MAX).contains(&neighbours) {
            let value = neighbours.to_string();
            return Err(HeadError::Setting { name: "neighbours", value, bounds: "1 to 10000" });
        }
        let hidden = memory.values().next().map_or(0, |memory| memory.state.len());
        if memory.len().saturating_mul(hidden) > MEMORY_VALUES_MAX {
            return Err(HeadError::TooLarge { questions: memory.len(), values: hidden });
        }
        let mut head = Self { identity, hidden, neighbours, price_factor, memory, means: Vec::new() };
        check_matrix(STATES, &head.states(), head.memory.len(), 1..=HIDDEN_MAX)?;
        check_matrix(
            VALUES,
            &head.values(),
            head.memory.len(),
            head.identity.slots.len()..=head.identity.slots.len(),
        )?;
        for memory in head.memory.values_mut() {
            memory.state = unit(&memory.state);
        }
        head.means = head.means()?;
        Ok(head)
    }

    /// Adds the questions of a data set with the same slots, hidden states and price factor. Those that it knows are replaced.
    pub fn with(self, dataset: &Dataset) -> Result<Self, HeadError> {
        let Self { identity, neighbours, price_factor, mut memory, .. } = self;
        memory.extend(dataset.examples().iter().map(|example| (example.id.clone(), Memory::of(example))));
        Self::new(identity, neighbours, price_factor, memory)
    }

    /// The mean of each slot's recorded values.
    fn means(&self) -> Result<Vec<f32>, HeadError> {
        let mean = |(slot, worker): (usize, &podium_domain::ids::WorkerId)| {
            let (sum, count) = self
                .memory
                .values()
                .filter_map(|memory| memory.values[slot])
                .fold((0.0, 0.0), |(sum, count): (f64, f64), value| (sum + f64::from(value), count + 1.0));
            if count == 0.0 {
                return Err(HeadError::NoOutcome { worker: worker.clone() });
            }
            #[expect(clippy::cast_possible_truncation, reason = "a score has 32 bits")]
            Ok((sum / count) as f32)
        };
        self.identity.slots.iter().enumerate().map(mean).collect()
    }

    pub(crate) fn of_file(parsed: &Parsed<'_, Metadata>) -> Result<Self, FileError> {
        let (states, values, known) = (parsed.matrix(STATES)?, parsed.matrix(VALUES)?, parsed.matrix(KNOWN)?);
        let Metadata { neighbours, price_factor, questions, .. } = &parsed.document;
        let slots = parsed.document.slots.len();
        let is_valid = [&states, &values, &known].iter().all(|matrix| matrix.rows == questions.len());
        if !is_valid || states.columns == 0 || slots == 0 || values.columns != slots || known.columns != slots
        {
            return Err(parsed.wrong(format!(
                "{STATES}, {VALUES} and {KNOWN} must have a row for each of {} questions, and the latter two a column for each of {slots} slots",
                questions.len()
            )));
        }
        let rows = values.values.chunks_exact(slots).zip(known.values.chunks_exact(slots));
        let rows = rows.map(|(values, known)| {
            values.iter().zip(known).map(|(value, known)| (*known > 0.0).then_some(*value)).collect()
        });
        let memory: BTreeMap<_, _> = questions
            .iter()
            .cloned()
            .zip(states.values.chunks_exact(states.columns))
            .zip(rows)
            .map(|((id, state), values)| (id, Memory { state: state.to_vec(), values }))
            .collect();
        if memory.len() != questions.len() {
            return Err(parsed.wrong("a question occurs twice".to_owned()));
        }
        let (neighbours, price_factor) = (neighbours.unwrap_or_default(), price_factor.unwrap_or_default());
        Self::new(parsed.document.identity(), neighbours, price_factor, memory)
            .map_err(|error| parsed.wrong(error.to_string()))
    }

    /// Serialises the head. Equal heads give equal bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FileError> {
        let mut metadata = Metadata::new(SCHEMA_KINDS, Kind::Neighbours, &self.identity);
        metadata.neighbours = Some(self.neighbours);
        metadata.price_factor = Some(self.price_factor);
        metadata.questions = self.memory.keys().cloned().collect();
        let known = |memory: &Memory| -> Vec<f32> {
            memory.values.iter().map(|value| if value.is_some() { 1.0 } else { 0.0 }).collect()
        };
        let known = self.matrix(self.identity.slots.len(), known);
        identity::serialise(&metadata, &[(STATES, &self.states()), (VALUES, &self.values()), (KNOWN, &known)])
    }

    fn states(&self) -> Matrix {
        self.matrix(self.hidden, |memory| memory.state.clone())
    }

    fn values(&self) -> Matrix {
        let values = |memory: &Memory| memory.values.iter().map(|value| value.unwrap_or(0.0)).collect();
        self.matrix(self.identity.slots.len(), values)
    }

    fn matrix(&self, columns: usize, row: impl Fn(&Memory) -> Vec<f32>) -> Matrix {
        Matrix { rows: self.memory.len(), columns, values: self.memory.values().flat_map(row).collect() }
    }

    /// The workers that it chooses among, and what it was trained for.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Values in a hidden state.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Number of neighbours that count.
    pub fn neighbours(&self) -> usize {
        self.neighbours
    }

    /// Right answers that a dollar is worth in the remembered values.
    pub fn price_factor(&self) -> f64 {
        self.price_factor
    }

    /// Number of remembered questions.
    pub fn questions(&self) -> usize {
        self.memory.len()
    }

    /// The score of each slot, in order; `None` if the hidden state has the wrong size.
    pub fn scores(&self, hidden: &[f32]) -> Option<Vec<f32>> {
        if hidden.len() != self.hidden {
            return None;
        }
        let state = unit(hidden);
        let mut near: Vec<_> =
            self.memory.values().map(|memory| (dot(&memory.state, &state), memory)).collect();
        // A stable sort: equally similar questions count in the order of their ids.
        near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let score = |(slot, mean): (usize, &f32)| {
            let values = near.iter().filter_map(|(_, memory)| memory.values[slot]).take(self.neighbours);
            let (sum, count) = values.fold((*mean, 1.0), |(sum, count), value| (sum + value, count + 1.0));
            sum / count
        };
        Some(self.means.iter().enumerate().map(score).collect())
    }
}

impl Memory {
    /// The memory of a recorded question.
    #[expect(clippy::cast_possible_truncation, reason = "a head has numbers of 32 bits")]
    pub fn of(example: &crate::Example) -> Self {
        let values = example.values().into_iter().map(|value| value.map(|value| value as f32)).collect();
        Self { state: example.hidden.clone(), values }
    }
}
