//! Attempt numbers: the APIs number the attempts of a task, the engine knows them by random claim ids.

use std::collections::BTreeMap;

use podium_domain::call_id::CallId;
use podium_domain::content::ToolCall;
use podium_domain::ids::{ClaimId, RunId};
use podium_domain::run::{Run, StepRef, TaskRef};

use crate::v1;

/// Numbers the attempts of each task from 1, in the order of their claims.
///
/// Starts with the attempts of a run and learns later claims, so that a client may begin to watch at any event.
#[derive(Clone, Debug, Default)]
pub struct AttemptNumbers {
    claims: BTreeMap<TaskRef, Vec<ClaimId>>,
    /// The run, which the ids of its tool calls name.
    run: Option<RunId>,
}

impl AttemptNumbers {
    /// The numbers of a run's attempts so far.
    pub fn of(run: &Run) -> Self {
        let claims =
            run.tasks().map(|(task, work)| (task, work.attempts.iter().map(|a| a.claim).collect())).collect();
        Self { claims, run: Some(run.id()) }
    }

    /// The tool calls of an attempt, by the ids that clients get.
    pub(crate) fn calls(&self, step: StepRef, claim: ClaimId, calls: &[ToolCall]) -> Vec<v1::ToolCall> {
        let Some(run) = self.run else { return Vec::new() };
        let id = |index| CallId::new(run, step, claim, index).to_string();
        let with_id = |(index, call): (usize, &ToolCall)| v1::ToolCall { id: id(index), ..call.into() };
        calls.iter().enumerate().map(with_id).collect()
    }

    /// The number of the attempt under `claim`. An unknown claim gets the task's next number.
    pub fn number(&mut self, task: TaskRef, claim: ClaimId) -> u32 {
        let claims = self.claims.entry(task).or_default();
        let at = claims.iter().position(|known| *known == claim).unwrap_or_else(|| {
            claims.push(claim);
            claims.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn each_task_numbers_its_claims_in_order() {
        let mut numbers = AttemptNumbers::default();
        let claim = |n| ClaimId::new(Uuid::from_u128(n));
        let (first, second) = (TaskRef::Plan { round: 0 }, TaskRef::Plan { round: 1 });
        assert_eq!(numbers.number(first, claim(7)), 1);
        assert_eq!(numbers.number(first, claim(3)), 2);
        assert_eq!(numbers.number(second, claim(9)), 1);
        assert_eq!(numbers.number(first, claim(7)), 1);
    }
}
