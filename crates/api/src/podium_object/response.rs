//! The object `podium` of a response: facts about the run that the vendors' APIs have no fields for.

use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::run::{FailReason, MissingStep, Run, Task};
use podium_domain::usage::Usage;
use serde::Serialize;

/// The object `podium`. It accompanies the usage.
#[derive(Serialize)]
pub(crate) struct RunBody {
    /// The conductor that planned the run, and the pool of its workers. `MODEL@CONDUCTOR.POOL` pins a model to both.
    conductor: String,
    pool: String,
    /// The cost of the run, in billionths of a US dollar.
    cost_nano_usd: u64,
    /// The wasted part of the cost.
    wasted_cost_nano_usd: u64,
    /// How often a step fell back to another worker.
    fallbacks: u32,
    /// The steps without an output.
    failed_steps: Vec<FailedStepBody>,
    /// Whether the answer was written although a step that it needs has no output.
    degraded: bool,
    /// Whether the worker of the final step refused to answer.
    refused: bool,
    /// The failure after which the run was replanned. The answer, or the refusal, belongs to the new plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    replanned_because: Option<FailureBody>,
    /// The steps of all rounds, if the policy shows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<StepBody>>,
}

/// A step of the run.
#[derive(Serialize)]
struct StepBody {
    /// The number of its round, from 0.
    round: usize,
    /// Its index in the round, from 0.
    step: usize,
    /// The worker that did it last.
    worker: String,
    state: &'static str,
    attempts: usize,
    /// The tokens of all attempts.
    prompt_tokens: u64,
    completion_tokens: u64,
    /// The cost of all attempts, in billionths of a US dollar.
    cost_nano_usd: u64,
    /// Milliseconds from the first attempt's beginning to the last one's end; null until then.
    latency_ms: Option<u64>,
}

impl StepBody {
    fn of(round: usize, step: usize, worker: &WorkerId, task: &Task) -> Self {
        let attempts = &task.attempts;
        let usage = attempts.iter().map(|attempt| attempt.usage).sum::<Usage>();
        let (first, last) = (attempts.first(), attempts.last());
        let times = first.zip(last.and_then(|last| last.ended_at));
        let latency = times.map(|(first, ended_at)| ended_at.since(first.started_at));
        Self {
            round,
            step,
            worker: worker.to_string(),
            state: task.state.as_str(),
            attempts: attempts.len(),
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cost_nano_usd: attempts.iter().map(|attempt| attempt.cost).sum::<Cost>().nano_usd(),
            latency_ms: latency.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// The steps of all rounds, in order.
    fn all_of(run: &Run) -> Vec<Self> {
        let rounds = run.rounds().iter().enumerate();
        let steps = rounds.flat_map(|(number, round)| {
            let steps = round.known_steps().iter().zip(&round.steps).enumerate();
            steps.map(move |(index, (planned, step))| {
                let worker = step.worker.as_ref().unwrap_or(&planned.worker);
                Self::of(number, index, worker, &step.task)
            })
        });
        steps.collect()
    }
}

/// The reason why a run, or one of its rounds, has no answer.
#[derive(Serialize)]
pub(crate) struct FailureBody {
    code: &'static str,
    message: String,
}

impl From<&FailReason> for FailureBody {
    fn from(reason: &FailReason) -> Self {
        Self { code: reason.code(), message: reason.to_string() }
    }
}

/// A step without an output.
#[derive(Serialize)]
struct FailedStepBody {
    /// The number of its round, from 0.
    round: u16,
    /// Its index in the round, from 0.
    step: u16,
    /// The last worker that was called.
    worker: String,
    /// The error of the last attempt.
    reason: String,
}

impl From<MissingStep> for FailedStepBody {
    fn from(MissingStep { round, step, worker, reason }: MissingStep) -> Self {
        Self { round, step: step.get(), worker: worker.to_string(), reason }
    }
}

impl RunBody {
    pub(crate) fn of(run: &Run) -> Self {
        let spec = run.spec();
        Self {
            conductor: spec.conductor.clone(),
            pool: spec.pool.clone(),
            cost_nano_usd: run.cost().nano_usd(),
            wasted_cost_nano_usd: run.wasted_cost().nano_usd(),
            fallbacks: run.fallbacks(),
            failed_steps: run.failed_steps().into_iter().map(Into::into).collect(),
            degraded: run.is_degraded(),
            refused: run.refusal().is_some(),
            replanned_because: run.replanned_because().map(Into::into),
            steps: spec.request.policy.shows_steps.then(|| StepBody::all_of(run)),
        }
    }
}
