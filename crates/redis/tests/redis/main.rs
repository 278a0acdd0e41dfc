//! The limiter and the step cache on a real Redis.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

mod cache;
mod limits;
