//! The steps of a run without an output, and whether its answer needed them.

use std::collections::BTreeSet;

use super::{FailReason, FinishReason, Run, RunState, StepRun, TaskRef};
use crate::ids::{StepIndex, WorkerId};
use crate::plan::Step;

/// Most bytes of a refusal in the reason of a step without an output.
const REFUSAL_BYTES_MAX: usize = 500;

/// A step without output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingStep {
    /// The round, from 0.
    pub round: u16,
    /// The step.
    pub step: StepIndex,
    /// The last worker that was called.
    pub worker: WorkerId,
    /// The last error message.
    pub reason: String,
}

impl StepRun {
    /// Whether its worker declined to answer, or its vendor withheld the answer.
    pub fn is_declined(&self) -> bool {
        self.finish == Some(FinishReason::ContentFilter)
    }

    /// The reason why its output is missing, for the steps that see it and continue.
    pub(crate) fn missing_because(&self) -> Option<String> {
        match &self.output {
            Some(output) if self.is_declined() => Some(declined(output)),
            _ => self.error.clone(),
        }
    }
}

/// The message for a worker that declined with `output`.
pub(super) fn declined(output: &str) -> String {
    let output = output.trim();
    match output.len() {
        0 => "the worker declined to answer".to_owned(),
        bytes if bytes <= REFUSAL_BYTES_MAX => format!("the worker declined to answer: {output}"),
        _ => {
            let kept = &output[..output.floor_char_boundary(REFUSAL_BYTES_MAX)];
            format!("the worker declined to answer: {kept}...")
        }
    }
}

impl Run {
    /// The steps without output, in order: those that failed for good, and those whose worker declined. Superseded steps are left
    /// out, and so is a final step that declined, which is the run's [`Self::refusal`].
    pub fn failed_steps(&self) -> Vec<MissingStep> {
        let rounds = (0u16..).zip(&self.rounds);
        let steps = rounds.flat_map(|(round, of)| {
            let steps = (0u16..).map(StepIndex::new).zip(&of.steps);
            steps.filter(|(step, _)| !of.is_superseded(*step)).map(move |(step, run)| (round, step, run))
        });
        steps.filter_map(|(round, step, run)| self.missing(round, step, run)).collect()
    }

    /// Whether a round corrects the previous one, which has no answer.
    pub fn is_corrective(&self, round: u16) -> bool {
        self.rounds.get(usize::from(round)).is_some_and(|round| round.corrects.is_some())
    }

    /// The failure after which the run was planned again, if it was; at most once. It is also set if the run then ends with a worker's
    /// refusal.
    pub fn replanned_because(&self) -> Option<&FailReason> {
        self.rounds.iter().find_map(|round| round.corrects.as_ref())
    }

    /// The workers that were called in a round for a step without an output: they failed for good, or declined.
    pub fn workers_without_output(&self, round: u16) -> BTreeSet<WorkerId> {
        let Some(of) = self.rounds.get(usize::from(round)) else { return BTreeSet::new() };
        let steps = (0u16..).map(StepIndex::new).zip(&of.steps).zip(of.known_steps());
        let failed = steps.filter(|((step, run), _)| {
            !of.is_superseded(*step) && !run.task.attempts.is_empty() && run.missing_because().is_some()
        });
        let asked = failed.flat_map(|((step, _), planned)| {
            let last = self.worker_of(TaskRef::Step { round, step });
            [Some(&planned.worker), last].into_iter().flatten()
        });
        asked.cloned().collect()
    }

    fn missing(&self, round: u16, step: StepIndex, run: &StepRun) -> Option<MissingStep> {
        if run.is_declined() && self.is_final_step(round, step) {
            return None;
        }
        let worker = self.worker_of(TaskRef::Step { round, step })?.clone();
        Some(MissingStep { round, step, worker, reason: run.missing_because()? })
    }

    /// Whether the answer was built without the output of a step that the final step needs, directly or through others.
    pub fn is_degraded(&self) -> bool {
        let RunState::Succeeded { round, step } = self.state else { return false };
        let Some(answered) = self.rounds.get(usize::from(round)) else { return false };
        let known = answered.known_steps();
        let mut needed = vec![false; known.len()];
        if let Some(last) = needed.get_mut(step.as_usize()) {
            *last = true;
        }
        // A step sees earlier steps only, so going backwards visits each step after all steps that see it.
        for index in (0..known.len()).rev().filter(|index| *index <= step.as_usize()) {
            if needed[index] {
                let Step { access, .. } = &known[index];
                let taken_over = answered.steps.get(index).and_then(|step| step.same_as);
                let seen = taken_over.as_ref().map_or(access.as_slice(), std::slice::from_ref);
                for seen in seen {
                    needed[seen.as_usize()] = true;
                }
            }
        }
        let needed_before = needed.iter().take(step.as_usize());
        answered
            .steps
            .iter()
            .zip(needed_before)
            .any(|(step, needed)| *needed && step.missing_because().is_some())
    }

    /// The text of a final step's worker that declined to answer; blank if it wrote none. `None` if the run has an answer, or has not
    /// succeeded.
    pub fn refusal(&self) -> Option<&str> {
        let RunState::Succeeded { round, step } = self.state else { return None };
        let last = self.rounds.get(usize::from(round))?.steps.get(step.as_usize())?;
        last.output.as_deref().filter(|_| last.is_declined())
    }
}
