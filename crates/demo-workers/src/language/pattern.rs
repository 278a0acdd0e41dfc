//! A small pattern language over tokens, compiled once and matched by backtracking with a bounded number of steps.
//!
//! - `word` matches that word (or its gerund); `%` and other symbols match themselves.
//! - `(a|b c)` one of the alternatives; `[a|b c]` one of them or nothing.
//! - `{x:n}` a slot named `x` of the kind with the letter `n` (see `Slot`); `{x:n?}` may also be left out, at the end of a clause.
//! - `...` up to five plain words.
//! - `$name` a fragment that is defined next to the rules.

use super::{
    reference::Reference,
    slot::{Filling, Slot, View},
    token::{Kind, Token},
};

/// Most steps of one attempt at one position.
const STEPS_MAX: usize = 600;
const GAP_WORDS_MAX: usize = 5;
/// Most ways in which one pattern may match at one position.
const FITS_MAX: usize = 8;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    nodes: Vec<Node>,
    opening: Opening,
}

#[derive(Debug)]
enum Node {
    Word(String),
    Symbol(char),
    Slot { name: char, slot: Slot, optional: bool },
    Gap,
    Choice(Vec<Vec<Node>>),
}

/// A filled slot of a pattern and its tokens.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Filled {
    pub(crate) name: char,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) filling: Filling,
}

/// A match of a pattern.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fit {
    pub(crate) end: usize,
    pub(crate) filled: Vec<Filled>,
}

impl Pattern {
    /// Compiles a pattern. An invalid one is a bug in this program; a test rejects its result.
    pub(crate) fn compile(source: &str, fragments: &[(&str, &str)]) -> Self {
        // Longest names first: `$items` is not `$item` with an "s".
        let mut fragments = fragments.to_vec();
        fragments.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut expanded = source.to_owned();
        for (name, fragment) in fragments {
            expanded = expanded.replace(&format!("${name}"), fragment);
        }
        let characters: Vec<char> = expanded.chars().collect();
        let mut position = 0;
        let nodes = parse_sequence(&characters, &mut position);
        debug_assert_eq!(position, characters.len(), "unbalanced pattern `{source}`");
        debug_assert!(!expanded.contains('$'), "unknown fragment in `{source}`");
        let mut opening = Opening::default();
        let empty = opening.gather(&nodes);
        debug_assert!(empty == CanBeEmpty::No, "`{source}` fits anything");
        Self { nodes, opening }
    }

    /// All words that the pattern contains.
    pub(crate) fn words(&self, into: &mut Vec<String>) {
        collect_words(&self.nodes, into);
    }

    /// All matches of the words from `tokens[at]` on, in the order of the alternatives.
    pub(crate) fn fits(&self, view: &View<'_>, at: usize) -> Vec<Fit> {
        if !self.opening.admits(view, at) {
            return Vec::new();
        }
        let mut matcher =
            Matcher { view, tokens: view.tokens, steps: 0, filled: Vec::new(), fits: Vec::new() };
        matcher.run(Rest { nodes: &self.nodes, after: None }, at);
        matcher.fits
    }
}

/// The words that a pattern can begin with: most positions are excluded by their first word.
#[derive(Debug, Default)]
struct Opening {
    words: Vec<String>,
    symbols: Vec<char>,
    slots: Vec<Slot>,
}

/// Whether a sequence can match no word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CanBeEmpty {
    Yes,
    No,
}

impl Opening {
    fn gather(&mut self, nodes: &[Node]) -> CanBeEmpty {
        for node in nodes {
            let empty = match node {
                Node::Word(word) => {
                    self.words.push(word.clone());
                    CanBeEmpty::No
                }
                Node::Symbol(symbol) => {
                    self.symbols.push(*symbol);
                    CanBeEmpty::No
                }
                Node::Slot { slot, optional, .. } => {
                    self.slots.push(*slot);
                    if *optional { CanBeEmpty::Yes } else { CanBeEmpty::No }
                }
                Node::Gap => CanBeEmpty::Yes,
                Node::Choice(branches) => {
                    let empty: Vec<CanBeEmpty> = branches.iter().map(|branch| self.gather(branch)).collect();
                    if empty.contains(&CanBeEmpty::Yes) { CanBeEmpty::Yes } else { CanBeEmpty::No }
                }
            };
            if empty == CanBeEmpty::No {
                return CanBeEmpty::No;
            }
        }
        CanBeEmpty::Yes
    }

    fn admits(&self, view: &View<'_>, at: usize) -> bool {
        let Some(token) = view.tokens.get(at) else { return false };
        let by_itself = match &token.kind {
            Kind::Word(found) => self.words.iter().any(|word| is_form_of(found, word)),
            Kind::Symbol(symbol) => self.symbols.contains(symbol),
            _ => false,
        };
        by_itself || self.slots.iter().any(|slot| !view.fillings(*slot, at).is_empty())
    }
}

/// The rest of a match: the rest of a sequence, then what follows its group.
#[derive(Clone, Copy)]
struct Rest<'p> {
    nodes: &'p [Node],
    after: Option<&'p Rest<'p>>,
}

struct Matcher<'t> {
    view: &'t View<'t>,
    tokens: &'t [Token],
    steps: usize,
    filled: Vec<Filled>,
    fits: Vec<Fit>,
}

impl Matcher<'_> {
    /// Tries all matches of the rest and keeps those that reach the pattern's end.
    fn run(&mut self, rest: Rest<'_>, at: usize) {
        self.steps += 1;
        if self.steps > STEPS_MAX || self.fits.len() >= FITS_MAX {
            return;
        }
        let Some((node, nodes)) = rest.nodes.split_first() else {
            return match rest.after {
                Some(after) => self.run(*after, at),
                None => self.fits.push(Fit { end: at, filled: self.filled.clone() }),
            };
        };
        let next = Rest { nodes, after: rest.after };
        match node {
            Node::Word(word) => {
                if self.tokens.get(at).and_then(Token::word).is_some_and(|found| is_form_of(found, word)) {
                    self.run(next, at + 1);
                }
            }
            Node::Symbol(symbol) => {
                if self.tokens.get(at).is_some_and(|token| token.is_symbol(*symbol)) {
                    self.run(next, at + 1);
                }
            }
            Node::Choice(branches) => {
                for branch in branches {
                    self.run(Rest { nodes: branch, after: Some(&next) }, at);
                }
            }
            Node::Gap => self.run_gap(next, at),
            Node::Slot { name, slot, optional } => self.run_slot(next, at, *name, *slot, *optional),
        }
    }

    fn run_gap(&mut self, next: Rest<'_>, at: usize) {
        for skipped in 0..=GAP_WORDS_MAX {
            self.run(next, at + skipped);
            // A gap never crosses "and" or "then", because another operation begins there.
            let passable = |word: &str| !matches!(word, "and" | "then" | "it" | "result");
            if !self.tokens.get(at + skipped).and_then(Token::word).is_some_and(passable) {
                return;
            }
        }
    }

    fn run_slot(&mut self, next: Rest<'_>, at: usize, name: char, slot: Slot, optional: bool) {
        for (end, filling) in self.view.fillings(slot, at).iter() {
            self.fill(next, Filled { name, start: at, end: *end, filling: filling.clone() });
        }
        if optional && self.ends_clause(at) {
            self.fill(next, Filled { name, start: at, end: at, filling: Filling::Refers(Reference::Latest) });
        }
    }

    fn fill(&mut self, next: Rest<'_>, filled: Filled) {
        let end = filled.end;
        self.filled.push(filled);
        self.run(next, end);
        self.filled.pop();
    }

    fn ends_clause(&self, at: usize) -> bool {
        self.tokens.get(at).is_none_or(|token| match &token.kind {
            Kind::Symbol(_) => true,
            Kind::Word(word) => matches!(word.as_str(), "and" | "then" | "next" | "finally" | "please"),
            _ => false,
        })
    }
}

/// The word itself, or its gerund: "multiplying" for "multiply", "adding" for "add", "dividing" for "divide".
fn is_form_of(found: &str, word: &str) -> bool {
    if found == word {
        return true;
    }
    let Some(stem) = found.strip_suffix("ing") else { return false };
    stem.len() >= 3
        && (stem == word
            || word.strip_suffix('e') == Some(stem)
            || (word.len() + 1 == stem.len()
                && stem.starts_with(word)
                && stem.ends_with(&word[word.len() - 1..])))
}

fn collect_words(nodes: &[Node], into: &mut Vec<String>) {
    for node in nodes {
        match node {
            Node::Word(word) => into.push(word.clone()),
            Node::Choice(branches) => branches.iter().for_each(|branch| collect_words(branch, into)),
            Node::Symbol(_) | Node::Slot { .. } | Node::Gap => {}
        }
    }
}

fn parse_sequence(source: &[char], position: &mut usize) -> Vec<Node> {
    let mut nodes = Vec::new();
    while let Some(character) = source.get(*position) {
        match character {
            ')' | ']' | '|' => break,
            ' ' => *position += 1,
            '(' | '[' => nodes.push(parse_group(source, position)),
            '{' => nodes.push(parse_slot(source, position)),
            '.' => {
                *position += 3;
                nodes.push(Node::Gap);
            }
            character if character.is_alphabetic() || *character == '\'' => {
                let word: String = source[*position..]
                    .iter()
                    .take_while(|next| next.is_alphabetic() || **next == '\'')
                    .collect();
                *position += word.chars().count();
                nodes.push(Node::Word(word.to_lowercase()));
            }
            symbol => {
                nodes.push(Node::Symbol(*symbol));
                *position += 1;
            }
        }
    }
    nodes
}

fn parse_group(source: &[char], position: &mut usize) -> Node {
    let optional = source[*position] == '[';
    let mut branches = Vec::new();
    loop {
        *position += 1;
        branches.push(parse_sequence(source, position));
        if source.get(*position) != Some(&'|') {
            break;
        }
    }
    *position += 1;
    if optional {
        branches.push(Vec::new());
    }
    Node::Choice(branches)
}

fn parse_slot(source: &[char], position: &mut usize) -> Node {
    let body: String = source[*position + 1..].iter().take_while(|next| **next != '}').collect();
    *position += body.chars().count() + 2;
    let mut characters = body.chars();
    let name = characters.next().unwrap_or('x');
    let slot = characters.nth(1).and_then(Slot::from_letter);
    debug_assert!(slot.is_some(), "unknown slot `{body}`");
    Node::Slot { name, slot: slot.unwrap_or(Slot::Text), optional: body.ends_with('?') }
}
