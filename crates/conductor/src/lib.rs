//! Conductors without a local model: a remote model, a workflow written by a person, and no planning at all.
//!
//! [`RemoteConductor`] asks any model that can be called as a worker. [`FixedConductor`] always returns the same workflow,
//! read from a YAML file. [`DirectConductor`] sends the question unchanged to one worker. All three check plans with
//! `PlanDraft::check`. None repairs or guesses a plan, and none falls back to another: the engine does that.

mod direct;
mod fixed;
mod remote;

pub use direct::DirectConductor;
pub use fixed::{FixedConductor, WORKFLOW_BYTES_MAX, WorkflowError};
pub use remote::{RemoteConductor, RemoteOptions};
