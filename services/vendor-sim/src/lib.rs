//! A simulated vendor of language models for development and tests. It speaks the wire formats of OpenAI, Anthropic and
//! Google on loopback with scripted latency and faults. Its answers come from *skill workers*, which are small programs and
//! not language models.
//!
//! - `skills` solves tasks in English; `language` parses them; `generalist` combines all skills and makes errors.
//! - `http` implements the wire formats; `behaviour` scripts latency and faults; `calls` is the log for tests.
//! - [`VendorSim::start`] runs it within another process; the binary `vendor-sim` is a thin wrapper.

#[cfg(test)]
mod bank_tests;
mod behaviour;
mod calls;
mod conductor;
mod dice;
mod generalist;
mod http;
mod language;
mod models;
mod options;
pub mod prompt;
mod sim;
pub mod skills;

pub use behaviour::{
    Behaviour, BehaviourError, DELAY_MS_MAX, FAULTS_MAX, Fault, HUGE_BYTES_MAX, Milliseconds,
    STAMP_WORDS_MAX, ScriptedFault,
};
pub use calls::{CALLS_MAX, Call, Outcome};
pub use http::quota::{AccountLimit, AccountUse};
pub use models::Model;
pub use options::{Arguments, run};
pub use sim::{Exposure, GENERALIST_ACCURACY, Options, Running, StartError, VendorSim};
