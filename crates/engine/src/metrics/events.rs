//! Counts runs, plans and steps by their events, and logs a line for each run and attempt that ended.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use podium_domain::ids::ClaimId;
use podium_domain::money::Cost;
use podium_domain::run::{Attempt, FailReason, FinishReason, Run, RunEvent, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_domain::usage::Usage;

use super::instruments::{Names, OTHER, OUTCOME, WAITS_S, WORKER, seconds, tier_of};
use super::log_lines;
use super::tenants::TenantCosts;

/// Instruments of runs, plans and steps.
pub(crate) struct Events {
    runs: Counter<u64>,
    run_duration: Histogram<f64>,
    plans: Counter<u64>,
    plan_duration: Histogram<f64>,
    plan_cost: Counter<u64>,
    steps: Counter<u64>,
    attempts: Counter<u64>,
    retries: Counter<u64>,
    fallbacks: Counter<u64>,
    cost: Counter<u64>,
    saved_cost: Counter<u64>,
    wasted_cost: Counter<u64>,
    wasted_tokens: Counter<u64>,
    overdue: Histogram<f64>,
}

/// The purpose of a cost.
#[derive(Clone, Copy)]
enum Purpose {
    /// An output.
    Output,
    /// A failed attempt.
    Failed,
    /// A result that nobody needed any more.
    Unused,
}

impl Purpose {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Failed => "failed",
            Self::Unused => "unused",
        }
    }
}

/// The end of an attempt.
#[derive(Clone, Copy)]
struct Ended {
    task: TaskRef,
    claim: ClaimId,
    outcome: &'static str,
    purpose: Purpose,
    cost: Cost,
}

impl Events {
    pub(super) fn new(meter: &Meter) -> Self {
        let counter =
            |name, unit, what| meter.u64_counter(name).with_unit(unit).with_description(what).build();
        Self {
            runs: counter("podium.run.accepted", "{run}", "Runs that began"),
            run_duration: seconds(
                meter,
                "podium.run.duration",
                "Time from a run's acceptance to its end",
                &WAITS_S,
            ),
            plans: counter("podium.plan.attempts", "{attempt}", "Attempts at planning that ended"),
            plan_duration: seconds(
                meter,
                "podium.plan.duration",
                "Attempts at planning that produced a plan or kept the answer",
                &WAITS_S,
            ),
            plan_cost: counter("podium.plan.cost", "{nanodollar}", "Cost of planning"),
            steps: counter("podium.step.ended", "{step}", "Steps that ended"),
            attempts: counter("podium.step.attempts", "{attempt}", "Attempts at steps that ended"),
            retries: counter(
                "podium.step.retries",
                "{retry}",
                "Attempts after which the same worker is called again",
            ),
            fallbacks: counter(
                "podium.step.fallbacks",
                "{fallback}",
                "Steps that moved to a fallback worker",
            ),
            cost: counter("podium.cost", "{nanodollar}", "Cost of calls of workers"),
            saved_cost: counter(
                "podium.cache.saved_cost",
                "{nanodollar}",
                "Cost of calls that the step cache saved",
            ),
            wasted_cost: counter(
                "podium.run.wasted_cost",
                "{nanodollar}",
                "Cost of ended runs without a use for their answers",
            ),
            wasted_tokens: counter(
                "podium.run.wasted_tokens",
                "{token}",
                "Tokens of ended runs without a use for their answers",
            ),
            overdue: seconds(
                meter,
                "podium.sweep.delay",
                "Time from the deadline of a run until it was ended for it",
                &WAITS_S,
            ),
        }
    }
}

/// Counts the events of one run.
#[derive(Clone, Copy)]
pub(super) struct Counting<'a> {
    pub(super) instruments: &'a Events,
    pub(super) names: &'a Names,
    pub(super) tenants: &'a TenantCosts,
    /// The run after the events.
    pub(super) run: &'a Run,
}

impl Counting<'_> {
    pub(super) fn count_all(self, events: &[SequencedEvent]) {
        for event in events {
            self.count(event);
        }
        if events.iter().any(|event| event.event.is_final()) {
            self.wasted(self.run.wasted_usage(), self.run.wasted_cost());
        } else if self.run.is_ended() {
            // Reports of calls that were under way at the end.
            for event in events {
                if let RunEvent::ResultUnused { usage, cost, .. } = &event.event {
                    self.wasted(*usage, *cost);
                }
            }
        }
    }

    fn wasted(self, usage: Usage, cost: Cost) {
        let tier = || tier_of(self.run.spec().request.policy.tier);
        self.instruments.wasted_cost.add(cost.nano_usd(), &[tier()]);
        for (kind, tokens) in [("input", usage.prompt_tokens), ("output", usage.completion_tokens)] {
            self.instruments.wasted_tokens.add(tokens, &[tier(), KeyValue::new("gen_ai.token.type", kind)]);
        }
    }

    fn count(self, event: &SequencedEvent) {
        use Purpose::{Failed, Output, Unused};
        let (at, tier) = (event.at, || tier_of(self.run.spec().request.policy.tier));
        let ended = |task: &TaskRef, claim: &ClaimId, outcome, purpose, cost| {
            self.attempt_ended(Ended { task: *task, claim: *claim, outcome, purpose, cost });
        };
        match &event.event {
            RunEvent::Accepted { .. } => self.instruments.runs.add(1, &[tier()]),
            RunEvent::PlanReady { round, claim, planned, cost, .. } => {
                let outcome = if planned.fallback.is_some() { "fallback" } else { "planned" };
                self.planned(*round, *claim, outcome, *cost, at);
            }
            RunEvent::AnswerKept { round, claim, cost, .. } => {
                self.planned(*round, *claim, "kept", *cost, at);
            }
            RunEvent::StepDone { round, step, claim, cost, saved, finish, .. } => {
                let task = TaskRef::Step { round: *round, step: *step };
                let outcome = match (saved, finish) {
                    (_, FinishReason::ContentFilter) => "declined",
                    (Some(_), _) => "cached",
                    (None, _) => "done",
                };
                ended(&task, claim, outcome, Output, *cost);
                self.step_ended(task, *claim, outcome);
                if let Some(saved) = saved {
                    let worker = self.worker_of(task, *claim);
                    self.instruments.saved_cost.add(saved.cost.nano_usd(), &[worker]);
                }
            }
            RunEvent::StepCalled { round, step, claim, cost, .. } => {
                let task = TaskRef::Step { round: *round, step: *step };
                ended(&task, claim, "called", Output, *cost);
            }
            RunEvent::AttemptFailed { task, claim, cost, handed_back: true, .. } => {
                ended(task, claim, "handed_back", Failed, *cost);
            }
            RunEvent::AttemptFailed { task, claim, cost, fallback, .. } => {
                ended(task, claim, "failed", Failed, *cost);
                if fallback.is_none() {
                    self.retried(*task, *claim);
                }
            }
            RunEvent::LeaseExpired { task, claim } => {
                ended(task, claim, "lost", Failed, Cost::ZERO);
                self.retried(*task, *claim);
            }
            RunEvent::TaskFailed { task, claim, cost, .. } => self.task_failed(*task, *claim, *cost),
            RunEvent::ResultUnused { task, claim, cost, .. } => ended(task, claim, "unused", Unused, *cost),
            RunEvent::FellBack { worker, claim, .. } => {
                let reason = if claim.is_some() { "failed" } else { "shut" };
                let attributes = [self.names.worker(worker), KeyValue::new("podium.reason", reason)];
                self.instruments.fallbacks.add(1, &attributes);
            }
            RunEvent::Succeeded { .. } if self.run.refusal().is_some() => self.ended(at, "refused"),
            RunEvent::Succeeded { .. } if self.run.is_degraded() => self.ended(at, "degraded"),
            RunEvent::Succeeded { .. } => self.ended(at, "succeeded"),
            RunEvent::Failed { reason } => self.failed(at, reason),
            RunEvent::Cancelled => self.ended(at, "cancelled"),
            RunEvent::Claimed { .. }
            | RunEvent::Suspended
            | RunEvent::ResultsGiven { .. }
            | RunEvent::StepsPlanned { .. }
            | RunEvent::StepsSuperseded { .. }
            | RunEvent::StepReady { .. }
            | RunEvent::StepSkipped { .. }
            | RunEvent::Hedged { .. }
            | RunEvent::RoundOpened { .. }
            | RunEvent::RoundAbandoned { .. } => {}
        }
    }

    fn failed(self, at: Timestamp, reason: &FailReason) {
        if matches!(reason, FailReason::DeadlineExceeded { .. }) {
            let delay = at.since(self.run.deadline_at());
            self.instruments.overdue.record(delay.as_secs_f64(), &[]);
        }
        self.ended(at, reason.code());
    }

    fn ended(self, at: Timestamp, outcome: &'static str) {
        let spec = self.run.spec();
        let attributes = [tier_of(spec.request.policy.tier), KeyValue::new(OUTCOME, outcome)];
        // The deadline moved by the time that the run was suspended for.
        let suspended = self.run.deadline_at().since(spec.deadline_at);
        let took = at.since(spec.accepted_at).saturating_sub(suspended);
        self.instruments.run_duration.record(took.as_secs_f64(), &attributes);
        log_lines::run_ended(self.run, outcome, took);
    }

    fn planned(self, round: u16, claim: ClaimId, outcome: &'static str, cost: Cost, at: Timestamp) {
        let task = TaskRef::Plan { round };
        self.attempt_ended(Ended { task, claim, outcome, purpose: Purpose::Output, cost });
        if let Some(attempt) = self.attempt(task, claim) {
            let took = at.since(attempt.started_at).as_secs_f64();
            self.instruments.plan_duration.record(took, &[tier_of(self.run.spec().request.policy.tier)]);
        }
    }

    fn attempt_ended(self, Ended { task, claim, outcome, purpose, cost }: Ended) {
        log_lines::attempt_ended(self.run, task, claim, outcome);
        self.tenants.add(&self.run.spec().tenant, cost, self.run.changed_at());
        let outcome = KeyValue::new(OUTCOME, outcome);
        match task {
            TaskRef::Plan { .. } => {
                self.instruments.plans.add(1, &[tier_of(self.run.spec().request.policy.tier), outcome]);
                if !cost.is_zero() {
                    self.instruments.plan_cost.add(cost.nano_usd(), &[]);
                }
            }
            TaskRef::Step { .. } => {
                self.instruments.attempts.add(1, &[self.worker_of(task, claim), outcome]);
                let worker = self.attempt(task, claim).and_then(|attempt| attempt.worker.as_ref());
                if let Some(worker) = worker.filter(|_| !cost.is_zero()) {
                    let attributes =
                        [self.names.worker(worker), KeyValue::new("podium.spent", purpose.as_str())];
                    self.instruments.cost.add(cost.nano_usd(), &attributes);
                }
            }
        }
    }

    /// Counts a failed task. A task without an attempt has no claim.
    fn task_failed(self, task: TaskRef, claim: Option<ClaimId>, cost: Cost) {
        if let Some(claim) = claim {
            self.attempt_ended(Ended { task, claim, outcome: "failed", purpose: Purpose::Failed, cost });
        }
        let last = || Some(self.run.task(task)?.attempts.last()?.claim);
        match (task, claim.or_else(last)) {
            (TaskRef::Step { .. }, Some(claim)) => self.step_ended(task, claim, "failed"),
            (TaskRef::Step { .. }, None) => {
                let worker = self.run.worker_of(task).map(|worker| self.names.worker(worker));
                let attributes = worker.into_iter().chain([KeyValue::new(OUTCOME, "failed")]);
                self.instruments.steps.add(1, &attributes.collect::<Vec<_>>());
            }
            (TaskRef::Plan { .. }, _) => {}
        }
    }

    fn step_ended(self, task: TaskRef, claim: ClaimId, outcome: &'static str) {
        self.instruments.steps.add(1, &[self.worker_of(task, claim), KeyValue::new(OUTCOME, outcome)]);
    }

    fn retried(self, task: TaskRef, claim: ClaimId) {
        if let TaskRef::Step { .. } = task {
            self.instruments.retries.add(1, &[self.worker_of(task, claim)]);
        }
    }

    fn attempt(&self, task: TaskRef, claim: ClaimId) -> Option<&Attempt> {
        self.run.task(task)?.attempt(claim)
    }

    /// The worker of an attempt, as an attribute.
    fn worker_of(&self, task: TaskRef, claim: ClaimId) -> KeyValue {
        let worker = self.attempt(task, claim).and_then(|attempt| attempt.worker.as_ref());
        worker.map_or(KeyValue::new(WORKER, OTHER), |worker| self.names.worker(worker))
    }
}
