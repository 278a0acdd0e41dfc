//! Heads choose one worker, or one workflow, for a question from a vector of it, without decoding. The vector, called hidden state,
//! is the conductor's at the prompt's penultimate token, the output of a sentence encoder, or computed from the question's [`words`].
//!
//! There are three kinds of [`Head`]. A [`LinearHead`] is a matrix with one row per known worker and no bias. A
//! [`NeighboursHead`] remembers recorded questions and takes the mean over the most similar ones. A [`KernelHead`] is kernel
//! ridge regression over recorded questions. A head is stored in a safetensors file that names the workers, weights and prompt
//! that it was trained for; it cannot be used with others.
//!
//! [`train::train`] fits a head to recorded [`outcomes`], and compares it with a random and the best single worker on held-out
//! questions. [`folds::compare`] compares all kinds by cross-validation.
//!
//! This crate is pure computation: no clock, no network, no model. The same data and seed give the same head on the same machine.
#![deny(missing_docs)]

pub mod cma;
pub mod dataset;
pub mod derived;
pub mod features;
mod file;
pub mod folds;
mod head;
mod identity;
pub mod kernel;
pub mod lbfgs;
mod linear;
pub mod neighbours;
pub mod outcomes;
mod ridge;
pub mod score;
pub mod supervised;
pub mod text;
pub mod train;
mod vector;
pub mod words;

pub use dataset::{Dataset, DatasetError, Example, Recorded};
pub use file::FileError;
pub use head::Head;
pub use identity::{
    Choices, HIDDEN_MAX, HeadError, Identity, Input, Kind, MEMORY_VALUES_MAX, NoChoice, OtherPool, Source,
    TIE_MARGIN,
};
pub use kernel::KernelHead;
pub use linear::LinearHead;
pub use neighbours::NeighboursHead;
