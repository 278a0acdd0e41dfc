//! The operations for clients: accept a run, watch it, read its answer, estimate its cost, rate it.

pub(crate) mod answer;
pub(crate) mod estimate;
pub(crate) mod history;
mod outages;
pub(crate) mod ratings;
pub(crate) mod readiness;
pub(crate) mod replies;
pub(crate) mod submit;
mod tool_loop;
pub(crate) mod wait_for_end;
pub(crate) mod watch;
