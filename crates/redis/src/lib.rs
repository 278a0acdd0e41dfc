//! Redis: the limiter and the step cache that the processes of a cluster share.
//!
//! Credentials are in the URL only. No error and no `Debug` output contains it; of Redis's error answers only the code is shown.
#![deny(missing_docs)]

pub mod cache;
pub mod limits;

mod connection;
mod failure;
