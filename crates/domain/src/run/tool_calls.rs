//! The tool calls of a run: which step may make them, and the ids that clients get for them.

use super::{AttemptOutcome, Run, RunState, StepRef};
use crate::call_id::CallId;
use crate::content::{Seal, ToolCall};
use crate::tools::ToolUse;

impl Run {
    /// The tools that a step is offered. Only a final step is offered any: the run ends with its calls.
    pub fn tools_of(&self, step: StepRef) -> Option<&ToolUse> {
        self.spec.request.offered_tools().filter(|_| self.is_final_step(step.round, step.step))
    }

    /// The tool calls of a step that is done, by the ids that clients get. The ids of the worker are in `own_id`.
    pub fn calls_of(&self, step: StepRef) -> Vec<ToolCall> {
        let round = self.rounds.get(usize::from(step.round));
        let Some(done) = round.and_then(|round| round.steps.get(step.step.as_usize())) else {
            return Vec::new();
        };
        let accepted = |attempt: &&super::Attempt| attempt.outcome == AttemptOutcome::Accepted;
        let Some(attempt) = done.task.attempts.iter().find(accepted) else { return Vec::new() };
        let call = |(index, call): (usize, &ToolCall)| ToolCall {
            id: CallId::new(self.id, step, attempt.claim, index).to_string(),
            own_id: attempt.worker.clone().map(|worker| Seal { worker, mark: call.id.clone() }),
            ..call.clone()
        };
        done.calls.iter().enumerate().map(call).collect()
    }

    /// The tool calls of the run's answer, by the ids that clients get; empty if it has none.
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        match self.state {
            RunState::Succeeded { round, step } => self.calls_of(StepRef { round, step }),
            _ => Vec::new(),
        }
    }
}
