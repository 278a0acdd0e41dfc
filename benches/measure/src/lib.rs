//! Measurements of whole clusters: CPU and memory by program, and the requests of a run to Postgres, NATS and Redis.
#![deny(missing_docs)]

mod cluster;
mod counts;
mod cpu;
mod http;

pub use cluster::{Backbone, Setting, name_programs, start_gateway, start_worker};
pub use counts::{Counts, Servers, count_statements};
pub use cpu::{CpuTimes, resident_bytes};
pub use http::{Connection, get, open};

/// Rounds to a thousandth.
pub fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
