//! Claims: a task is claimed before any work on it, its lease is extended meanwhile, and its result is recorded.

pub(crate) mod claim;
pub(crate) mod leases;
pub(crate) mod record;
pub(crate) mod settle;
