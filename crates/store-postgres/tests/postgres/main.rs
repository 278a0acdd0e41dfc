//! The store on a real Postgres.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

mod conformance;
mod contention;
mod damage;
mod migrating;
mod opening;
mod outage;
mod tasks;

use podium_domain::run::TaskRef;

/// The planning of the first round.
const PLAN: TaskRef = TaskRef::Plan { round: 0 };
