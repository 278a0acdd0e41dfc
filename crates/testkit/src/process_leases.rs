//! The leases of processes, for stores in a test's memory.

use std::collections::BTreeMap;
use std::time::Duration;

use podium_domain::ids::{ClaimId, ProcessId};
use podium_domain::run::TaskState;
use podium_domain::time::Timestamp;

/// The end of each process' lease.
#[derive(Debug, Default)]
pub struct ProcessLeases(BTreeMap<ProcessId, Timestamp>);

impl ProcessLeases {
    /// As [`TaskBoard::extend_lease`](podium_ports::store::TaskBoard::extend_lease).
    pub fn extend(&mut self, process: ProcessId, now: Timestamp, span: Duration) -> bool {
        self.0.insert(process, now.after(span)).is_some_and(|until| now < until)
    }

    /// The claim that holds a task in this state, if its lease has expired at `now`.
    pub fn expired(&self, state: &TaskState, now: Timestamp) -> Option<ClaimId> {
        let TaskState::Running { claim, process, lease_until } = state else { return None };
        let until = match process {
            Some(process) => self.0.get(process).copied(),
            None => Some(*lease_until),
        };
        until.is_none_or(|until| now >= until).then_some(*claim)
    }
}
