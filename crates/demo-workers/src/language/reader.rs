//! Reads a text by reduction: finds an operation whose operands are all known, computes it, replaces its words by its
//! output, and repeats until nothing is found. So nested, chained and joined operations need no separate grammar: "write in
//! words the product of 12 and `<output>`" is found once the inner part is an output.

use std::collections::{HashMap, HashSet};

use super::{
    pattern::{Fit, Pattern},
    reference::Reference,
    slot::{Filling, View},
    token::{Kind, Token, tokenise},
};
use crate::skills::{Refusal, Skill, arithmetic::follows_operator};

/// Longest text in bytes; longer ones are declined.
pub(crate) const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Most tokens of a text. A list of numbers is one token.
const TOKENS_MAX: usize = 4_096;
/// Most operations in one text.
pub(crate) const OPERATIONS_MAX: usize = 16;
/// Texts up to this length are read in several ways and the best is used; longer ones are read in one way.
const SEARCHED_TOKENS_MAX: usize = 300;
/// Most readings per text.
const NODES_MAX: usize = 48;
/// Most alternatives at one point of a reading.
const BRANCHES_MAX: usize = 3;

/// The grammatical form of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A noun phrase, which may itself be an operand.
    Noun,
    /// An imperative or a question, whose last operand reaches as far as it can.
    Verb,
}

/// How tightly an operation binds its operands, if two operations of a skill compete for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    /// Sums and differences.
    Loose,
    /// Products, quotients, powers.
    Tight,
    /// Already one operand, such as an expression.
    Whole,
    /// Operations that do not compete.
    Other,
}

/// An operation of a skill: its wording and computation.
pub(crate) struct Rule {
    pub(crate) skill: Skill,
    pub(crate) form: Form,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) binding: Binding,
    pub(crate) compute: fn(&Operands) -> Result<String, Refusal>,
}

/// An operation's operands as text, by slot name.
#[derive(Debug)]
pub(crate) struct Operands(Vec<(char, String)>);

impl Operands {
    /// The operand; empty if the wording has no such slot.
    pub(crate) fn text(&self, name: char) -> &str {
        self.find(name).unwrap_or_default()
    }

    /// The operand, if the wording has it.
    pub(crate) fn find(&self, name: char) -> Option<&str> {
        self.0.iter().find(|(slot, _)| *slot == name).map(|(_, text)| text.as_str())
    }
}

/// An earlier output that the task includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    /// The number of its step, as shown in the task.
    pub number: usize,
    /// Its text; `None` for a step that failed.
    pub output: Option<String>,
}

/// An operation that was found and computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) skill: Skill,
    /// Its words, with "the result" or "result 2" in place of outputs.
    pub(crate) subtask: String,
    /// The earlier operations whose outputs it uses, ascending. Given outputs are excluded.
    pub(crate) uses: Vec<usize>,
    pub(crate) answer: String,
}

/// Changes the answer of the operation at a position before it is used: the identity, or a seeded error.
pub(crate) type Alter<'a> = &'a dyn Fn(usize, Skill, String) -> String;

/// All operations of `text` in the order of their computation. Never empty.
pub(crate) fn read(
    text: &str,
    visible: &[Visible],
    rules: &[&Rule],
    alter: Alter<'_>,
) -> Result<Vec<Operation>, Refusal> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Refusal::TooLong { bytes: text.len() });
    }
    let tokens = tokenise(text);
    if tokens.len() > TOKENS_MAX {
        return Err(Refusal::TooLong { bytes: text.len() });
    }
    let searched = tokens.len() <= SEARCHED_TOKENS_MAX;
    let mut reader = Reader { text, visible, rules, alter, nodes: 0, searched, refusal: None, best: None };
    let results = visible.iter().map(|step| step.output.clone().unwrap_or_default()).collect();
    reader.explore(&State { tokens, results, operations: Vec::new() });
    match reader.best {
        Some((_, found)) if !found.is_empty() => Ok(in_order(found, visible.len())),
        _ => Err(reader.refusal.unwrap_or(Refusal::NothingFound)),
    }
}

#[derive(Clone)]
struct State {
    tokens: Vec<Token>,
    /// The given outputs, then those of the operations.
    results: Vec<String>,
    operations: Vec<Found>,
}

/// An operation before all of them are put in order.
#[derive(Clone)]
struct Found {
    skill: Skill,
    /// Start of its words in the text.
    start: usize,
    wording: Vec<Piece>,
    /// The outputs that it uses: given ones first, then those of operations.
    uses: Vec<usize>,
    answer: String,
}

/// A part of an operation's words.
#[derive(Clone)]
enum Piece {
    Text(String),
    Output(usize),
}

/// Where an operation is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Anywhere. The words before it may be unread: "28 plus 45" after "times" is not an operation.
    Anywhere,
    /// Within the words of another operation.
    InsideAnother,
}

/// A computed operation at its position.
struct Candidate {
    start: usize,
    end: usize,
    form: Form,
    binding: Binding,
    /// Whether it contains a reference such as "it".
    refers: bool,
    /// Which of its operands are known outputs, in the order of the text.
    outputs: Vec<bool>,
    operation: Found,
}

/// The better reading leaves fewer literals unused, then fewer outputs, then fewer words.
type Score = (usize, usize, usize);

struct Reader<'a> {
    text: &'a str,
    visible: &'a [Visible],
    rules: &'a [&'a Rule],
    alter: Alter<'a>,
    nodes: usize,
    searched: bool,
    refusal: Option<Refusal>,
    best: Option<(Score, Vec<Found>)>,
}

impl Reader<'_> {
    fn explore(&mut self, state: &State) {
        self.nodes += 1;
        let mut candidates = self.candidates(state);
        if candidates.is_empty() {
            return self.finish(state);
        }
        if state.operations.len() == OPERATIONS_MAX {
            // A partial answer would look like a complete one.
            self.refusal = Some(Refusal::TooManyOperations);
            self.best = None;
            self.nodes = NODES_MAX;
            return;
        }
        candidates.truncate(if self.searched { BRANCHES_MAX } else { 1 });
        for (index, candidate) in candidates.into_iter().enumerate() {
            if index > 0 && self.nodes >= NODES_MAX {
                return;
            }
            self.explore(&reduced(state, candidate));
        }
    }

    fn finish(&mut self, state: &State) {
        let is_literal = |token: &&Token| {
            matches!(
                token.kind,
                Kind::Number | Kind::Date(_) | Kind::Clock(_) | Kind::Quote(_) | Kind::List(_)
            )
        };
        let literals = state.tokens.iter().filter(is_literal).count();
        let given = self.visible.len();
        let uses = state.operations.iter().flat_map(|operation| &operation.uses);
        let consumed: HashSet<usize> = uses.filter_map(|index| index.checked_sub(given)).collect();
        let score = (literals, state.operations.len() - consumed.len(), state.tokens.len());
        if self.best.as_ref().is_none_or(|(best, _)| score < *best) {
            self.best = Some((score, state.operations.clone()));
        }
    }

    /// The operations that can be computed next, most likely first.
    fn candidates(&mut self, state: &State) -> Vec<Candidate> {
        let view = View::new(&state.tokens);
        for start in 0..state.tokens.len() {
            let found = self.candidates_at(state, &view, start, Place::Anywhere);
            if !found.is_empty() {
                return self.ordered(state, &view, found);
            }
        }
        Vec::new()
    }

    /// The first operation in the text and those that compete with it for words, in the order to try them.
    fn ordered(&mut self, state: &State, view: &View<'_>, found: Vec<Candidate>) -> Vec<Candidate> {
        let Some((start, end)) = found.first().map(|first| (first.start, first.end)) else { return found };
        let reaching: Vec<Candidate> = (start + 1..end)
            .flat_map(|inner| self.candidates_at(state, view, inner, Place::InsideAnother))
            .filter(|candidate| candidate.end > end && candidate.form == Form::Noun)
            .collect();
        let Some(first) = found.first() else { return found };
        let (inner, outer): (Vec<_>, Vec<_>) =
            reaching.into_iter().partition(|candidate| is_operand_of(candidate, first));
        if !inner.is_empty() {
            return inner.into_iter().chain(found).chain(outer).collect();
        }
        let later = self.later_nouns(state, view, end);
        later.into_iter().chain(found).chain(outer).collect()
    }

    /// A later noun in the clause, which may become an operand: "write in words 5 less than <the number of ...>".
    fn later_nouns(&mut self, state: &State, view: &View<'_>, end: usize) -> Vec<Candidate> {
        for later in end..state.tokens.len() {
            if ends_clause(&state.tokens[later]) {
                break;
            }
            let mut independent = self.candidates_at(state, view, later, Place::Anywhere);
            independent.retain(|candidate| candidate.form == Form::Noun && !candidate.refers);
            if !independent.is_empty() {
                return independent;
            }
        }
        Vec::new()
    }

    /// The operations that can be computed from the words at `start`, longest first.
    fn candidates_at(
        &mut self,
        state: &State,
        view: &View<'_>,
        start: usize,
        place: Place,
    ) -> Vec<Candidate> {
        let mut found: Vec<Candidate> = Vec::new();
        for rule in self.rules {
            let mut longest: Option<Candidate> = None;
            let opens_with_operand = |fit: &Fit| fit.filled.first().is_some_and(|first| first.start == start);
            let splits_operation = place == Place::Anywhere
                && matches!(rule.skill, Skill::Arithmetic | Skill::Words)
                && follows_operator(&state.tokens, start);
            for pattern in &rule.patterns {
                for fit in pattern.fits(view, start) {
                    let shorter = longest.as_ref().is_some_and(|longest| fit.end <= longest.end);
                    if shorter || fit.end == start || (splits_operation && opens_with_operand(&fit)) {
                        continue;
                    }
                    match self.compute(state, start, rule, &fit) {
                        Ok(operation) => {
                            longest = Some(Candidate {
                                start,
                                end: fit.end,
                                form: rule.form,
                                binding: rule.binding,
                                refers: fit
                                    .filled
                                    .iter()
                                    .any(|filled| matches!(filled.filling, Filling::Refers(_))),
                                outputs: fit
                                    .filled
                                    .iter()
                                    .map(|filled| matches!(filled.filling, Filling::Result(_)))
                                    .collect(),
                                operation,
                            });
                        }
                        Err(refusal) => self.refusal = self.refusal.take().or(Some(refusal)),
                    }
                }
            }
            found.extend(longest.filter(|longest| found.iter().all(|other| other.end != longest.end)));
        }
        found.sort_by_key(|candidate| std::cmp::Reverse(candidate.end));
        found
    }

    fn compute(&self, state: &State, start: usize, rule: &Rule, fit: &Fit) -> Result<Found, Refusal> {
        let mut operands = Vec::new();
        let mut sources: Vec<Vec<Source>> = Vec::new();
        for filled in &fit.filled {
            let found = match &filled.filling {
                Filling::Literal(text) => vec![Source::Literal(text.clone())],
                Filling::Result(index) => vec![Source::Result(*index)],
                Filling::Refers(reference) => self.resolve(state, start, fit.end, *reference)?,
            };
            let mut texts = Vec::new();
            for source in &found {
                texts.push(self.text_of(state, source)?);
            }
            operands.push((filled.name, texts.join(PAIR_SEPARATOR)));
            sources.push(found);
        }
        let answer = (rule.compute)(&Operands(operands))?;
        let mut uses: Vec<usize> = sources.iter().flatten().filter_map(Source::result).collect();
        uses.sort_unstable();
        uses.dedup();
        let wording = self.wording(state, start, fit, &sources);
        let answer = (self.alter)(state.operations.len(), rule.skill, answer);
        let start = state.tokens.get(start).map_or(0, |token| token.start);
        Ok(Found { skill: rule.skill, start, wording, uses, answer })
    }

    fn text_of(&self, state: &State, source: &Source) -> Result<String, Refusal> {
        match source {
            Source::Literal(text) => Ok(text.clone()),
            Source::Result(index) => match self.visible.get(*index) {
                Some(Visible { number, output: None }) => Err(Refusal::MissingOutput { number: *number }),
                _ => Ok(state.results.get(*index).cloned().unwrap_or_default()),
            },
        }
    }

    /// The target of a reference within the words `start..end`.
    fn resolve(
        &self,
        state: &State,
        start: usize,
        end: usize,
        reference: Reference,
    ) -> Result<Vec<Source>, Refusal> {
        let result = |token: &Token| if let Kind::Result(index) = token.kind { Some(index) } else { None };
        let before = state.tokens.iter().take(start).filter_map(result);
        let known: Vec<usize> = (0..self.visible.len()).chain(before).collect();
        let found = match reference {
            Reference::Latest => {
                known.last().copied().map(Source::Result).map(|source| vec![source]).or_else(|| {
                    let source =
                        antecedent(&state.tokens, start).or_else(|| explained_later(&state.tokens, end))?;
                    Some(vec![source])
                })
            }
            Reference::Pair => match known.as_slice() {
                [.., first, second] => Some(vec![Source::Result(*first), Source::Result(*second)]),
                _ => None,
            },
            Reference::Nth(ordinal) => nth(&known, ordinal),
            Reference::Step(number) => {
                let given = self.visible.iter().position(|step| step.number == number);
                given.map(|index| vec![Source::Result(index)]).or_else(|| nth(&known, number))
            }
        };
        found.ok_or(Refusal::NoEarlierResult)
    }

    /// The words of the operation, with a placeholder for each output.
    fn wording(&self, state: &State, start: usize, fit: &Fit, sources: &[Vec<Source>]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut index = start;
        for (filled, found) in fit.filled.iter().zip(sources) {
            let literal = matches!(filled.filling, Filling::Literal(_));
            if literal || filled.start == filled.end {
                continue;
            }
            pieces.push(Piece::Text(self.slice(&state.tokens, index, filled.start).to_owned()));
            for (place, source) in found.iter().enumerate() {
                if place > 0 {
                    pieces.push(Piece::Text(" and ".to_owned()));
                }
                pieces.push(match source {
                    Source::Literal(text) => Piece::Text(text.clone()),
                    Source::Result(index) => Piece::Output(*index),
                });
            }
            index = filled.end;
            let glued =
                state.tokens.get(index).is_some_and(|next| next.is_symbol('%') || next.word() == Some("'s"));
            pieces.push(Piece::Text(if index < fit.end && !glued { " " } else { "" }.to_owned()));
        }
        let rest = self.slice(&state.tokens, index, fit.end);
        pieces.push(Piece::Text(rest.to_owned()));
        let begins_with_operand = fit.filled.iter().any(|filled| filled.start == start);
        if let (false, Some(Piece::Text(text))) = (begins_with_operand, pieces.first_mut()) {
            *text = with_small_first_letter(text);
        }
        pieces
    }

    /// The text of the tokens, up to the start of the next one.
    fn slice(&self, tokens: &[Token], from: usize, to: usize) -> &str {
        let Some(start) = tokens.get(from).map(|token| token.start).filter(|_| from < to) else { return "" };
        let last = tokens.get(to - 1).map_or(start, |token| token.end);
        let end = tokens.get(to).map_or(last, |next| next.start);
        // The white space between the last word and an operand must stay.
        self.text.get(start..end.max(last)).unwrap_or_default()
    }
}

/// Separates the two texts of a pair of outputs.
pub(crate) const PAIR_SEPARATOR: &str = "\u{1f}";

#[derive(Debug, Clone, PartialEq)]
enum Source {
    Literal(String),
    Result(usize),
}

impl Source {
    fn result(&self) -> Option<usize> {
        if let Self::Result(index) = self { Some(*index) } else { None }
    }
}

fn with_small_first_letter(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}

/// The operations in the order of the text as far as their uses allow, with references in the form that workers understand.
fn in_order(found: Vec<Found>, given: usize) -> Vec<Operation> {
    let mut rest: Vec<(usize, Found)> = found.into_iter().enumerate().collect();
    let mut places: HashMap<usize, usize> = HashMap::new();
    let mut operations = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let ready = |found: &Found| {
            found.uses.iter().all(|used| *used < given || places.contains_key(&(used - given)))
        };
        let next = rest
            .iter()
            .enumerate()
            .filter(|(_, (_, found))| ready(found))
            .min_by_key(|(_, (_, found))| found.start);
        // Every operation uses only earlier ones, so one is always ready.
        let Some((position, _)) = next else { break };
        let (index, found) = rest.remove(position);
        let place = |used: &usize| if *used < given { *used } else { given + places[&(used - given)] };
        let mut uses: Vec<usize> = found.uses.iter().map(place).collect();
        uses.sort_unstable();
        let label = |used: &usize| match uses.as_slice() {
            [_] => "the result".to_owned(),
            uses => format!(
                "result {}",
                uses.iter().position(|other| *other == place(used)).unwrap_or_default() + 1
            ),
        };
        let text = found.wording.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Output(output) => label(output),
        });
        let subtask = text.collect::<String>().trim().to_owned();
        let uses = uses.iter().filter_map(|used| used.checked_sub(given)).collect();
        operations.push(Operation { skill: found.skill, subtask, uses, answer: found.answer });
        places.insert(index, operations.len() - 1);
    }
    operations
}

fn nth(known: &[usize], ordinal: usize) -> Option<Vec<Source>> {
    let index = known.get(ordinal.checked_sub(1)?)?;
    Some(vec![Source::Result(*index)])
}

/// The literal that "it" means in "Take 17. Square it." before any output exists.
fn antecedent(tokens: &[Token], before: usize) -> Option<Source> {
    (0..before.min(tokens.len())).rev().find_map(|index| {
        let token = tokens.get(index)?;
        let text = match &token.kind {
            Kind::Number => token.written.clone(),
            Kind::Quote(text) => text.clone(),
            Kind::Date(date) => date.to_string(),
            Kind::List(items) => items.join(", "),
            Kind::Word(_) if tokens.get(index.checked_sub(1)?)?.word() == Some("word") => {
                token.written.clone()
            }
            _ => return None,
        };
        let introduced = tokens[..index].iter().rev().take(3).filter_map(Token::word).any(|word| {
            matches!(
                word,
                "take" | "with" | "from" | "given" | "using" | "is" | "consider" | "have" | "at" | "let"
            )
        });
        introduced.then_some(Source::Literal(text))
    })
}

/// The output that "it" means in "Square it, where it is `<output>`."
fn explained_later(tokens: &[Token], after: usize) -> Option<Source> {
    let is_where = tokens.iter().skip(after).position(|token| token.word() == Some("where"))? + after;
    let is = tokens.iter().skip(is_where).take(6).position(|token| token.word() == Some("is"))? + is_where;
    tokens.iter().skip(is + 1).take(4).find_map(|token| match token.kind {
        Kind::Result(index) => Some(Source::Result(index)),
        _ => None,
    })
}

fn ends_clause(token: &Token) -> bool {
    matches!(token.kind, Kind::Symbol('.' | ',' | ';' | ':' | '?' | '!'))
}

/// Whether `candidate`, which begins inside `outer` and reaches beyond it, is an operand of `outer` rather than the other
/// way round. Imperatives reach as far as they can, different skills nest in order, two joined outputs are a unit, and
/// products bind tighter than sums.
fn is_operand_of(candidate: &Candidate, outer: &Candidate) -> bool {
    let joins = |candidate: &Candidate| candidate.outputs.iter().filter(|output| **output).count() > 1;
    if outer.binding == Binding::Whole {
        false
    } else if outer.form == Form::Verb
        || candidate.operation.skill != outer.operation.skill
        || joins(candidate)
    {
        true
    } else if joins(outer) || candidate.outputs.last() == Some(&true) {
        false
    } else {
        candidate.binding == Binding::Whole
            || (candidate.binding == Binding::Tight && outer.binding == Binding::Loose)
    }
}

/// The state after the candidate's words are replaced by its output.
fn reduced(state: &State, candidate: Candidate) -> State {
    let mut next = state.clone();
    let index = next.results.len();
    let start = next.tokens.get(candidate.start).map_or(0, |token| token.start);
    let end = next.tokens.get(candidate.end - 1).map_or(start, |token| token.end);
    let written = candidate.operation.answer.clone();
    let token = Token { kind: Kind::Result(index), written, start, end };
    next.tokens.splice(candidate.start..candidate.end, [token]);
    next.results.push(candidate.operation.answer.clone());
    next.operations.push(candidate.operation);
    next
}
