//! The events of a run, as gRPC clients see them.

use podium_domain::run::{RunEvent, SequencedEvent, StepRef, TaskRef};

use crate::AttemptNumbers;
use crate::runs::{planned_steps, timestamp};
use crate::v1::{self, run_event::Kind};

/// A stored event as clients see it. `attempts` learns the claim that the event contains.
pub fn event(event: &SequencedEvent, attempts: &mut AttemptNumbers) -> v1::RunEvent {
    v1::RunEvent {
        sequence: event.sequence,
        time: Some(timestamp(event.at)),
        kind: kind(&event.event, attempts),
    }
}

/// None for an event that only earlier versions wrote.
#[expect(clippy::too_many_lines, reason = "one arm for every event")]
fn kind(event: &RunEvent, attempts: &mut AttemptNumbers) -> Option<Kind> {
    use RunEvent as E;
    Some(match event {
        E::Accepted { spec } => Kind::Accepted(v1::Accepted {
            model: spec.model.clone(),
            tier: v1::Tier::from(spec.request.policy.tier).into(),
            conductor: spec.conductor.clone(),
            pool: spec.pool.clone(),
            deadline_time: Some(timestamp(spec.deadline_at)),
        }),
        E::Claimed { task, claim, worker, .. } => Kind::AttemptStarted(v1::AttemptStarted {
            task: Some((*task).into()),
            attempt: attempts.number(*task, *claim),
            worker: worker.as_ref().map(ToString::to_string).unwrap_or_default(),
        }),
        E::StepsPlanned { round, head, .. } => Kind::StepsPlanned(v1::StepsPlanned {
            round: (*round).into(),
            steps: planned_steps(head.steps()),
        }),
        E::StepsSuperseded { round, steps } => {
            Kind::StepsSuperseded(v1::StepsSuperseded { round: (*round).into(), steps: (*steps).into() })
        }
        E::PlanReady { round, planned, usage, cost, .. } => Kind::PlanReady(v1::PlanReady {
            round: (*round).into(),
            steps: planned_steps(planned.plan.steps()),
            reasoning: planned.reasoning.clone(),
            fallback: planned.fallback.clone(),
            usage: Some((*usage).into()),
            cost_nano_usd: cost.nano_usd(),
        }),
        E::AnswerKept { round, usage, cost, .. } => {
            let (round, usage) = ((*round).into(), Some((*usage).into()));
            Kind::AnswerKept(v1::AnswerKept { round, usage, cost_nano_usd: cost.nano_usd() })
        }
        E::StepReady { round, step } => {
            Kind::StepReady(v1::StepReady { round: (*round).into(), step: step.get().into() })
        }
        E::StepDone {
            round,
            step,
            claim,
            output,
            calls,
            reasoning_text,
            usage,
            cost,
            first_token_ms,
            finish,
            stop_sequence,
            saved,
            ..
        } => {
            let done = StepRef { round: *round, step: *step };
            Kind::StepDone(v1::StepDone {
                round: (*round).into(),
                step: step.get().into(),
                attempt: attempts.number(done.into(), *claim),
                output: output.clone(),
                finish_reason: v1::FinishReason::from(*finish).into(),
                tool_calls: attempts.calls(done, *claim, calls),
                usage: Some((*usage).into()),
                cost_nano_usd: cost.nano_usd(),
                first_token_ms: *first_token_ms,
                saved: saved.map(Into::into),
                reasoning: reasoning_text.clone(),
                stop_sequence: stop_sequence.clone(),
            })
        }
        E::StepSkipped { round, step, same_as } => Kind::StepSkipped(v1::StepSkipped {
            round: (*round).into(),
            step: step.get().into(),
            same_as: same_as.get().into(),
        }),
        E::StepCalled {
            round,
            step,
            claim,
            text,
            calls,
            reasoning_text,
            usage,
            cost,
            first_token_ms,
            ..
        } => {
            let called = StepRef { round: *round, step: *step };
            Kind::StepCalled(v1::StepCalled {
                round: (*round).into(),
                step: step.get().into(),
                attempt: attempts.number(called.into(), *claim),
                text: text.clone(),
                tool_calls: attempts.calls(called, *claim, calls),
                usage: Some((*usage).into()),
                cost_nano_usd: cost.nano_usd(),
                first_token_ms: *first_token_ms,
                reasoning: reasoning_text.clone(),
            })
        }
        E::Suspended => Kind::Suspended(v1::Suspended {}),
        E::ResultsGiven { results } => {
            Kind::ResultsGiven(v1::ResultsGiven { messages: results.iter().map(Into::into).collect() })
        }
        E::AttemptFailed { task, claim, message, retry_at, usage, cost, handed_back, fallback } => {
            Kind::AttemptFailed(v1::AttemptFailed {
                task: Some((*task).into()),
                attempt: attempts.number(*task, *claim),
                error: message.clone(),
                retry_time: Some(timestamp(*retry_at)),
                usage: Some((*usage).into()),
                cost_nano_usd: cost.nano_usd(),
                handed_back: *handed_back,
                fallback: fallback.as_ref().map(ToString::to_string),
            })
        }
        E::FellBack { round, step, worker, message, claim } => {
            let task = TaskRef::Step { round: *round, step: *step };
            Kind::FellBack(v1::FellBack {
                round: (*round).into(),
                step: step.get().into(),
                worker: worker.to_string(),
                error: message.clone(),
                attempt: claim.map(|claim| attempts.number(task, claim)),
            })
        }
        E::Hedged { .. } => return None,
        E::LeaseExpired { task, claim } => {
            let attempt = attempts.number(*task, *claim);
            Kind::AttemptLost(v1::AttemptLost { task: Some((*task).into()), attempt })
        }
        E::TaskFailed { task, message, usage, cost, .. } => {
            let (task, usage) = (Some((*task).into()), Some((*usage).into()));
            let (error, cost_nano_usd) = (message.clone(), cost.nano_usd());
            Kind::TaskFailed(v1::TaskFailed { task, error, usage, cost_nano_usd })
        }
        E::ResultUnused { task, claim, usage, cost } => {
            let (attempt, usage) = (attempts.number(*task, *claim), Some((*usage).into()));
            let (task, cost_nano_usd) = (Some((*task).into()), cost.nano_usd());
            Kind::ResultUnused(v1::ResultUnused { task, attempt, usage, cost_nano_usd })
        }
        E::RoundOpened { round, failed } => {
            let (round, failed) = ((*round).into(), failed.as_ref().map(Into::into));
            Kind::RoundOpened(v1::RoundOpened { round, failed })
        }
        E::RoundAbandoned { round, reason } => {
            Kind::RoundAbandoned(v1::RoundAbandoned { round: (*round).into(), failure: Some(reason.into()) })
        }
        E::Succeeded { round, step } => {
            Kind::Succeeded(v1::Succeeded { round: (*round).into(), step: step.get().into() })
        }
        E::Failed { reason } => Kind::Failed(v1::Failed { failure: Some(reason.into()) }),
        E::Cancelled => Kind::Cancelled(v1::Cancelled {}),
    })
}

impl From<TaskRef> for v1::Task {
    fn from(task: TaskRef) -> Self {
        let step = match task {
            TaskRef::Plan { .. } => None,
            TaskRef::Step { step, .. } => Some(step.get().into()),
        };
        Self { round: task.round().into(), step }
    }
}
