//! Reads prompts: computes one up to its penultimate token and returns the hidden state there. Nothing is decoded.
//!
//! llama.cpp returns hidden states only in a context created for it, which computes the output layer for every token. So
//! prompts are read in a separate context, one after the other, in parts between two batches of plans: writing sequences
//! wait for one part at most. The extra output layer costs a third of the prompt's time for a model with half a billion
//! parameters, and a fourteenth for one with seven billion.

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

/// Most tokens of one part. The logits of each cover the whole vocabulary: 40 MB for 64 tokens at 152,000.
pub(super) const PART_TOKENS_MAX: u32 = 64;

/// A request to read a prompt.
#[derive(Debug)]
pub struct ReadRequest {
    /// The model's input.
    pub prompt: Prompt,
    /// The request ends at this time, finished or not.
    pub deadline: Instant,
    /// Cancels the request.
    pub stop: CancellationToken,
}

/// The result of reading a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Hidden {
    /// The hidden state at the penultimate token, after the last norm.
    pub values: Vec<f32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
}

/// A submitted prompt. Dropping it cancels the request.
#[derive(Debug)]
pub struct PendingRead {
    pub(super) answer: oneshot::Receiver<Result<Hidden, EngineError>>,
    pub(super) _guard: DropGuard,
}

impl PendingRead {
    /// Waits for the result.
    pub async fn finish(self) -> Result<Hidden, EngineError> {
        self.answer.await.unwrap_or(Err(EngineError::Ended))
    }
}

/// A request and its reply channel.
#[derive(Debug)]
pub(super) struct ReadJob {
    pub(super) request: ReadRequest,
    pub(super) abandoned: CancellationToken,
    pub(super) reply: oneshot::Sender<Result<Hidden, EngineError>>,
    /// Its place, freed when the request is answered.
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
        // The receiver may be dropped.
        let _ = self.reply.send(answer);
    }
}

/// A context for hidden states and its queue.
pub(super) struct Reader<'model> {
    context: LlamaContext<'model>,
    batch: LlamaBatch<'static>,
    /// The first one is in progress. Bounded by the requests' places.
    waiting: VecDeque<Reading>,
}

struct Reading {
    job: Box<ReadJob>,
    tokens: Vec<u32>,
    decoded: usize,
}

impl<'model> Reader<'model> {
    /// Creates a reader. The context must return hidden states of single tokens for one sequence.
    pub(super) fn new(context: LlamaContext<'model>) -> Self {
        let batch = LlamaBatch::new(PART_TOKENS_MAX as usize, 1);
        Self { context, batch, waiting: VecDeque::new() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Prompts in progress or waiting.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Queues a tokenised prompt, or answers with the error.
    pub(super) fn push(&mut self, job: Box<ReadJob>, tokens: Result<Vec<u32>, EngineError>) {
        match tokens {
            Ok(tokens) => self.waiting.push_back(Reading { job, tokens, decoded: 0 }),
            Err(error) => job.answer(Err(error)),
        }
    }

    /// Reads a part of the first prompt and returns the number of computed tokens.
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

/// Decodes tokens of the only sequence.
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
        // Output is requested for every token: the context computes it anyway and warns otherwise.
        batch.add(token, position, &[0], true).map_err(|_| REFUSED)?;
    }
    context.decode(batch)
}
