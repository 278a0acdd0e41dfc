//! Exact arithmetic, in words or as an expression.

use super::{
    Refusal, Wordings, number_words,
    rational::{NumberError, Rational},
};
use crate::language::{
    reader::{Binding, Operands},
    token::{Kind, Token},
};

/// Most nested parentheses in one expression.
const DEPTH_MAX: usize = 32;
/// Most numbers, operators and parentheses in one expression.
const EXPRESSION_TOKENS_MAX: usize = 1_000;

pub(crate) const FRAGMENTS: &[(&str, &str)] = &[
    ("pct", "(%|percent|per cent|hundredths)"),
    ("evenly", "[equally|evenly|fairly]"),
    ("parts", "(equal|even|the same) (parts|pieces|shares|groups)"),
    ("off", "(from|away from|off from|off|out of)"),
    ("get", "[find|compute|calculate|work out|form|take|get|give|evaluate|determine]"),
];

pub(crate) const WORDINGS: &[Wordings] = &[
    Wordings {
        nouns: &[
            "[the] [(value|outcome|result|number) (of|given by|that)] [the] [expression|formula|sum|calculation] {e:e} [stands for|gives]",
        ],
        verbs: &[
            "(evaluate|solve|simplify|compute|calculate|work out|reduce) [the] [value of] [the] [expression|formula] {e:e} [to a number]",
        ],
        binding: Binding::Whole,
        compute: expression,
    },
    Wordings {
        nouns: &[
            "[the] [combined|grand] (sum|total) of {x:n} and {y:n}",
            "[the] sum of {b:b}",
            "[the] total of {b:b}",
            "{x:n} and {y:n} (together|combined|added together)",
            "{x:n} (plus|+|increased by|raised by) {y:n}",
            "{y:n} more than {x:n}",
            "{y:n} above {x:n}",
            "{y:n} added to {x:n}",
        ],
        verbs: &[
            "add {y:n} to {x:n}",
            "add [up] {x:n} (and|with) {y:n} [together|up]",
            "(sum|total) [up] {x:n} and {y:n} [together|up]",
            "(increase|enlarge|raise|grow|boost) {x:n} by {y:n}",
            "make {x:n} (larger|bigger|greater) by {y:n}",
            "put {y:n} on top of {x:n}",
            "put {x:n} and {y:n} together by addition",
            "(add|sum|total) [up] {b:b} [together|up]",
            "add {y:n} {x:n?}",
            "increase by {y:n} {x:n?}",
        ],
        binding: Binding::Loose,
        compute: add,
    },
    Wordings {
        nouns: &[
            "{x:n} (minus|-|less|decreased by|reduced by|lowered by|diminished by) {y:n}",
            "{y:n} (less than|below) {x:n}",
            "{y:n} (subtracted|taken|taken away|deducted|removed) from {x:n}",
        ],
        verbs: &[
            "(subtract|take|take away|remove|deduct) {y:n} $off {x:n}",
            "(subtract|take away|deduct) [the value of] {y:n} from {x:n}",
            "(decrease|reduce|lower|cut|diminish) {x:n} by {y:n}",
            "make {x:n} (smaller|less) by {y:n}",
            "(subtract|take away|deduct) {y:n} {x:n?}",
        ],
        binding: Binding::Loose,
        compute: subtract,
    },
    Wordings {
        nouns: &["[the] difference (between|of) {x:n} and {y:n}", "[the] difference (between|of) {b:b}"],
        verbs: &["how far apart are {x:n} and {y:n}"],
        binding: Binding::Loose,
        compute: difference,
    },
    Wordings {
        nouns: &[
            "[the] product of {x:n} (and|with) {y:n}",
            "[the] product of {b:b}",
            "{x:n} (times|*|multiplied by|lots of) {y:n}",
            "{x:n} taken {y:n} times",
        ],
        verbs: &[
            "multiply {x:n} (by|and|with|times) {y:n} [together]",
            "(scale|scale up) {x:n} by {y:n}",
            "take {x:n} {y:n} times",
            "take {x:n} times {y:n}",
            "make {x:n} (bigger|larger|greater) by a factor of {y:n}",
            "make {x:n} {y:n} times as (large|big|great)",
            "(form|find|compute|take) the product of {x:n} (and|with) {y:n}",
            "multiply {b:b} [together]",
            "multiply by {y:n} {x:n?}",
        ],
        binding: Binding::Tight,
        compute: multiply,
    },
    Wordings {
        nouns: &["double {x:n}", "twice {x:n}", "{x:n} doubled"],
        verbs: &["double {x:n}", "double {x:n?}"],
        binding: Binding::Tight,
        compute: double,
    },
    Wordings {
        nouns: &["triple {x:n}", "three times {x:n}", "{x:n} tripled"],
        verbs: &["triple {x:n}", "triple {x:n?}"],
        binding: Binding::Tight,
        compute: triple,
    },
    Wordings {
        nouns: &["half [of] {x:n}", "{x:n} halved"],
        verbs: &["halve {x:n}", "halve {x:n?}"],
        binding: Binding::Tight,
        compute: halve,
    },
    Wordings {
        nouns: &[
            "[the] quotient of {x:n} and {y:n}",
            "{x:n} (divided by|over|/) {y:n}",
            "[the] ratio of {x:n} to {y:n}",
            "(one|a|the) part of {x:n} (split|divided|cut) into {y:n} $parts",
            "{x:n} (split|divided|shared) $evenly (by|among|between) {y:n}",
        ],
        verbs: &[
            "(divide|split|share|break|cut) {x:n} $evenly (by|among|between) {y:n}",
            "(divide|split|share|break|cut) {x:n} $evenly (into|in) {y:n} $parts",
            "(form|find|compute|take) the quotient of {x:n} and {y:n}",
            "divide by {y:n} {x:n?}",
        ],
        binding: Binding::Tight,
        compute: divide,
    },
    Wordings {
        nouns: &[
            "[the] square of {x:n}",
            "{x:n} squared",
            "{x:n} (times|multiplied by) itself",
            "[the] product of {x:n} (with|and) itself",
            "[the] second power of {x:n}",
        ],
        verbs: &[
            "square {x:n}",
            "multiply {x:n} (by|with) itself",
            "raise {x:n} to the second power",
            "$get the square of {x:n}",
            "square {x:n?}",
        ],
        binding: Binding::Tight,
        compute: square,
    },
    Wordings {
        nouns: &["{x:n} to the [power] [of] {y:n} [power]", "[the] cube of {x:n}", "{x:n} cubed"],
        verbs: &["raise {x:n} to the power [of] {y:n}", "cube {x:n}", "$get the cube of {x:n}"],
        binding: Binding::Tight,
        compute: power,
    },
    Wordings {
        nouns: &[
            "[the] remainder (when|if|after) {x:n} is divided by {y:n}",
            "[the] remainder of {x:n} (divided by|after division by|on division by|when divided by) {y:n}",
            "[the] remainder left by {x:n} on division by {y:n}",
            "[the] remainder of dividing {x:n} by {y:n}",
            "{x:n} (modulo|mod) {y:n}",
            "[the] (rest|amount|number|part) [that is] [left over|left|remaining] (when|if|after) {x:n} is divided by {y:n}",
            "what (is left over|is left|remains) (when|if|after) {x:n} is divided by {y:n}",
        ],
        verbs: &[
            "(reduce|bring) {x:n} [down] (modulo|mod) {y:n}",
            "$get the remainder of {x:n} (divided by|after division by|on division by) {y:n}",
            "take {x:n} (modulo|mod) {y:n}",
            "divide {x:n} by {y:n} and (keep|take|give) [only] the remainder",
        ],
        binding: Binding::Tight,
        compute: remainder,
    },
    Wordings {
        nouns: &[
            "[(a|the) (share|part) of] {y:n} $pct of {x:n}",
            "[the] (part|share) of {x:n} that is {y:n} $pct",
            "[a] {y:n} $pct share of {x:n}",
        ],
        verbs: &[
            "(take|form|keep|find|compute) {y:n} $pct of {x:n}",
            "(reduce|scale|cut|shrink) {x:n} to {y:n} $pct",
        ],
        binding: Binding::Tight,
        compute: percent,
    },
];

fn expression(operands: &Operands) -> Result<String, Refusal> {
    // The slot has already evaluated it: the operators' precedence determines where it ends.
    match operands.text('e') {
        text if text.starts_with(FAILED) => Err(Refusal::Number(match text.trim_start_matches(FAILED) {
            "division" => NumberError::DivisionByZero,
            "whole" => NumberError::NotWhole,
            _ => NumberError::TooLarge,
        })),
        text => Ok(text.to_owned()),
    }
}

fn add(operands: &Operands) -> Result<String, Refusal> {
    let (left, right) = operands.two_numbers()?;
    Ok(left.plus(right)?.to_string())
}

fn subtract(operands: &Operands) -> Result<String, Refusal> {
    let (left, right) = operands.two_numbers()?;
    Ok(left.minus(right)?.to_string())
}

fn difference(operands: &Operands) -> Result<String, Refusal> {
    let (left, right) = operands.two_numbers()?;
    Ok(left.max(right).minus(left.min(right))?.to_string())
}

fn multiply(operands: &Operands) -> Result<String, Refusal> {
    let (left, right) = operands.two_numbers()?;
    Ok(left.times(right)?.to_string())
}

fn double(operands: &Operands) -> Result<String, Refusal> {
    Ok(operands.number('x')?.times(Rational::whole(2))?.to_string())
}

fn triple(operands: &Operands) -> Result<String, Refusal> {
    Ok(operands.number('x')?.times(Rational::whole(3))?.to_string())
}

fn halve(operands: &Operands) -> Result<String, Refusal> {
    Ok(operands.number('x')?.divided_by(Rational::whole(2))?.to_string())
}

fn divide(operands: &Operands) -> Result<String, Refusal> {
    let (left, right) = operands.two_numbers()?;
    Ok(left.divided_by(right)?.to_string())
}

fn square(operands: &Operands) -> Result<String, Refusal> {
    let number = operands.number('x')?;
    Ok(number.times(number)?.to_string())
}

fn power(operands: &Operands) -> Result<String, Refusal> {
    let exponent = if operands.find('y').is_some() { operands.number('y')? } else { Rational::whole(3) };
    Ok(operands.number('x')?.power(exponent)?.to_string())
}

fn remainder(operands: &Operands) -> Result<String, Refusal> {
    let (left, right) = operands.two_numbers()?;
    Ok(left.remainder(right)?.to_string())
}

fn percent(operands: &Operands) -> Result<String, Refusal> {
    let (left, right) = operands.two_numbers()?;
    Ok(left.times(right)?.divided_by(Rational::whole(100))?.to_string())
}

/// Marks a well-formed expression without a value.
const FAILED: &str = "failed:";

/// The expression with at least one operator that begins at `tokens[at]`: the index after it and its value as text.
pub(crate) fn expression_at(tokens: &[Token], at: usize) -> Option<(usize, String)> {
    // An operator before or after means that this is a part of a larger expression, which is not known yet. A minus after an
    // operand is not a sign.
    let is_operand = |token: &Token| matches!(token.kind, Kind::Number | Kind::Result(_) | Kind::Symbol(')'));
    let subtracts = at.checked_sub(1).is_some_and(|before| is_operand(&tokens[before]))
        && operator_at(tokens, at).is_some();
    if ends_symbolic_operator(tokens, at) || subtracts {
        return None;
    }
    let end = tokens.len().min(at + EXPRESSION_TOKENS_MAX);
    let mut parser = Parser { tokens: tokens.get(..end)?, at, operators: 0 };
    let value = parser.sum(0)?;
    let whole = parser.operators > 0 && operator_at(tokens, parser.at).is_none();
    let text = match value {
        Ok(value) => value.to_string(),
        Err(NumberError::DivisionByZero) => format!("{FAILED}division"),
        Err(NumberError::NotWhole) => format!("{FAILED}whole"),
        Err(NumberError::TooLarge) => format!("{FAILED}large"),
    };
    whole.then_some((parser.at, text))
}

/// Whether an operator of expressions ends before `tokens[at]`.
fn ends_symbolic_operator(tokens: &[Token], at: usize) -> bool {
    let ends_here = |before: usize| operator_at(tokens, before).is_some_and(|(_, end)| end == at);
    (1..=2).filter_map(|back| at.checked_sub(back)).any(ends_here)
}

/// Whether the words before `tokens[at]` are an infix operator.
pub(crate) fn follows_operator(tokens: &[Token], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| tokens.get(before)).and_then(Token::word);
    matches!(before, Some("over" | "less" | "than" | "modulo" | "mod")) || ends_symbolic_operator(tokens, at)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Plus,
    Minus,
    Times,
    Over,
    Power,
}

/// The operator at `tokens[at]` and the index after it.
fn operator_at(tokens: &[Token], at: usize) -> Option<(Operator, usize)> {
    let word = |index: usize| tokens.get(index).and_then(Token::word);
    let operator = match &tokens.get(at)?.kind {
        Kind::Symbol('+') => Operator::Plus,
        Kind::Symbol('-' | '\u{2212}' | '\u{2013}') => Operator::Minus,
        Kind::Symbol('*') if tokens.get(at + 1).is_some_and(|next| next.is_symbol('*')) => {
            return Some((Operator::Power, at + 2));
        }
        Kind::Symbol('*' | '\u{d7}' | '\u{22c5}') => Operator::Times,
        Kind::Symbol('/' | '\u{f7}') => Operator::Over,
        Kind::Symbol('^') => Operator::Power,
        Kind::Word(name) => match name.as_str() {
            "plus" => Operator::Plus,
            "minus" => Operator::Minus,
            "times" | "x" => Operator::Times,
            "multiplied" if word(at + 1) == Some("by") => return Some((Operator::Times, at + 2)),
            "divided" if word(at + 1) == Some("by") => return Some((Operator::Over, at + 2)),
            _ => return None,
        },
        _ => return None,
    };
    Some((operator, at + 1))
}

/// A recursive-descent parser. Outer `None`: not an expression. Inner error: an expression without a value.
struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    operators: usize,
}

type Value = Result<Rational, NumberError>;

impl Parser<'_> {
    fn sum(&mut self, depth: usize) -> Option<Value> {
        let mut value = self.product(depth)?;
        while let Some((operator @ (Operator::Plus | Operator::Minus), end)) =
            operator_at(self.tokens, self.at)
        {
            self.step(end);
            let right = self.product(depth)?;
            value = match operator {
                Operator::Plus => combine(value, right, Rational::plus),
                _ => combine(value, right, Rational::minus),
            };
        }
        Some(value)
    }

    fn product(&mut self, depth: usize) -> Option<Value> {
        let mut value = self.power(depth)?;
        while let Some((operator @ (Operator::Times | Operator::Over), end)) =
            operator_at(self.tokens, self.at)
        {
            self.step(end);
            let right = self.power(depth)?;
            value = match operator {
                Operator::Times => combine(value, right, Rational::times),
                _ => combine(value, right, Rational::divided_by),
            };
        }
        Some(value)
    }

    fn power(&mut self, depth: usize) -> Option<Value> {
        let base = self.atom(depth)?;
        let Some((Operator::Power, end)) = operator_at(self.tokens, self.at) else { return Some(base) };
        self.step(end);
        let exponent = self.atom(depth)?;
        Some(combine(base, exponent, Rational::power))
    }

    fn atom(&mut self, depth: usize) -> Option<Value> {
        let token = self.tokens.get(self.at)?;
        match &token.kind {
            Kind::Number => {
                self.at += 1;
                Some(Rational::parse(&token.written).transpose()?)
            }
            Kind::Symbol('(') if depth < DEPTH_MAX => {
                self.at += 1;
                let value = self.sum(depth + 1)?;
                let closed = self.tokens.get(self.at).is_some_and(|token| token.is_symbol(')'));
                self.at += 1;
                closed.then_some(value)
            }
            Kind::Symbol('-' | '\u{2212}') if depth < DEPTH_MAX => {
                self.at += 1;
                let value = self.atom(depth + 1)?;
                Some(value.and_then(|value| Rational::ZERO.minus(value)))
            }
            Kind::Word(_) => {
                let words: Vec<&str> =
                    self.tokens[self.at..].iter().take(100).map_while(Token::word).collect();
                let (value, length) = number_words::from_words(&words)?;
                self.at += length;
                Some(Ok(Rational::whole(value)))
            }
            _ => None,
        }
    }

    fn step(&mut self, end: usize) {
        self.operators += 1;
        self.at = end;
    }
}

fn combine(left: Value, right: Value, apply: fn(Rational, Rational) -> Value) -> Value {
    apply(left?, right?)
}
