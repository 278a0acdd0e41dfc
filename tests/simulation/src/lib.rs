//! The engine under a deterministic simulation of its world: one seed is one world, on one thread, without real time or I/O.
//!
//! A world has nodes (gateways, planners and executors, or all in one), a store, a queue, a live stream, a step cache, vendors, a conductor
//! and clients. For a while all of them give trouble: answers are lost after their effect, messages come twice or never, nodes
//! die between any two polls or freeze past their leases, vendors hang. Then the world is healed and must come to rest.
//! What must hold is listed in [`Invariant`]; [`Mutation`] lists worlds that break a promise on purpose, each of which
//! an invariant must catch.
//!
//! Determinism: every node is a tokio runtime of its own that the world polls a few tasks at a time, there is no other clock
//! than the world's, all chance comes from the seed, and the engine keeps to it: its `select!`s are biased and what it iterates
//! over is ordered. Two executions of a seed give the same trace to the byte; a test holds them to it.
#![deny(missing_docs)]

mod budgets;
mod cache;
mod checker;
mod clients;
mod clocks;
mod conductor;
mod dice;
mod faults;
mod limits;
mod live;
mod mutation;
mod node;
mod queue;
mod simulation;
mod store;
mod trace;
mod troubles;
mod vendor;
mod world;

pub use checker::{Invariant, Violation};
pub use mutation::Mutation;
pub use simulation::{Report, Settings, simulate};
pub use trace::Tracing;

/// How to see a seed again.
pub fn command(seed: u64, mutation: Option<Mutation>) -> String {
    let broken = mutation.map(|mutation| format!(" --mutation {}", mutation.name())).unwrap_or_default();
    format!("cargo run -p podium-simulation -- --seed {seed} --trace{broken}")
}
