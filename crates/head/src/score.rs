//! Evaluates ways of choosing a worker on recorded rewards.

use crate::dataset::Example;

/// The result of a way of choosing over some questions. A question counts only if the chosen worker's reward was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// Questions that count.
    pub questions: usize,
    /// Share of these questions where no recorded worker did better.
    pub accuracy: f64,
    /// Mean reward of the chosen workers.
    pub reward: f64,
    /// Standard error of that mean.
    pub reward_error: f64,
}

/// Chooses the worker with the best score among those recorded for the question.
pub fn by_scores(examples: &[&Example], scores: impl Fn(&Example) -> Vec<f64>) -> Standing {
    standing(examples, |example| best_recorded(example, &scores(example)))
}

/// The recorded slot with the best score; the first of equals.
pub(crate) fn best_recorded(example: &Example, scores: &[f64]) -> Option<usize> {
    let recorded = example.rewards.iter().zip(scores).enumerate().filter(|(_, (reward, _))| reward.is_some());
    let best = recorded.rev().max_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b));
    best.map(|(slot, _)| slot)
}

/// Always chooses the same slot.
pub fn always(examples: &[&Example], slot: usize) -> Standing {
    standing(examples, |_| Some(slot))
}

/// The best possible choices.
pub fn oracle(examples: &[&Example]) -> Standing {
    standing(examples, |example| {
        let scores: Vec<_> = example.rewards.iter().map(|reward| reward.unwrap_or(-1.0)).collect();
        best_recorded(example, &scores)
    })
}

/// The expected result of choosing a recorded worker at random.
pub fn random(examples: &[&Example]) -> Standing {
    let each = examples.iter().filter_map(|example| {
        let recorded: Vec<f64> = example.rewards.iter().flatten().copied().collect();
        let best = best_reward(example)?;
        let count = as_f64(recorded.len());
        let best_ones = recorded.iter().filter(|reward| **reward >= best).count();
        Some((as_f64(best_ones) / count, recorded.iter().sum::<f64>() / count))
    });
    summary(&each.collect::<Vec<_>>())
}

/// The slot with the highest mean reward; the first of equals.
pub fn best_single(examples: &[&Example], slots: usize) -> usize {
    let reward = |slot: &usize| always(examples, *slot).reward;
    (0..slots).rev().max_by(|a, b| reward(a).total_cmp(&reward(b))).unwrap_or_default()
}

fn standing(examples: &[&Example], choose: impl Fn(&Example) -> Option<usize>) -> Standing {
    let each = examples.iter().filter_map(|example| {
        let reward = example.rewards.get(choose(example)?).copied().flatten()?;
        let is_best = reward >= best_reward(example)?;
        Some((if is_best { 1.0 } else { 0.0 }, reward))
    });
    summary(&each.collect::<Vec<_>>())
}

fn best_reward(example: &Example) -> Option<f64> {
    example.rewards.iter().flatten().copied().max_by(f64::total_cmp)
}

/// Summarises pairs of accuracy and reward.
fn summary(each: &[(f64, f64)]) -> Standing {
    if each.is_empty() {
        return Standing::default();
    }
    let count = as_f64(each.len());
    let accuracy = each.iter().map(|(accuracy, _)| accuracy).sum::<f64>() / count;
    let reward = each.iter().map(|(_, reward)| reward).sum::<f64>() / count;
    let squares: f64 = each.iter().map(|(_, one)| (one - reward).powi(2)).sum();
    let reward_error = (squares / (count - 1.0).max(1.0) / count).sqrt();
    Standing { questions: each.len(), accuracy, reward, reward_error }
}

/// Converts a count. All counts here are far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "counts are bounded far below 2^52")]
pub(crate) fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(rewards: &[Option<f64>]) -> Example {
        Example { id: String::new(), hidden: vec![], rewards: rewards.to_vec() }
    }

    #[test]
    fn choices_are_evaluated_on_recorded_rewards() {
        let examples =
            [example(&[Some(1.0), Some(0.0)]), example(&[Some(0.0), Some(1.0)]), example(&[Some(0.5), None])];
        let examples: Vec<_> = examples.iter().collect();
        let first = always(&examples, 0);
        assert_eq!((first.questions, first.accuracy, first.reward), (3, 2.0 / 3.0, 0.5));
        let second = always(&examples, 1);
        assert_eq!((second.questions, second.reward), (2, 0.5));
        let best = oracle(&examples);
        assert_eq!((best.accuracy, best.reward), (1.0, 2.5 / 3.0));
        assert_eq!((random(&examples).reward, random(&examples).accuracy), (0.5, 2.0 / 3.0));
        assert_eq!(best_single(&examples, 2), 0);
    }

    #[test]
    fn an_unrecorded_worker_is_not_chosen() {
        let example = example(&[Some(0.2), None, Some(0.4)]);
        assert_eq!(best_recorded(&example, &[1.0, 9.0, 0.0]), Some(0));
        assert_eq!(best_recorded(&example, &[0.0, 0.0, 0.0]), Some(0));
    }
}
