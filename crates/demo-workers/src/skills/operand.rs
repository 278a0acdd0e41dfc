//! Converts operands, which are passed as text, to the types that operations need.

use super::{
    Refusal,
    calendar::Date,
    rational::{NumberError, Rational},
};
use crate::language::{
    reader::{Operands, PAIR_SEPARATOR},
    token::{Kind, Token, tokenise},
};

/// More items than fit into the longest text.
const ITEMS_MAX: usize = 64 * 1024;

impl Operands {
    /// The operand as a number.
    pub(crate) fn number(&self, name: char) -> Result<Rational, Refusal> {
        number(self.text(name))
    }

    /// The two numbers: those of the slots `x` and `y`, or the pair in the slot `b`.
    pub(crate) fn two_numbers(&self) -> Result<(Rational, Rational), Refusal> {
        match self.find('b').and_then(|pair| pair.split_once(PAIR_SEPARATOR)) {
            Some((first, second)) => Ok((number(first)?, number(second)?)),
            None => Ok((self.number('x')?, self.number('y')?)),
        }
    }

    /// The operand as a whole number.
    pub(crate) fn whole(&self, name: char) -> Result<i128, Refusal> {
        self.number(name)?.to_whole().ok_or(Refusal::Number(NumberError::NotWhole))
    }

    /// The operand as a day.
    pub(crate) fn date(&self, name: char) -> Result<Date, Refusal> {
        let text = self.text(name);
        let wrong = || Refusal::WrongOperand { needed: "a date", given: text.to_owned() };
        let mut dates = tokenise(text).into_iter().filter_map(|token| match token.kind {
            Kind::Date(date) => Some(date),
            _ => None,
        });
        let date = dates.next().ok_or_else(wrong)?;
        if dates.next().is_some() { Err(wrong()) } else { Ok(date) }
    }

    /// The operand as minutes since midnight.
    pub(crate) fn minutes(&self, name: char) -> Result<i64, Refusal> {
        let text = self.text(name);
        match tokenise(text).as_slice() {
            [Token { kind: Kind::Clock(minutes), .. }] => Ok(*minutes),
            _ => Err(Refusal::WrongOperand { needed: "a time of day", given: text.to_owned() }),
        }
    }

    /// The operand as the items of a list; one item is a list, too.
    pub(crate) fn items(&self, name: char) -> Result<Vec<String>, Refusal> {
        let text = self.text(name).trim().trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        // Thousands separators are recognised only if no comma is followed by a space.
        let items: Vec<String> = text
            .split([',', ';'])
            .flat_map(|part| part.split(" and "))
            .map(|item| item.trim().trim_start_matches("and ").trim_matches(['"', '\'']).to_owned())
            .filter(|item| !item.is_empty())
            .take(ITEMS_MAX)
            .collect();
        if items.is_empty() {
            Err(Refusal::WrongOperand { needed: "a list", given: text.to_owned() })
        } else {
            Ok(items)
        }
    }

    /// The operand as a list of numbers, with each number as it was written.
    pub(crate) fn numbers(&self, name: char) -> Result<Vec<(Rational, String)>, Refusal> {
        self.items(name)?.into_iter().map(|item| Ok((number(&item)?, item))).collect()
    }
}

/// Parses a number in digits, with or without a unit after it ("440 days"). Numbers in words are parsed within a task; an
/// output in words is a text.
pub(crate) fn number(text: &str) -> Result<Rational, Refusal> {
    let wrong = || Refusal::WrongOperand { needed: "a number", given: text.to_owned() };
    let trimmed = text.trim().trim_end_matches('.');
    if let Some(number) = Rational::parse(trimmed)? {
        return Ok(number);
    }
    let tokens = tokenise(trimmed);
    match tokens.as_slice() {
        [first, rest @ ..] if rest.len() <= 2 && rest.iter().all(|token| token.word().is_some()) => {
            let written = first.number().ok_or_else(wrong)?;
            Rational::parse(written)?.ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}
