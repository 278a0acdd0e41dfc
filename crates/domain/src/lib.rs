//! The pure core of Podium: what a plan, a pool, a policy and a run are, and what may happen to them.
//!
//! Nothing here waits, reads a clock, rolls dice or touches the outside: time and ids are arguments.
//! That is what lets every state be walked by a test and every run be replayed from its events.
#![deny(missing_docs)]

pub mod answer;
pub mod budget;
pub mod bundle;
pub mod content;
pub mod conversation;
pub mod ids;
pub mod limits;
pub mod money;
pub mod needs;
pub mod plan;
pub mod policy;
pub mod pool;
pub mod prices;
pub mod prompt;
pub mod rating;
pub mod run;
pub mod sampling;
pub mod share;
pub mod stops;
pub mod time;
pub mod usage;
