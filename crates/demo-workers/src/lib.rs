//! The demonstration's workers: small programs that answer questions in English, and are no language models. `vendor-sim`
//! serves them in the vendors' wire formats.
//!
//! - [`skills`] solves tasks in English, and `language` parses them. [`Generalist`] combines all skills and makes errors.
//! - `conductor` is a program that splits a question into steps, for tests of what calls conductors.
//! - [`Model`] gives each of them a name.
#![deny(missing_docs)]

#[cfg(test)]
mod bank_tests;
mod conductor;
pub mod dice;
mod generalist;
mod language;
mod models;
pub mod prompt;
pub mod skills;

pub use generalist::Generalist;
pub use models::Model;
