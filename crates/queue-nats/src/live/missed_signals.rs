//! Tracks the runs with recent signals, which may have been lost with a connection.

use std::collections::HashSet;
use std::time::Duration;

use podium_domain::ids::RunId;
use tokio::time::Instant;

/// Longest time until a dead connection is detected; messages written in that time are lost.
const UNSURE_FOR: Duration = Duration::from_secs(20);

/// Runs whose watchers may have missed signals. Beyond its bound, it drops the oldest runs.
#[derive(Debug)]
pub(super) struct MissedSignals {
    runs_max: usize,
    /// Runs with signals in the current period, and in the previous one.
    current: HashSet<RunId>,
    before: HashSet<RunId>,
    since: Instant,
    /// Runs with signals that were certainly dropped.
    due: HashSet<RunId>,
}

impl MissedSignals {
    pub(super) fn new(runs_max: usize) -> Self {
        let (current, before, due) = (HashSet::new(), HashSet::new(), HashSet::new());
        Self { runs_max, current, before, since: Instant::now(), due }
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
        self.due.len() < self.runs_max && self.due.insert(run)
    }

    /// Records the loss of the connection: recent signals may not have arrived.
    pub(super) fn lost(&mut self) {
        let unsure = self.current.drain().chain(self.before.drain());
        self.due.extend(unsure.take(self.runs_max));
    }

    /// Takes the runs whose watchers must be notified of missed signals.
    pub(super) fn take_due(&mut self) -> Vec<RunId> {
        self.due.drain().collect()
    }
}

#[cfg(test)]
mod tests {
    use podium_ports::clock::Ids;
    use podium_testkit::{SeededIds, TestClock};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn signals_sent_just_before_a_loss_count_as_missed() {
        let (ids, mut missed) = (SeededIds::new(1), MissedSignals::new(100));
        let [old, late, last] = [(); 3].map(|()| ids.run_id(TestClock::START));
        missed.sent(old);
        for run in [late, last] {
            tokio::time::advance(2 * UNSURE_FOR).await;
            missed.sent(run);
        }
        assert!(missed.take_due().is_empty());
        missed.lost();
        let due: HashSet<_> = missed.take_due().into_iter().collect();
        assert_eq!(due, HashSet::from([late, last]));
        missed.lost();
        assert!(missed.take_due().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_tracked_runs_is_bounded() {
        let (ids, mut missed) = (SeededIds::new(1), MissedSignals::new(10));
        for _ in 0..1000 {
            let run = ids.run_id(TestClock::START);
            missed.sent(run);
            missed.dropped(run);
        }
        assert_eq!(missed.due.len(), 10);
        assert!(missed.current.len() + missed.before.len() <= 20);
        missed.lost();
        assert!(missed.take_due().len() <= 20);
    }
}
