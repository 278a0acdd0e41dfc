//! What a client is shown of the texts of attempts, held to what it may be shown: in one watch a text begins at its beginning
//! and goes on where it stopped; another attempt's is announced; an attempt has one text; and what was shown of the attempt
//! that counted is the beginning of its output.

use std::collections::HashMap;

use podium_api::v1;

/// Round and step.
type Place = (u32, u32);

/// The texts of one run.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// What this watch has shown of each step: of which attempt, and how many bytes.
    shown: HashMap<Place, (u32, usize)>,
    /// The most that any watch has shown of each attempt.
    known: HashMap<(Place, u32), String>,
    outputs: HashMap<Place, String>,
    /// Bytes of texts that were compared with an output.
    pub(crate) compared_bytes: usize,
    /// Whatever a client must never see.
    pub(crate) faults: Vec<String>,
}

impl Texts {
    /// Texts are shown from their beginning again.
    pub(crate) fn begin_watch(&mut self) {
        self.shown.clear();
    }

    /// Whether this watch has shown text of a step that was not done then.
    pub(crate) fn are_under_way(&self) -> bool {
        self.shown.keys().any(|place| !self.outputs.contains_key(place))
    }

    pub(crate) fn restarted(&mut self, restarted: v1::StepRestarted) {
        self.shown.remove(&(restarted.round, restarted.step));
    }

    pub(crate) fn text(&mut self, text: &v1::StepText) {
        let place = (text.round, text.step);
        let (attempt, length) = *self.shown.entry(place).or_insert((text.attempt, 0));
        let offset = usize::try_from(text.offset).unwrap();
        if attempt != text.attempt {
            self.fault(place, &format!("attempt {} goes on for attempt {attempt}", text.attempt));
        } else if offset != length {
            self.fault(place, &format!("attempt {attempt} goes on at {offset} after {length} bytes"));
        }
        self.shown.insert(place, (text.attempt, offset + text.text.len()));
        let known = self.known.entry((place, text.attempt)).or_default();
        let earlier = known.get(offset..).unwrap_or_default();
        if earlier.starts_with(&text.text) {
            return;
        }
        if text.text.starts_with(earlier) {
            known.truncate(offset);
            known.push_str(&text.text);
        } else {
            let was = earlier.to_owned();
            self.fault(place, &format!("attempt {attempt} was `{was}` at {offset} and is `{}`", text.text));
        }
    }

    pub(crate) fn done(&mut self, done: &v1::StepDone) {
        let place = (done.round, done.step);
        if let Some(known) = self.known.get(&(place, done.attempt)) {
            self.compared_bytes += known.len();
            if !done.output.starts_with(known.as_str()) {
                let text = known.clone();
                self.fault(place, &format!("attempt {} showed `{text}` of `{}`", done.attempt, done.output));
            }
        }
        if self.outputs.insert(place, done.output.clone()).is_some() {
            self.fault(place, "it was done twice");
        }
    }

    /// The answer is the output of that step.
    pub(crate) fn answered(&mut self, by: v1::Succeeded, answer: Option<&str>) {
        let place = (by.round, by.step);
        if self.outputs.get(&place).map(String::as_str) != answer {
            self.fault(place, &format!("its output is not the answer {answer:?}"));
        }
    }

    fn fault(&mut self, (round, step): Place, what: &str) {
        self.faults.push(format!("step {step} of round {round}: {what}"));
    }
}

fn shown(attempt: u32, offset: u64, text: &str) -> v1::StepText {
    v1::StepText { attempt, offset, text: text.to_owned(), ..v1::StepText::default() }
}

fn output(attempt: u32, output: &str) -> v1::StepDone {
    v1::StepDone { attempt, output: output.to_owned(), ..v1::StepDone::default() }
}

/// The faults of texts of one watch, and then of an output of the first attempt.
fn faults(texts: &[v1::StepText], done: &str) -> usize {
    let mut seen = Texts::default();
    for text in texts {
        seen.text(text);
    }
    seen.done(&output(1, done));
    seen.faults.len()
}

#[test]
fn texts_that_go_on_are_faultless_in_one_watch_and_over_several() {
    assert_eq!(faults(&[shown(1, 0, "one "), shown(1, 4, "two")], "one two three"), 0);
    let mut seen = Texts::default();
    seen.text(&shown(1, 0, "one two"));
    seen.begin_watch();
    assert!(!seen.are_under_way());
    seen.text(&shown(1, 0, "one "));
    seen.text(&shown(1, 4, "two three"));
    seen.restarted(v1::StepRestarted::default());
    seen.text(&shown(2, 0, "eins"));
    assert!(seen.are_under_way());
    seen.done(&output(2, "eins zwei"));
    seen.answered(v1::Succeeded::default(), Some("eins zwei"));
    assert_eq!((seen.faults.as_slice(), seen.compared_bytes), (&[][..], 4));
}

#[test]
fn texts_with_gaps_repeats_or_two_attempts_mixed_are_faults() {
    assert_eq!(faults(&[shown(1, 0, "one "), shown(1, 5, "wo")], "one two"), 2, "a gap");
    assert_eq!(faults(&[shown(1, 0, "one "), shown(1, 0, "one ")], "one two"), 1, "a repeat");
    assert_eq!(faults(&[shown(1, 0, "one "), shown(2, 4, "zwei")], "one two"), 1, "unannounced");
    assert_eq!(faults(&[shown(1, 0, "one "), shown(1, 4, "zwei")], "one two"), 1, "mixed");
    let mut seen = Texts::default();
    seen.text(&shown(1, 0, "one"));
    seen.begin_watch();
    seen.text(&shown(1, 0, "eins"));
    assert_eq!(seen.faults.len(), 1, "one attempt, two texts");
    seen.answered(v1::Succeeded::default(), Some("one"));
    assert_eq!(seen.faults.len(), 2, "an answer from nowhere");
}
