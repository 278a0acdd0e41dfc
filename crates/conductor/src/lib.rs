//! Conductors that need no local model: a remote model, a workflow that a person wrote, and none at all.
//!
//! [`RemoteConductor`] asks any model that workers can be called like. [`FixedConductor`] always gives the same workflow,
//! read from a YAML file. [`DirectConductor`] hands the question to one worker as it is. All three end in
//! `PlanDraft::check`; none of them repairs or guesses a plan, and none falls back to another: that is the engine's part.

mod direct;
mod fixed;
mod remote;

pub use direct::DirectConductor;
pub use fixed::{FixedConductor, WORKFLOW_BYTES_MAX, WorkflowError};
pub use remote::{RemoteConductor, RemoteOptions};
