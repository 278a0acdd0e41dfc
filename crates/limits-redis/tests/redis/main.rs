//! The limiter on a real Redis: what every limiter must do, what several processes share, and what happens when Redis forgets
//! or goes.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

mod conformance;
mod gathering;
mod house;
mod outage;
mod refusal;
mod several;
mod sharing;
