//! The limiter on a real Redis: the requirements of every limiter, several processes, and behaviour when Redis loses data or is
//! unreachable.

mod batching;
mod conformance;
mod outage;
mod refusal;
mod several;
mod sharing;
mod support;
