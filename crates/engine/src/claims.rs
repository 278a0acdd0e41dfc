//! The claims that this process holds, and their leases.

pub(crate) mod leases;
