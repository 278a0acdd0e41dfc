//! Finds where free reasoning ends and the plan begins.
//!
//! A model may begin the plan with any token: one that still belongs to the line before, or one that runs on into the
//! first list. The grammar wants the plan from its first byte. So the tokens that touch the label's line are given back,
//! and what they held of the line before is written again, by itself. No engine is needed to test this.

/// What a line begins with when it is the plan's first.
const LABEL: &[u8] = b"model_id";

/// A model may say that it thinks. A plan inside would count as thought.
const THOUGHT_BEGINS: &[u8] = b"<think>";
const THOUGHT_ENDS: &[u8] = b"</think>";

/// The free text so far, by the tokens that it came in.
#[derive(Debug)]
pub(crate) struct Reasoning {
    text: Vec<u8>,
    /// Where the last line begins in `text`.
    line_start: usize,
    /// How many of the last tokens touch the last line.
    line_tokens: usize,
    /// How many bytes of the first of those tokens belong to the line before.
    head: usize,
    /// Whether a label at `line_start` would stand at the beginning of a line.
    at_line_start: bool,
}

/// How to go back to where the plan is to begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlanStart {
    /// So many of the last tokens do not count.
    pub(crate) given_back: usize,
    /// This is to be written before the plan.
    pub(crate) before: Vec<u8>,
}

impl Reasoning {
    /// Nothing written yet. `before` is what the assistant's turn was begun with.
    pub(crate) fn after(before: &str) -> Self {
        let at_line_start = before.is_empty() || before.ends_with('\n');
        Self { text: Vec::new(), line_start: 0, line_tokens: 0, head: 0, at_line_start }
    }

    /// Adds a token's bytes. Tells if a line begins the plan.
    pub(crate) fn push(&mut self, token: &[u8]) -> Option<PlanStart> {
        let token_start = self.text.len();
        self.text.extend_from_slice(token);
        self.line_tokens += 1;
        loop {
            let line = &self.text[self.line_start..];
            if self.at_line_start && line.starts_with(LABEL) {
                return Some(self.give_line_back());
            }
            let newline = line.iter().position(|&byte| byte == b'\n')?;
            self.line_start += newline + 1;
            self.at_line_start = true;
            let begins_in_token = self.line_start < self.text.len();
            self.line_tokens = usize::from(begins_in_token);
            self.head = if begins_in_token { self.line_start - token_start } else { 0 };
        }
    }

    /// The model has said enough, the plan is to begin here.
    pub(crate) fn close(&self) -> PlanStart {
        let line = &self.text[self.line_start..];
        if self.at_line_start && LABEL.starts_with(line) {
            return self.give_line_back();
        }
        self.plan_start(0, b"\n")
    }

    /// How many bytes of the text will not be given back, whatever follows.
    pub(crate) fn settled(&self) -> usize {
        let may_be_label = self.at_line_start && LABEL.starts_with(&self.text[self.line_start..]);
        if may_be_label { self.line_start } else { self.text.len() }
    }

    fn give_line_back(&self) -> PlanStart {
        self.plan_start(self.line_tokens, &self.text[self.line_start - self.head..self.line_start])
    }

    fn plan_start(&self, given_back: usize, before: &[u8]) -> PlanStart {
        let last = |tag: &[u8]| self.text.windows(tag.len()).rposition(|part| part.eq_ignore_ascii_case(tag));
        let mut before = before.to_vec();
        if last(THOUGHT_BEGINS) > last(THOUGHT_ENDS) {
            before.extend_from_slice(THOUGHT_ENDS);
            before.push(b'\n');
        }
        PlanStart { given_back, before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds tokens; where the plan begins, if it does: what stays of the text, and what was given back.
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

    fn start(given_back: usize, before: &str) -> PlanStart {
        PlanStart { given_back, before: before.as_bytes().to_vec() }
    }

    #[test]
    fn a_label_at_the_beginning_of_a_line_begins_the_plan() {
        assert_eq!(fed("", &["model", "_id"]).1, Some(start(2, "")));
        assert_eq!(fed("", &["so.", "\n", "model", "_id"]).1, Some(start(2, "")));
        assert_eq!(fed("", &["so", ".\n", "mod", "el", "_id = [9"]).1, Some(start(3, "")));
        assert_eq!(fed("I think\n", &["model_id"]).1, Some(start(1, "")));
    }

    #[test]
    fn what_a_token_holds_of_the_line_before_is_written_again() {
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
    fn closing_stands_at_the_beginning_of_a_line() {
        assert_eq!(fed("", &[]).0.close(), start(0, ""));
        assert_eq!(fed("", &["so\n"]).0.close(), start(0, ""));
        assert_eq!(fed("", &["so"]).0.close(), start(0, "\n"));
        assert_eq!(fed("I think", &[]).0.close(), start(0, "\n"));
        assert_eq!(fed("", &["so", ".\nmod", "el"]).0.close(), start(2, ".\n"));
    }

    #[test]
    fn a_thought_that_is_open_is_closed() {
        assert_eq!(fed("", &["<think>", "so"]).0.close(), start(0, "\n</think>\n"));
        assert_eq!(fed("", &["<think>so</think>\n"]).0.close(), start(0, ""));
        assert_eq!(fed("", &["<think>\n", "model_id"]).1, Some(start(1, "</think>\n")));
    }

    #[test]
    fn text_that_may_become_the_label_is_not_settled() {
        assert_eq!(fed("", &["so\n", "model"]).0.settled(), 3);
        assert_eq!(fed("", &["so\n", "models"]).0.settled(), 9);
        assert_eq!(fed("so ", &["model"]).0.settled(), 5);
    }

    #[test]
    fn every_way_to_cut_a_text_into_tokens_begins_the_plan_at_the_same_place() {
        let text = "Parts: words.\nmodel_id";
        for cut in 1..text.len() {
            for second in cut..text.len() {
                let mut reasoning = Reasoning::after("");
                let pieces = [&text[..cut], &text[cut..second], &text[second..]];
                let pieces: Vec<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
                let starts: Vec<_> =
                    pieces.iter().filter_map(|piece| reasoning.push(piece.as_bytes())).collect();
                let [PlanStart { given_back, before }] = starts.as_slice() else { panic!("{starts:?}") };
                let kept: String = pieces[..pieces.len() - given_back].concat();
                assert_eq!(kept + std::str::from_utf8(before).unwrap(), "Parts: words.\n");
            }
        }
    }
}
