//! The engine under a deterministic simulation of its world: one seed is one world, on one thread, without real time or I/O.
//!
//! A world has nodes (gateways, planners and executors, or all in one), a store, a queue, a live stream, a step cache, vendors, a conductor
//! and clients. At first all of them have faults: answers are lost after their effect, messages come twice or never, nodes die
//! between any two polls or freeze past their leases, vendors hang. Then the faults end, and the world must come to rest.
//! [`Invariant`] lists the properties that must hold. [`Mutation`] lists worlds that break a promise on purpose; an invariant
//! must catch each of them.
//!
//! Determinism: every node is a separate tokio runtime, which the world polls a few tasks at a time. The world's clock is the only
//! one, and all randomness comes from the seed. The engine cooperates: its `select!`s are biased, and it iterates over ordered
//! collections only. Two executions of a seed give the same trace to the byte, which a test checks.
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

/// The command that repeats a seed and prints its trace.
pub fn command(seed: u64, mutation: Option<Mutation>) -> String {
    let broken = mutation.map(|mutation| format!(" --mutation {}", mutation.name())).unwrap_or_default();
    format!("cargo run -p podium-simulation -- --seed {seed} --trace{broken}")
}
