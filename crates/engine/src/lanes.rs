//! Tasks between the store and the slots that work on them: published to the queue, taken from the backlog, served.

pub(crate) mod dispatcher;
pub(crate) mod publisher;
pub(crate) mod task;
