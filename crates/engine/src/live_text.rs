//! The live text of an attempt whose worker may call tools, or whose reasoning is shown. Text, calls and reasoning share one stream of
//! text, so that buffers, offsets and repeated frames work as they do for plain text.
//!
//! A record stands between two U+001E. It begins a call or the reasoning, or returns to the text; what follows belongs to that. Every
//! other attempt writes its text as it is.

use std::fmt::Write as _;

use podium_domain::run::{Run, StepRef};

const MARK: char = '\u{1e}';
/// Longest record: the name of a tool and a few characters. A longer one is not ours.
const RECORD_BYTES_MAX: usize = 1024;

/// A piece of what a worker writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Text.
    Text(String),
    /// Reasoning that is shown.
    Reasoning(String),
    /// The tool call at this position begins.
    CallBegun {
        /// From 0, without gaps.
        index: usize,
        /// The name of the tool.
        name: String,
    },
    /// A piece of the arguments of a call that has begun.
    Arguments {
        /// The position of the call.
        index: usize,
        /// The piece.
        text: String,
    },
}

/// The owner of the text after a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Target {
    #[default]
    Text,
    Reasoning,
    Call(usize),
}

/// Whether an attempt writes text only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Its live text is its text.
    Plain,
    /// Its live text has records.
    Records,
}

impl Form {
    /// The form of the attempts of a step.
    pub(crate) fn of(run: &Run, step: StepRef) -> Self {
        let may_call = run.tools_of(step).is_some_and(|tools| tools.may_call());
        if may_call || run.shows_reasoning_of(step) { Self::Records } else { Self::Plain }
    }
}

/// Writes the live text of one attempt.
#[derive(Debug)]
pub(crate) struct LiveWriter {
    form: Form,
    target: Target,
}

impl LiveWriter {
    pub(crate) const fn new(form: Form) -> Self {
        Self { form, target: Target::Text }
    }

    /// The next live text.
    pub(crate) fn write(&mut self, piece: &Piece) -> String {
        let mut live = String::new();
        match piece {
            Piece::Text(text) if self.form == Form::Plain => live.push_str(text),
            Piece::Text(text) => {
                self.turn_to(Target::Text, &mut live);
                escape(text, &mut live);
            }
            Piece::Reasoning(text) => {
                self.turn_to(Target::Reasoning, &mut live);
                escape(text, &mut live);
            }
            Piece::CallBegun { index, name } => {
                self.target = Target::Call(*index);
                // A name with a mark would end the record.
                let name = name.replace(MARK, "");
                let _ = write!(live, "{MARK}C{index} {name}{MARK}");
            }
            Piece::Arguments { index, text } => {
                self.turn_to(Target::Call(*index), &mut live);
                escape(text, &mut live);
            }
        }
        live
    }

    fn turn_to(&mut self, target: Target, live: &mut String) {
        if std::mem::replace(&mut self.target, target) == target {
            return;
        }
        let _ = match target {
            Target::Text => write!(live, "{MARK}T{MARK}"),
            Target::Reasoning => write!(live, "{MARK}R{MARK}"),
            Target::Call(index) => write!(live, "{MARK}A{index}{MARK}"),
        };
    }
}

fn escape(text: &str, live: &mut String) {
    for (number, part) in text.split(MARK).enumerate() {
        if number > 0 {
            let _ = write!(live, "{MARK}E{MARK}");
        }
        live.push_str(part);
    }
}

/// Reads the live text of one attempt, which may be cut anywhere.
#[derive(Debug)]
pub(crate) struct LiveReader {
    form: Form,
    target: Target,
    /// The beginning of a record whose end has not come.
    record: Option<String>,
}

impl LiveReader {
    pub(crate) const fn new(form: Form) -> Self {
        Self { form, target: Target::Text, record: None }
    }

    /// The pieces of the next live text.
    pub(crate) fn read(&mut self, live: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        if self.form == Form::Plain {
            pieces.push(Piece::Text(live.to_owned()));
            return pieces;
        }
        let mut parts = live.split(MARK);
        if let Some(first) = parts.next() {
            self.part(first, &mut pieces);
        }
        for part in parts {
            match self.record.take() {
                Some(record) => self.end_record(&record, &mut pieces),
                None => self.record = Some(String::new()),
            }
            self.part(part, &mut pieces);
        }
        pieces
    }

    fn part(&mut self, part: &str, pieces: &mut Vec<Piece>) {
        if part.is_empty() {
            return;
        }
        match &mut self.record {
            Some(record) if record.len() + part.len() <= RECORD_BYTES_MAX => record.push_str(part),
            Some(_) => {}
            None => self.add(part, pieces),
        }
    }

    fn add(&self, text: &str, pieces: &mut Vec<Piece>) {
        match (self.target, pieces.last_mut()) {
            (Target::Text, Some(Piece::Text(before)))
            | (Target::Reasoning, Some(Piece::Reasoning(before))) => {
                before.push_str(text);
            }
            (Target::Call(index), Some(Piece::Arguments { index: last, text: before })) if *last == index => {
                before.push_str(text);
            }
            (Target::Text, _) => pieces.push(Piece::Text(text.to_owned())),
            (Target::Reasoning, _) => pieces.push(Piece::Reasoning(text.to_owned())),
            (Target::Call(index), _) => pieces.push(Piece::Arguments { index, text: text.to_owned() }),
        }
    }

    fn end_record(&mut self, record: &str, pieces: &mut Vec<Piece>) {
        let mut chars = record.chars();
        let (kind, rest) = (chars.next(), chars.as_str());
        match kind {
            Some('E') => self.add(&MARK.to_string(), pieces),
            Some('T') => self.target = Target::Text,
            Some('R') => self.target = Target::Reasoning,
            Some('A') => {
                if let Ok(index) = rest.parse() {
                    self.target = Target::Call(index);
                }
            }
            Some('C') => {
                if let Some((index, name)) = rest.split_once(' ')
                    && let Ok(index) = index.parse()
                {
                    self.target = Target::Call(index);
                    pieces.push(Piece::CallBegun { index, name: name.to_owned() });
                }
            }
            // A record of a later version.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn begun(index: usize, name: &str) -> Piece {
        Piece::CallBegun { index, name: name.to_owned() }
    }

    fn arguments(index: usize, text: &str) -> Piece {
        Piece::Arguments { index, text: text.to_owned() }
    }

    fn live(pieces: &[Piece]) -> String {
        let mut writer = LiveWriter::new(Form::Records);
        pieces.iter().map(|piece| writer.write(piece)).collect()
    }

    #[test]
    fn calls_and_text_are_read_as_they_were_written() {
        let pieces = [
            Piece::Reasoning("First \u{1e} I".to_owned()),
            text("I \u{1e} look."),
            begun(0, "weather"),
            arguments(0, "{\"a\": \"\u{1e}"),
            begun(1, "clock"),
            arguments(0, "\"}"),
            arguments(1, "{}"),
            text("Done."),
        ];
        assert_eq!(LiveReader::new(Form::Records).read(&live(&pieces)), pieces);
    }

    #[test]
    fn live_text_may_be_cut_anywhere() {
        let pieces = [text("é\u{1e}"), begun(0, "a b"), arguments(0, "{\u{1e}}"), text("x"), begun(1, "c")];
        let whole = live(&pieces);
        for cut in (0..=whole.len()).filter(|cut| whole.is_char_boundary(*cut)) {
            let mut reader = LiveReader::new(Form::Records);
            let mut read = reader.read(&whole[..cut]);
            read.extend(reader.read(&whole[cut..]));
            let again: Vec<_> = LiveReader::new(Form::Records).read(&live(&read));
            assert_eq!(again, pieces, "cut at {cut}");
        }
    }

    #[test]
    fn plain_text_is_not_changed() {
        let odd = text("a\u{1e}T\u{1e}b");
        let live = LiveWriter::new(Form::Plain).write(&odd);
        assert_eq!(live, "a\u{1e}T\u{1e}b");
        assert_eq!(LiveReader::new(Form::Plain).read(&live), [odd]);
    }

    #[test]
    fn an_endless_record_takes_no_memory() {
        let mut reader = LiveReader::new(Form::Records);
        reader.read("\u{1e}");
        (0..100).for_each(|_| assert!(reader.read(&"x".repeat(1000)).is_empty()));
        assert_eq!(reader.read("\u{1e}ok"), [text("ok")]);
    }
}
