//! Streams the answer while it is written. Plain clients cannot retract text, so texts of two attempts are never mixed: text of a
//! second attempt is shown only if it continues the text that was shown of the first. The same holds for tool calls. Reasoning may be
//! replaced until the text begins.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use podium_domain::ids::RunId;
use podium_domain::run::{Progress, Run};
use podium_ports::store::StoreError;

use crate::front::replies::run_at;
use crate::front::watch::{ToolCallPiece, Update};
use crate::parts::Parts;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerPart {
    /// The next reasoning, before any text or call.
    Reasoning(String),
    /// The reasoning so far is void: another attempt began.
    ReasoningRestarted,
    /// The next text.
    Text(String),
    /// The next tool call begins.
    CallBegun {
        /// Its position, from 0, without gaps.
        index: usize,
        /// The id that clients get for it.
        id: String,
        /// The name of the tool.
        name: String,
    },
    /// The next piece of the arguments of a call that has begun.
    CallArguments {
        /// The position of the call.
        index: usize,
        /// The piece.
        text: String,
    },
    /// The progress of the run, after some seconds without another part. It is no part of the answer.
    Progress(Progress),
    /// The run at the end of the reply, always last: it has ended, perhaps without an answer, or it is suspended by its calls.
    Ended(Box<Run>),
}

/// The answer's stream failed.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An attempt was lost after its text was shown, and the answer does not begin with that text.
    #[error(
        "the answer of run {run} differs from what was streamed before an attempt was lost; read it by its run id"
    )]
    Diverged {
        /// The run with the answer.
        run: RunId,
    },
    /// The run's events do not contain its end, which is a defect.
    #[error("run {run} cannot be read")]
    Unreadable {
        /// The run.
        run: RunId,
    },
}

/// A tool call as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

/// Reasoning, text and tool calls of an answer, as far as they are known.
#[derive(Debug, Default)]
struct Content {
    reasoning: String,
    text: String,
    calls: Vec<Call>,
}

impl Content {
    /// The whole answer; `None` if the run has none.
    fn of(run: &Run) -> Option<Self> {
        let text = run.reply_text()?.to_owned();
        let calls = run.tool_calls().into_iter();
        let calls = calls.map(|call| Call { id: call.id, name: call.name, arguments: call.arguments });
        Some(Self { reasoning: run.reply_reasoning().to_owned(), text, calls: calls.collect() })
    }

    /// What follows `self` in `next`; `None` if `next` does not begin with `self`.
    fn news(&self, next: &Self) -> Option<Vec<AnswerPart>> {
        let mut parts = self.new_reasoning(next);
        let text = next.text.strip_prefix(self.text.as_str())?;
        if !text.is_empty() {
            parts.push(AnswerPart::Text(text.to_owned()));
        }
        if self.calls.len() > next.calls.len() {
            return None;
        }
        for (index, call) in next.calls.iter().enumerate() {
            let arguments = match self.calls.get(index) {
                Some(shown) if (&shown.id, &shown.name) == (&call.id, &call.name) => {
                    call.arguments.strip_prefix(shown.arguments.as_str())?
                }
                Some(_) => return None,
                None => {
                    let (id, name) = (call.id.clone(), call.name.clone());
                    parts.push(AnswerPart::CallBegun { index, id, name });
                    call.arguments.as_str()
                }
            };
            if !arguments.is_empty() {
                parts.push(AnswerPart::CallArguments { index, text: arguments.to_owned() });
            }
        }
        Some(parts)
    }

    /// The reasoning that follows `self` in `next`. None follows a text or a call, because clients do not expect it there.
    fn new_reasoning(&self, next: &Self) -> Vec<AnswerPart> {
        if !self.text.is_empty() || !self.calls.is_empty() {
            return Vec::new();
        }
        let (restart, rest) = match next.reasoning.strip_prefix(self.reasoning.as_str()) {
            Some(rest) => (None, rest),
            None => (Some(AnswerPart::ReasoningRestarted), next.reasoning.as_str()),
        };
        let rest = (!rest.is_empty()).then(|| AnswerPart::Reasoning(rest.to_owned()));
        restart.into_iter().chain(rest).collect()
    }

    /// Adds a part that follows.
    fn add(&mut self, part: &AnswerPart) {
        match part {
            AnswerPart::Reasoning(text) => self.reasoning.push_str(text),
            AnswerPart::ReasoningRestarted => self.reasoning.clear(),
            AnswerPart::Text(text) => self.text.push_str(text),
            AnswerPart::CallBegun { index, id, name } => {
                // Positions have no gaps.
                if *index == self.calls.len() {
                    let (id, name) = (id.clone(), name.clone());
                    self.calls.push(Call { id, name, arguments: String::new() });
                }
            }
            AnswerPart::CallArguments { index, text } => {
                if let Some(call) = self.calls.get_mut(*index) {
                    call.arguments.push_str(text);
                }
            }
            AnswerPart::Progress(_) | AnswerPart::Ended(_) => {}
        }
    }
}

struct Answering {
    parts: Parts,
    id: RunId,
    reply: u16,
    updates: BoxStream<'static, Result<Update, StoreError>>,
    /// The content that the client has.
    shown: Content,
    /// The content that the current attempt has written.
    current: Content,
    /// Whether the current attempt wrote all that the client has, so that what it writes next can be shown at once.
    is_same: bool,
    pending: VecDeque<AnswerPart>,
}

pub(crate) fn answer(
    parts: Parts,
    id: RunId,
    reply: u16,
    updates: BoxStream<'static, Result<Update, StoreError>>,
) -> BoxStream<'static, Result<AnswerPart, AnswerError>> {
    let (shown, current, pending) = (Content::default(), Content::default(), VecDeque::new());
    let answering = Answering { parts, id, reply, updates, shown, current, is_same: true, pending };
    stream::unfold(Some(answering), |state| async {
        let mut answering = state?;
        match answering.next().await {
            Ok(part @ AnswerPart::Ended(_)) => Some((Ok(part), None)),
            Ok(part) => Some((Ok(part), Some(answering))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

impl Answering {
    async fn next(&mut self) -> Result<AnswerPart, AnswerError> {
        loop {
            if let Some(part) = self.pending.pop_front() {
                return Ok(part);
            }
            match self.updates.next().await {
                Some(update) => self.heed(update?),
                None => self.end().await?,
            }
        }
    }

    fn heed(&mut self, update: Update) {
        let part = match update {
            Update::Frame { frame, is_answer: true } => {
                if frame.offset == 0 {
                    self.current.text.clear();
                    self.is_same = false;
                }
                AnswerPart::Text(frame.text)
            }
            Update::Reasoning { text, is_answer: true, .. } => AnswerPart::Reasoning(text),
            Update::ToolCall { index, piece, is_answer: true, .. } => match piece {
                ToolCallPiece::Begun { id, name } => {
                    AnswerPart::CallBegun { index, id: id.to_string(), name }
                }
                ToolCallPiece::Arguments(text) => AnswerPart::CallArguments { index, text },
            },
            Update::Progress(progress) => {
                self.pending.push_back(AnswerPart::Progress(progress));
                return;
            }
            Update::Restarted { .. } => {
                self.current = Content::default();
                self.is_same = false;
                return;
            }
            Update::Event(_)
            | Update::Planning { .. }
            | Update::Reasoning { .. }
            | Update::Frame { .. }
            | Update::ToolCall { .. } => return,
        };
        self.current.add(&part);
        if self.is_same {
            self.show(part);
        } else if let Some(news) = self.shown.news(&self.current) {
            self.is_same = true;
            for part in news {
                self.show(part);
            }
        }
    }

    fn show(&mut self, part: AnswerPart) {
        self.shown.add(&part);
        self.pending.push_back(part);
    }

    async fn end(&mut self) -> Result<(), AnswerError> {
        let run = run_at(&self.parts, self.id, self.reply).await?;
        let run = run.ok_or(AnswerError::Unreadable { run: self.id })?;
        if let Some(whole) = Content::of(&run) {
            let rest = self.shown.news(&whole).ok_or(AnswerError::Diverged { run: self.id })?;
            self.pending.extend(rest);
        }
        self.pending.push_back(AnswerPart::Ended(Box::new(run)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str, calls: &[(&str, &str, &str)]) -> Content {
        let call = |(id, name, arguments): &(&str, &str, &str)| Call {
            id: (*id).to_owned(),
            name: (*name).to_owned(),
            arguments: (*arguments).to_owned(),
        };
        let (reasoning, text) = (String::new(), text.to_owned());
        Content { reasoning, text, calls: calls.iter().map(call).collect() }
    }

    #[test]
    fn only_what_follows_is_new() {
        let shown = content("a", &[("1", "look", "{")]);
        let next = content("ab", &[("1", "look", "{}"), ("2", "look", "")]);
        let expected = [
            AnswerPart::Text("b".to_owned()),
            AnswerPart::CallArguments { index: 0, text: "}".to_owned() },
            AnswerPart::CallBegun { index: 1, id: "2".to_owned(), name: "look".to_owned() },
        ];
        assert_eq!(shown.news(&next).unwrap(), expected);
        for other in [
            content("b", &[("1", "look", "{}")]),
            content("a", &[]),
            content("a", &[("1", "look", "[]")]),
            content("a", &[("2", "look", "{}")]),
            content("a", &[("1", "find", "{}")]),
        ] {
            assert_eq!(shown.news(&other), None, "{other:?}");
        }
    }

    #[test]
    fn reasoning_is_replaced_until_a_text_or_a_call_is_shown() {
        let of =
            |reasoning: &str, text: &str| Content { reasoning: reasoning.to_owned(), ..content(text, &[]) };
        let new = |text: &str| AnswerPart::Reasoning(text.to_owned());
        let text = |text: &str| AnswerPart::Text(text.to_owned());
        assert_eq!(of("Fi", "").news(&of("First", "")).unwrap(), [new("rst")]);
        assert_eq!(of("First", "").news(&of("First", "One.")).unwrap(), [text("One.")]);
        let restarted = [AnswerPart::ReasoningRestarted, new("Second"), text("One.")];
        assert_eq!(of("First", "").news(&of("Second", "One.")).unwrap(), restarted);
        assert_eq!(
            of("First", "").news(&of("", "One.")).unwrap(),
            [AnswerPart::ReasoningRestarted, text("One.")]
        );
        assert_eq!(of("First", "O").news(&of("Second", "One.")).unwrap(), [text("ne.")]);
    }
}
