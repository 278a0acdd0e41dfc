//! Decides when text is published: only while its run has watchers, and joined into larger pieces.
//!
//! A process is not notified when the last watcher of a run leaves. It probes for watchers: if a message has a reply subject and
//! no subscribers, the server answers it with "no responders". The first message of a run is a probe, and so is one message a
//! second while the run is watched. A run without watchers is silent until a subscriber requests its text.
//!
//! The answer and the text of other steps have separate channels, because most watchers show only the answer.
//!
//! The first piece of an attempt is published at once. Later pieces are joined for [`JOIN`], which is not noticeable.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use podium_domain::ids::{RunId, StepIndex};
use podium_ports::live::Frame;
use tokio::time::Instant;

/// How long later pieces of an attempt wait to be joined.
pub(super) const JOIN: Duration = Duration::from_millis(50);
/// Interval between probes of a watched run.
const PROBE_WATCHED: Duration = Duration::from_secs(1);
/// Interval between probes of a run without watchers, in case a new watcher's request was lost.
const PROBE_UNWATCHED: Duration = Duration::from_secs(10);

/// A channel of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Channel {
    /// The answer, text that may become the answer, and all signals without text.
    Main,
    /// The text of other steps.
    Inner,
}

/// A channel of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RunChannel {
    pub(super) run: RunId,
    pub(super) channel: Channel,
}

/// The channels that this process writes text to, and whether they have watchers.
#[derive(Debug)]
pub(super) struct Pace {
    /// Most channels.
    runs_max: usize,
    runs: HashMap<RunChannel, Paced>,
    /// Channels with text that waits.
    waiting: BTreeSet<RunChannel>,
    /// Number of watches so far, so that the answer to an older probe does not end a new watch.
    watches: u64,
}

#[derive(Debug)]
struct Paced {
    is_watched: bool,
    /// The latest watch; 0 before the first.
    watch: u64,
    probed_at: Option<Instant>,
    attempts: BTreeMap<(u16, StepIndex), Piece>,
}

/// Unpublished text of an attempt.
#[derive(Debug)]
struct Piece {
    frame: Frame,
    sent_at: Instant,
}

/// How a signal is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// It is not published: the channel has no watchers.
    Not,
    /// Without a reply subject.
    Plain,
    /// As a probe. The answer contains this number.
    Probe(u64),
}

impl Channel {
    pub(super) const ALL: [Self; 2] = [Self::Main, Self::Inner];

    /// Its name in subjects.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Main => "run",
            Self::Inner => "inner",
        }
    }

    /// The channel of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| channel.name() == name)
    }

    /// This channel of `run`.
    pub(super) const fn of(self, run: RunId) -> RunChannel {
        RunChannel { run, channel: self }
    }
}

impl Pace {
    pub(super) fn new(runs_max: usize) -> Self {
        Self { runs_max, runs: HashMap::new(), waiting: BTreeSet::new(), watches: 0 }
    }

    /// How a signal is published now.
    pub(super) fn sending(&mut self, at: RunChannel, now: Instant) -> Sending {
        let paced = self.paced(at);
        if paced.must_probe(now) {
            paced.probed_at = Some(now);
            return Sending::Probe(paced.watch);
        }
        if paced.is_watched { Sending::Plain } else { Sending::Not }
    }

    /// Adds a piece of text. Returns what must be published now; the rest waits for [`JOIN`].
    pub(super) fn add(&mut self, at: RunChannel, frame: &Frame, now: Instant) -> Vec<Frame> {
        let paced = self.paced(at);
        if !paced.is_watched && !paced.must_probe(now) {
            return Vec::new();
        }
        let step = (frame.round, frame.step);
        let Some(piece) = paced.attempts.get_mut(&step).filter(|piece| piece.frame.claim == frame.claim)
        else {
            let rest = Frame { offset: end(frame), text: String::new(), ..*frame };
            paced.attempts.insert(step, Piece { frame: rest, sent_at: now });
            return vec![frame.clone()];
        };
        let mut out = Vec::new();
        if end(&piece.frame) != frame.offset {
            out.extend(piece.take(now));
            piece.frame.offset = frame.offset;
        }
        piece.frame.text.push_str(&frame.text);
        if now.duration_since(piece.sent_at) >= JOIN {
            out.extend(piece.take(now));
        } else {
            self.waiting.insert(at);
        }
        out
    }

    /// Whether any text waits.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes all waiting text.
    pub(super) fn take_waiting(&mut self, now: Instant) -> Vec<(RunChannel, Frame)> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting
            .into_iter()
            .flat_map(|at| self.flush(at, now).into_iter().map(move |frame| (at, frame)))
            .collect()
    }

    /// Takes the waiting text of a channel, before a signal that must not overtake it.
    pub(super) fn flush(&mut self, at: RunChannel, now: Instant) -> Vec<Frame> {
        self.waiting.remove(&at);
        let attempts = self.runs.get_mut(&at).into_iter().flat_map(|paced| paced.attempts.values_mut());
        attempts.filter_map(|piece| piece.take(now)).collect()
    }

    /// Records a new subscriber. A channel that is unknown here is probed with its first text.
    pub(super) fn watched(&mut self, at: RunChannel, now: Instant) {
        self.watches += 1;
        if let Some(paced) = self.runs.get_mut(&at) {
            (paced.is_watched, paced.watch, paced.probed_at) = (true, self.watches, Some(now));
        }
    }

    /// Records that a probe had no subscribers. Does nothing if a subscriber has come since.
    pub(super) fn unwatched(&mut self, at: RunChannel, watch: u64) {
        if let Some(paced) = self.runs.get_mut(&at).filter(|paced| paced.watch == watch) {
            paced.is_watched = false;
            paced.attempts.clear();
            self.waiting.remove(&at);
        }
    }

    /// Forgets a run that has ended.
    pub(super) fn forget(&mut self, run: RunId) {
        for channel in Channel::ALL {
            self.waiting.remove(&channel.of(run));
            self.runs.remove(&channel.of(run));
        }
    }

    #[cfg(test)]
    pub(super) fn is_silent(&self, at: RunChannel) -> bool {
        self.runs.get(&at).is_some_and(|paced| !paced.is_watched)
    }

    fn paced(&mut self, at: RunChannel) -> &mut Paced {
        // A dropped channel costs one probe, and at most a piece of text that its watchers then request.
        if self.runs.len() >= self.runs_max && !self.runs.contains_key(&at) {
            self.waiting.clear();
            self.runs.clear();
        }
        self.runs.entry(at).or_insert_with(Paced::new)
    }
}

impl Paced {
    /// Counts as watched until the answer to the first probe arrives.
    fn new() -> Self {
        Self { is_watched: true, watch: 0, probed_at: None, attempts: BTreeMap::new() }
    }

    fn must_probe(&self, now: Instant) -> bool {
        let every = if self.is_watched { PROBE_WATCHED } else { PROBE_UNWATCHED };
        self.probed_at.is_none_or(|at| now.duration_since(at) >= every)
    }
}

impl Piece {
    fn take(&mut self, now: Instant) -> Option<Frame> {
        if self.frame.text.is_empty() {
            return None;
        }
        let rest = Frame { offset: end(&self.frame), text: String::new(), ..self.frame };
        self.sent_at = now;
        Some(std::mem::replace(&mut self.frame, rest))
    }
}

fn end(frame: &Frame) -> u64 {
    frame.offset + frame.text.len() as u64
}

#[cfg(test)]
mod tests {
    use podium_ports::clock::Ids;
    use podium_testkit::{SeededIds, TestClock};

    use super::*;

    struct Scene {
        pace: Pace,
        run: RunChannel,
        frame: Frame,
        now: Instant,
    }

    fn a_scene() -> Scene {
        let ids = SeededIds::new(1);
        let (run, claim) = (ids.run_id(TestClock::START), ids.claim_id());
        let frame = Frame { round: 0, step: StepIndex::new(0), claim, offset: 0, text: String::new() };
        Scene { pace: Pace::new(10), run: Channel::Main.of(run), frame, now: Instant::now() }
    }

    impl Scene {
        fn after(&mut self, span: Duration) {
            self.now += span;
        }

        fn sending(&mut self) -> Sending {
            self.pace.sending(self.run, self.now)
        }

        /// Writes more text. Returns what is published at once.
        fn write(&mut self, text: &str) -> Vec<(u64, String)> {
            let frame = Frame { text: text.to_owned(), ..self.frame.clone() };
            self.frame.offset += text.len() as u64;
            shown(self.pace.add(self.run, &frame, self.now))
        }

        fn waiting(&mut self) -> Vec<(u64, String)> {
            shown(self.pace.take_waiting(self.now).into_iter().map(|(_, frame)| frame))
        }
    }

    fn shown(frames: impl IntoIterator<Item = Frame>) -> Vec<(u64, String)> {
        frames.into_iter().map(|frame| (frame.offset, frame.text)).collect()
    }

    #[test]
    fn the_first_piece_is_published_at_once_and_later_ones_joined() {
        let mut scene = a_scene();
        assert_eq!(scene.sending(), Sending::Probe(0));
        assert_eq!(scene.write("a"), [(0, "a".to_owned())]);
        for piece in ["b", "c"] {
            scene.after(JOIN / 5);
            assert_eq!(scene.write(piece), []);
        }
        assert!(scene.pace.has_waiting());
        assert_eq!(scene.waiting(), [(1, "bc".to_owned())]);
        assert!(!scene.pace.has_waiting());
        scene.after(JOIN);
        assert_eq!(scene.write("d"), [(3, "d".to_owned())], "a slow worker's pieces do not wait");
        scene.write("e");
        assert_eq!(shown(scene.pace.flush(scene.run, scene.now)), [(4, "e".to_owned())]);
    }

    #[test]
    fn an_unwatched_run_is_silent_until_a_subscriber_comes() {
        let mut scene = a_scene();
        assert_eq!(scene.sending(), Sending::Probe(0));
        assert_eq!(scene.sending(), Sending::Plain, "until the probe is answered");
        scene.write("a");
        scene.write("b");
        scene.pace.unwatched(scene.run, 0);
        assert!(!scene.pace.has_waiting());
        assert_eq!((scene.sending(), scene.write("c")), (Sending::Not, Vec::new()));
        scene.pace.watched(scene.run, scene.now);
        assert_eq!(scene.sending(), Sending::Plain);
        scene.pace.unwatched(scene.run, 0);
        assert_eq!(scene.sending(), Sending::Plain, "the answer is older than the watch");
        scene.after(PROBE_WATCHED);
        assert_eq!(scene.sending(), Sending::Probe(1));
        scene.pace.unwatched(scene.run, 1);
        assert_eq!(scene.sending(), Sending::Not);
        scene.after(PROBE_UNWATCHED);
        assert_eq!(scene.sending(), Sending::Probe(1), "a watcher's request may have been lost");
        assert_eq!(scene.sending(), Sending::Not);
    }

    #[test]
    fn pieces_of_two_attempts_are_never_joined() {
        let mut scene = a_scene();
        scene.sending();
        scene.write("a");
        assert_eq!(scene.write("b"), []);
        scene.frame = Frame { claim: SeededIds::new(2).claim_id(), offset: 0, ..scene.frame.clone() };
        assert_eq!(scene.write("new"), [(0, "new".to_owned())]);
        assert_eq!(scene.waiting(), []);
    }

    #[test]
    fn the_number_of_tracked_channels_is_bounded() {
        let (ids, mut pace) = (SeededIds::new(1), Pace::new(10));
        for _ in 0..1000 {
            pace.sending(Channel::Main.of(ids.run_id(TestClock::START)), Instant::now());
            assert!(pace.runs.len() <= 10);
        }
    }
}
