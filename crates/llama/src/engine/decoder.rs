//! A safe interface to llama.cpp's context: it takes parts of sequences and returns the logits after their last tokens.

use llama_cpp_2::DecodeError;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::{LlamaContextParams, LlamaPoolingType};
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::token::LlamaToken;

use super::EngineError;
use super::reader::PART_TOKENS_MAX;

/// The next tokens of a sequence.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// The sequence.
    pub(super) sequence: u16,
    /// Tokens of it that were decoded before.
    pub(super) position: usize,
    /// The tokens.
    pub(super) tokens: &'a [u32],
    /// Whether the logits after the last token are requested.
    pub(super) logits: Logits,
}

/// Whether logits are requested. They cost an output layer, and only requested ones can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logits {
    AfterLast,
    Unwanted,
}

/// A context and its batch.
pub(super) struct Decoder<'model> {
    context: LlamaContext<'model>,
    batch: LlamaBatch<'static>,
    batch_tokens_max: usize,
}

/// Context parameters for `sequences` sequences that share `cells` cells; each token of a sequence takes one.
pub(super) fn context_params(cells: u32, sequences: u16, threads: i32) -> LlamaContextParams {
    let batch = cells.min(BATCH_TOKENS_MAX);
    LlamaContextParams::default()
        .with_n_ctx(std::num::NonZeroU32::new(cells))
        .with_n_batch(batch)
        .with_n_ubatch(batch)
        .with_n_seq_max(u32::from(sequences))
        .with_kv_unified(true)
        .with_n_threads(threads)
        .with_n_threads_batch(threads)
        .with_no_perf(true)
}

/// Parameters of a context that returns hidden states of one sequence.
pub(super) fn reading_params(context_tokens: u32, threads: i32) -> LlamaContextParams {
    let batch = context_tokens.min(PART_TOKENS_MAX);
    context_params(context_tokens, 1, threads)
        .with_n_batch(batch)
        .with_n_ubatch(batch)
        .with_embeddings(true)
        .with_pooling_type(LlamaPoolingType::None)
}

/// Parameters of a context that pools a whole text at once, as the weights say.
pub(crate) fn encoding_params(tokens_max: u32, threads: i32) -> LlamaContextParams {
    context_params(tokens_max, 1, threads)
        .with_n_batch(tokens_max)
        .with_n_ubatch(tokens_max)
        .with_embeddings(true)
}

/// The binding's error for a batch that is invalid.
pub(super) const REFUSED: DecodeError = DecodeError::NTokensZero;

/// Most tokens of one batch.
const BATCH_TOKENS_MAX: u32 = 512;

impl<'model> Decoder<'model> {
    pub(super) fn new(context: LlamaContext<'model>) -> Self {
        let batch_tokens_max = context.n_batch().min(BATCH_TOKENS_MAX) as usize;
        let batch = LlamaBatch::new(batch_tokens_max, 1);
        Self { context, batch, batch_tokens_max }
    }

    /// Most tokens of one call.
    pub(super) fn batch_tokens_max(&self) -> usize {
        self.batch_tokens_max
    }

    /// Decodes the parts and returns the requested logits in the parts' order. After an error no sequence has changed.
    pub(super) fn decode(&mut self, parts: &[Part<'_>]) -> Result<Vec<Option<&[f32]>>, DecodeError> {
        self.batch.clear();
        let mut wanted = Vec::with_capacity(parts.len());
        for part in parts {
            wanted.push(self.add(part)?);
        }
        self.context.decode(&mut self.batch)?;
        let context = &self.context;
        Ok(wanted.into_iter().map(|at| at.map(|at| context.get_logits_ith(at))).collect())
    }

    /// Adds a part to the batch. Returns the index of its last token if logits are requested there.
    fn add(&mut self, part: &Part<'_>) -> Result<Option<i32>, DecodeError> {
        let mut logits_at = None;
        for (offset, token) in part.tokens.iter().enumerate() {
            let is_last = offset + 1 == part.tokens.len();
            let wanted = is_last && part.logits == Logits::AfterLast;
            if wanted {
                logits_at = Some(self.batch.n_tokens());
            }
            let position = i32::try_from(part.position + offset).map_err(|_| REFUSED)?;
            let token = LlamaToken::new(token.cast_signed());
            self.batch.add(token, position, &[i32::from(part.sequence)], wanted).map_err(|_| REFUSED)?;
        }
        Ok(logits_at)
    }

    /// Copies the first `tokens` tokens of `from` to the empty sequence `to`. Nothing is computed or moved: both share the cells.
    pub(super) fn share(&mut self, from: u16, to: u16, tokens: usize) -> Result<(), EngineError> {
        let end = u32::try_from(tokens).map_err(|_| EngineError::Share)?;
        let copied = self.context.copy_kv_cache_seq(i32::from(from), i32::from(to), Some(0), Some(end));
        copied.map_err(|_| EngineError::Share)
    }

    /// Removes all tokens of all sequences.
    pub(super) fn forget_all(&mut self) {
        self.context.clear_kv_cache();
    }

    /// Removes the tokens of a sequence from `position` on.
    pub(super) fn forget(&mut self, sequence: u16, position: usize) -> Result<(), EngineError> {
        let position = u32::try_from(position).map_err(|_| EngineError::Forget)?;
        match self.context.clear_kv_cache_seq(Some(u32::from(sequence)), Some(position), None) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(EngineError::Forget),
        }
    }
}
