//! The events of a run, as gRPC clients see them.

use podium_domain::conversation::Message;
use podium_domain::ids::{StepIndex, WorkerId};
use podium_domain::plan::PlanHead;
use podium_domain::run::{
    FailReason, FinishReason, Planned, RunEvent, RunSpec, SequencedEvent, StepRef, TaskRef,
};
use podium_domain::time::Timestamp;

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
fn kind(event: &RunEvent, attempts: &mut AttemptNumbers) -> Option<Kind> {
    Some(match event {
        RunEvent::Accepted { spec } => Kind::Accepted(accepted(spec)),
        RunEvent::Claimed { task, claim, worker, .. } => Kind::AttemptStarted(v1::AttemptStarted {
            task: Some((*task).into()),
            attempt: attempts.number(*task, *claim),
            worker: worker.as_ref().map(ToString::to_string).unwrap_or_default(),
        }),
        RunEvent::StepsPlanned { round, head, .. } => Kind::StepsPlanned(steps_planned(*round, head)),
        RunEvent::StepsSuperseded { round, steps } => {
            Kind::StepsSuperseded(v1::StepsSuperseded { round: (*round).into(), steps: (*steps).into() })
        }
        RunEvent::PlanReady { round, planned, usage, cost, .. } => Kind::PlanReady(v1::PlanReady {
            usage: Some((*usage).into()),
            cost_nano_usd: cost.nano_usd(),
            ..plan_ready(*round, planned)
        }),
        RunEvent::AnswerKept { round, usage, cost, .. } => {
            let (round, usage) = ((*round).into(), Some((*usage).into()));
            Kind::AnswerKept(v1::AnswerKept { round, usage, cost_nano_usd: cost.nano_usd() })
        }
        RunEvent::StepReady { round, step } => {
            Kind::StepReady(v1::StepReady { round: (*round).into(), step: step.get().into() })
        }
        RunEvent::StepDone { .. } => return done(event, attempts),
        RunEvent::StepCalled { .. } => return called(event, attempts),
        RunEvent::Suspended => Kind::Suspended(v1::Suspended {}),
        RunEvent::ResultsGiven { results } => Kind::ResultsGiven(results_given(results)),
        RunEvent::AttemptFailed { task, claim, message, retry_at, usage, cost, handed_back, fallback } => {
            Kind::AttemptFailed(v1::AttemptFailed {
                handed_back: *handed_back,
                fallback: fallback.as_ref().map(ToString::to_string),
                attempt: attempts.number(*task, *claim),
                usage: Some((*usage).into()),
                cost_nano_usd: cost.nano_usd(),
                ..attempt_failed(*task, message, *retry_at)
            })
        }
        RunEvent::FellBack { round, step, worker, message, claim } => {
            let task = TaskRef::Step { round: *round, step: *step };
            Kind::FellBack(v1::FellBack {
                attempt: claim.map(|claim| attempts.number(task, claim)),
                ..fell_back(*round, *step, worker, message)
            })
        }
        RunEvent::Hedged { .. } => return None,
        RunEvent::LeaseExpired { task, claim } => {
            let attempt = attempts.number(*task, *claim);
            Kind::AttemptLost(v1::AttemptLost { task: Some((*task).into()), attempt })
        }
        RunEvent::TaskFailed { task, message, usage, cost, .. } => {
            let (task, usage) = (Some((*task).into()), Some((*usage).into()));
            let (error, cost_nano_usd) = (message.clone(), cost.nano_usd());
            Kind::TaskFailed(v1::TaskFailed { task, error, usage, cost_nano_usd })
        }
        RunEvent::ResultUnused { task, claim, usage, cost } => {
            let (attempt, usage) = (attempts.number(*task, *claim), Some((*usage).into()));
            let (task, cost_nano_usd) = (Some((*task).into()), cost.nano_usd());
            Kind::ResultUnused(v1::ResultUnused { task, attempt, usage, cost_nano_usd })
        }
        RunEvent::RoundOpened { round, failed } => {
            let (round, failed) = ((*round).into(), failed.as_ref().map(Into::into));
            Kind::RoundOpened(v1::RoundOpened { round, failed })
        }
        RunEvent::RoundAbandoned { round, reason } => Kind::RoundAbandoned(round_abandoned(*round, reason)),
        RunEvent::Succeeded { round, step } => Kind::Succeeded(succeeded(*round, *step)),
        RunEvent::Failed { reason } => Kind::Failed(v1::Failed { failure: Some(reason.into()) }),
        RunEvent::Cancelled => Kind::Cancelled(v1::Cancelled {}),
    })
}

/// The event of a step that is done.
fn done(event: &RunEvent, attempts: &mut AttemptNumbers) -> Option<Kind> {
    let RunEvent::StepDone {
        round,
        step,
        claim,
        output,
        calls,
        usage,
        cost,
        first_token_ms,
        finish,
        saved,
        reasoning: _,
    } = event
    else {
        return None;
    };
    let task = StepRef { round: *round, step: *step };
    Some(Kind::StepDone(v1::StepDone {
        usage: Some((*usage).into()),
        cost_nano_usd: cost.nano_usd(),
        first_token_ms: *first_token_ms,
        saved: saved.map(Into::into),
        attempt: attempts.number(task.into(), *claim),
        tool_calls: attempts.calls(task, *claim, calls),
        ..step_done(*round, *step, output, *finish)
    }))
}

/// The event of a step that called tools.
fn called(event: &RunEvent, attempts: &mut AttemptNumbers) -> Option<Kind> {
    let RunEvent::StepCalled { round, step, claim, text, calls, usage, cost, first_token_ms, reasoning: _ } =
        event
    else {
        return None;
    };
    let task = StepRef { round: *round, step: *step };
    Some(Kind::StepCalled(v1::StepCalled {
        round: (*round).into(),
        step: step.get().into(),
        attempt: attempts.number(task.into(), *claim),
        text: text.clone(),
        tool_calls: attempts.calls(task, *claim, calls),
        usage: Some((*usage).into()),
        cost_nano_usd: cost.nano_usd(),
        first_token_ms: *first_token_ms,
    }))
}

fn results_given(results: &[Message]) -> v1::ResultsGiven {
    v1::ResultsGiven { messages: results.iter().map(Into::into).collect() }
}

fn accepted(spec: &RunSpec) -> v1::Accepted {
    v1::Accepted {
        model: spec.model.clone(),
        tier: v1::Tier::from(spec.request.policy.tier).into(),
        conductor: spec.conductor.clone(),
        pool: spec.pool.clone(),
        deadline_time: Some(timestamp(spec.deadline_at)),
    }
}

fn steps_planned(round: u16, head: &PlanHead) -> v1::StepsPlanned {
    v1::StepsPlanned { round: round.into(), steps: planned_steps(head.steps()) }
}

fn plan_ready(round: u16, planned: &Planned) -> v1::PlanReady {
    v1::PlanReady {
        round: round.into(),
        steps: planned_steps(planned.plan.steps()),
        reasoning: planned.reasoning.clone(),
        fallback: planned.fallback.clone(),
        usage: None,
        cost_nano_usd: 0,
    }
}

fn step_done(round: u16, step: StepIndex, output: &str, finish: FinishReason) -> v1::StepDone {
    v1::StepDone {
        round: round.into(),
        step: step.get().into(),
        output: output.to_owned(),
        finish_reason: v1::FinishReason::from(finish).into(),
        attempt: 0,
        usage: None,
        cost_nano_usd: 0,
        first_token_ms: None,
        saved: None,
        tool_calls: Vec::new(),
    }
}

fn attempt_failed(task: TaskRef, message: &str, retry_at: Timestamp) -> v1::AttemptFailed {
    v1::AttemptFailed {
        task: Some(task.into()),
        error: message.to_owned(),
        retry_time: Some(timestamp(retry_at)),
        attempt: 0,
        usage: None,
        cost_nano_usd: 0,
        handed_back: false,
        fallback: None,
    }
}

fn succeeded(round: u16, step: StepIndex) -> v1::Succeeded {
    v1::Succeeded { round: round.into(), step: step.get().into() }
}

fn fell_back(round: u16, step: StepIndex, worker: &WorkerId, message: &str) -> v1::FellBack {
    v1::FellBack {
        round: round.into(),
        step: step.get().into(),
        worker: worker.to_string(),
        error: message.to_owned(),
        attempt: None,
    }
}

fn round_abandoned(round: u16, reason: &FailReason) -> v1::RoundAbandoned {
    v1::RoundAbandoned { round: round.into(), failure: Some(reason.into()) }
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
