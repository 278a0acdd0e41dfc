//! Checks the streamed texts of attempts: in a watch, a text begins at its start and continues without a gap; a new attempt is
//! announced; an attempt has one text; and the text of the accepted attempt is the beginning of its output.

use std::collections::HashMap;

use podium_api::v1;

/// Round and step.
type Place = (u32, u32);

/// The texts of one run.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// The attempt and the number of bytes of each step in this watch.
    shown: HashMap<Place, (u32, usize)>,
    /// The longest text of each attempt in any watch.
    known: HashMap<(Place, u32), String>,
    outputs: HashMap<Place, String>,
    /// The bytes that were compared with an output.
    pub(crate) compared_bytes: usize,
    /// Faults that a client must never see.
    pub(crate) faults: Vec<String>,
}

impl Texts {
    /// Begins a new watch, in which texts start again.
    pub(crate) fn begin_watch(&mut self) {
        self.shown.clear();
    }

    /// Whether this watch is in the middle of a text.
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

    /// Checks the text before tool calls. The next turn of the step begins a text of its own.
    pub(crate) fn called(&mut self, called: &v1::StepCalled) {
        let place = (called.round, called.step);
        self.compare(place, called.attempt, &called.text);
        self.shown.remove(&place);
    }

    pub(crate) fn done(&mut self, done: &v1::StepDone) {
        let place = (done.round, done.step);
        self.compare(place, done.attempt, &done.output);
        if self.outputs.insert(place, done.output.clone()).is_some() {
            self.fault(place, "it was done twice");
        }
    }

    /// Checks that the answer is the output of the step.
    pub(crate) fn answered(&mut self, by: v1::Succeeded, answer: Option<&str>) {
        let place = (by.round, by.step);
        if self.outputs.get(&place).map(String::as_str) != answer {
            self.fault(place, &format!("its output is not the answer {answer:?}"));
        }
    }

    /// Compares the text that an attempt showed with its whole text.
    fn compare(&mut self, place: Place, attempt: u32, whole: &str) {
        if let Some(known) = self.known.get(&(place, attempt)) {
            self.compared_bytes += known.len();
            if !whole.starts_with(known.as_str()) {
                let text = known.clone();
                self.fault(place, &format!("attempt {attempt} showed `{text}` of `{whole}`"));
            }
        }
    }

    fn fault(&mut self, place: Place, what: &str) {
        let (round, step) = place;
        self.faults.push(format!("step {step} of round {round}: {what}"));
    }
}

fn shown(attempt: u32, offset: u64, text: &str) -> v1::StepText {
    v1::StepText { attempt, offset, text: text.to_owned(), ..v1::StepText::default() }
}

fn output(attempt: u32, output: &str) -> v1::StepDone {
    v1::StepDone { attempt, output: output.to_owned(), ..v1::StepDone::default() }
}

/// The number of faults in the texts of one watch, followed by an output of the first attempt.
fn faults(texts: &[v1::StepText], done: &str) -> usize {
    let mut seen = Texts::default();
    for text in texts {
        seen.text(text);
    }
    seen.done(&output(1, done));
    seen.faults.len()
}

#[test]
fn continuous_texts_have_no_faults_in_one_watch_or_several() {
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
fn gaps_repeats_and_mixed_attempts_are_faults() {
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
