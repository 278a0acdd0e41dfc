//! Extracts the texts that people read: paragraphs of a page, comments and string literals of a program.
//!
//! Inline code and link targets are replaced by dots, because they are names and not prose.

/// A text with the numbers of its lines.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Passage {
    pub(super) text: String,
    /// The offset of each line in `text`, with the line's number counted from one.
    starts: Vec<(usize, usize)>,
}

impl Passage {
    fn push(&mut self, number: usize, line: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.starts.push((self.text.len(), number));
        self.text.push_str(line.trim());
    }

    /// The number of the line with the byte at `offset`.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        self.starts.iter().rev().find(|(start, _)| *start <= offset).map_or(0, |(_, number)| *number)
    }
}

/// Collects lines into passages, which `end` separates.
#[derive(Default)]
struct Collector {
    done: Vec<Passage>,
    open: Passage,
}

impl Collector {
    fn push(&mut self, number: usize, line: &str) {
        self.open.push(number, line);
    }

    fn end(&mut self) {
        let passage = std::mem::take(&mut self.open);
        if !passage.text.trim().is_empty() {
            self.done.push(Passage { text: without_code(&passage.text), ..passage });
        }
    }

    fn finish(mut self) -> Vec<Passage> {
        self.end();
        self.done
    }
}

/// The paragraphs, headings, list items and table cells of a Markdown page, outside fenced code.
pub(super) fn of_markdown(text: &str) -> Vec<Passage> {
    let mut passages = Collector::default();
    let mut last = 0;
    for (number, line) in super::links::prose(text) {
        let line = line.trim();
        let (marker, content) = split_marker(line);
        if marker || line.is_empty() || number != last + 1 {
            passages.end();
        }
        if line.starts_with('|') {
            for cell in line.trim_matches('|').split('|') {
                passages.end();
                passages.push(number, cell);
            }
        } else if !content.is_empty() {
            passages.push(number, content);
        }
        if line.starts_with('#') {
            passages.end();
        }
        last = number;
    }
    passages.finish()
}

/// Whether a line begins an item, a quotation, a heading or a table row, and the text after the mark.
fn split_marker(line: &str) -> (bool, &str) {
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = if digits.len() < line.len() { digits.strip_prefix(". ") } else { None };
    let marked = ["- ", "* ", "> "].iter().find_map(|mark| line.strip_prefix(mark)).or(numbered);
    let heading = line.starts_with('#').then(|| line.trim_start_matches('#'));
    match marked.or(heading) {
        Some(content) => (true, content),
        None => (line.starts_with('|'), line),
    }
}

/// The comments of a file in which a comment begins with `mark` and takes a whole line.
pub(super) fn of_line_comments(text: &str, mark: &str) -> Vec<Passage> {
    let mut passages = Collector::default();
    for (index, line) in text.lines().enumerate() {
        match line.trim_start().strip_prefix(mark) {
            Some(comment) if !comment.trim().is_empty() => {
                let comment = comment.trim_start_matches(mark);
                if split_marker(comment.trim()).0 {
                    passages.end();
                }
                passages.push(index + 1, comment);
            }
            _ => passages.end(),
        }
    }
    passages.finish()
}

/// The comments of a program in C's style, of one line or of several.
pub(super) fn of_c_comments(text: &str) -> Vec<Passage> {
    let mut passages = Collector::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        match ["//", "/**", "/*", "* "].iter().find_map(|mark| line.strip_prefix(mark)) {
            Some(comment) => passages.push(index + 1, comment.trim_end_matches("*/")),
            None => passages.end(),
        }
    }
    passages.finish()
}

/// The comments of a Python file, and the paragraphs of its strings between three quotes.
pub(super) fn of_python(text: &str) -> Vec<Passage> {
    let mut passages = of_line_comments(text, "#");
    let mut number = 1;
    for (index, piece) in text.split("\"\"\"").enumerate() {
        if index % 2 == 1 {
            let mut paragraphs = Collector::default();
            for (offset, line) in piece.lines().enumerate() {
                let (marker, content) = split_marker(line.trim());
                if marker || content.is_empty() {
                    paragraphs.end();
                }
                if !content.is_empty() {
                    paragraphs.push(number + offset, content);
                }
            }
            passages.extend(paragraphs.finish());
        }
        number += piece.matches('\n').count();
    }
    passages
}

/// The comments and string literals of a Rust file.
pub(super) fn of_rust(text: &str) -> Vec<Passage> {
    let mut passages = Collector::default();
    let mut rest = Cursor { text, at: 0, line: 1 };
    let mut comment_line = 0;
    while let Some(next) = rest.peek() {
        if rest.starts_with("//") {
            if rest.line != comment_line + 1 {
                passages.end();
            }
            comment_line = rest.line;
            let line = rest.until(|c| c == '\n').trim_start_matches('/');
            let line = line.strip_prefix('!').unwrap_or(line).trim();
            let (marker, content) = split_marker(line);
            if marker || line.is_empty() {
                passages.end();
            }
            passages.push(comment_line, content);
        } else if let Some((number, literal)) = rest.string() {
            passages.end();
            passages.push(number, literal);
            passages.end();
        } else if next == '\'' {
            rest.character();
        } else if next.is_alphanumeric() || next == '_' {
            // Skips a whole word, so that the `r` at its end does not begin a raw string.
            rest.until(|c| !(c.is_alphanumeric() || c == '_'));
        } else {
            rest.bump();
        }
    }
    passages.finish()
}

/// A position in a Rust file.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn starts_with(&self, prefix: &str) -> bool {
        self.text[self.at..].starts_with(prefix)
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        self.line += usize::from(next == '\n');
        Some(next)
    }

    /// Takes everything before the first character that `stop` accepts.
    fn until(&mut self, stop: impl Fn(char) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(|next| !stop(next)) {
            self.bump();
        }
        &self.text[start..self.at]
    }

    /// Takes a string literal, raw or not. Returns its line and the text between its quotes.
    fn string(&mut self) -> Option<(usize, &'a str)> {
        let rest = &self.text[self.at..];
        let unprefixed = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'));
        let opening = unprefixed.unwrap_or(rest);
        let hashes = opening.len() - opening.trim_start_matches('#').len();
        let raw = unprefixed.is_some();
        if !opening[hashes..].starts_with('"') || (!raw && hashes > 0) {
            return None;
        }
        let line = self.line;
        self.skip(rest.len() - opening.len() + hashes + 1);
        let start = self.at;
        let closing = format!("\"{}", "#".repeat(hashes));
        while self.at < self.text.len() && !self.starts_with(&closing) {
            if !raw && self.starts_with("\\") {
                self.bump();
            }
            self.bump();
        }
        let literal = &self.text[start..self.at];
        self.skip(closing.len());
        Some((line, literal))
    }

    /// Takes a character literal, or the quote of a lifetime.
    fn character(&mut self) {
        self.bump();
        let mut after = self.text[self.at..].chars();
        match (after.next(), after.next()) {
            (Some('\\'), _) => {
                self.bump();
                self.bump();
                self.until(|c| c == '\'');
                self.bump();
            }
            (Some(_), Some('\'')) => {
                self.bump();
                self.bump();
            }
            _ => {}
        }
    }

    fn skip(&mut self, bytes: usize) {
        let end = (self.at + bytes).min(self.text.len());
        while self.at < end {
            self.bump();
        }
    }
}

/// Replaces `code` and `](target)` by dots of the same length, and removes marks of emphasis.
fn without_code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(['`', ']']) {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let close = if from.starts_with('`') { Some('`') } else { from.starts_with("](").then_some(')') };
        if let Some(length) = close.and_then(|close| from[1..].find(close)) {
            out.extend(std::iter::repeat_n('.', length + 2));
            rest = &from[length + 2..];
        } else {
            out.push_str(&from[..1]);
            rest = &from[1..];
        }
    }
    out.push_str(rest);
    out.replace("**", "  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(passages: &[Passage]) -> Vec<(&str, usize)> {
        passages.iter().map(|p| (p.text.trim(), p.line_at(0))).collect()
    }

    #[test]
    fn a_page_has_paragraphs_items_and_cells() {
        let page = "# Title\n\nOne\ntwo `code` end.\n- Item\n  goes on\n1. First\n```\nnot this\n```\n| A | [b](c.md) |\n";
        assert_eq!(
            texts(&of_markdown(page)),
            [
                ("Title", 1),
                ("One two ...... end.", 3),
                ("Item goes on", 5),
                ("First", 7),
                ("A", 11),
                ("[b.......", 11),
            ]
        );
        let paragraph = &of_markdown(page)[1];
        assert_eq!(paragraph.line_at(paragraph.text.find("two").unwrap()), 4);
    }

    #[test]
    fn a_rust_file_has_comments_and_strings() {
        let file = "//! Module\n//! text.\n\n/// A doc.\nfn a<'a>(b: &'a str) { // short\n    \
                    let c = '\"'; let d = \"a \\\" b\"; let e = r#\"raw \" one\"#; let f = b'\\'';\n}\n";
        assert_eq!(
            texts(&of_rust(file)),
            [("Module text.", 1), ("A doc. short", 4), ("a \\\" b", 6), ("raw \" one", 6)]
        );
    }

    #[test]
    fn a_comment_of_another_file_takes_a_whole_line() {
        let file = "// One\n// two.\nmessage A {}\n  // - item\n";
        assert_eq!(texts(&of_line_comments(file, "//")), [("One two.", 1), ("- item", 4)]);
    }
}
