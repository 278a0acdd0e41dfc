//! The object `podium` of a response: facts about the run that the vendors' APIs have no fields for.

use podium_domain::run::{FailReason, MissingStep, Run};
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
        }
    }
}
