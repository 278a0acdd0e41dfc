//! The pure core of Podium: plans, pools, policies and runs, and the events that change a run.
//!
//! This crate never waits, reads a clock, draws random numbers, or does input or output: time and ids are arguments. So tests can
//! visit every state, and every run can be replayed from its events.
#![deny(missing_docs)]

pub mod agreement;
pub mod answer;
pub mod budget;
pub mod call_id;
pub mod cells;
pub mod content;
pub mod conversation;
pub mod ids;
pub mod limits;
pub mod money;
pub mod plan;
pub mod policy;
pub mod pool;
pub mod prices;
pub mod prompt;
pub mod rating;
pub mod rendezvous;
pub mod request;
pub mod required_features;
pub mod retry;
pub mod run;
pub mod sampling;
pub mod share;
pub mod split_mix;
pub mod stops;
pub mod time;
pub mod token_estimate;
pub mod tool_loop;
pub mod tools;
pub mod trace;
pub mod usage;
