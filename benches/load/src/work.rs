//! The work of one run, from its number alone: clients, conductor and workers all compute the same.
//!
//! A question contains `run-NUMBER`, a subtask `work-NUMBER-STEP-MS-TOKENS`. So client, conductor and workers need no other
//! channel, and the client knows the duration of a run in which only the models take time.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

/// Tokens a second of a worker that writes.
pub(crate) const TOKENS_PER_SECOND: u64 = 50;
/// Workers of the pool.
pub(crate) const WORKERS: usize = 4;
/// The access lists of the workflows: for each step, the steps whose outputs it reads.
const SHAPES: [&[&[usize]]; 4] = [
    &[&[], &[], &[0, 1]],
    &[&[], &[0], &[0], &[1, 2]],
    &[&[], &[], &[], &[0, 1, 2]],
    &[&[], &[0], &[0], &[0], &[1, 2, 3]],
];

/// How long models take.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Durations {
    /// Shortest and longest time until a worker's first token.
    pub(crate) first_token_ms: (u64, u64),
    /// Most tokens of an answer; it has at least a quarter of them.
    pub(crate) tokens_max: u64,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Time until the first token.
    pub(crate) first_token_ms: u64,
    /// Tokens that are written after it.
    pub(crate) tokens: u64,
    /// The earlier steps whose outputs it reads.
    pub(crate) reads: &'static [usize],
    /// The worker, by its place in the pool.
    pub(crate) worker: usize,
}

impl Step {
    fn takes(&self) -> Duration {
        Duration::from_millis(self.first_token_ms) + written_in(self.tokens)
    }
}

/// The time to write a number of tokens.
pub(crate) fn written_in(tokens: u64) -> Duration {
    Duration::from_millis(tokens * 1000 / TOKENS_PER_SECOND)
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    number: u64,
    /// The time that the conductor takes for the plan.
    pub(crate) plan_ms: u64,
    /// Its steps.
    pub(crate) steps: Vec<Step>,
}

impl Work {
    /// The work of run `number`.
    pub(crate) fn of(number: u64, durations: &Durations) -> Self {
        let mut dice = StdRng::seed_from_u64(number);
        let shape = SHAPES[dice.random_range(0..SHAPES.len())];
        let (shortest, longest) = durations.first_token_ms;
        let plan_ms = dice.random_range(300..=900);
        let steps = shape.iter().map(|reads| Step {
            first_token_ms: dice.random_range(shortest..=longest),
            tokens: dice.random_range(durations.tokens_max.div_ceil(4)..=durations.tokens_max),
            reads,
            worker: dice.random_range(0..WORKERS),
        });
        Self { number, plan_ms, steps: steps.collect() }
    }

    /// The client's question.
    pub(crate) fn question(&self) -> String {
        format!("Do run-{} and say what came of it.", self.number)
    }

    /// The conductor's plan as text.
    pub(crate) fn plan(&self) -> String {
        let list = |items: Vec<String>| format!("[{}]", items.join(", "));
        let each = |text: fn(&Self, usize, &Step) -> String| {
            list(self.steps.iter().enumerate().map(|(index, step)| text(self, index, step)).collect())
        };
        let workers = each(|_, _, step| step.worker.to_string());
        let subtasks = each(|work, index, step| {
            format!("\"Do work-{}-{index}-{}-{}.\"", work.number, step.first_token_ms, step.tokens)
        });
        let access = each(|_, _, step| {
            let reads: Vec<_> = step.reads.iter().map(usize::to_string).collect();
            format!("[{}]", reads.join(", "))
        });
        format!("Divide it.\nmodel_id = {workers}\nsubtasks = {subtasks}\naccess_list = {access}\n")
    }

    /// The end of the run's answer.
    pub(crate) fn end_of_answer(&self) -> String {
        end_of_output(self.number, self.steps.len() - 1)
    }

    /// The duration of the run if only the models take time: its plan and its longest path.
    pub(crate) fn takes(&self) -> Duration {
        let mut ends: Vec<Duration> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let begins = step.reads.iter().map(|read| ends[*read]).max().unwrap_or_default();
            ends.push(begins + step.takes());
        }
        Duration::from_millis(self.plan_ms) + ends.last().copied().unwrap_or_default()
    }

    /// The number of steps on the longest path from the plan to the answer.
    pub(crate) fn depth(&self) -> u32 {
        let mut depths: Vec<u32> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            depths.push(1 + step.reads.iter().map(|read| depths[*read]).max().unwrap_or_default());
        }
        depths.last().copied().unwrap_or_default()
    }
}

/// The end of a step's output.
pub(crate) fn end_of_output(number: u64, step: usize) -> String {
    format!("done-{number}-{step}-ok")
}

/// The number of the run in a question.
pub(crate) fn run_in(prompt: &str) -> Option<u64> {
    let (_, after) = prompt.rsplit_once("run-")?;
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The numbers in a subtask: run, step, milliseconds until the first token, tokens.
pub(crate) fn work_in(prompt: &str) -> Option<[u64; 4]> {
    let (_, after) = prompt.rsplit_once("work-")?;
    let mut numbers = after.split(['-', '.']).map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some([next()?, next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use podium_domain::plan::PlanDraft;

    use super::*;

    const DURATIONS: Durations = Durations { first_token_ms: (1000, 8000), tokens_max: 100 };

    #[test]
    fn a_plan_says_to_the_workers_what_the_client_expects() {
        for number in 0..50 {
            let work = Work::of(number, &DURATIONS);
            assert_eq!(run_in(&work.question()), Some(number));
            let plan = work.plan();
            let draft = PlanDraft::parse(&plan).unwrap();
            assert_eq!(draft.subtasks.len(), work.steps.len());
            for (index, (subtask, step)) in draft.subtasks.iter().zip(&work.steps).enumerate() {
                let place = u64::try_from(index).unwrap();
                assert_eq!(work_in(subtask), Some([number, place, step.first_token_ms, step.tokens]));
            }
        }
    }

    #[test]
    fn a_run_takes_its_plan_and_its_longest_path() {
        let step = |first_token_ms, reads| Step { first_token_ms, tokens: 50, reads, worker: 0 };
        let work = Work {
            number: 1,
            plan_ms: 500,
            steps: vec![step(1000, &[]), step(3000, &[]), step(2000, &[0, 1])],
        };
        assert_eq!(work.takes(), Duration::from_millis(500 + 4000 + 3000));
        assert_eq!(work.depth(), 2);
    }
}
