//! The slots of a pattern: which tokens may fill a number, a date, a text, a list, a unit and so on.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use super::{
    reference::{Reference, names_output, pair_at, reference_at},
    token::{Kind, Token, tokenise},
};
use crate::skills::{arithmetic, facts, lists, number_words, units, vocabulary};

/// Most items of a list of words; lists of numbers are not bounded.
const LIST_ITEMS_MAX: usize = 2_000;
/// Most words such as "the number" and "the value of" before an operand.
const NOISE_MAX: usize = 5;
/// Most words of an unquoted phrase.
const PHRASE_WORDS_MAX: usize = 12;

/// The kind of operand that a slot accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Slot {
    /// A number in digits or in words.
    Number,
    /// An arithmetic expression with at least one operator.
    Expression,
    /// A day.
    Date,
    /// A time of day.
    Clock,
    /// Quoted text, or a single word.
    Text,
    /// A number in English words.
    Spelled,
    /// Items separated by commas.
    List,
    /// A unit of measurement.
    Unit,
    /// "day", "days", "week", "weeks".
    Period,
    /// "third", "3rd", "last".
    Ordinal,
    /// A subject of the fact table.
    Subject,
    /// Two earlier outputs.
    Pair,
}

impl Slot {
    /// The slot with this letter in patterns.
    pub(crate) fn from_letter(letter: char) -> Option<Self> {
        Some(match letter {
            'n' => Self::Number,
            'e' => Self::Expression,
            'd' => Self::Date,
            'c' => Self::Clock,
            'w' => Self::Text,
            's' => Self::Spelled,
            'l' => Self::List,
            'u' => Self::Unit,
            'p' => Self::Period,
            'o' => Self::Ordinal,
            'f' => Self::Subject,
            'b' => Self::Pair,
            _ => return None,
        })
    }
}

/// The content of a slot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Filling {
    /// Text of the question.
    Literal(String),
    /// The output of an operation that was reduced.
    Result(usize),
    /// A reference to an earlier output.
    Refers(Reference),
}

/// Ways to fill a slot: the index after the filling, and the filling.
pub(crate) type Fillings = Rc<[(usize, Filling)]>;

/// The tokens of a text at one point of its reading. Many patterns ask for the same slots at the same positions, so the
/// answers are cached.
pub(crate) struct View<'t> {
    pub(crate) tokens: &'t [Token],
    known: RefCell<HashMap<(Slot, usize), Fillings>>,
}

impl<'t> View<'t> {
    pub(crate) fn new(tokens: &'t [Token]) -> Self {
        Self { tokens, known: RefCell::default() }
    }

    /// The ways in which the tokens from `at` on can fill the slot, best first.
    pub(crate) fn fillings(&self, slot: Slot, at: usize) -> Fillings {
        if let Some(known) = self.known.borrow().get(&(slot, at)) {
            return Rc::clone(known);
        }
        let found: Fillings = fillings(slot, self.tokens, at).into();
        self.known.borrow_mut().insert((slot, at), Rc::clone(&found));
        found
    }
}

fn fillings(slot: Slot, tokens: &[Token], at: usize) -> Vec<(usize, Filling)> {
    match slot {
        Slot::Unit => literals(units::unit_at(tokens, at)),
        Slot::Subject => literals(facts::subjects_at(tokens, at)),
        Slot::Period => literals(units::period_at(tokens, at)),
        Slot::Ordinal => literals(lists::ordinal_at(tokens, at)),
        Slot::Expression => literals(arithmetic::expression_at(tokens, at)),
        Slot::Pair => pair_at(tokens, at)
            .map(|(end, reference)| (end, Filling::Refers(reference)))
            .into_iter()
            .collect(),
        Slot::Number | Slot::Date | Slot::Clock | Slot::Text | Slot::Spelled | Slot::List => {
            operand_fillings(slot, tokens, at)
        }
    }
}

fn literals(found: impl IntoIterator<Item = (usize, String)>) -> Vec<(usize, Filling)> {
    found.into_iter().map(|(end, text)| (end, Filling::Literal(text))).collect()
}

fn operand_fillings(slot: Slot, tokens: &[Token], at: usize) -> Vec<(usize, Filling)> {
    let mut found = Vec::new();
    let mut references = Vec::new();
    for start in operand_starts(slot, tokens, at) {
        let noun = start.checked_sub(1).filter(|_| start > at).and_then(|index| tokens.get(index));
        if slot == Slot::Text {
            let known = if references.is_empty() { KnownWords::AtTheEnd } else { KnownWords::Never };
            found.extend(literals(bare_words_at(tokens, start, noun, known)));
        }
        found.extend(literals(literal_at(slot, tokens, start, noun)));
        if let Some(Kind::Result(index)) = tokens.get(start).map(|token| &token.kind) {
            found.push((start + 1, Filling::Result(*index)));
        }
        if let Some((end, reference)) = reference_at(tokens, start) {
            references.push((end, Filling::Refers(reference)));
        }
    }
    // "the word lantern" is a word, not "the word" followed by something else.
    found.append(&mut references);
    found
}

/// `at` itself and the positions after words such as "the number", "the word:", "the value of".
fn operand_starts(slot: Slot, tokens: &[Token], at: usize) -> Vec<usize> {
    let mut starts = vec![at];
    let mut index = at;
    // "of" continues a noun phrase; at the beginning it belongs to the words before.
    let mut after_noun = false;
    while index < at + NOISE_MAX {
        let Some(word) = tokens.get(index).and_then(Token::word) else { break };
        let noun = names_operand(slot, word);
        let goes_on = noun || is_determiner(word) || (word == "of" && after_noun);
        if !goes_on {
            break;
        }
        after_noun = noun;
        index += 1;
        index += usize::from(tokens.get(index).is_some_and(|token| token.is_symbol(':')));
        starts.push(index);
    }
    starts
}

fn is_determiner(word: &str) -> bool {
    matches!(
        word,
        "the"
            | "a"
            | "an"
            | "another"
            | "extra"
            | "following"
            | "given"
            | "these"
            | "those"
            | "this"
            | "all"
            | "both"
    )
}

/// Nouns that announce an operand: "the number 17", "the word lantern", "the list 3, 1, 2".
fn names_operand(slot: Slot, word: &str) -> bool {
    match slot {
        Slot::Number => matches!(
            word,
            "number"
                | "value"
                | "figure"
                | "integer"
                | "result"
                | "outcome"
                | "answer"
                | "quantity"
                | "amount"
                | "expression"
                | "formula"
        ),
        Slot::Date | Slot::Clock => matches!(word, "date" | "day" | "time" | "result" | "answer" | "outcome"),
        Slot::Text => matches!(
            word,
            "word"
                | "words"
                | "phrase"
                | "text"
                | "sentence"
                | "string"
                | "name"
                | "term"
                | "result"
                | "answer"
        ),
        Slot::Spelled => {
            matches!(word, "number" | "words" | "word" | "name" | "result" | "answer" | "phrase" | "text")
        }
        Slot::List => matches!(
            word,
            "list" | "lists" | "numbers" | "words" | "items" | "entries" | "elements" | "values" | "result"
        ),
        _ => false,
    }
}

fn literal_at(slot: Slot, tokens: &[Token], at: usize, noun: Option<&Token>) -> Option<(usize, String)> {
    let token = tokens.get(at)?;
    // "result 2" is the second result and never the number 2.
    if noun.and_then(Token::word).is_some_and(|noun| matches!(noun, "result" | "outcome" | "answer")) {
        return None;
    }
    match (slot, &token.kind) {
        (Slot::Number, Kind::Number) => Some((at + 1, token.written.clone())),
        (Slot::Number | Slot::Spelled, Kind::Word(_)) => spelled_at(tokens, at),
        (Slot::Number, Kind::Quote(text)) => {
            let inner = tokenise(text);
            let spelled = spelled_at(&inner, 0).filter(|(end, _)| *end == inner.len());
            Some((at + 1, spelled.map_or_else(|| text.clone(), |(_, number)| number)))
        }
        (Slot::Spelled | Slot::Text | Slot::Date | Slot::Clock, Kind::Quote(text)) => {
            Some((at + 1, text.clone()))
        }
        (Slot::Date, Kind::Date(date)) => Some((at + 1, date.to_string())),
        (Slot::Clock, Kind::Clock(minutes)) => {
            Some((at + 1, format!("{:02}:{:02}", minutes / 60, minutes % 60)))
        }
        (Slot::Text, Kind::Number) if names_text(noun) => Some((at + 1, token.written.clone())),
        (Slot::List, _) => list_at(tokens, at, noun),
        _ => None,
    }
}

fn names_text(noun: Option<&Token>) -> bool {
    noun.and_then(Token::word).is_some_and(|noun| {
        matches!(
            noun,
            "word"
                | "words"
                | "text"
                | "string"
                | "name"
                | "term"
                | "phrase"
                | "letters"
                | "digits"
                | "number"
        )
    })
}

fn spelled_at(tokens: &[Token], at: usize) -> Option<(usize, String)> {
    // No valid number has more words than this.
    let words: Vec<&str> = tokens.iter().skip(at).take(100).map_while(Token::word).collect();
    let (value, taken) = number_words::from_words(&words)?;
    Some((at + taken, value.to_string()))
}

/// Whether words of the rules' vocabulary may be an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownWords {
    Never,
    AtTheEnd,
}

/// Unquoted words as operand, longest run first. Words of the rules' vocabulary are more likely the name of an operation, so
/// they count only after "the word", or as the last word of a clause.
fn bare_words_at(
    tokens: &[Token],
    at: usize,
    noun: Option<&Token>,
    known: KnownWords,
) -> Vec<(usize, String)> {
    let word = |index: usize| {
        tokens.get(index).and_then(Token::word).filter(|word| !is_function_word(word) && *word != "'s")
    };
    let named = noun
        .and_then(Token::word)
        .is_some_and(|noun| matches!(noun, "word" | "name" | "term" | "string" | "text" | "phrase"));
    let unknown =
        |index: usize| word(index).is_some_and(|word| !vocabulary().contains(word) && !names_output(word));
    let run = (at..at + PHRASE_WORDS_MAX).take_while(|index| unknown(*index)).count();
    let text = |length: usize| {
        let words: Vec<&str> = tokens[at..at + length].iter().map(|token| token.written.as_str()).collect();
        (at + length, words.join(" "))
    };
    let ends_clause = known == KnownWords::AtTheEnd
        && tokens
            .get(at + 1)
            .is_none_or(|next| matches!(next.kind, Kind::Symbol('.' | ',' | ';' | '?' | ':' | '!')));
    match run {
        0 if word(at).is_some() && (named || ends_clause) => vec![text(1)],
        _ => (1..=run).rev().map(text).collect(),
    }
}

fn is_function_word(word: &str) -> bool {
    matches!(
        word,
        "of" | "for"
            | "in"
            | "on"
            | "at"
            | "to"
            | "from"
            | "by"
            | "with"
            | "and"
            | "or"
            | "then"
            | "that"
            | "which"
            | "is"
            | "are"
            | "was"
            | "the"
            | "a"
            | "an"
            | "it"
            | "its"
            | "as"
            | "into"
            | "has"
            | "have"
            | "does"
            | "do"
            | "you"
            | "me"
            | "i"
            | "next"
            | "finally"
            | "please"
            | "after"
            | "afterwards"
            | "lastly"
            | "now"
            | "before"
            | "when"
            | "where"
            | "if"
            | "so"
            | "this"
            | "these"
            | "those"
            | "them"
            | "thanks"
    )
}

/// Items separated by commas. A single number counts only after a noun such as "the list".
fn list_at(tokens: &[Token], at: usize, noun: Option<&Token>) -> Option<(usize, String)> {
    let open = usize::from(tokens.get(at).is_some_and(|token| token.is_symbol('[') || token.is_symbol('(')));
    let start = at + open;
    let (end, text) = match &tokens.get(start)?.kind {
        Kind::List(items) => (start + 1, items.join(", ")),
        Kind::Quote(text) if text.contains(',') => (start + 1, text.clone()),
        Kind::Number
            if noun
                .and_then(Token::word)
                .is_some_and(|noun| matches!(noun, "list" | "numbers" | "items")) =>
        {
            (start + 1, tokens.get(start)?.written.clone())
        }
        _ => word_list_at(tokens, start)?,
    };
    let closed = usize::from(
        open == 1 && tokens.get(end).is_some_and(|token| token.is_symbol(']') || token.is_symbol(')')),
    );
    Some((end + closed, text))
}

fn word_list_at(tokens: &[Token], at: usize) -> Option<(usize, String)> {
    let separator = tokens.get(at + 1)?.kind.clone();
    if !matches!(separator, Kind::Symbol(',' | ';')) {
        return None;
    }
    let is_comma = |index: usize| tokens.get(index).is_some_and(|token| token.kind == separator);
    let quoted = matches!(tokens.get(at)?.kind, Kind::Quote(_));
    let item = |index: usize| {
        let token = tokens.get(index)?;
        match &token.kind {
            Kind::Word(word) if !quoted && !is_function_word(word) && word != "'s" => {
                Some(token.written.clone())
            }
            Kind::Quote(text) if quoted => Some(text.clone()),
            Kind::Number => Some(token.written.clone()),
            _ => None,
        }
    };
    let mut items = vec![item(at)?];
    let mut end = at + 1;
    while items.len() < LIST_ITEMS_MAX && is_comma(end) {
        let Some(text) = item(end + 1) else { break };
        // A verb that opens the next clause ("..., apple, sort it") is followed by its object, an item by a comma or the end.
        let opens_clause =
            tokens.get(end + 1).and_then(Token::word).is_some_and(|word| vocabulary().contains(word))
                && tokens
                    .get(end + 2)
                    .is_some_and(|next| !matches!(next.kind, Kind::Symbol(_)) && next.word() != Some("and"));
        if opens_clause {
            break;
        }
        items.push(text);
        end += 2;
    }
    let last = end + usize::from(is_comma(end)) + 1;
    let joins = tokens.get(last - 1).and_then(Token::word) == Some("and");
    let known = tokens.get(last).and_then(Token::word).is_some_and(|word| vocabulary().contains(word));
    if joins
        && !known
        && let Some(text) = item(last)
    {
        items.push(text);
        end = last + 1;
    }
    (items.len() >= 2).then(|| (end, items.join(", ")))
}
