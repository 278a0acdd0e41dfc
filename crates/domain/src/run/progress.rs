//! The progress of an active run, for clients that wait for its answer.

use std::fmt;

use super::{Run, TaskRef, TaskState};
use crate::ids::{StepIndex, WorkerId};

/// The steps of an active run's current round that are under way. Its text is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of the round, from 0.
    pub round: u16,
    /// The number of steps; `None` until the plan is complete.
    pub steps: Option<usize>,
    /// The number of steps that have ended.
    pub ended: usize,
    /// The steps whose workers are at work, in order.
    pub running: Vec<RunningStep>,
}

/// A step whose worker is at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningStep {
    /// Its place in the plan.
    pub step: StepIndex,
    /// The worker.
    pub worker: WorkerId,
}

impl Run {
    /// The progress of its current round.
    pub fn progress(&self) -> Progress {
        let number = self.current_round();
        let Some(round) = self.rounds.last() else {
            return Progress { round: number, steps: None, ended: 0, running: Vec::new() };
        };
        let steps = (0..).map(StepIndex::new).zip(&round.steps);
        let running = steps.filter_map(|(step, found)| {
            let worker = self.worker_of(TaskRef::Step { round: number, step })?;
            let is_running = matches!(found.task.state, TaskState::Running { .. });
            is_running.then(|| RunningStep { step, worker: worker.clone() })
        });
        Progress {
            round: number,
            steps: round.plan().map(|plan| plan.steps().len()),
            ended: round.steps.iter().filter(|step| step.task.state.is_final()).count(),
            running: running.collect(),
        }
    }
}

/// Such as `step 2 of 3 by coder`; steps and rounds are counted from 1.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.round > 0 {
            write!(f, "round {}: ", self.round + 1)?;
        }
        let mut separator = "";
        if self.steps.is_none() {
            f.write_str("planning")?;
            separator = ", ";
        }
        for RunningStep { step, worker } in &self.running {
            write!(f, "{separator}step {step}")?;
            if let Some(steps) = self.steps {
                write!(f, " of {steps}")?;
            }
            write!(f, " by {worker}")?;
            separator = ", ";
        }
        match self.steps {
            Some(steps) if self.running.is_empty() => {
                write!(f, "waiting for a worker, {} of {steps} steps ended", self.ended)
            }
            _ => Ok(()),
        }
    }
}
