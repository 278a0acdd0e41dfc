//! Merges the buffered text from the processes' answers with live text.
//!
//! The two overlap and arrive in any order. A watcher receives no text of an attempt twice. It sees a gap only if no process
//! answers with the missing text.

use std::collections::{HashMap, VecDeque};

use podium_domain::ids::ClaimId;
use podium_ports::live::{Frame, Signal};

/// Most attempts of a run whose text is tracked. Beyond it all attempts are treated as new.
const ATTEMPTS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Merge {
    /// Bytes of each attempt that were passed on.
    known: HashMap<ClaimId, u64>,
    /// A live piece that begins after the end of the known text, and all signals after it.
    held: VecDeque<Signal>,
    out: VecDeque<Signal>,
}

impl Merge {
    /// Adds a live signal. [`Signal::Missed`] drops the waiting signals, because the watcher then subscribes again.
    pub(super) fn live(&mut self, signal: Signal) {
        if signal == Signal::Missed {
            self.held.clear();
        }
        self.held.push_back(signal);
        self.pass_what_follows();
    }

    /// Adds buffered text of an answer.
    pub(super) fn answer(&mut self, frame: &Frame) {
        self.pass(frame);
        self.pass_what_follows();
    }

    /// Passes on all waiting signals, because no answer will come.
    pub(super) fn release(&mut self) {
        while let Some(signal) = self.held.pop_front() {
            match signal {
                Signal::Frame(frame) => self.pass(&frame),
                signal => self.out.push_back(signal),
            }
        }
    }

    /// Number of signals that wait for an answer.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// The next signal to pass on.
    pub(super) fn next(&mut self) -> Option<Signal> {
        self.out.pop_front()
    }

    fn pass_what_follows(&mut self) {
        while let Some(signal) = self.held.pop_front() {
            match signal {
                Signal::Frame(frame) if frame.offset > self.known_of(frame.claim) => {
                    self.held.push_front(Signal::Frame(frame));
                    return;
                }
                Signal::Frame(frame) => self.pass(&frame),
                signal => self.out.push_back(signal),
            }
        }
    }

    fn known_of(&self, claim: ClaimId) -> u64 {
        self.known.get(&claim).copied().unwrap_or(0)
    }

    /// Passes on the unknown part of a piece.
    fn pass(&mut self, frame: &Frame) {
        let begin = self.known_of(frame.claim).max(frame.offset);
        // Pieces of a text are cut between characters; others are invalid and ignored.
        let Some(text) = frame.after(begin).filter(|text| !text.is_empty()) else { return };
        if self.known.len() >= ATTEMPTS_MAX && !self.known.contains_key(&frame.claim) {
            self.known.clear();
        }
        self.known.insert(frame.claim, begin + text.len() as u64);
        let Frame { round, step, claim, .. } = *frame;
        let text = text.to_owned();
        self.out.push_back(Signal::Frame(Frame { round, step, claim, offset: begin, text }));
    }
}

#[cfg(test)]
mod tests {
    use podium_domain::ids::StepIndex;
    use podium_ports::clock::Ids;
    use podium_testkit::SeededIds;

    use super::*;

    struct Scene {
        merge: Merge,
        claim: ClaimId,
    }

    fn a_scene() -> Scene {
        Scene { merge: Merge::default(), claim: SeededIds::new(1).claim_id() }
    }

    impl Scene {
        fn frame(&self, offset: u64, text: &str) -> Frame {
            Frame { round: 0, step: StepIndex::new(0), claim: self.claim, offset, text: text.to_owned() }
        }

        fn live(&mut self, offset: u64, text: &str) {
            self.merge.live(Signal::Frame(self.frame(offset, text)));
        }

        fn answer(&mut self, offset: u64, text: &str) {
            self.merge.answer(&self.frame(offset, text));
        }

        fn passed(&mut self) -> Vec<(u64, String)> {
            std::iter::from_fn(|| self.merge.next())
                .map(|signal| match signal {
                    Signal::Frame(frame) => (frame.offset, frame.text),
                    signal => (u64::MAX, format!("{signal:?}")),
                })
                .collect()
        }
    }

    fn piece(offset: u64, text: &str) -> (u64, String) {
        (offset, text.to_owned())
    }

    #[test]
    fn a_live_piece_waits_for_earlier_text_and_delays_later_signals() {
        let mut scene = a_scene();
        scene.live(2, "c");
        scene.merge.live(Signal::Committed { version: 2 });
        scene.live(3, "d");
        assert_eq!((scene.passed(), scene.merge.held()), (vec![], 3));
        scene.answer(0, "abc");
        assert_eq!(
            scene.passed(),
            [piece(0, "abc"), piece(u64::MAX, "Committed { version: 2 }"), piece(3, "d")]
        );
        assert_eq!(scene.merge.held(), 0);
    }

    #[test]
    fn a_missed_signal_is_passed_on_at_once() {
        let mut scene = a_scene();
        scene.live(2, "c");
        scene.merge.live(Signal::Missed);
        assert_eq!((scene.passed(), scene.merge.held()), (vec![piece(u64::MAX, "Missed")], 0));
    }

    #[test]
    fn no_text_is_passed_on_twice() {
        let mut scene = a_scene();
        scene.live(0, "ab");
        scene.answer(0, "abcd");
        scene.live(1, "bc");
        scene.live(3, "de");
        scene.answer(0, "abcd");
        assert_eq!(scene.passed(), [piece(0, "ab"), piece(2, "cd"), piece(4, "e")]);
    }

    #[test]
    fn a_watcher_sees_one_gap_if_no_process_answers() {
        let mut scene = a_scene();
        scene.live(5, "fg");
        scene.merge.release();
        scene.live(7, "h");
        assert_eq!(scene.passed(), [piece(5, "fg"), piece(7, "h")]);
        scene.live(9, "j");
        assert_eq!(scene.passed(), []);
    }
}
