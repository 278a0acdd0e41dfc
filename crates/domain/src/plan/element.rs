//! Interprets a list's elements: a worker, a subtask, or the outputs that a step may see.

use super::draft::{Field, PlanPiece, RawAccess, RawId};
use super::literal::{Atom, Element};
use crate::ids::StepIndex;

/// The expected element, for an error.
pub(super) type Expected = &'static str;

const WORKER: Expected = "a worker's position or name";
const SUBTASK: Expected = "a text";
const ACCESS: Expected = "`[]`, \"all\" or a list of step positions";
const SMALLER: Expected = "a smaller number";

/// Interprets an element of a list.
pub(super) fn read(field: Field, index: StepIndex, element: Element) -> Result<PlanPiece, Expected> {
    Ok(match field {
        Field::ModelId => PlanPiece::Worker { index, worker: worker(element)? },
        Field::Subtasks => PlanPiece::Subtask { index, text: subtask(element)? },
        Field::AccessList => PlanPiece::Access { index, access: access(element)? },
    })
}

fn worker(element: Element) -> Result<RawId, Expected> {
    let Element::Atom(Atom::Quoted(text) | Atom::Bare(text)) = element else {
        return Err(WORKER);
    };
    let text = text.trim();
    match number(text) {
        Some(number) => number.map(RawId::Index),
        None if text.is_empty() || is_nothing(text) => Err(WORKER),
        None => Ok(RawId::Name(text.to_owned())),
    }
}

fn subtask(element: Element) -> Result<String, Expected> {
    match element {
        Element::Atom(Atom::Quoted(text)) => Ok(text.trim().to_owned()),
        Element::Atom(Atom::Bare(text)) if !is_nothing(&text) && number(&text).is_none() => Ok(text),
        _ => Err(SUBTASK),
    }
}

fn access(element: Element) -> Result<RawAccess, Expected> {
    match element {
        Element::Atom(Atom::Quoted(text) | Atom::Bare(text)) => match text.trim() {
            "" | "[]" => Ok(RawAccess::None),
            text if is_nothing(text) => Ok(RawAccess::None),
            text if is_all(text) => Ok(RawAccess::All),
            text => number(text).ok_or(ACCESS)?.map(|index| RawAccess::Indices(vec![index])),
        },
        Element::List(atoms) => visible(atoms),
        Element::Nested => Err(ACCESS),
    }
}

fn visible(atoms: Vec<Atom>) -> Result<RawAccess, Expected> {
    let mut all = false;
    let mut indices = Vec::new();
    for Atom::Quoted(text) | Atom::Bare(text) in atoms {
        let text = text.trim();
        if is_all(text) {
            all = true;
        } else if !is_nothing(text) {
            indices.push(number(text).ok_or(ACCESS)??);
        }
    }
    Ok(if all { RawAccess::All } else { RawAccess::Indices(indices) })
}

/// The number in a text of digits with an optional sign; `None` for other texts.
fn number(text: &str) -> Option<Result<i64, Expected>> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().map_err(|_| SMALLER))
}

fn is_all(text: &str) -> bool {
    text.eq_ignore_ascii_case("all")
}

fn is_nothing(text: &str) -> bool {
    ["none", "null"].iter().any(|word| text.eq_ignore_ascii_case(word))
}
