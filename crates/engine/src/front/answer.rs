//! Streams the answer while it is written. Plain clients cannot retract text, so texts of two attempts are never mixed: text of a
//! second attempt is shown only if it continues the text that was shown of the first.

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_ports::store::StoreError;

use crate::front::watch::Update;
use crate::parts::Parts;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerPart {
    /// The next text.
    Text(String),
    /// The run after its end, always last. It may have failed or been cancelled.
    Ended(Box<Run>),
}

/// Why an answer broke off.
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

struct Answering {
    parts: Parts,
    id: RunId,
    updates: BoxStream<'static, Result<Update, StoreError>>,
    /// The text that the client has.
    shown: String,
    /// The text of the current attempt.
    current: String,
}

pub(crate) fn answer(
    parts: Parts,
    id: RunId,
    updates: BoxStream<'static, Result<Update, StoreError>>,
) -> BoxStream<'static, Result<AnswerPart, AnswerError>> {
    let answering = Answering { parts, id, updates, shown: String::new(), current: String::new() };
    stream::unfold(Some((answering, None)), |state| async {
        let (mut answering, ended) = state?;
        if let Some(run) = ended {
            return Some((Ok(AnswerPart::Ended(run)), None));
        }
        match answering.next().await {
            Ok((Some(text), ended)) => Some((Ok(AnswerPart::Text(text)), Some((answering, ended)))),
            Ok((None, Some(run))) => Some((Ok(AnswerPart::Ended(run)), None)),
            Ok((None, None)) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

impl Answering {
    /// The next text, and the run if it has ended.
    async fn next(&mut self) -> Result<(Option<String>, Option<Box<Run>>), AnswerError> {
        while let Some(update) = self.updates.next().await {
            match update? {
                Update::Frame { frame, is_answer: true } => {
                    if frame.offset == 0 {
                        self.current.clear();
                    }
                    self.current.push_str(&frame.text);
                    if let Some(text) = self.news(&self.current).filter(|text| !text.is_empty()) {
                        self.shown.push_str(&text);
                        return Ok((Some(text), None));
                    }
                }
                Update::Event(_)
                | Update::Planning { .. }
                | Update::Frame { .. }
                | Update::Restarted { .. } => {}
            }
        }
        self.end().await
    }

    async fn end(&mut self) -> Result<(Option<String>, Option<Box<Run>>), AnswerError> {
        let run = self.parts.store.load(&[self.id]).await?.into_iter().next().flatten();
        let run = run.ok_or(AnswerError::Unreadable { run: self.id })?;
        let rest = match run.answer() {
            Some(answer) => Some(self.news(answer).ok_or(AnswerError::Diverged { run: self.id })?),
            None => None,
        };
        Ok((rest.filter(|text| !text.is_empty()), Some(Box::new(run))))
    }

    /// The part of `text` after the shown text; `None` if it does not begin with that.
    fn news(&self, text: &str) -> Option<String> {
        text.strip_prefix(self.shown.as_str()).map(str::to_owned)
    }
}
