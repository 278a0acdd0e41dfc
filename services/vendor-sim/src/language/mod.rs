//! How the skills read English: tokens, patterns over them, references to earlier outputs, and the reader that
//! reduces a text operation by operation. The rules come from `skills`, which also know what a unit or a fact is.

pub(crate) mod pattern;
pub(crate) mod reader;
pub(crate) mod reference;
pub(crate) mod slot;
pub(crate) mod token;
