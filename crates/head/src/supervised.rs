//! The first stage of training: the head's choice probabilities are fitted to the rewards.
//!
//! The target of each question is softmax(mean value / temperature) over the workers recorded for it; the head's
//! probability is the softmax of its scores over the same workers. The loss is the mean Kullback-Leibler divergence from
//! target to head, plus L2 regularisation ("pull"). It is convex, so there is one best head, and it is found.

use crate::dataset::Example;
use crate::score::as_f64;

/// A question in the form that the loss uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Lesson {
    /// The head's input.
    pub input: Vec<f32>,
    /// The target probability of each slot; `None` where no reward was recorded.
    pub target: Vec<Option<f64>>,
}

/// The function that is minimised.
#[derive(Clone, Copy, Debug)]
pub struct Loss<'a> {
    /// The questions.
    pub lessons: &'a [Lesson],
    /// Factor of half the sum of the squared weights (L2 regularisation).
    pub pull: f64,
}

/// softmax(reward / temperature) over the recorded slots.
pub fn target(rewards: &[Option<f64>], temperature: f64) -> Vec<Option<f64>> {
    let scaled: Vec<_> = rewards.iter().map(|reward| reward.map(|reward| reward / temperature)).collect();
    softmax(&scaled)
}

/// The softmax over the entries that exist.
fn softmax(scores: &[Option<f64>]) -> Vec<Option<f64>> {
    let largest = scores.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().flatten().map(|score| (score - largest).exp()).sum();
    scores.iter().map(|score| score.map(|score| (score - largest).exp() / sum)).collect()
}

/// The product of each row and the input.
pub(crate) fn scores(weights: &[f64], input: &[f32]) -> Vec<f64> {
    if input.is_empty() {
        return Vec::new();
    }
    let score = |row: &[f64]| row.iter().zip(input).map(|(weight, value)| weight * f64::from(*value)).sum();
    weights.chunks_exact(input.len()).map(score).collect()
}

impl Lesson {
    /// A question with its unscaled input.
    pub fn new(example: &Example, temperature: f64) -> Self {
        Self { input: example.hidden.clone(), target: target(&example.values(), temperature) }
    }
}

impl Loss<'_> {
    /// The loss for these weights, one row per slot. Its gradient is written into `gradient`.
    pub fn value_and_gradient(&self, weights: &[f64], gradient: &mut [f64]) -> f64 {
        let share = 1.0 / as_f64(self.lessons.len().max(1));
        let squares: f64 = weights.iter().map(|weight| weight * weight).sum();
        let mut value = self.pull * squares / 2.0;
        gradient.iter_mut().zip(weights).for_each(|(slope, weight)| *slope = self.pull * weight);
        for lesson in self.lessons.iter().filter(|lesson| !lesson.input.is_empty()) {
            let scores = scores(weights, &lesson.input);
            let masked: Vec<_> =
                scores.iter().zip(&lesson.target).map(|(score, p)| p.map(|_| *score)).collect();
            let own = softmax(&masked);
            let rows = gradient.chunks_exact_mut(lesson.input.len());
            for ((own, target), row) in own.into_iter().zip(&lesson.target).zip(rows) {
                let (Some(own), Some(target)) = (own, *target) else { continue };
                if target > 0.0 {
                    value += share * target * (target.ln() - own.max(f64::MIN_POSITIVE).ln());
                }
                let slope = share * (own - target);
                row.iter_mut().zip(&lesson.input).for_each(|(to, value)| *to += slope * f64::from(*value));
            }
        }
        value
    }

    /// The loss without regularisation.
    pub fn divergence(&self, weights: &[f64]) -> f64 {
        let mut gradient = vec![0.0; weights.len()];
        Self { pull: 0.0, ..*self }.value_and_gradient(weights, &mut gradient)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lesson() -> impl Strategy<Value = Lesson> {
        let reward = prop::option::weighted(0.8, 0.0f64..=1.0);
        (prop::collection::vec(-2.0f32..2.0, 3), prop::collection::vec(reward, 4))
            .prop_map(|(input, rewards)| Lesson { input, target: target(&rewards, 0.5) })
    }

    proptest! {
        #[test]
        fn the_gradient_equals_finite_differences(
            lessons in prop::collection::vec(lesson(), 1..6),
            weights in prop::collection::vec(-2.0f64..2.0, 12),
            pull in 0.0f64..0.5,
        ) {
            let loss = Loss { lessons: &lessons, pull };
            let mut gradient = vec![0.0; weights.len()];
            loss.value_and_gradient(&weights, &mut gradient);
            let mut unused = vec![0.0; weights.len()];
            for (at, slope) in gradient.iter().enumerate() {
                const STEP: f64 = 1e-5;
                let mut value_at = |by: f64| {
                    let mut moved = weights.clone();
                    moved[at] += by;
                    loss.value_and_gradient(&moved, &mut unused)
                };
                let measured = (value_at(STEP) - value_at(-STEP)) / (2.0 * STEP);
                prop_assert!((measured - slope).abs() < 1e-6, "{measured} and {slope} at {at}");
            }
        }

        #[test]
        fn the_loss_is_zero_at_the_target_and_never_negative(
            lesson in lesson(),
            weights in prop::collection::vec(-2.0f64..2.0, 12),
        ) {
            let lessons = [lesson];
            let loss = Loss { lessons: &lessons, pull: 0.0 }.divergence(&weights);
            prop_assert!(loss > -1e-12, "{loss}");
            let all: Vec<_> = scores(&weights, &lessons[0].input).into_iter().map(Some).collect();
            let matching = [Lesson { target: softmax(&all), ..lessons[0].clone() }];
            let loss = Loss { lessons: &matching, pull: 0.0 }.divergence(&weights);
            prop_assert!(loss.abs() < 1e-12, "{loss}");
        }
    }

    #[test]
    fn targets_follow_the_rewards_and_skip_unrecorded_workers() {
        let target = target(&[Some(1.0), None, Some(0.0)], 0.5);
        let odds = target[0].unwrap() / target[2].unwrap();
        assert!((odds - 2f64.exp()).abs() < 1e-9 && target[1].is_none(), "{target:?}");
    }
}
