//! Rollouts: a conductor's completions become rewards, through the engine that serves users.
//!
//! A completion is parsed and checked as in production. After that, nothing helps it: there is no further try, no repaired or
//! substituted plan, no other worker for a step, no retry and no cached output. Runs are in a temporary store and are removed soon after
//! their end.

mod outcome;
mod plan;
mod service;

use std::sync::Arc;
use std::time::Duration;

use podium_domain::conversation::Conversation;
use podium_domain::ids::{TenantId, WorkerId};
use podium_domain::plan::Plan;
use podium_domain::policy::{Effort, FailedStep, Policy, PoolRule, StepCaching, StepTools, Tier};
use podium_domain::request::RunRequest;
use podium_domain::run::{Planned, Run};
use podium_domain::sampling::Sampling;
use podium_engine::{Engine, Submit};
use podium_ports::causes::with_causes;
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::grading::{Expected, Grader, Graders, by_name};

pub(crate) use outcome::Outcome;
pub(crate) use service::{bind, serve};

/// The largest seed that every vendor accepts.
const SEED_MAX: u32 = i32::MAX.cast_unsigned();

/// A completion to try.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Rollout {
    /// The client's name for it, which its outcome repeats.
    pub(crate) id: String,
    /// The question that the conductor planned.
    pub(crate) question: String,
    /// The expected answer, as its grader understands it.
    #[serde(default)]
    pub(crate) answer: String,
    /// How the answer is compared.
    #[serde(default, deserialize_with = "by_name")]
    pub(crate) grader: Grader,
    /// All that the conductor wrote.
    pub(crate) completion: String,
    /// The seed of the workers' calls.
    #[serde(default)]
    pub(crate) seed: u32,
    /// The workers that the positions in the completion mean, in order; those of the pool if there are none.
    #[serde(default)]
    pub(crate) workers: Vec<WorkerId>,
}

/// The bounds and rewards of all rollouts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Most steps of a plan.
    pub(crate) steps_max: u16,
    /// Longest time of a run.
    pub(crate) deadline: Duration,
    /// Most rollouts that are carried out concurrently.
    pub(crate) in_flight: usize,
    /// The reward of a plan that was carried out and whose answer is wrong: 0 to 1. An unusable completion has 0, a right answer 1.
    pub(crate) reward_wrong: f64,
}

/// Carries out completions. Clones share the engine and the bound of concurrent rollouts.
#[derive(Clone)]
pub(crate) struct Rollouts {
    engine: Engine,
    graders: Arc<Graders>,
    places: Arc<Semaphore>,
    terms: Terms,
}

impl Rollouts {
    pub(crate) fn new(engine: Engine, terms: Terms) -> Self {
        let graders = Arc::new(Graders::new(engine.clone()));
        Self { engine, graders, places: Arc::new(Semaphore::new(terms.in_flight)), terms }
    }

    /// Most rollouts that are carried out concurrently.
    fn in_flight_max(&self) -> usize {
        self.terms.in_flight
    }

    /// Checks what the caller controls, and the conductor does not. The problem names the field.
    pub(crate) fn check(&self, rollout: &Rollout) -> Result<(), String> {
        let pool = self.engine.pool();
        if rollout.question.trim().is_empty() {
            return Err("question must not be blank".to_owned());
        }
        if rollout.seed > SEED_MAX {
            return Err(format!("seed is {}, it must be at most {SEED_MAX}", rollout.seed));
        }
        rollout.grader.check(&rollout.answer)?;
        rollout.grader.check_pool(&pool)?;
        match rollout.workers.iter().find(|worker| pool.worker(worker).is_none()) {
            Some(unknown) => Err(format!("workers: pool {} has no worker `{unknown}`", pool.version())),
            None => Ok(()),
        }
    }

    /// Carries out a checked completion and grades its answer.
    pub(crate) async fn run(&self, rollout: &Rollout) -> Outcome {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let policy = self.policy();
        let plan = match plan::parse(&rollout.completion, &rollout.workers, &self.engine.pool(), &policy) {
            Ok(plan) => plan,
            Err(problem) => return Outcome::unusable(&rollout.id, problem),
        };
        let run = match self.carry_out(rollout, plan, policy).await {
            Ok(run) => run,
            Err(problem) => return Outcome::not_begun(&rollout.id, problem),
        };
        let outcome = Outcome::of(&rollout.id, &run);
        let Some(answer) = outcome.answer_to_grade() else {
            return outcome.graded(None, self.terms.reward_wrong);
        };
        let expected = Expected {
            question: &rollout.question,
            answer: &rollout.answer,
            grader: &rollout.grader,
            seed: rollout.seed,
        };
        let graded = self.graders.grade(expected, answer).await;
        outcome.graded(Some(graded), self.terms.reward_wrong)
    }

    async fn carry_out(&self, rollout: &Rollout, plan: Plan, policy: Policy) -> Result<Arc<Run>, String> {
        let conversation =
            Conversation::question_only(rollout.question.clone()).map_err(|e| with_causes(&e))?;
        let sampling = Sampling { seed: Some(rollout.seed), ..Sampling::NONE };
        let submit = Submit {
            tenant: TenantId::nobody(),
            key: None,
            budgets: Vec::new(),
            request_id: None,
            request_digest: None,
            model: Tier::Ultra.model().to_owned(),
            conductor: None,
            request: RunRequest { sampling, ..RunRequest::new(conversation, policy) },
        };
        let planned = Planned { plan, reasoning: String::new(), fallback: None };
        let (_, mut ending) = self.engine.ask_planned(submit, planned).await.map_err(|e| with_causes(&e))?;
        ending.run().await.map_err(|e| with_causes(&e))
    }

    fn policy(&self) -> Policy {
        Policy {
            steps_max: self.terms.steps_max,
            rounds_max: 1,
            attempts_max: 1,
            deadline_ms: u64::try_from(self.terms.deadline.as_millis()).unwrap_or(u64::MAX),
            fallback: PoolRule::None,
            failed_step: FailedStep::Fail,
            step_cache: StepCaching::Off,
            tools: StepTools::Last,
            ..Policy::new(Tier::Ultra, Effort::Medium)
        }
    }
}
