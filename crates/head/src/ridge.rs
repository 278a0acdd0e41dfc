//! Ridge regression on hidden states: a baseline of the evaluation, not a head of its own.

use crate::dataset::Example;
use crate::score::as_f64;
use crate::vector::Cholesky;

/// A linear function for each slot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ridge {
    center: Vec<f64>,
    means: Vec<f64>,
    /// One row for each slot.
    weights: Vec<Vec<f64>>,
}

/// The strengths among which the evaluation chooses, for hidden states of length 1.
pub(crate) const STRENGTHS: [f64; 5] = [0.3, 1.0, 3.0, 10.0, 30.0];

impl Ridge {
    /// Fits one function for each slot to the questions for which it was recorded; `None` if the equations cannot be solved.
    pub(crate) fn fit(examples: &[&Example], slots: usize, strength: f64) -> Option<Self> {
        let size = examples.first()?.hidden.len();
        let inputs: Vec<Vec<f64>> = examples.iter().map(|example| input(example)).collect();
        let mut center = vec![0.0; size];
        for input in &inputs {
            center.iter_mut().zip(input).for_each(|(sum, value)| *sum += value / as_f64(inputs.len()));
        }
        let inputs: Vec<Vec<f64>> = inputs
            .iter()
            .map(|input| input.iter().zip(&center).map(|(value, mean)| value - mean).collect())
            .collect();
        let (mut means, mut weights) = (Vec::new(), Vec::new());
        let mut factors: Option<(Vec<bool>, Cholesky)> = None;
        for slot in 0..slots {
            let values: Vec<Option<f64>> = examples
                .iter()
                .map(|example| example.recorded[slot].map(|recorded| recorded.value))
                .collect();
            let recorded: Vec<f64> = values.iter().flatten().copied().collect();
            let mean = recorded.iter().sum::<f64>() / as_f64(recorded.len().max(1));
            let mask: Vec<bool> = values.iter().map(Option::is_some).collect();
            if factors.as_ref().is_none_or(|(of, _)| *of != mask) {
                let matrix = moments(&inputs, &mask, size, strength);
                factors = Some((mask, Cholesky::new(matrix, size)?));
            }
            let mut right = vec![0.0; size];
            for (input, value) in inputs.iter().zip(&values) {
                let Some(value) = value else { continue };
                right.iter_mut().zip(input).for_each(|(sum, x)| *sum += x * (value - mean));
            }
            means.push(mean);
            weights.push(factors.as_ref()?.1.solve(&right));
        }
        Some(Self { center, means, weights })
    }

    /// The expected value of each slot.
    pub(crate) fn scores(&self, example: &Example) -> Vec<f64> {
        let input = input(example);
        let score = |(row, mean): (&Vec<f64>, &f64)| {
            let centered = input.iter().zip(&self.center).map(|(value, center)| value - center);
            mean + row.iter().zip(centered).map(|(weight, value)| weight * value).sum::<f64>()
        };
        self.weights.iter().zip(&self.means).map(score).collect()
    }
}

fn input(example: &Example) -> Vec<f64> {
    crate::vector::unit(&example.hidden).into_iter().map(f64::from).collect()
}

/// The second moments of the inputs of the mask, plus `strength` on the diagonal; the lower half.
fn moments(inputs: &[Vec<f64>], mask: &[bool], size: usize, strength: f64) -> Vec<f64> {
    let mut matrix = vec![0.0; size * size];
    for (input, _) in inputs.iter().zip(mask).filter(|(_, is_recorded)| **is_recorded) {
        for (row, (value, to)) in input.iter().zip(matrix.chunks_exact_mut(size)).enumerate() {
            to[..=row].iter_mut().zip(input).for_each(|(sum, other)| *sum += value * other);
        }
    }
    for at in 0..size {
        matrix[at * size + at] += strength;
    }
    matrix
}
