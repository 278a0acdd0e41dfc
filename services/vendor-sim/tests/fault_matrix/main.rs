//! Vendor faults in each wire format, streamed and unstreamed: the adapters' results and the engine's reaction.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

mod adapter;
mod authority;
mod cases;
mod engine;
mod house;
mod roots;
