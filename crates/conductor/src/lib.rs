//! Conductors without a local model: a remote model, a workflow written by a person, a choice among such workflows, and no planning.
//!
//! [`RemoteConductor`] asks any model that can be called as a worker. [`FixedConductor`] always returns the same workflow,
//! read from a YAML file. [`DirectConductor`] sends the question unchanged to one worker. All check plans with
//! `PlanDraft::check`. [`WorkflowHead`] lets a trained head choose among workflows. None repairs or guesses a plan, and none falls back to another: the engine does that.

mod direct;
mod fixed;
mod remote;
mod workflows;

pub use direct::DirectConductor;
pub use fixed::{FixedConductor, WORKFLOW_BYTES_MAX, WorkflowError};
pub use remote::{RemoteConductor, RemoteOptions};
pub use workflows::{PLANNED, Planner, SetError, WORKFLOWS_MAX, WorkflowHead, WorkflowSet};
