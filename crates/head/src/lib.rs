//! The mini head: chooses one worker for a question from the conductor's hidden state, without decoding.
//!
//! A [`LinearHead`] is a matrix with one row per known worker and no bias. A worker's score is the product of its row and
//! the hidden state at the prompt's penultimate token. The head is stored in a safetensors file that names the workers,
//! weights and prompt that it was trained for; it cannot be used with others.
//!
//! [`train::train`] fits a head to recorded [`outcomes`]: first supervised, then by evolution on the reward. It compares the
//! head with a random and the best single worker on held-out questions.
//!
//! This crate is pure computation: no clock, no network, no model. The same data and seed give the same head on the same machine.
//! same head on the same machine.
#![deny(missing_docs)]

pub mod cma;
pub mod dataset;
pub mod features;
mod file;
mod head;
pub mod lbfgs;
pub mod outcomes;
pub mod score;
pub mod supervised;
pub mod train;

pub use dataset::{Dataset, DatasetError, Example};
pub use file::FileError;
pub use head::{HIDDEN_MAX, HeadError, LinearHead, NoChoice, OtherPool, Source, TIE_MARGIN};
