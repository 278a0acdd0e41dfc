//! Runs that came to this process as offers.

use std::collections::{HashMap, VecDeque};

use podium_domain::ids::RunId;

/// Where the word of an offered run's end goes, and whether nothing but that is told of it. Bounded: beyond it the first is told
/// of as any run is, and who offered it has to ask the store.
#[derive(Debug)]
pub(super) struct Taken {
    runs_max: usize,
    runs: HashMap<RunId, Offerer>,
    /// In the order of their coming.
    order: VecDeque<RunId>,
}

#[derive(Debug)]
struct Offerer {
    subject: String,
    is_hushed: bool,
}

impl Taken {
    pub(super) fn new(runs_max: usize) -> Self {
        Self { runs_max, runs: HashMap::new(), order: VecDeque::new() }
    }

    /// An offer came, of somebody who hears of it on `subject`. Nobody else waits for anything of it, unless it came before.
    pub(super) fn take(&mut self, run: RunId, subject: String) {
        if let Some(known) = self.runs.get_mut(&run) {
            known.subject = subject;
            return;
        }
        self.runs.insert(run, Offerer { subject, is_hushed: true });
        self.order.push_back(run);
        if self.order.len() > self.runs_max
            && let Some(first) = self.order.pop_front()
        {
            self.runs.remove(&first);
        }
    }

    /// Where its end is waited for by who offered it.
    pub(super) fn offerer(&self, run: RunId) -> Option<&str> {
        self.runs.get(&run).map(|offerer| offerer.subject.as_str())
    }

    pub(super) fn is_hushed(&self, run: RunId) -> bool {
        self.runs.get(&run).is_some_and(|offerer| offerer.is_hushed)
    }

    /// Somebody watches the run; whether that is news.
    pub(super) fn is_watched(&mut self, run: RunId) -> bool {
        self.runs.get_mut(&run).is_some_and(|offerer| std::mem::take(&mut offerer.is_hushed))
    }
}

#[cfg(test)]
mod tests {
    use podium_ports::clock::Ids;
    use podium_testkit::{SeededIds, TestClock};

    use super::*;

    #[test]
    fn a_run_is_hushed_until_it_is_watched_and_forgotten_when_too_many_came_after_it() {
        let (ids, mut taken) = (SeededIds::new(1), Taken::new(3));
        let runs = [(); 5].map(|()| ids.run_id(TestClock::START));
        for run in runs {
            taken.take(run, "first".to_owned());
            taken.take(run, format!("end.{run}"));
        }
        assert_eq!(runs.map(|run| taken.is_hushed(run)), [false, false, true, true, true]);
        assert!(taken.is_watched(runs[3]));
        assert!(!taken.is_watched(runs[3]) && !taken.is_watched(runs[0]));
        assert_eq!(runs.map(|run| taken.is_hushed(run)), [false, false, true, false, true]);
        taken.take(runs[3], format!("end.{}", runs[3]));
        assert!(!taken.is_hushed(runs[3]), "it came once more, and is watched all the same");
        assert_eq!(taken.offerer(runs[3]), Some(format!("end.{}", runs[3]).as_str()));
        assert_eq!(taken.offerer(runs[0]), None);
        assert!(taken.runs.len() <= 3 && taken.order.len() <= 3);
    }
}
