//! llama.cpp with nothing around it, as its own batched bench drives it: prompts in one go, then one token of each sequence in a
//! batch, again and again. No token is chosen; which ones are decoded makes no difference to the time.

use std::num::NonZeroU32;
use std::time::Instant;

use anyhow::Result;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::{LogOptions, send_logs_to_tracing};

use crate::child::Order;
use crate::engine::{CONTEXT_TOKENS, PROMPT_TOKENS, WARM_UP_TOKENS};

const BATCH_TOKENS_MAX: u32 = 512;

/// How sequences are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffers {
    One,
    Split,
}

/// The same context as the engine's, but for the buffers.
pub(crate) fn params(sequences: u16, threads: u16, buffers: Buffers) -> LlamaContextParams {
    LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(CONTEXT_TOKENS * u32::from(sequences)))
        .with_n_batch(BATCH_TOKENS_MAX)
        .with_n_ubatch(BATCH_TOKENS_MAX)
        .with_n_seq_max(u32::from(sequences))
        .with_kv_unified(buffers == Buffers::One)
        .with_n_threads(i32::from(threads))
        .with_n_threads_batch(i32::from(threads))
        .with_no_perf(true)
}

/// All layers on the GPUs that there are, or none.
pub(crate) fn model_params(order: &Order) -> Result<LlamaModelParams> {
    let params = LlamaModelParams::default();
    if order.gpu { Ok(params) } else { Ok(params.with_n_gpu_layers(0).with_devices(&[])?) }
}

/// llama.cpp, silent.
pub(crate) fn backend() -> Result<LlamaBackend> {
    send_logs_to_tracing(LogOptions::default().with_logs_enabled(false));
    podium_llama::load_modules()?;
    Ok(LlamaBackend::init()?)
}

/// The rate at which all sequences together continue after a prompt and some first tokens each.
pub(crate) fn tokens_a_second(order: &Order, buffers: Buffers) -> Result<f64> {
    let backend = backend()?;
    let model = LlamaModel::load_from_file(&backend, &order.model, &model_params(order)?)?;
    let mut context = model.new_context(&backend, params(order.sequences, order.threads, buffers))?;
    let mut batch = LlamaBatch::new(BATCH_TOKENS_MAX as usize, 1);
    for sequence in 0..i32::from(order.sequences) {
        batch.clear();
        for position in 0..PROMPT_TOKENS {
            batch.add(token(position), position, &[sequence], position + 1 == PROMPT_TOKENS)?;
        }
        context.decode(&mut batch)?;
    }
    let mut position = PROMPT_TOKENS;
    let mut go_on = |context: &mut LlamaContext<'_>, steps: u32| -> Result<f64> {
        let begin = Instant::now();
        for _ in 0..steps {
            batch.clear();
            for sequence in 0..i32::from(order.sequences) {
                batch.add(token(position + sequence), position, &[sequence], true)?;
            }
            context.decode(&mut batch)?;
            context.synchronize();
            position += 1;
        }
        Ok(begin.elapsed().as_secs_f64())
    };
    go_on(&mut context, WARM_UP_TOKENS)?;
    let seconds = go_on(&mut context, order.tokens)?;
    Ok(f64::from(order.tokens) * f64::from(order.sequences) / seconds)
}

fn token(number: i32) -> LlamaToken {
    LlamaToken::new(100 + number % 400)
}
