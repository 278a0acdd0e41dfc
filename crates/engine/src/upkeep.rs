//! The upkeep of the store and the queue in every process: sweeps, settlement, retention, supervision.

pub(crate) mod load_reader;
pub(crate) mod retention;
pub(crate) mod settler;
pub(crate) mod supervision;
pub(crate) mod sweeper;
