//! Which workers had room whenever they were asked for it, and answered: their next permit needs not be waited for before a
//! claim.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use podium_domain::ids::WorkerId;
use podium_domain::time::Timestamp;

/// How long a refusal, or a call that failed, says that there may be no room. Where a limit is reached, refusals come far more often: whoever waits asks
/// again every few seconds.
const SCARCE: Duration = Duration::from_secs(10);

/// By what this process was answered: each worker that was asked for, and when it was refused or failed last.
#[derive(Debug, Default)]
pub(super) struct Headroom {
    refused: Mutex<HashMap<WorkerId, Option<Timestamp>>>,
}

impl Headroom {
    /// A permit was asked for; or a call failed, which may close the worker to others.
    pub(super) fn note(&self, worker: &WorkerId, is_granted: bool, now: Timestamp) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match refused.get_mut(worker) {
            Some(_) if is_granted => {}
            Some(at) => *at = Some(now),
            None => drop(refused.insert(worker.clone(), (!is_granted).then_some(now))),
        }
    }

    /// Whether the next permit will be granted, as far as can be told: one was asked for, and none was refused of late.
    pub(super) fn is_likely(&self, worker: &WorkerId, now: Timestamp) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get(worker).is_some_and(|at| at.is_none_or(|at| now.since(at) >= SCARCE))
    }
}

#[cfg(test)]
mod tests {
    use podium_testkit::{TestClock, a_pool};

    use super::*;

    #[test]
    fn who_was_never_asked_for_or_refused_of_late_may_have_no_room() {
        let (headroom, now, pool) = (Headroom::default(), TestClock::START, a_pool());
        let [one, other] = [0, 1].map(|index| &pool.workers()[index].id);
        assert!(!headroom.is_likely(one, now), "nobody knows");
        headroom.note(one, true, now);
        assert!(headroom.is_likely(one, now) && !headroom.is_likely(other, now));
        headroom.note(one, false, now);
        headroom.note(one, true, now.after(SCARCE / 2));
        assert!(!headroom.is_likely(one, now.after(SCARCE / 2)), "a permit does not undo a refusal");
        assert!(headroom.is_likely(one, now.after(SCARCE)));
        headroom.note(other, false, now);
        assert!(!headroom.is_likely(other, now));
    }
}
