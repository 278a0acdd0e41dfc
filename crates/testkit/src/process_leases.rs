//! The leases of processes, for stores in a test's memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use podium_domain::ids::{ClaimId, ProcessId};
use podium_domain::run::TaskState;
use podium_domain::time::Timestamp;

/// The end of each process' lease, and the claims that count as expired whatever lease their process has.
#[derive(Debug, Default)]
pub struct ProcessLeases {
    until: BTreeMap<ProcessId, Timestamp>,
    disowned: BTreeSet<ClaimId>,
}

impl ProcessLeases {
    /// As [`TaskBoard::extend_lease`](podium_ports::store::TaskBoard::extend_lease).
    pub fn extend(&mut self, process: ProcessId, now: Timestamp, span: Duration) -> bool {
        self.until.insert(process, now.after(span)).is_some_and(|until| now < until)
    }

    /// Takes a claim that holds its task away from its process.
    pub fn disown(&mut self, claim: ClaimId) {
        self.disowned.insert(claim);
    }

    /// The claim that holds a task in this state, if its lease has expired at `now`.
    pub fn expired(&self, state: &TaskState, now: Timestamp) -> Option<ClaimId> {
        let TaskState::Running { claim, process, lease_until } = state else { return None };
        let until = match process {
            _ if self.disowned.contains(claim) => None,
            Some(process) => self.until.get(process).copied(),
            None => Some(*lease_until),
        };
        until.is_none_or(|until| now >= until).then_some(*claim)
    }
}
