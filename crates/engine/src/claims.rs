//! Claims: a process claims a task before any work on it, extends its lease during the work, and records the result.

pub(crate) mod claim;
pub(crate) mod leases;
pub(crate) mod record;
pub(crate) mod settle;
