//! The runs that nobody watches, as far as is known here.

use std::collections::{HashSet, VecDeque};

use podium_domain::ids::RunId;

/// Runs of which nothing is told but the end. Bounded: beyond it the first is told of again, as any run is.
#[derive(Debug)]
pub(super) struct Hushed {
    runs_max: usize,
    runs: HashSet<RunId>,
    /// In the order of their coming. It may name runs that are not hushed any more.
    order: VecDeque<RunId>,
}

impl Hushed {
    pub(super) fn new(runs_max: usize) -> Self {
        Self { runs_max, runs: HashSet::new(), order: VecDeque::new() }
    }

    pub(super) fn hush(&mut self, run: RunId) {
        if !self.runs.insert(run) {
            return;
        }
        self.order.push_back(run);
        if self.order.len() > self.runs_max
            && let Some(first) = self.order.pop_front()
        {
            self.runs.remove(&first);
        }
    }

    pub(super) fn is_hushed(&self, run: RunId) -> bool {
        self.runs.contains(&run)
    }

    /// Somebody watches the run; whether that is news.
    pub(super) fn is_watched(&mut self, run: RunId) -> bool {
        self.runs.remove(&run)
    }
}

#[cfg(test)]
mod tests {
    use podium_ports::clock::Ids;
    use podium_testkit::{SeededIds, TestClock};

    use super::*;

    #[test]
    fn a_run_is_hushed_until_it_is_watched_or_too_many_came_after_it() {
        let (ids, mut hushed) = (SeededIds::new(1), Hushed::new(3));
        let runs = [(); 5].map(|()| ids.run_id(TestClock::START));
        for run in runs {
            hushed.hush(run);
            hushed.hush(run);
        }
        assert_eq!(runs.map(|run| hushed.is_hushed(run)), [false, false, true, true, true]);
        assert!(hushed.is_watched(runs[3]));
        assert!(!hushed.is_watched(runs[3]) && !hushed.is_watched(runs[0]));
        assert_eq!(runs.map(|run| hushed.is_hushed(run)), [false, false, true, false, true]);
        assert!(hushed.runs.len() <= 3 && hushed.order.len() <= 3);
    }
}
