//! Evaluates ways of choosing a worker on recorded rewards.

use crate::dataset::{Example, Recorded};

/// The result of a way of choosing for one question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// The chosen slot; `None` for a mean over several.
    pub slot: Option<usize>,
    /// The reward.
    pub reward: f64,
    /// The reward minus the price.
    pub value: f64,
    /// The cost in dollars, if it was recorded.
    pub cost_usd: Option<f64>,
    /// 1 if no recorded worker had a higher reward, else 0. A question that every worker fails has 1 for any choice, so this is
    /// no accuracy.
    pub unbeaten: f64,
}

/// The scores of a way of choosing, one entry for each question. A question has none if nothing was recorded of the chosen
/// worker.
pub type Scores = Vec<Option<Scored>>;

/// A way of choosing over some questions. A question counts only if the chosen worker's reward was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// Questions that count.
    pub questions: usize,
    /// Share of these questions where no recorded worker had a higher reward.
    pub unbeaten: f64,
    /// Mean reward of the chosen workers.
    pub reward: f64,
    /// Standard error of that mean.
    pub reward_error: f64,
    /// Mean value: reward minus price.
    pub value: f64,
    /// Mean cost in dollars; `None` if it was not recorded for every question.
    pub cost_usd: Option<f64>,
}

/// The difference of two ways of choosing over the same questions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Paired {
    /// Questions that count for both.
    pub questions: usize,
    /// Mean difference.
    pub difference: f64,
    /// Half of its 95 % interval.
    pub half_width: f64,
}

/// Chooses the worker with the best score among those recorded for the question.
pub fn by_scores(examples: &[&Example], scores: impl Fn(&Example) -> Vec<f64>) -> Scores {
    scored(examples, |example| best_recorded(example, &scores(example)))
}

/// The recorded slot with the best score; the first of equals.
pub(crate) fn best_recorded(example: &Example, scores: &[f64]) -> Option<usize> {
    let recorded = example.recorded.iter().zip(scores).enumerate().filter(|(_, (one, _))| one.is_some());
    let best = recorded.rev().max_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b));
    best.map(|(slot, _)| slot)
}

/// Always chooses the same slot.
pub fn always(examples: &[&Example], slot: usize) -> Scores {
    scored(examples, |_| Some(slot))
}

/// The choices of the highest value.
pub fn oracle(examples: &[&Example]) -> Scores {
    by_scores(examples, |example| {
        example.values().into_iter().map(|value| value.unwrap_or(f64::NEG_INFINITY)).collect()
    })
}

/// The expected result of choosing a recorded worker at random.
pub fn random(examples: &[&Example]) -> Scores {
    examples
        .iter()
        .map(|example| {
            let recorded: Vec<Recorded> = example.recorded.iter().flatten().copied().collect();
            let best = best_reward(example)?;
            let mean = |of: &dyn Fn(&Recorded) -> f64| mean(recorded.iter().map(of));
            let costs: Option<Vec<f64>> = recorded.iter().map(|one| one.cost_usd).collect();
            Some(Scored {
                slot: None,
                reward: mean(&|one| one.reward),
                value: mean(&|one| one.value),
                cost_usd: costs.map(|costs| self::mean(costs.into_iter())),
                unbeaten: mean(&|one| if one.reward >= best { 1.0 } else { 0.0 }),
            })
        })
        .collect()
}

/// The slot with the highest mean value; the first of equals.
pub fn best_single(examples: &[&Example], slots: usize) -> usize {
    let value = |slot: &usize| Standing::of(&always(examples, *slot)).value;
    (0..slots).rev().max_by(|a, b| value(a).total_cmp(&value(b))).unwrap_or_default()
}

/// The slot with the highest mean cost; the first of equals. `None` if costs were not recorded.
pub fn most_expensive(examples: &[&Example], slots: usize) -> Option<usize> {
    let costs = (0..slots).map(|slot| Some((slot, Standing::of(&always(examples, slot)).cost_usd?)));
    let costs: Option<Vec<_>> = costs.collect();
    costs?.into_iter().rev().max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(slot, _)| slot)
}

fn scored(examples: &[&Example], choose: impl Fn(&Example) -> Option<usize>) -> Scores {
    examples
        .iter()
        .map(|example| {
            let slot = choose(example)?;
            let Recorded { reward, cost_usd, value } = example.recorded.get(slot).copied().flatten()?;
            let unbeaten = if reward >= best_reward(example)? { 1.0 } else { 0.0 };
            Some(Scored { slot: Some(slot), reward, value, cost_usd, unbeaten })
        })
        .collect()
}

fn best_reward(example: &Example) -> Option<f64> {
    example.recorded.iter().flatten().map(|recorded| recorded.reward).max_by(f64::total_cmp)
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = as_f64(values.len().max(1));
    values.sum::<f64>() / count
}

/// Standard error of the mean of these values.
fn standard_error(values: &[f64]) -> f64 {
    let mean = mean(values.iter().copied());
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let count = as_f64(values.len().max(1));
    (squares / (count - 1.0).max(1.0) / count).sqrt()
}

impl Standing {
    /// Summarises the questions that count.
    pub fn of(scores: &[Option<Scored>]) -> Self {
        let counted: Vec<Scored> = scores.iter().flatten().copied().collect();
        if counted.is_empty() {
            return Self::default();
        }
        let of = |of: fn(&Scored) -> f64| -> Vec<f64> { counted.iter().map(of).collect() };
        let (rewards, costs) = (of(|one| one.reward), counted.iter().map(|one| one.cost_usd));
        let costs: Option<Vec<f64>> = costs.collect();
        Self {
            questions: counted.len(),
            unbeaten: mean(of(|one| one.unbeaten).into_iter()),
            reward: mean(rewards.iter().copied()),
            reward_error: standard_error(&rewards),
            value: mean(of(|one| one.value).into_iter()),
            cost_usd: costs.map(|costs| mean(costs.into_iter())),
        }
    }
}

/// Quantile of the normal distribution for a 95 % interval.
const NORMAL_975: f64 = 1.959_964;

impl Paired {
    /// How much more value `ours` has than `theirs`, over the questions that count for both. Both have the same questions.
    pub fn of(ours: &[Option<Scored>], theirs: &[Option<Scored>]) -> Self {
        let pairs = ours.iter().zip(theirs);
        let differences: Vec<f64> =
            pairs.filter_map(|(ours, theirs)| Some((*ours)?.value - (*theirs)?.value)).collect();
        Self {
            questions: differences.len(),
            difference: mean(differences.iter().copied()),
            half_width: NORMAL_975 * standard_error(&differences),
        }
    }
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
        let recorded = |reward: &Option<f64>| {
            reward.map(|reward| Recorded { reward, cost_usd: Some(reward / 10.0), value: reward })
        };
        let recorded = rewards.iter().map(recorded).collect();
        Example { id: String::new(), group: 0, task: None, hidden: vec![], form: None, recorded }
    }

    #[test]
    fn choices_are_evaluated_on_recorded_rewards() {
        let examples =
            [example(&[Some(1.0), Some(0.0)]), example(&[Some(0.0), Some(1.0)]), example(&[Some(0.5), None])];
        let examples: Vec<_> = examples.iter().collect();
        let first = Standing::of(&always(&examples, 0));
        assert_eq!((first.questions, first.unbeaten, first.reward), (3, 2.0 / 3.0, 0.5));
        let second = Standing::of(&always(&examples, 1));
        assert_eq!((second.questions, second.reward), (2, 0.5));
        let best = Standing::of(&oracle(&examples));
        assert_eq!((best.unbeaten, best.reward), (1.0, 2.5 / 3.0));
        let random = Standing::of(&random(&examples));
        assert_eq!((random.reward, random.unbeaten), (0.5, 2.0 / 3.0));
        assert_eq!((best_single(&examples, 2), most_expensive(&examples, 2)), (0, Some(0)));
    }

    #[test]
    fn an_unrecorded_worker_is_not_chosen() {
        let example = example(&[Some(0.2), None, Some(0.4)]);
        assert_eq!(best_recorded(&example, &[1.0, 9.0, 0.0]), Some(0));
        assert_eq!(best_recorded(&example, &[0.0, 0.0, 0.0]), Some(0));
    }

    #[test]
    fn a_question_that_all_workers_fail_is_unbeaten_but_not_right() {
        let example = example(&[Some(0.0), Some(0.0)]);
        let standing = Standing::of(&always(&[&example], 1));
        assert_eq!((standing.unbeaten, standing.reward), (1.0, 0.0));
    }

    #[test]
    fn a_difference_counts_the_questions_of_both_and_has_an_interval() {
        let examples = [
            example(&[Some(1.0), Some(0.0)]),
            example(&[Some(1.0), Some(1.0)]),
            example(&[Some(0.0), Some(0.5)]),
            example(&[Some(0.3), None]),
        ];
        let examples: Vec<_> = examples.iter().collect();
        let paired = Paired::of(&always(&examples, 0), &always(&examples, 1));
        // The differences are 1, 0 and -0.5: their variance is 7/12.
        assert_eq!(paired.questions, 3);
        assert!((paired.difference - 0.5 / 3.0).abs() < 1e-12, "{paired:?}");
        assert!((paired.half_width - 1.959_964 * (7.0f64 / 36.0).sqrt()).abs() < 1e-9, "{paired:?}");
        let same = Paired::of(&always(&examples, 0), &always(&examples, 0));
        assert_eq!((same.difference, same.half_width), (0.0, 0.0));
    }
}
