//! Calls workers over HTTP: the adapter of the `Vendors` port.
//!
//! [`HttpVendors`] holds one endpoint for each vendor of a pool; each worker says its wire format, and everything above sees
//! one internal form. A wire format is a module (`openai_chat`, `openai_responses`, `anthropic`, `gemini`) that converts to
//! and from the internal form and to nothing else. What they share: `endpoint` makes the call, `answer` and `sse` turn bytes
//! into the pieces that a format's decoder reads, `faults` and `retry_after` read what went wrong, and `demands` refuses
//! what a worker does not take before anything is sent.
//!
//! What this crate refuses to do: it repeats no call that a vendor took (the caller knows what a repetition costs), it
//! judges no text, and it never lets a key into a log, an error or a `Debug` output.

mod additions;
mod answer;
mod anthropic;
mod call_clock;
mod certificates;
mod client;
mod demands;
mod endpoint;
mod faults;
mod form;
mod gemini;
mod google_rpc;
mod halves;
mod http_vendors;
mod keys;
mod lenient;
mod openai_chat;
mod openai_responses;
mod quota;
mod retry_after;
mod sse;

#[cfg(test)]
mod golden_errors;
#[cfg(test)]
mod golden_tests;

pub use client::{Route, http_client};
pub use http_vendors::{BuildError, HttpVendors};
pub use keys::{EnvironmentKeys, KeySource};
