//! Groups the three lists of a plan, and decides which plan of a text counts: the last one with all three labels.
//!
//! `model_id` opens a group; the other two labels join it in any order. A label without an open group is running text. Until a
//! group is complete, its elements are yielded as they arrive. After that, a later group may be a mere remark, so its elements are
//! yielded only once it is complete and replaces the earlier one.

use super::ParseError;
use super::draft::{Field, PlanDraft, PlanPiece};
use super::element;
use super::label::Label;
use super::literal::Element;
use crate::ids::StepIndex;

/// The plan that counts, and the position of its first label.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) draft: PlanDraft,
    pub(super) at: usize,
}

/// The groups of a text.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// The group that still lacks labels.
    open: Option<Group>,
    /// The result of the last complete group.
    outcome: Option<Result<Found, ParseError>>,
    /// Pieces that were not yielded yet.
    pieces: Vec<PlanPiece>,
    /// Whether yielded pieces are valid until a restart.
    yielded: bool,
}

#[derive(Clone, Debug)]
struct Group {
    found: Found,
    begun: [bool; 3],
    ended: [bool; 3],
    failed: Option<ParseError>,
}

impl Groups {
    /// Opens a list at byte `at`. Returns whether its elements are needed.
    pub(super) fn open(&mut self, label: Label) -> bool {
        let Label { field, at } = label;
        if field == Field::ModelId {
            if !self.is_complete() {
                self.restart();
            }
            let found = Found { draft: PlanDraft::default(), at };
            self.open = Some(Group { found, begun: [false; 3], ended: [false; 3], failed: None });
        }
        let Some(group) = &mut self.open else { return false };
        if group.begun[field as usize] {
            group.failed.get_or_insert(ParseError::RepeatedList { field, offset: at });
            return false;
        }
        group.begun[field as usize] = true;
        true
    }

    /// Adds a closed element of the open list; it begins at byte `at`.
    pub(super) fn element(&mut self, field: Field, element: Element, at: usize) -> Result<(), ParseError> {
        let eager = !self.is_complete();
        let Some(group) = self.open.as_mut().filter(|group| group.failed.is_none()) else {
            return Ok(());
        };
        let index = group.found.draft.elements(field);
        let wrong = |expected| ParseError::WrongElement { field, index, expected, offset: at };
        // A list has fewer elements than the largest step index.
        let step = StepIndex::new(u16::try_from(index).unwrap_or(u16::MAX));
        let piece = element::read(field, step, element).map_err(wrong)?;
        if eager {
            self.pieces.push(piece.clone());
            self.yielded = true;
        }
        group.found.draft.apply(piece);
        Ok(())
    }

    /// Ends the open list, possibly with an error.
    pub(super) fn end(&mut self, field: Field, failure: Option<ParseError>) {
        let Some(group) = &mut self.open else { return };
        group.ended[field as usize] = true;
        if group.failed.is_none() {
            group.failed = failure;
        }
        if group.ended == [true; 3] {
            self.complete();
        }
    }

    /// Whether the group that counts so far is valid.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.outcome, Some(Ok(_)))
    }

    /// Drops everything so far, because it was the model's thinking.
    pub(super) fn forget(&mut self) {
        self.restart();
        self.open = None;
        self.outcome = None;
    }

    /// Takes the pieces since the last call.
    pub(super) fn take_pieces(&mut self) -> Vec<PlanPiece> {
        std::mem::take(&mut self.pieces)
    }

    /// The result of a text that ends at byte `end`. `cut_off` is the error of a construct that was open at its end.
    pub(super) fn finish(self, cut_off: Option<ParseError>, end: usize) -> Result<Found, ParseError> {
        match (self.outcome, self.open, cut_off) {
            // A text that ends inside a list was cut off; an earlier plan in it was an example.
            (_, group, Some(unclosed @ ParseError::UnclosedList { .. })) => {
                Err(group.and_then(|group| group.failed).unwrap_or(unclosed))
            }
            (Some(outcome), _, _) => outcome,
            (None, _, Some(error)) => Err(error),
            (None, Some(group), None) => Err(group.failed.unwrap_or_else(|| missing(group.begun, end))),
            (None, None, None) => Err(missing([false; 3], end)),
        }
    }

    fn complete(&mut self) {
        let Some(group) = self.open.take() else { return };
        let was_complete = self.is_complete();
        if let Some(error) = group.failed {
            self.restart();
            self.outcome = Some(Err(error));
            return;
        }
        if was_complete {
            self.restart();
            self.pieces.extend(group.found.draft.pieces());
            self.yielded = !group.found.draft.keeps_answer();
        }
        self.outcome = Some(Ok(group.found));
    }

    fn restart(&mut self) {
        if std::mem::take(&mut self.yielded) {
            self.pieces.push(PlanPiece::Restarted);
        }
    }
}

fn missing(begun: [bool; 3], end: usize) -> ParseError {
    let field = Field::ALL.into_iter().find(|field| !begun[*field as usize]).unwrap_or(Field::ModelId);
    ParseError::MissingList { field, offset: end }
}
