//! The mini head: chooses one worker for a question from the conductor's hidden state, without decoding.
//!
//! A [`LinearHead`] is a matrix of one row for each worker that it knows, without a bias: a worker's score is the product of its
//! row with the hidden state at the penultimate token of the prompt. It is read from and written to a safetensors file that
//! says for which workers, which weights and which prompt it was trained; to anything else it does not apply.
//!
//! [`train::train`] fits one to recorded [`outcomes`]: first by supervision, then by evolution on the reward, and measures it
//! on questions that it has not seen beside a random and the best single worker.
//!
//! Everything in here computes on what it is given: no clock, no network, no model. The same data and the same seed give the
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
