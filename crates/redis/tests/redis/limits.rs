//! The limiter on a real Redis: what every limiter must do, what several processes share, and what happens when Redis forgets
//! or goes.

mod batching;
mod conformance;
mod outage;
mod refusal;
mod several;
mod sharing;
mod support;
