//! Tracks the runs with recent signals, which may have been lost with a connection.

use std::collections::HashSet;
use std::time::Duration;

use podium_domain::ids::RunId;
use tokio::time::Instant;

/// Longest time until a dead connection is detected; messages written in that time are lost.
const UNSURE_FOR: Duration = Duration::from_secs(20);

/// Runs whose watchers may have missed signals. Bounded: beyond it the oldest runs are forgotten.
#[derive(Debug)]
pub(super) struct Told {
    runs_max: usize,
    /// Runs with signals in the current period, and in the previous one.
    current: HashSet<RunId>,
    before: HashSet<RunId>,
    since: Instant,
    /// Runs with signals that were certainly dropped.
    owed: HashSet<RunId>,
}

impl Told {
    pub(super) fn new(runs_max: usize) -> Self {
        let (current, before, owed) = (HashSet::new(), HashSet::new(), HashSet::new());
        Self { runs_max, current, before, since: Instant::now(), owed }
    }

    /// Records a written signal.
    pub(super) fn sent(&mut self, run: RunId) {
        if self.since.elapsed() > UNSURE_FOR || self.current.len() >= self.runs_max {
            self.before = std::mem::take(&mut self.current);
            self.since = Instant::now();
        }
        self.current.insert(run);
    }

    /// Records a dropped signal. False if that is already recorded, or the bound is reached.
    pub(super) fn dropped(&mut self, run: RunId) -> bool {
        self.owed.len() < self.runs_max && self.owed.insert(run)
    }

    /// Records the loss of the connection: recent signals may not have arrived.
    pub(super) fn lost(&mut self) {
        let unsure = self.current.drain().chain(self.before.drain());
        self.owed.extend(unsure.take(self.runs_max));
    }

    /// Takes the runs whose watchers must be notified of missed signals.
    pub(super) fn take_owed(&mut self) -> Vec<RunId> {
        self.owed.drain().collect()
    }
}

#[cfg(test)]
mod tests {
    use podium_ports::clock::Ids;
    use podium_testkit::{SeededIds, TestClock};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_sent_just_before_a_loss_is_owed() {
        let (ids, mut told) = (SeededIds::new(1), Told::new(100));
        let [old, late, last] = [(); 3].map(|()| ids.run_id(TestClock::START));
        told.sent(old);
        for run in [late, last] {
            tokio::time::advance(2 * UNSURE_FOR).await;
            told.sent(run);
        }
        assert!(told.take_owed().is_empty());
        told.lost();
        let owed: HashSet<_> = told.take_owed().into_iter().collect();
        assert_eq!(owed, HashSet::from([late, last]));
        told.lost();
        assert!(told.take_owed().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_runs_take_no_more_room_than_they_may() {
        let (ids, mut told) = (SeededIds::new(1), Told::new(10));
        for _ in 0..1000 {
            let run = ids.run_id(TestClock::START);
            told.sent(run);
            told.dropped(run);
        }
        assert_eq!(told.owed.len(), 10);
        assert!(told.current.len() + told.before.len() <= 20);
        told.lost();
        assert!(told.take_owed().len() <= 20);
    }
}
