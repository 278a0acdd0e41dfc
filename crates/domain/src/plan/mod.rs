//! Plans: from the text of a conductor to a workflow whose shape is valid.
//!
//! A conductor writes free text and then three lists of equal length, one element a step:
//!
//! ```text
//! model_id    = [2, 0]
//! subtasks    = ["Draft a proof.", "Check the proof."]
//! access_list = [[], ["all"]]
//! ```
//!
//! [`PlanStream`] parses that text while it is written, [`PlanDraft::parse`] parses it as a whole, with the same scanner. A
//! [`PlanDraft`] is the unchecked result. [`PlanDraft::check`] checks it against a pool and a policy and is the only way to create
//! a [`Plan`]. [`PlanDraft::head`] checks the part of a plan that is final while the rest is being written.
//!
//! The text may come from anywhere. Parsing takes time and memory in proportion to its length, never panics or recurses, and has a
//! named bound for everything that could grow.

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

/// Most bytes of text that are parsed for one plan.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most elements of one list, and of one list inside a list.
pub const LIST_ELEMENTS_MAX: usize = 10_000;
/// Deepest nesting of lists, including the outermost.
pub const LIST_DEPTH_MAX: usize = 8;
/// Most bytes of one subtask of a [`Plan`].
pub const SUBTASK_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests;
