//! Prepares requests: tokenises the prompt and builds the grammar. This takes milliseconds for a long question, so a
//! separate thread does it while other requests are decoded.

use std::sync::mpsc::Receiver;

use tokio::sync::mpsc::UnboundedSender;

use super::reader::ReadJob;
use super::{Command, EngineError, Job, Request};
use crate::grammar::{Grammars, Walk};
use crate::prompt::Prompt;
use crate::vocabulary::Vocabulary;

/// A preparation to do.
pub(super) enum Order {
    /// A request with a sequence.
    Plan { sequence: u16, job: Box<Job> },
    /// A prompt to read.
    Read(Box<ReadJob>),
}

/// A prepared request.
pub(super) struct Prepared {
    /// The prompt.
    pub(super) tokens: Vec<u32>,
    /// How many of its first tokens are a shared beginning.
    pub(super) shared: usize,
    /// The grammar at its start.
    pub(super) walk: Walk,
}

/// Prepares requests.
pub(super) struct Preparer<'model> {
    pub(super) vocabulary: &'model Vocabulary,
    pub(super) grammars: Grammars,
    pub(super) context_tokens: usize,
    pub(super) commands: UnboundedSender<Command>,
}

impl Preparer<'_> {
    /// Runs until the sender is dropped.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        let _stop = StopAfter(self.commands.clone());
        while let Ok(order) = orders.recv() {
            let ready = match order {
                Order::Plan { sequence, job } => {
                    let prepared = self.prepare(&job.request).map(Box::new);
                    Command::Ready { sequence, job, prepared }
                }
                Order::Read(job) => {
                    let tokens = self.cut(&job.request.prompt, self.context_tokens).map(|(tokens, _)| tokens);
                    Command::ReadReady { job, tokens }
                }
            };
            if self.commands.send(ready).is_err() {
                return;
            }
        }
    }

    /// Rejects requests that could exceed their context, so that none does later.
    fn prepare(&mut self, request: &Request) -> Result<Prepared, EngineError> {
        let tokens_max = prompt_tokens_max(self.context_tokens, request);
        let (tokens, shared) = self.cut(&request.prompt, tokens_max)?;
        // At least one token is not shared: its logits start the output.
        let shared = shared.min(tokens.len().saturating_sub(1));
        let walk = self.grammars.walk(&request.shape)?;
        Ok(Prepared { tokens, shared, walk })
    }

    /// Tokens of a prompt, and how many of the first ones are a shared beginning.
    fn cut(&self, prompt: &Prompt, tokens_max: usize) -> Result<(Vec<u32>, usize), EngineError> {
        let controls = prompt.template().controls();
        if let Some(name) = controls.iter().find(|name| !self.vocabulary.has_control(name)) {
            return Err(EngineError::UnknownControl { name });
        }
        let (tokens, shared) = self.vocabulary.cut_prompt(prompt);
        if tokens.len() > tokens_max {
            return Err(EngineError::PromptTooLong { tokens: tokens.len(), tokens_max });
        }
        Ok((tokens, shared))
    }
}

/// Most prompt tokens that leave enough context for the output.
pub(super) fn prompt_tokens_max(context_tokens: usize, request: &Request) -> usize {
    let written = request.reasoning_tokens_max as usize + request.plan_tokens_max as usize;
    context_tokens.saturating_sub(written)
}

/// Stops the engine if this thread panics; otherwise it would wait forever.
struct StopAfter(UnboundedSender<Command>);

impl Drop for StopAfter {
    fn drop(&mut self) {
        let _ = self.0.send(Command::Stop);
    }
}
