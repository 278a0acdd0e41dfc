//! Calls workers over HTTP: the adapter of the `Vendors` port.
//!
//! [`HttpVendors`] holds one endpoint for each vendor of a pool and speaks its wire format; everything above sees one
//! internal form. A new wire format is a module beside `openai` and a line in `HttpVendors::chat`; it converts to and
//! from the internal form and to nothing else.
//!
//! What this crate refuses to do: it repeats no call (the caller knows what a repetition costs, and when it may), it
//! judges no text, and it never lets a key into a log, an error or a `Debug` output.

mod call_clock;
mod client;
mod http_vendors;
mod keys;
mod openai;

pub use client::{Route, http_client};
pub use http_vendors::{BuildError, HttpVendors, WaitLimits};
pub use keys::{EnvironmentKeys, KeySource};
