//! The payments for attempts, read from the events of a run.

use podium_domain::ids::ClaimId;
use podium_domain::money::Cost;
use podium_domain::run::{Run, RunEvent, TaskRef};

/// The attempt that an event pays for, and its cost.
pub(super) fn payment(event: &RunEvent) -> Option<((TaskRef, ClaimId), Cost)> {
    match event {
        RunEvent::PlanReady { round, claim, cost, .. } | RunEvent::AnswerKept { round, claim, cost, .. } => {
            Some(((TaskRef::Plan { round: *round }, *claim), *cost))
        }
        RunEvent::StepDone { round, step, claim, cost, .. }
        | RunEvent::StepCalled { round, step, claim, cost, .. } => {
            Some(((TaskRef::Step { round: *round, step: *step }, *claim), *cost))
        }
        RunEvent::AttemptFailed { task, claim, cost, .. }
        | RunEvent::ResultUnused { task, claim, cost, .. }
        | RunEvent::TaskFailed { task, claim: Some(claim), cost, .. } => Some(((*task, *claim), *cost)),
        _ => None,
    }
}

/// Whether the run uses the result of the cost.
pub(super) fn is_taken(run: &Run, event: &RunEvent) -> bool {
    match event {
        RunEvent::PlanReady { .. } | RunEvent::AnswerKept { .. } => true,
        RunEvent::StepDone { round, step, .. } | RunEvent::StepCalled { round, step, .. } => {
            !run.rounds()[usize::from(*round)].is_superseded(*step)
        }
        _ => false,
    }
}
