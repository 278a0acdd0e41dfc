//! Tools for tests: conformance suites for the ports, scripted vendors and conductors, and runs made in one line. Only tests and
//! benchmarks depend on it; a mistake in a test's script panics, which fails the test.
#![deny(missing_docs)]
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test's failure is a panic")]

pub mod accounts;
mod builders;
mod clock;
mod conductor;
mod gate;
mod ids;
pub mod limiter;
pub mod live_stream;
pub mod metrics;
pub mod objects;
mod open_limiter;
pub mod operations;
mod process_leases;
pub mod ratings;
pub mod run_store;
pub mod step_cache;
pub mod step_queue;
mod store;
mod task_rows;
mod vendor;

pub use builders::{
    Driven, a_plan, a_planned, a_pool, a_pool_with_tools, a_result, a_spec, a_spec_with_tools, a_tenant,
    a_worker, an_asker, an_ended_run, head_of, plan_of,
};
pub use clock::TestClock;
pub use conductor::{Planning, ScriptedConductor};
pub use gate::Gate;
pub use ids::SeededIds;
pub use open_limiter::{OpenLimiter, Requested};
pub use process_leases::ProcessLeases;
pub use store::TestStore;
pub use task_rows::TaskRows;
pub use vendor::{Answer, Fault, ScriptedVendor};
