//! What keeps the store and the queue in order, whatever the process is for: sweeps, settlement, retention, supervision.

pub(crate) mod retention;
pub(crate) mod settler;
pub(crate) mod supervision;
pub(crate) mod sweeper;
pub(crate) mod unreadable;
