//! Detects where free reasoning ends and the plan begins.
//!
//! A model may begin the plan with any token: one that includes the end of the previous line, or one that reaches into the
//! first list. The grammar needs the plan from its first byte. So the tokens that touch the label's line are discarded, and
//! their part of the previous line is written again. This module is tested without an engine.

/// The beginning of a plan's first line.
const LABEL: &[u8] = b"model_id";

/// Tags of explicit thinking. A plan inside them would be treated as a thought.
const THOUGHT_BEGINS: &[u8] = b"<think>";
const THOUGHT_ENDS: &[u8] = b"</think>";

/// The free text so far, with its token boundaries.
#[derive(Debug)]
pub(crate) struct Reasoning {
    text: Vec<u8>,
    /// Start of the last line in `text`.
    line_start: usize,
    /// Number of the last tokens that touch the last line.
    line_tokens: usize,
    /// Bytes of the first of those tokens that belong to the previous line.
    head: usize,
    /// Whether a label at `line_start` is at the beginning of a line.
    at_line_start: bool,
}

/// How to rewind to the start of the plan.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlanStart {
    /// Number of last tokens to discard.
    pub(crate) discarded: usize,
    /// Text to write before the plan.
    pub(crate) before: Vec<u8>,
}

impl Reasoning {
    /// Starts empty. `before` is the beginning of the assistant's turn.
    pub(crate) fn after(before: &str) -> Self {
        let at_line_start = before.is_empty() || before.ends_with('\n');
        Self { text: Vec::new(), line_start: 0, line_tokens: 0, head: 0, at_line_start }
    }

    /// Adds a token's bytes. Returns the rewind if a line begins the plan.
    pub(crate) fn push(&mut self, token: &[u8]) -> Option<PlanStart> {
        let token_start = self.text.len();
        self.text.extend_from_slice(token);
        self.line_tokens += 1;
        loop {
            let line = &self.text[self.line_start..];
            if self.at_line_start && line.starts_with(LABEL) {
                return Some(self.discard_line());
            }
            let newline = line.iter().position(|&byte| byte == b'\n')?;
            self.line_start += newline + 1;
            self.at_line_start = true;
            let begins_in_token = self.line_start < self.text.len();
            self.line_tokens = usize::from(begins_in_token);
            self.head = if begins_in_token { self.line_start - token_start } else { 0 };
        }
    }

    /// Ends the free text here and starts the plan.
    pub(crate) fn close(&self) -> PlanStart {
        let line = &self.text[self.line_start..];
        if self.at_line_start && LABEL.starts_with(line) {
            return self.discard_line();
        }
        self.plan_start(0, b"\n")
    }

    /// Bytes of the text that no later text can discard.
    pub(crate) fn settled(&self) -> usize {
        let may_be_label = self.at_line_start && LABEL.starts_with(&self.text[self.line_start..]);
        if may_be_label { self.line_start } else { self.text.len() }
    }

    fn discard_line(&self) -> PlanStart {
        self.plan_start(self.line_tokens, &self.text[self.line_start - self.head..self.line_start])
    }

    fn plan_start(&self, discarded: usize, before: &[u8]) -> PlanStart {
        let last = |tag: &[u8]| self.text.windows(tag.len()).rposition(|part| part.eq_ignore_ascii_case(tag));
        let mut before = before.to_vec();
        if last(THOUGHT_BEGINS) > last(THOUGHT_ENDS) {
            before.extend_from_slice(THOUGHT_ENDS);
            before.push(b'\n');
        }
        PlanStart { discarded, before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds tokens. Returns the remaining text and, if the plan begins, the rewind.
    fn fed(before: &str, tokens: &[&str]) -> (Reasoning, Option<PlanStart>) {
        let mut reasoning = Reasoning::after(before);
        for (index, token) in tokens.iter().enumerate() {
            if let Some(start) = reasoning.push(token.as_bytes()) {
                assert_eq!(index + 1, tokens.len(), "the label was found before the last token");
                return (reasoning, Some(start));
            }
        }
        (reasoning, None)
    }

    fn start(discarded: usize, before: &str) -> PlanStart {
        PlanStart { discarded, before: before.as_bytes().to_vec() }
    }

    #[test]
    fn a_label_at_the_beginning_of_a_line_begins_the_plan() {
        assert_eq!(fed("", &["model", "_id"]).1, Some(start(2, "")));
        assert_eq!(fed("", &["so.", "\n", "model", "_id"]).1, Some(start(2, "")));
        assert_eq!(fed("", &["so", ".\n", "mod", "el", "_id = [9"]).1, Some(start(3, "")));
        assert_eq!(fed("I think\n", &["model_id"]).1, Some(start(1, "")));
    }

    #[test]
    fn a_tokens_part_of_the_previous_line_is_written_again() {
        assert_eq!(fed("", &["so", ".\nmodel", "_id"]).1, Some(start(2, ".\n")));
        assert_eq!(fed("", &["a", " b\n\nmodel_id = [1]\nsub"]).1, Some(start(1, " b\n\n")));
    }

    #[test]
    fn a_label_that_ends_inside_a_token_with_more_lines_is_found() {
        assert_eq!(fed("", &["model", "_id = [0]\nsubtasks"]).1, Some(start(2, "")));
    }

    #[test]
    fn a_label_within_a_line_is_text() {
        assert_eq!(fed("", &["the ", "model_id", " of dates"]).1, None);
        assert_eq!(fed("Let me think: ", &["model_id"]).1, None);
    }

    #[test]
    fn a_closed_text_ends_with_a_line_break() {
        assert_eq!(fed("", &[]).0.close(), start(0, ""));
        assert_eq!(fed("", &["so\n"]).0.close(), start(0, ""));
        assert_eq!(fed("", &["so"]).0.close(), start(0, "\n"));
        assert_eq!(fed("I think", &[]).0.close(), start(0, "\n"));
        assert_eq!(fed("", &["so", ".\nmod", "el"]).0.close(), start(2, ".\n"));
    }

    #[test]
    fn an_open_thought_is_closed() {
        assert_eq!(fed("", &["<think>", "so"]).0.close(), start(0, "\n</think>\n"));
        assert_eq!(fed("", &["<think>so</think>\n"]).0.close(), start(0, ""));
        assert_eq!(fed("", &["<think>\n", "model_id"]).1, Some(start(1, "</think>\n")));
    }

    #[test]
    fn a_possible_label_is_not_settled() {
        assert_eq!(fed("", &["so\n", "model"]).0.settled(), 3);
        assert_eq!(fed("", &["so\n", "models"]).0.settled(), 9);
        assert_eq!(fed("so ", &["model"]).0.settled(), 5);
    }

    #[test]
    fn the_plans_start_does_not_depend_on_tokenisation() {
        let text = "Parts: words.\nmodel_id";
        for cut in 1..text.len() {
            for second in cut..text.len() {
                let mut reasoning = Reasoning::after("");
                let pieces = [&text[..cut], &text[cut..second], &text[second..]];
                let pieces: Vec<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
                let starts: Vec<_> =
                    pieces.iter().filter_map(|piece| reasoning.push(piece.as_bytes())).collect();
                let [PlanStart { discarded, before }] = starts.as_slice() else { panic!("{starts:?}") };
                let kept: String = pieces[..pieces.len() - discarded].concat();
                assert_eq!(kept + std::str::from_utf8(before).unwrap(), "Parts: words.\n");
            }
        }
    }
}
