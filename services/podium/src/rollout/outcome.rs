//! The outcome of a rollout.

use podium_domain::money::Cost;
use podium_domain::plan::Step;
use podium_domain::run::{AttemptOutcome, CONTEXT_EXCEEDED, Run, RunState, StepRun};
use podium_domain::usage::Usage;
use serde::Serialize;

use crate::grading::{GradeError, Verdict};

/// The outcome of a completion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Outcome {
    /// The client's name for the rollout.
    pub(crate) id: String,
    /// 0 to 1. None if the outcome says nothing about the completion: a worker, its vendor or a grader failed. A trainer should leave such
    /// a rollout out.
    pub(crate) reward: Option<f64>,
    /// Whether the completion is a plan.
    pub(crate) is_plan: bool,
    /// Whether the answer is right, if there is one and it could be graded.
    pub(crate) is_right: Option<bool>,
    /// The answer.
    pub(crate) answer: Option<String>,
    /// Why there is no plan, no answer or no grade.
    pub(crate) problem: Option<String>,
    /// The steps of the plan.
    pub(crate) steps: Vec<StepOutcome>,
    /// The tokens of all workers' prompts.
    pub(crate) prompt_tokens: u64,
    /// The tokens that the workers wrote.
    pub(crate) completion_tokens: u64,
    /// The cost of the workers.
    pub(crate) cost_nano_usd: u64,
    /// The cost of a judge.
    pub(crate) grading_cost_nano_usd: u64,
    /// From the beginning of the run to its end.
    pub(crate) latency_ms: u64,
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StepOutcome {
    /// The worker.
    pub(crate) worker: String,
    /// The instruction.
    pub(crate) subtask: String,
    /// The steps whose outputs it saw, from 0.
    pub(crate) sees: Vec<u16>,
    /// `done`, `failed` or `cancelled`.
    pub(crate) state: &'static str,
    /// The worker's output.
    pub(crate) output: Option<String>,
    /// Why it failed.
    pub(crate) problem: Option<String>,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    pub(crate) cost_nano_usd: u64,
    pub(crate) latency_ms: u64,
}

impl Outcome {
    fn without_run(id: &str, problem: String) -> Self {
        Self {
            id: id.to_owned(),
            reward: None,
            is_plan: true,
            is_right: None,
            answer: None,
            problem: Some(problem),
            steps: Vec::new(),
            prompt_tokens: 0,
            completion_tokens: 0,
            cost_nano_usd: 0,
            grading_cost_nano_usd: 0,
            latency_ms: 0,
        }
    }

    /// The completion is not a plan.
    pub(super) fn unusable(id: &str, problem: String) -> Self {
        Self { reward: Some(0.0), is_plan: false, ..Self::without_run(id, problem) }
    }

    /// The run was not accepted, which says nothing about the completion.
    pub(super) fn not_begun(id: &str, problem: String) -> Self {
        Self::without_run(id, problem)
    }

    /// The outcome of an ended run, which is not graded yet.
    pub(super) fn of(id: &str, run: &Run) -> Self {
        let problem = match run.state() {
            RunState::Failed { reason } => Some(reason.to_string()),
            RunState::Cancelled => Some("the run was cancelled".to_owned()),
            _ if run.refusal().is_some() => Some("the last worker declined to answer".to_owned()),
            _ => None,
        };
        // The plan gave a worker a subtask that it declines, or more than it can read.
        let is_wrong = match run.state() {
            RunState::Failed { reason } => {
                reason.cause() == Some(CONTEXT_EXCEEDED)
                    || run.rounds().iter().flat_map(|round| &round.steps).any(StepRun::is_declined)
            }
            _ => run.refusal().is_some(),
        };
        let usage = run.usage();
        let latency = run.ended_at().map(|at| at.since(run.spec().accepted_at)).unwrap_or_default();
        Self {
            id: id.to_owned(),
            reward: None,
            is_plan: true,
            is_right: is_wrong.then_some(false),
            answer: run.answer().filter(|_| run.refusal().is_none()).map(ToOwned::to_owned),
            problem,
            steps: steps(run),
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cost_nano_usd: run.cost().nano_usd(),
            grading_cost_nano_usd: 0,
            latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The answer, if the run has one.
    pub(super) fn answer_to_grade(&self) -> Option<&str> {
        self.answer.as_deref()
    }

    /// The outcome with the grade of its answer, if there is one.
    pub(super) fn graded(mut self, grade: Option<Result<Verdict, GradeError>>, reward_wrong: f64) -> Self {
        match grade {
            Some(Ok(verdict)) => {
                self.is_right = Some(verdict.is_right);
                self.grading_cost_nano_usd = verdict.cost.nano_usd();
            }
            Some(Err(error)) => self.problem = Some(error.to_string()),
            None => {}
        }
        self.reward = self.is_right.map(|is_right| if is_right { 1.0 } else { reward_wrong });
        self
    }
}

fn steps(run: &Run) -> Vec<StepOutcome> {
    let Some(round) = run.rounds().first() else { return Vec::new() };
    let planned = round.plan().into_iter().flat_map(|plan| plan.steps().iter().zip(&round.steps));
    let outcome = |(step, done): (&Step, &StepRun)| {
        let attempts = &done.task.attempts;
        let usage = attempts.iter().fold(Usage::NONE, |sum, attempt| sum + attempt.usage);
        let cost: Cost = attempts.iter().map(|attempt| attempt.cost).sum();
        let accepted = attempts.iter().find(|attempt| attempt.outcome == AttemptOutcome::Accepted);
        let latency = accepted.and_then(|attempt| Some(attempt.ended_at?.since(attempt.started_at)));
        StepOutcome {
            worker: step.worker.to_string(),
            subtask: step.subtask.clone(),
            sees: step.access.as_slice().iter().map(|index| index.get()).collect(),
            state: done.task.state.as_str(),
            output: done.output.clone(),
            problem: done.error.clone(),
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cost_nano_usd: cost.nano_usd(),
            latency_ms: latency.map_or(0, |latency| u64::try_from(latency.as_millis()).unwrap_or(u64::MAX)),
        }
    };
    planned.map(outcome).collect()
}
