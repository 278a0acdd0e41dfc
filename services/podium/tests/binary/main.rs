//! Tests of the real binary: its command line, and its runs after its process was killed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

mod admin;
mod bundles;
mod client;
mod command_line;
mod compare;
mod doctor;
mod documents;
mod fetch;
#[cfg(feature = "llama")]
mod gpu;
mod keys;
mod log_level;
mod many_calls;
mod migrate;
mod mini_head;
mod pool_change;
mod ratings;
mod rollout;
mod shipped_pools;
mod support;
mod survives_kill;
#[cfg(target_os = "linux")]
mod unread_answers;
