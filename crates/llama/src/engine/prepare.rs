//! What a request needs before its first token is computed: its prompt as tokens, its grammar. Both take as long as they take,
//! milliseconds for a long question, so a thread of their own does it while the others' tokens are computed.

use std::sync::mpsc::Receiver;

use tokio::sync::mpsc::UnboundedSender;

use super::reader::ReadJob;
use super::{Command, EngineError, Job, Request};
use crate::grammar::{Grammars, Walk};
use crate::prompt::Prompt;
use crate::vocabulary::Vocabulary;

/// What is to be made ready.
pub(super) enum Order {
    /// A request that was given a sequence.
    Plan { sequence: u16, job: Box<Job> },
    /// A prompt to be read.
    Read(Box<ReadJob>),
}

/// What a request begins with.
pub(super) struct Prepared {
    /// The prompt.
    pub(super) tokens: Vec<u32>,
    /// How many of the first of these many prompts begin with.
    pub(super) shared: usize,
    /// The grammar, at its beginning.
    pub(super) walk: Walk,
}

/// Makes ready.
pub(super) struct Preparer<'model> {
    pub(super) vocabulary: &'model Vocabulary,
    pub(super) grammars: Grammars,
    pub(super) context_tokens: usize,
    pub(super) commands: UnboundedSender<Command>,
}

impl Preparer<'_> {
    /// Works until nobody orders any more.
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

    /// A request that could outgrow its context is refused here, so that none does later.
    fn prepare(&mut self, request: &Request) -> Result<Prepared, EngineError> {
        let tokens_max = prompt_tokens_max(self.context_tokens, request);
        let (tokens, shared) = self.cut(&request.prompt, tokens_max)?;
        // At least one token is the request's own: its logits begin the text.
        let shared = shared.min(tokens.len().saturating_sub(1));
        let walk = self.grammars.walk(&request.shape)?;
        Ok(Prepared { tokens, shared, walk })
    }

    /// A prompt as tokens, and how many of the first of them many prompts begin with.
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

/// Most tokens of a prompt that leave room for what is written after it.
pub(super) fn prompt_tokens_max(context_tokens: usize, request: &Request) -> usize {
    let written = request.reasoning_tokens_max as usize + request.plan_tokens_max as usize;
    context_tokens.saturating_sub(written)
}

/// Stops the engine, which would wait for ever, should the thread panic.
struct StopAfter(UnboundedSender<Command>);

impl Drop for StopAfter {
    fn drop(&mut self) {
        let _ = self.0.send(Command::Stop);
    }
}
