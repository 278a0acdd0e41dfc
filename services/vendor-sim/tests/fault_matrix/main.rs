//! What goes wrong at a vendor, in each wire format, streamed and not: what our adapters make of it, and what the engine does.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

mod adapter;
mod authority;
mod cases;
mod engine;
mod house;
mod roots;
