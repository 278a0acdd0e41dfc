//! Removes repeated live text after a watch was resumed.

use std::collections::{HashMap, HashSet};

use crate::v1::run_event::Kind;
use crate::v1::watch_run_response::Update;
use crate::v1::{PlanningText, RunEvent, StepReasoning, StepText, StepToolCall};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Output {
    round: u32,
    step: u32,
    attempt: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Call {
    output: Output,
    index: u32,
}

/// The live text that the caller has.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Bytes of each output.
    written: HashMap<Output, u64>,
    /// Bytes of the reasoning before each output.
    reasoned: HashMap<Output, u64>,
    /// The round of the last planning text.
    planning: Option<u32>,
    /// The round whose planning text was interrupted: the rest has no known place.
    planning_cut: Option<u32>,
    /// Calls whose first piece the caller has, since the last interruption.
    calls: HashSet<Call>,
    /// Calls that were interrupted.
    calls_cut: HashSet<Call>,
}

impl Live {
    /// The connection was lost. The server may repeat live text now, or leave some out.
    pub(crate) fn interrupt(&mut self) {
        self.planning_cut = self.planning.or(self.planning_cut);
        self.calls_cut.extend(self.calls.drain());
    }

    /// The part of an update that the caller does not have.
    pub(crate) fn unseen(&mut self, update: Update) -> Option<Update> {
        match update {
            Update::Event(event) => {
                self.note(&event);
                Some(Update::Event(event))
            }
            Update::PlanningText(text) => self.planning(text).map(Update::PlanningText),
            Update::StepText(text) => self.text(text).map(Update::StepText),
            Update::StepReasoning(text) => self.reasoning(text).map(Update::StepReasoning),
            Update::StepToolCall(piece) => self.call(piece).map(Update::StepToolCall),
            Update::StepRestarted(restarted) => {
                self.forget(restarted.round, restarted.step);
                Some(Update::StepRestarted(restarted))
            }
            Update::Heartbeat(_) => None,
        }
    }

    fn note(&mut self, event: &RunEvent) {
        // The next turn of the step begins a new output.
        if let Some(Kind::StepCalled(called)) = &event.kind {
            self.forget(called.round, called.step);
        }
    }

    fn forget(&mut self, round: u32, step: u32) {
        let is_other = |output: &Output| (output.round, output.step) != (round, step);
        self.written.retain(|output, _| is_other(output));
        self.reasoned.retain(|output, _| is_other(output));
        self.calls.retain(|call| is_other(&call.output));
        self.calls_cut.retain(|call| is_other(&call.output));
    }

    fn planning(&mut self, text: PlanningText) -> Option<PlanningText> {
        self.planning = Some(text.round);
        (self.planning_cut != Some(text.round)).then_some(text)
    }

    fn text(&mut self, mut text: StepText) -> Option<StepText> {
        let output = Output { round: text.round, step: text.step, attempt: text.attempt };
        let written = self.written.entry(output).or_default();
        (text.offset, text.text) = rest(written, text.offset, &text.text)?;
        Some(text)
    }

    fn reasoning(&mut self, mut text: StepReasoning) -> Option<StepReasoning> {
        let output = Output { round: text.round, step: text.step, attempt: text.attempt };
        let reasoned = self.reasoned.entry(output).or_default();
        (text.offset, text.text) = rest(reasoned, text.offset, &text.text)?;
        Some(text)
    }

    fn call(&mut self, piece: StepToolCall) -> Option<StepToolCall> {
        let output = Output { round: piece.round, step: piece.step, attempt: piece.attempt };
        let call = Call { output, index: piece.index };
        let is_first = !piece.id.is_empty();
        if self.calls_cut.contains(&call) || !(is_first || self.calls.contains(&call)) {
            return None;
        }
        self.calls.insert(call);
        Some(piece)
    }
}

/// The part of a text that the caller does not have, with its offset. `written` counts the bytes that the caller has.
fn rest(written: &mut u64, offset: u64, text: &str) -> Option<(u64, String)> {
    let end = offset + text.len() as u64;
    if end <= *written {
        return None;
    }
    let seen = usize::try_from(written.saturating_sub(offset)).ok()?;
    let rest = text.get(seen..)?.to_owned();
    *written = end;
    Some((offset + seen as u64, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{StepCalled, StepRestarted};

    fn thought(offset: u64, text: &str) -> Update {
        let text = text.to_owned();
        Update::StepReasoning(StepReasoning { attempt: 1, offset, text, ..StepReasoning::default() })
    }

    fn text(offset: u64, text: &str) -> Update {
        Update::StepText(StepText { attempt: 1, offset, text: text.to_owned(), ..StepText::default() })
    }

    fn piece(id: &str, arguments: &str) -> Update {
        let piece =
            StepToolCall { id: id.to_owned(), arguments: arguments.to_owned(), ..StepToolCall::default() };
        Update::StepToolCall(piece)
    }

    #[test]
    fn text_that_was_seen_is_removed_and_a_part_is_cut() {
        let mut live = Live::default();
        assert_eq!(live.unseen(text(0, "blue ")), Some(text(0, "blue ")));
        live.interrupt();
        assert_eq!(live.unseen(text(0, "blue ")), None);
        assert_eq!(live.unseen(text(0, "blue light")), Some(text(5, "light")));
        assert_eq!(live.unseen(text(10, "!")), Some(text(10, "!")));
    }

    #[test]
    fn reasoning_that_was_seen_is_removed_and_a_part_is_cut() {
        let mut live = Live::default();
        assert_eq!(live.unseen(thought(0, "light ")), Some(thought(0, "light ")));
        assert_eq!(live.unseen(text(0, "blue")), Some(text(0, "blue")), "it has a place of its own");
        live.interrupt();
        assert_eq!(live.unseen(thought(0, "light ")), None);
        assert_eq!(live.unseen(thought(0, "light scatters")), Some(thought(6, "scatters")));
        live.forget(0, 0);
        assert_eq!(live.unseen(thought(0, "light ")), Some(thought(0, "light ")));
    }

    #[test]
    fn a_new_turn_and_a_restarted_step_begin_at_the_first_byte() {
        let mut live = Live::default();
        let restarted = Update::StepRestarted(StepRestarted { round: 0, step: 0 });
        let kind = Some(Kind::StepCalled(StepCalled::default()));
        let called = Update::Event(RunEvent { sequence: 1, time: None, kind });
        for break_off in [restarted, called] {
            assert_eq!(live.unseen(text(0, "a")), Some(text(0, "a")));
            assert!(live.unseen(break_off).is_some());
            assert_eq!(live.unseen(text(0, "a")), Some(text(0, "a")));
            live.forget(0, 0);
        }
    }

    #[test]
    fn an_interrupted_call_and_planning_text_are_left_out_afterwards() {
        let planning = |round| Update::PlanningText(PlanningText { round, text: "p".to_owned() });
        let mut live = Live::default();
        assert!(live.unseen(planning(0)).is_some() && live.unseen(piece("id", "")).is_some());
        live.interrupt();
        assert_eq!(live.unseen(planning(0)), None);
        assert_eq!(live.unseen(piece("id", "")), None);
        assert_eq!(live.unseen(piece("", "{}")), None);
        assert!(live.unseen(planning(1)).is_some());
    }

    #[test]
    fn a_call_whose_beginning_is_missing_is_left_out() {
        assert_eq!(Live::default().unseen(piece("", "{}")), None);
    }
}
