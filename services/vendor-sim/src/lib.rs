//! A vendor of language models for development and tests: speaks the wire formats of OpenAI, Anthropic and Google on
//! loopback, with scripted latency and faults, and answers with *skill workers*, which are small programs and no language
//! models.
//!
//! - `skills` solves tasks stated in English; `language` is how it reads them; `generalist` composes all skills and errs.
//! - `http` speaks the wire formats; `behaviour` scripts latency and faults; `calls` is the log that tests count in.
//! - [`VendorSim::start`] runs it inside another process; the binary `vendor-sim` is a thin wrapper.

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
