//! Phrases that refer to an earlier output: "it", "the result", "the second answer", "the two results".

use super::token::{Kind, Token};
use crate::skills::number_words;

/// The target of a phrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference {
    /// The most recent output.
    Latest,
    /// The n-th visible output, from 1.
    Nth(usize),
    /// The output of the step with this number.
    Step(usize),
    /// The two most recent outputs.
    Pair,
}

/// Nouns that can refer to an output.
const NOUNS: &[&str] = &[
    "result",
    "results",
    "answer",
    "answers",
    "outcome",
    "outcomes",
    "number",
    "numbers",
    "value",
    "values",
    "figure",
    "figures",
    "total",
    "sum",
    "product",
    "difference",
    "quotient",
    "remainder",
    "count",
    "amount",
    "date",
    "day",
    "weekday",
    "year",
    "word",
    "words",
    "text",
    "string",
    "name",
    "letter",
    "letters",
    "list",
    "items",
    "output",
    "outputs",
    "quantity",
    "integer",
    "one",
    "input",
    "capital",
    "currency",
    "symbol",
    "square",
    "average",
    "conversion",
    "phrase",
];

/// Whether the word can refer to an output.
pub(crate) fn names_output(word: &str) -> bool {
    NOUNS.contains(&word)
}

/// Words that may stand between "the" and such a noun.
const ADJECTIVES: &[&str] = &[
    "final",
    "resulting",
    "new",
    "last",
    "previous",
    "earlier",
    "preceding",
    "obtained",
    "computed",
    "same",
    "above",
    "latest",
    "found",
    "sorted",
    "reversed",
    "converted",
];

/// After these words "the number", "the date" and so on begin a description and are not references.
const DESCRIBING: &[&str] =
    &["of", "for", "that", "which", "between", "whose", "given", "when", "where", "belonging"];

const DETERMINERS: &[&str] = &["the", "this", "that", "these", "those", "your"];

/// The reference that begins at `tokens[at]`, with the index after it.
pub(crate) fn reference_at(tokens: &[Token], at: usize) -> Option<(usize, Reference)> {
    let word = |index: usize| tokens.get(index).and_then(Token::word);
    let first = word(at)?;
    step_reference(tokens, at)
        .or_else(|| ordinal_reference(tokens, at))
        .or_else(|| what_came_out(tokens, at))
        .or_else(|| noun_reference(tokens, at))
        .or_else(|| match first {
            "that" | "this" | "so" if word(at + 1) == Some("many") => Some((at + 2, Reference::Latest)),
            "it" | "that" | "this" | "them" | "these" | "those" => Some((at + 1, Reference::Latest)),
            _ => None,
        })
}

/// The reference to two outputs that begins at `tokens[at]`.
pub(crate) fn pair_at(tokens: &[Token], at: usize) -> Option<(usize, Reference)> {
    let word = |index: usize| tokens.get(index).and_then(Token::word);
    let plural = |index: usize| word(index).is_some_and(|noun| NOUNS.contains(&noun) && noun.ends_with('s'));
    let after_determiner = at + usize::from(word(at).is_some_and(|first| DETERMINERS.contains(&first)));
    if matches!(word(after_determiner), Some("two" | "both")) {
        let end = after_determiner + 1;
        return Some((end + usize::from(plural(end)), Reference::Pair));
    }
    match word(at)? {
        "the" if plural(at + 1) => Some((at + 2, Reference::Pair)),
        "them" | "these" | "those" => Some((at + 1, Reference::Pair)),
        _ => None,
    }
}

/// "result 2", "the result of step 2", "the output of the second step"
fn step_reference(tokens: &[Token], at: usize) -> Option<(usize, Reference)> {
    let word = |index: usize| tokens.get(index).and_then(Token::word);
    let start = at + usize::from(word(at) == Some("the"));
    if !matches!(word(start)?, "result" | "answer" | "output" | "outcome" | "value" | "number") {
        return step_possessive(tokens, at);
    }
    if matches!(word(start + 1), Some("of" | "from")) {
        let noun = start + 2 + usize::from(word(start + 2) == Some("the"));
        if word(noun) == Some("step") {
            return Some((noun + 2, Reference::Step(small_number(tokens.get(noun + 1)?)?)));
        }
        let ordinal = tokens.get(noun).and_then(small_ordinal)?;
        return (word(noun + 1) == Some("step")).then_some((noun + 2, Reference::Step(ordinal)));
    }
    // "the number 2" is a number; "result 2" is the second result.
    let names_result = matches!(word(start), Some("result" | "answer" | "output" | "outcome"));
    let marker = usize::from(tokens.get(start + 1).is_some_and(|token| token.is_symbol('#')));
    let index = tokens.get(start + 1 + marker).and_then(small_number)?;
    (names_result && (1..=64).contains(&index)).then_some((start + 2 + marker, Reference::Nth(index)))
}

/// "step 2's result"
fn step_possessive(tokens: &[Token], at: usize) -> Option<(usize, Reference)> {
    let word = |index: usize| tokens.get(index).and_then(Token::word);
    let shaped = word(at) == Some("step")
        && word(at + 2) == Some("'s")
        && word(at + 3).is_some_and(|noun| NOUNS.contains(&noun));
    shaped.then(|| Some((at + 4, Reference::Step(small_number(tokens.get(at + 1)?)?))))?
}

/// "the first result", "the second", "the former"
fn ordinal_reference(tokens: &[Token], at: usize) -> Option<(usize, Reference)> {
    let word = |index: usize| tokens.get(index).and_then(Token::word);
    let start = at + usize::from(word(at).is_some_and(|first| DETERMINERS.contains(&first)));
    if start == at && word(start).is_none() {
        return None;
    }
    let index = match tokens.get(start).and_then(Token::word)? {
        "former" => 1,
        "latter" => 2,
        _ => small_ordinal(tokens.get(start)?)?,
    };
    let noun_follows = word(start + 1).is_some_and(|noun| {
        matches!(
            noun,
            "result"
                | "number"
                | "answer"
                | "one"
                | "value"
                | "outcome"
                | "figure"
                | "output"
                | "quantity"
                | "sum"
                | "count"
        )
    });
    let end = start + 1 + usize::from(noun_follows);
    let describes = word(end).is_some_and(|next| {
        matches!(
            next,
            "of" | "in" | "item" | "entry" | "element" | "letter" | "step" | "power" | "place" | "position"
        )
    });
    (start > at && !describes).then_some((end, Reference::Nth(index)))
}

/// "what you get", "whatever comes out", "the number you found"
fn what_came_out(tokens: &[Token], at: usize) -> Option<(usize, Reference)> {
    let word = |index: usize| tokens.get(index).and_then(Token::word);
    let subject = match word(at)? {
        "what" | "whatever" => at + 1,
        "the" if word(at + 1).is_some_and(|noun| NOUNS.contains(&noun)) => {
            at + 2 + usize::from(word(at + 2) == Some("that"))
        }
        _ => return None,
    };
    let verb = subject + 1;
    match (word(subject)?, word(verb)) {
        ("you" | "we", Some("get" | "got" | "have" | "found" | "obtain" | "obtained" | "computed")) => {
            Some((verb + 1, Reference::Latest))
        }
        ("comes" | "came", Some("out")) => Some((verb + 1, Reference::Latest)),
        ("results" | "resulted", _) => Some((subject + 1, Reference::Latest)),
        _ => None,
    }
}

/// "the result", "that number", "the sorted list"
fn noun_reference(tokens: &[Token], at: usize) -> Option<(usize, Reference)> {
    let word = |index: usize| tokens.get(index).and_then(Token::word);
    if !word(at).is_some_and(|first| DETERMINERS.contains(&first)) {
        return None;
    }
    let noun = at + 1 + usize::from(word(at + 1).is_some_and(|adjective| ADJECTIVES.contains(&adjective)));
    if !word(noun).is_some_and(|noun| NOUNS.contains(&noun)) {
        return None;
    }
    let end = noun + 1;
    let literal_follows = tokens.get(end).is_some_and(|next| {
        matches!(
            next.kind,
            Kind::Number | Kind::Date(_) | Kind::Clock(_) | Kind::Quote(_) | Kind::List(_) | Kind::Result(_)
        )
    });
    // "the part of the result that is 5 percent" refers to the result; "the number that is written as five" does not.
    let quantified = match word(end + 1) {
        Some("is") => tokens.get(end + 2).is_some_and(|token| token.kind == Kind::Number),
        Some("are") => true,
        _ => false,
    };
    let describes = word(end).is_some_and(|next| DESCRIBING.contains(&next)) && !quantified;
    (!literal_follows && !describes).then_some((end, Reference::Latest))
}

fn small_number(token: &Token) -> Option<usize> {
    match &token.kind {
        Kind::Number => token.written.parse().ok(),
        Kind::Word(word) => {
            let (value, _) = number_words::from_words(&[word.as_str()])?;
            usize::try_from(value).ok()
        }
        _ => None,
    }
}

/// "first" is 1.
pub(crate) fn small_ordinal(token: &Token) -> Option<usize> {
    const NAMES: [&str; 12] = [
        "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
        "eleventh", "twelfth",
    ];
    match &token.kind {
        Kind::Ordinal(value) => usize::try_from(*value).ok().filter(|value| *value > 0),
        Kind::Word(word) => NAMES.iter().position(|name| name == word).map(|index| index + 1),
        _ => None,
    }
}
