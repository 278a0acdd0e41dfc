//! Buffers the text of the attempts that this process writes.

use std::collections::{BTreeMap, HashMap};

use podium_domain::ids::{ClaimId, RunId, StepIndex};
use podium_domain::policy::OUTPUT_BYTES_MAX;
use podium_ports::live::Frame;

/// Text by run, bounded in runs and bytes.
///
/// An attempt's text is buffered until a newer attempt at the same step begins in this process, or until its run is dropped:
/// beyond a bound, the run that was silent longest is. Text without its beginning, or beyond the limit of all policies, is not
/// buffered.
#[derive(Debug)]
pub(super) struct TextSoFar {
    runs_max: usize,
    bytes_max: usize,
    runs: HashMap<RunId, RunText>,
    bytes: usize,
    ticks: u64,
}

#[derive(Debug, Default)]
struct RunText {
    attempts: BTreeMap<(u16, StepIndex), Attempt>,
    last_tick: u64,
}

#[derive(Debug)]
struct Attempt {
    claim: ClaimId,
    text: String,
}

impl TextSoFar {
    pub(super) fn new(runs_max: usize, bytes_max: usize) -> Self {
        Self { runs_max, bytes_max, runs: HashMap::new(), bytes: 0, ticks: 0 }
    }

    /// Adds a piece.
    pub(super) fn hold(&mut self, run: RunId, frame: &Frame) {
        self.ticks += 1;
        let entry = self.runs.entry(run).or_default();
        entry.last_tick = self.ticks;
        let (before, after) = entry.hold(frame);
        self.bytes = self.bytes - before + after;
        if entry.attempts.is_empty() {
            self.runs.remove(&run);
        }
        self.evict(run);
    }

    /// Drops a run's text.
    pub(super) fn forget(&mut self, run: RunId) {
        if let Some(dropped) = self.runs.remove(&run) {
            self.bytes -= dropped.bytes();
        }
    }

    /// The text of each attempt at a step of the run, from its beginning.
    pub(super) fn of(&self, run: RunId) -> Vec<Frame> {
        let attempts = self.runs.get(&run).into_iter().flat_map(|entry| &entry.attempts);
        attempts
            .filter(|(_, attempt)| !attempt.text.is_empty())
            .map(|(&(round, step), attempt)| {
                let (claim, text) = (attempt.claim, attempt.text.clone());
                Frame { round, step, claim, offset: 0, text }
            })
            .collect()
    }

    /// Enforces the bounds: drops the run that was silent longest, and the current run only as a last resort.
    fn evict(&mut self, current: RunId) {
        while self.runs.len() > self.runs_max || self.bytes > self.bytes_max {
            let others = self.runs.iter().filter(|(run, _)| **run != current);
            let silent = others.min_by_key(|(_, entry)| entry.last_tick).map(|(run, _)| *run);
            self.forget(silent.unwrap_or(current));
        }
    }
}

impl RunText {
    fn bytes(&self) -> usize {
        self.attempts.values().map(|attempt| attempt.text.len()).sum()
    }

    /// Returns the attempt's bytes before and after this piece.
    fn hold(&mut self, frame: &Frame) -> (usize, usize) {
        let step = (frame.round, frame.step);
        match self.attempts.get_mut(&step) {
            Some(attempt) if attempt.claim == frame.claim => {
                let before = attempt.text.len();
                if attempt.accept(frame) {
                    return (before, attempt.text.len());
                }
                self.attempts.remove(&step);
                (before, 0)
            }
            replaced if frame.offset == 0 => {
                let before = replaced.map_or(0, |attempt| attempt.text.len());
                self.attempts.insert(step, Attempt { claim: frame.claim, text: frame.text.clone() });
                (before, frame.text.len())
            }
            // The middle of an attempt without its beginning does not replace a newer attempt.
            _ => (0, 0),
        }
    }
}

impl Attempt {
    /// Appends a piece. False if an earlier piece is missing, or the text would be too long.
    fn accept(&mut self, frame: &Frame) -> bool {
        // The piece may be a repetition, or overlap.
        let fresh = frame.after(self.text.len() as u64);
        let Some(fresh) = fresh.filter(|fresh| self.text.len() + fresh.len() <= OUTPUT_BYTES_MAX) else {
            return false;
        };
        self.text.push_str(fresh);
        true
    }
}

#[cfg(test)]
mod tests {
    use podium_ports::clock::Ids;
    use podium_testkit::{SeededIds, TestClock};

    use super::*;

    fn frame(claim: ClaimId, offset: u64, text: &str) -> Frame {
        Frame { round: 0, step: StepIndex::new(0), claim, offset, text: text.to_owned() }
    }

    #[test]
    fn the_text_of_silent_runs_is_dropped_beyond_the_bounds() {
        let ids = SeededIds::new(1);
        for mut text in [TextSoFar::new(3, usize::MAX), TextSoFar::new(usize::MAX, 3 * 4)] {
            let runs: Vec<_> = (0..10).map(|_| ids.run_id(TestClock::START)).collect();
            for run in &runs {
                text.hold(*run, &frame(ids.claim_id(), 0, "text"));
                // A run that is still written is not silent.
                let claim = text.of(runs[0])[0].claim;
                text.hold(runs[0], &frame(claim, 4, ""));
            }
            let held: Vec<_> = runs.iter().filter(|run| !text.of(**run).is_empty()).collect();
            assert_eq!(held, [&runs[0], &runs[8], &runs[9]]);
            assert_eq!(text.bytes, 3 * 4);
        }
    }

    #[test]
    fn a_single_attempt_cannot_exceed_the_bound() {
        let (ids, mut text) = (SeededIds::new(1), TextSoFar::new(10, 8));
        let (run, claim) = (ids.run_id(TestClock::START), ids.claim_id());
        text.hold(run, &frame(claim, 0, "12345678"));
        assert_eq!(text.of(run).len(), 1);
        text.hold(run, &frame(claim, 8, "9"));
        assert!(text.of(run).is_empty() && text.runs.is_empty());
        assert_eq!(text.bytes, 0);
    }

    #[test]
    fn an_attempt_with_a_gap_is_not_buffered() {
        let (ids, mut text) = (SeededIds::new(1), TextSoFar::new(10, 100));
        let (run, claim) = (ids.run_id(TestClock::START), ids.claim_id());
        text.hold(run, &frame(claim, 0, "abc"));
        text.hold(run, &frame(claim, 7, "gh"));
        text.hold(run, &frame(claim, 9, "ij"));
        assert!(text.runs.is_empty());
        assert_eq!(text.bytes, 0);
    }
}
