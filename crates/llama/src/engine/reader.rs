//! Reads prompts: computes one up to its penultimate token and gives the hidden state there. Nothing is decoded.
//!
//! llama.cpp gives hidden states only in a context that was made for it, and there computes the output layer for every token,
//! wanted or not. So prompts are read in a context of their own, one after the other, a part between two batches of plans: who
//! writes waits for no more than a part. For that the prompt costs the output layer more than it had to: a third for a model of
//! half a billion parameters, a fourteenth for one of seven.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use llama_cpp_2::DecodeError;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::token::LlamaToken;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::decoder::REFUSED;
use super::{Ended, EngineError};
use crate::prompt::Prompt;

/// Most tokens of one part. Each takes the logits of the whole vocabulary: 40 MB for so many at 152,000.
pub(super) const PART_TOKENS_MAX: u32 = 64;

/// A prompt to be read.
#[derive(Debug)]
pub struct ReadRequest {
    /// What the model is told.
    pub prompt: Prompt,
    /// When to stop, read or not.
    pub deadline: Instant,
    /// Told from outside to stop.
    pub stop: CancellationToken,
}

/// What the model thinks of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Hidden {
    /// The hidden state at the penultimate token, after the last norm.
    pub values: Vec<f32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
}

/// A prompt on its way. Dropping it stops the work.
#[derive(Debug)]
pub struct PendingRead {
    pub(super) answer: oneshot::Receiver<Result<Hidden, EngineError>>,
    pub(super) _guard: DropGuard,
}

impl PendingRead {
    /// Waits for the end.
    pub async fn finish(self) -> Result<Hidden, EngineError> {
        self.answer.await.unwrap_or(Err(EngineError::Ended))
    }
}

/// A prompt to be read and where the result goes.
#[derive(Debug)]
pub(super) struct ReadJob {
    pub(super) request: ReadRequest,
    pub(super) abandoned: CancellationToken,
    pub(super) reply: oneshot::Sender<Result<Hidden, EngineError>>,
    /// Among those that wait or are worked on. Free again when the request is answered.
    pub(super) _place: OwnedSemaphorePermit,
}

impl ReadJob {
    fn interrupted(&self, now: Instant) -> Option<Ended> {
        if self.request.stop.is_cancelled() || self.abandoned.is_cancelled() {
            return Some(Ended::Stopped);
        }
        (now >= self.request.deadline).then_some(Ended::Deadline)
    }

    fn answer(self, answer: Result<Hidden, EngineError>) {
        // Nobody may be waiting.
        let _ = self.reply.send(answer);
    }
}

/// A context for hidden states, and who waits for it.
pub(super) struct Reader<'model> {
    context: LlamaContext<'model>,
    batch: LlamaBatch<'static>,
    /// The first is being read. Bounded by the places that requests hold.
    waiting: VecDeque<Reading>,
}

struct Reading {
    job: Box<ReadJob>,
    tokens: Vec<u32>,
    decoded: usize,
}

impl<'model> Reader<'model> {
    /// Nobody waits yet. The context is for hidden states of single tokens, and for one sequence.
    pub(super) fn new(context: LlamaContext<'model>) -> Self {
        let batch = LlamaBatch::new(PART_TOKENS_MAX as usize, 1);
        Self { context, batch, waiting: VecDeque::new() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many prompts are being read or wait for it.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Queues a prompt that was cut into tokens, or refuses it.
    pub(super) fn push(&mut self, job: Box<ReadJob>, tokens: Result<Vec<u32>, EngineError>) {
        match tokens {
            Ok(tokens) => self.waiting.push_back(Reading { job, tokens, decoded: 0 }),
            Err(error) => job.answer(Err(error)),
        }
    }

    /// Reads a part of the first prompt, and says how many tokens that was.
    pub(super) fn step(&mut self) -> usize {
        self.end_interrupted();
        let Some(reading) = self.waiting.front_mut() else { return 0 };
        let end = reading.tokens.len().saturating_sub(1);
        let part = reading.decoded..end.min(reading.decoded + PART_TOKENS_MAX as usize);
        let decoded = decode(&mut self.context, &mut self.batch, &reading.tokens, part.clone());
        let is_whole = part.end == end;
        let answer = match decoded {
            Err(error) => Err(EngineError::Decode(Arc::new(error))),
            Ok(()) if !is_whole => {
                reading.decoded = part.end;
                return part.len();
            }
            Ok(()) => {
                let last = self.batch.n_tokens() - 1;
                let values = self.context.embeddings_ith(last).map(<[f32]>::to_vec);
                let prompt_tokens = reading.tokens.len();
                values.map(|values| Hidden { values, prompt_tokens }).map_err(|_| EngineError::NoHidden)
            }
        };
        self.finish_first(answer);
        part.len()
    }

    fn finish_first(&mut self, answer: Result<Hidden, EngineError>) {
        self.context.clear_kv_cache();
        if let Some(reading) = self.waiting.pop_front() {
            reading.job.answer(answer);
        }
    }

    fn end_interrupted(&mut self) {
        let now = Instant::now();
        let ended = |reading: &Reading| reading.job.interrupted(now);
        if self.waiting.iter().all(|reading| ended(reading).is_none()) {
            return;
        }
        if self.waiting.front().is_some_and(|first| ended(first).is_some()) {
            self.context.clear_kv_cache();
        }
        for reading in std::mem::take(&mut self.waiting) {
            match ended(&reading) {
                Some(ended) => reading.job.answer(Err(EngineError::Interrupted(ended))),
                None => self.waiting.push_back(reading),
            }
        }
    }
}

/// Adds a part of the only sequence to the context.
fn decode(
    context: &mut LlamaContext<'_>,
    batch: &mut LlamaBatch<'static>,
    tokens: &[u32],
    part: std::ops::Range<usize>,
) -> Result<(), DecodeError> {
    batch.clear();
    for at in part {
        let position = i32::try_from(at).map_err(|_| REFUSED)?;
        let token = LlamaToken::new(tokens[at].cast_signed());
        // Asked for at every token: the context gives it at every one, and warns where it was not.
        batch.add(token, position, &[0], true).map_err(|_| REFUSED)?;
    }
    context.decode(batch)
}
