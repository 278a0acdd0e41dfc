//! Sentence encoders: a text becomes one vector, the pooled output of a model such as BERT.
//!
//! One thread owns the model and its context and reads one text after the other. An encoder for routing is small: a short
//! question takes milliseconds.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use podium_bundle::gguf::{Gguf, Value};
use podium_bundle::hardware::Hardware;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::backend::{LlamaCpp, backend, with_last_error};
use crate::engine::{EngineError, Hidden, LoadError, loading};

/// Most tokens of a text that are read; an encoder trained for fewer reads only those. The rest of a text is ignored.
pub const ENCODER_TOKENS_MAX: u32 = 2048;
/// Names how a text is read. It changes when vectors change.
pub(crate) const READING: &str = "encoder-1";

/// Architectures that give one vector for a text.
const ARCHITECTURES: [&str; 5] = ["bert", "gemma-embedding", "modern-bert", "nomic-bert", "qwen3"];
/// GGUF's numbers of the ways to pool: mean, first token, last token.
const POOLINGS: std::ops::RangeInclusive<u32> = 1..=3;
/// Bytes of text that are kept for each token that is read. Few tokens have more.
const TOKEN_BYTES: usize = 16;

/// A running encoder. Dropping it stops the thread after the text that it reads.
#[derive(Debug)]
pub struct Encoder {
    commands: mpsc::UnboundedSender<Command>,
    places: Arc<Semaphore>,
    waiting_max: usize,
    stop: CancellationToken,
    ended: CancellationToken,
}

/// The messages to the thread. The queue needs no bound: each request in it has a place.
#[derive(Debug)]
enum Command {
    Read(Request),
    /// Wakes the thread if it is idle.
    Stop,
}

/// A text to read.
#[derive(Debug)]
struct Request {
    text: String,
    reply: oneshot::Sender<Result<Hidden, EngineError>>,
    /// Freed when the request is answered.
    _place: OwnedSemaphorePermit,
}

impl Encoder {
    /// Loads the weights, a GGUF file, and starts the thread. Blocks while it loads. At most `waiting_max` texts wait.
    pub fn load(
        weights: &Path,
        waiting_max: NonZeroUsize,
        threads: Option<NonZeroUsize>,
    ) -> Result<Self, LoadError> {
        let (commands, queue) = mpsc::unbounded_channel();
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let (loaded, is_loaded) = std::sync::mpsc::sync_channel(1);
        let weights: PathBuf = weights.to_owned();
        let (stopped, end) = (stop.clone(), ended.clone().drop_guard());
        let body = move || {
            // Dropped last, even on a panic: it signals that the model is freed.
            let _end = end;
            match Loaded::new(&weights) {
                Ok(encoder) => encoder.run(threads, queue, &stopped, &loaded),
                Err(error) => drop(loaded.send(Err(error))),
            }
        };
        let thread = std::thread::Builder::new().name("llama-encoder".to_owned());
        thread.stack_size(loading::STACK_BYTES).spawn(body).map_err(LoadError::Thread)?;
        let panicked = |_| LoadError::Thread(std::io::Error::other("the thread panicked while it loaded"));
        is_loaded.recv().map_err(panicked)??;
        let waiting_max = waiting_max.get().min(Semaphore::MAX_PERMITS - 1);
        Ok(Self { commands, places: Arc::new(Semaphore::new(waiting_max + 1)), waiting_max, stop, ended })
    }

    /// The vector of a text, with length 1. Dropping the future before its turn cancels the request.
    pub async fn read(&self, text: &str) -> Result<Hidden, EngineError> {
        let overloaded = |_| EngineError::Overloaded { waiting_max: self.waiting_max };
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(overloaded)?;
        let (reply, answer) = oneshot::channel();
        let request = Request { text: text.to_owned(), reply, _place: place };
        self.commands.send(Command::Read(request)).map_err(|_| EngineError::Ended)?;
        answer.await.unwrap_or(Err(EngineError::Ended))
    }

    /// Rejects waiting requests and returns when the model is freed. Programs must call this before they exit.
    pub async fn shut_down(&self) {
        self.request_stop();
        self.ended.cancelled().await;
    }

    fn request_stop(&self) {
        self.stop.cancel();
        // The thread may have ended.
        let _ = self.commands.send(Command::Stop);
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.request_stop();
    }
}

struct Loaded {
    model: LlamaModel,
    tokens_max: u32,
}

impl Loaded {
    fn new(weights: &Path) -> Result<Self, LoadError> {
        let LlamaCpp { backend, modules } = backend()?;
        let _turn = loading::LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        loading::readable(weights)?;
        loading::metadata_is_safe(weights)?;
        // Before llama.cpp loads it: it aborts on some files that it cannot use.
        let header = Gguf::read(weights).unwrap_or_default();
        let architecture = header.text("general.architecture").unwrap_or("none").to_owned();
        if !ARCHITECTURES.contains(&&*architecture) {
            return Err(unsupported("general.architecture", architecture, ARCHITECTURES.join(", ")));
        }
        match header.values.get(&format!("{architecture}.pooling_type")) {
            Some(Value::Number(pooling)) if POOLINGS.contains(pooling) => {}
            Some(Value::Number(pooling)) => {
                let supported = "1 (mean), 2 (first token), 3 (last token)".to_owned();
                return Err(unsupported("pooling_type", pooling.to_string(), supported));
            }
            _ => {
                let supported = "a number that says how the outputs become one vector".to_owned();
                return Err(unsupported("pooling_type", "none".to_owned(), supported));
            }
        }
        let placement = loading::Placement::find(Hardware::default(), modules)?;
        let model = loading::load_model(backend, weights, &placement)?;
        let tokens_max = model.n_ctx_train().min(ENCODER_TOKENS_MAX);
        Ok(Self { model, tokens_max })
    }

    fn run(
        self,
        threads: Option<NonZeroUsize>,
        mut queue: mpsc::UnboundedReceiver<Command>,
        stop: &CancellationToken,
        loaded: &std::sync::mpsc::SyncSender<Result<(), LoadError>>,
    ) {
        let Self { model, tokens_max } = self;
        let threads = loading::threads(threads, model.n_params());
        let params = loading::encoding_params(tokens_max, i32::try_from(threads).unwrap_or(1));
        let context = backend().map_err(LoadError::from).and_then(|LlamaCpp { backend, .. }| {
            let (context, reason) = with_last_error(|| model.new_context(backend, params));
            context.map_err(|error| LoadError::Context {
                context_tokens: tokens_max,
                sequences_max: 1,
                reason: reason.unwrap_or_else(|| error.to_string()),
            })
        });
        let mut context = match context {
            Ok(context) => context,
            Err(error) => return drop(loaded.send(Err(error))),
        };
        let mut batch = LlamaBatch::new(tokens_max as usize, 1);
        let _ = loaded.send(Ok(()));
        while let Some(Command::Read(Request { text, reply, _place })) = queue.blocking_recv() {
            if stop.is_cancelled() {
                break;
            }
            if !reply.is_closed() {
                let tokens = tokens(&model, &text, tokens_max as usize);
                // The receiver may be dropped.
                let _ = reply.send(encode(&mut context, &mut batch, &tokens));
            }
        }
    }
}

fn unsupported(key: &'static str, value: String, supported: String) -> LoadError {
    LoadError::Unsupported { key, value, supported }
}

/// The tokens of a text with those that begin and end it. A text that is too long loses its end, but not its last token.
fn tokens(model: &LlamaModel, text: &str, tokens_max: usize) -> Vec<LlamaToken> {
    let end = text.floor_char_boundary(tokens_max.saturating_mul(TOKEN_BYTES));
    let mut tokens = model.vocab().tokenize(&text.as_bytes()[..end], true, false);
    if let Some(last) = tokens.last().copied()
        && tokens.len() > tokens_max
    {
        tokens.truncate(tokens_max - 1);
        tokens.push(last);
    }
    tokens
}

fn encode(
    context: &mut LlamaContext<'_>,
    batch: &mut LlamaBatch<'static>,
    tokens: &[LlamaToken],
) -> Result<Hidden, EngineError> {
    batch.clear();
    for (position, token) in (0i32..).zip(tokens) {
        // Pooling takes the outputs of all tokens.
        batch.add(*token, position, &[0], true).map_err(|_| EngineError::NoHidden)?;
    }
    let decoded = context.decode(batch).map_err(|error| EngineError::Decode(Arc::new(error)));
    let values = decoded
        .and_then(|()| context.embeddings_seq_ith(0).map(<[f32]>::to_vec).map_err(|_| EngineError::NoHidden));
    context.clear_kv_cache();
    let mut values = values?;
    let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    if !(length > 0.0 && length.is_finite()) {
        return Err(EngineError::NoHidden);
    }
    for value in &mut values {
        *value /= length;
    }
    Ok(Hidden { values, prompt_tokens: tokens.len() })
}
