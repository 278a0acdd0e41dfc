//! The demonstration's workers: small programs that answer questions in English, and are no language models. `vendor-sim`
//! serves them in the vendors' wire formats.
//!
//! - [`skills`] solves tasks in English, and `language` parses them. [`errors`] makes some of the answers wrong.
//! - `panel` judges the answers of other workers: a voter, a checker and a merger.
//! - `conductor` is a program that splits a question into steps, for tests of what calls conductors.
//! - [`Model`] gives each of them a name.
#![deny(missing_docs)]

#[cfg(test)]
mod bank_tests;
mod conductor;
pub mod dice;
pub mod errors;
mod language;
mod models;
mod panel;
pub mod prompt;
pub mod skills;

pub use models::{Asked, Model};
