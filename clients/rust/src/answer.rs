//! The answer of a run as it is written.

use std::collections::VecDeque;
use std::fmt;

use crate::client::Client;
use crate::error::Error;
use crate::v1::run_event::Kind;
use crate::v1::watch_run_response::Update;
use crate::v1::{Run, RunEvent, RunState, StepText, ToolCall};
use crate::watch::Watch;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AnswerPart {
    /// The next text of the answer.
    Text(String),
    /// The text so far is not the answer: discard it. The answer begins again.
    Restarted,
    /// The run waits for the results of these calls: pass them to [`Client::submit_tool_results`], and read on.
    ToolCalls(Vec<ToolCall>),
    /// The run has ended; this is the last part. If it succeeded, all text since the last restart is its answer. The answer may
    /// have tool calls too, whose results begin a new run.
    Ended(Box<Run>),
}

/// The answer of a run, part by part. It survives lost connections, as [`Watch`] does.
pub struct Answer {
    client: Client,
    run_id: String,
    watch: Watch,
    text: Text,
    ready: VecDeque<AnswerPart>,
    has_ended: bool,
}

impl Answer {
    pub(crate) fn new(client: Client, run_id: String) -> Self {
        let watch = client.watch(run_id.clone(), 0);
        let (text, ready) = (Text::default(), VecDeque::new());
        Self { client, run_id, watch, text, ready, has_ended: false }
    }

    /// The run.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The next part. None: the answer has ended, or an error was returned.
    pub async fn next(&mut self) -> Option<Result<AnswerPart, Error>> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Some(Ok(part));
            }
            if self.has_ended {
                return None;
            }
            if let Err(error) = self.read().await {
                self.has_ended = true;
                return Some(Err(error));
            }
        }
    }

    /// Reads to the end and returns the run. A run that calls tools on the way waits until someone submits their results.
    pub async fn run(mut self) -> Result<Run, Error> {
        loop {
            match self.next().await {
                Some(Ok(AnswerPart::Ended(run))) => return Ok(*run),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return self.client.get(&self.run_id).await,
            }
        }
    }

    async fn read(&mut self) -> Result<(), Error> {
        let Some(update) = self.watch.next().await.transpose()? else {
            let run = self.client.get(&self.run_id).await?;
            self.has_ended = true;
            if run.state() == RunState::Succeeded {
                self.text.finish(run.answer(), &mut self.ready);
            }
            self.ready.push_back(AnswerPart::Ended(Box::new(run)));
            return Ok(());
        };
        match update {
            Update::StepText(text) if text.is_answer => self.text.write(&text, &mut self.ready),
            Update::Event(RunEvent { kind: Some(Kind::Suspended(_)), .. }) => {
                self.text.output = None;
                let run = self.client.get(&self.run_id).await?;
                if run.state() == RunState::Suspended {
                    self.ready.push_back(AnswerPart::ToolCalls(run.tool_calls));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("run_id", &self.run_id).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Output {
    round: u32,
    step: u32,
    attempt: u32,
}

/// The text that the caller has since the last restart.
#[derive(Debug, Default)]
struct Text {
    /// The output that the text is from.
    output: Option<Output>,
    text: String,
}

impl Text {
    /// Adds text of an output. Text after a gap is left out: the end of the run has it.
    fn write(&mut self, text: &StepText, parts: &mut VecDeque<AnswerPart>) {
        let output = Output { round: text.round, step: text.step, attempt: text.attempt };
        if self.output != Some(output) {
            if text.offset > 0 {
                return;
            }
            self.restart(parts);
            self.output = Some(output);
        }
        let seen =
            (self.text.len() as u64).checked_sub(text.offset).and_then(|seen| usize::try_from(seen).ok());
        if let Some(rest) = seen.and_then(|seen| text.text.get(seen..)) {
            self.add(rest, parts);
        }
    }

    /// Adds the rest of the answer.
    fn finish(&mut self, answer: &str, parts: &mut VecDeque<AnswerPart>) {
        if !answer.starts_with(&self.text) {
            self.restart(parts);
        }
        let rest = &answer[self.text.len()..];
        self.add(rest, parts);
    }

    fn add(&mut self, text: &str, parts: &mut VecDeque<AnswerPart>) {
        if !text.is_empty() {
            self.text.push_str(text);
            parts.push_back(AnswerPart::Text(text.to_owned()));
        }
    }

    fn restart(&mut self, parts: &mut VecDeque<AnswerPart>) {
        if !self.text.is_empty() {
            self.text.clear();
            parts.push_back(AnswerPart::Restarted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(attempt: u32, offset: u64, text: &str) -> StepText {
        StepText { attempt, offset, text: text.to_owned(), is_answer: true, ..StepText::default() }
    }

    /// The text that a caller ends with, and the number of restarts.
    fn read(parts: VecDeque<AnswerPart>) -> (String, usize) {
        let (mut whole, mut restarts) = (String::new(), 0);
        for part in parts {
            match part {
                AnswerPart::Text(text) => whole.push_str(&text),
                AnswerPart::Restarted => {
                    whole.clear();
                    restarts += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        (whole, restarts)
    }

    #[test]
    fn text_that_was_missed_is_added_at_the_end() {
        let (mut written, mut parts) = (Text::default(), VecDeque::new());
        written.write(&text(1, 0, "blue "), &mut parts);
        written.write(&text(1, 11, "scatters"), &mut parts);
        written.finish("blue light scatters", &mut parts);
        assert_eq!(read(parts), ("blue light scatters".to_owned(), 0));
    }

    #[test]
    fn another_attempt_discards_the_text_of_the_previous_one() {
        let (mut written, mut parts) = (Text::default(), VecDeque::new());
        written.write(&text(1, 0, "re"), &mut parts);
        written.write(&text(2, 0, "blu"), &mut parts);
        written.finish("blue", &mut parts);
        assert_eq!(read(parts), ("blue".to_owned(), 1));
    }

    #[test]
    fn an_answer_that_was_not_streamed_is_one_text() {
        let (mut written, mut parts) = (Text::default(), VecDeque::new());
        written.write(&text(1, 7, "late"), &mut parts);
        written.finish("whole", &mut parts);
        assert_eq!(read(parts), ("whole".to_owned(), 0));
    }

    #[test]
    fn a_text_that_is_not_the_answer_is_replaced() {
        let (mut written, mut parts) = (Text::default(), VecDeque::new());
        written.write(&text(1, 0, "I look."), &mut parts);
        written.finish("cold", &mut parts);
        assert_eq!(read(parts), ("cold".to_owned(), 1));
    }
}
