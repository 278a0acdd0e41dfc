//! Calls workers over HTTP: the adapter of the `Vendors` port.
//!
//! [`HttpVendors`] has one endpoint for each vendor of a pool. Each worker names its wire format; all code above this crate
//! sees one internal form. `format` has a module for each wire format
//! (`openai_chat`, `openai_responses`, `anthropic`, `gemini`), which converts between its own form and the internal one. They
//! share: `endpoint` makes the call, `answer` and `sse` turn bytes into the pieces that a format's decoder reads, `errors` and `retry_after` interpret errors, and `capability_check`
//! rejects what a worker does not accept before anything is sent.
//!
//! This crate never repeats a call that a vendor accepted (the caller knows what a repetition costs), never judges a text,
//! and never lets a key into a log, an error or a `Debug` output.

mod additions;
mod answer;
mod call_clock;
mod capability_check;
mod certificates;
mod client;
mod endpoint;
mod errors;
mod format;
mod google_rpc;
mod http_vendors;
mod keys;
mod lenient;
mod quota;
mod retry_after;
mod shared_fields;
mod sse;
mod surrogates;

#[cfg(test)]
mod golden_errors;
#[cfg(test)]
mod golden_tests;

pub use client::{Route, http_client};
pub use http_vendors::{BuildError, HttpVendors};
pub use keys::{EnvironmentKeys, KeySource};
