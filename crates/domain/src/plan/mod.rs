//! Plans: from the text that a conductor writes to a workflow that cannot be wrong in shape.
//!
//! A conductor writes free text and then three lists of equal length, one element a step:
//!
//! ```text
//! model_id    = [2, 0]
//! subtasks    = ["Draft a proof.", "Check the proof."]
//! access_list = [[], ["all"]]
//! ```
//!
//! [`PlanStream`] reads that as it is written, [`PlanDraft::parse`] reads it whole; both are one scanner. A
//! [`PlanDraft`] is what was written, right or wrong. [`PlanDraft::check`] holds it against a pool and a policy and is
//! the only way to a [`Plan`]. [`PlanDraft::head`] checks what of a plan is final while the rest is being written.
//!
//! Text of any origin may be given: reading takes time and memory in proportion to its length, never panics, never
//! recurses on it, and has a named bound for all that could grow.

mod check;
mod draft;
mod element;
mod group;
mod head;
mod label;
mod literal;
mod parse_error;
mod steps;
mod stream;
mod text;

pub use check::PlanError;
pub use draft::{Field, PlanDraft, PlanPiece, RawAccess, RawId};
pub use head::{LastStep, PlanHead};
pub use parse_error::ParseError;
pub use steps::{AccessList, Plan, Step};
pub use stream::PlanStream;

/// Most bytes of text that are read for one plan.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most elements of one list, and of one list inside a list.
pub const LIST_ELEMENTS_MAX: usize = 10_000;
/// Deepest nesting of lists, the outermost counted.
pub const LIST_DEPTH_MAX: usize = 8;
/// Most bytes of one subtask of a [`Plan`].
pub const SUBTASK_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests;
