//! Lanes: processes publish tasks to them, and processes with free slots take tasks from them.

pub(crate) mod dispatcher;
pub(crate) mod publisher;
pub(crate) mod serve;
pub(crate) mod slots;
