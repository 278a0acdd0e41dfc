//! The object `podium`, by which Podium extends the vendors' APIs.

mod request;
mod response;

pub(crate) use request::bound;
pub(crate) use response::{FailureBody, RunBody};
