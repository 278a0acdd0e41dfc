//! Loads weights and starts the thread. Rejects what this crate cannot run safely.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::{LlamaLoraAdapter, LlamaModel};
use podium_bundle::gguf::{Gguf, GgufError};
use podium_bundle::hardware::GpuError;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use toktrie::TokEnv;

use super::decoder::{Decoder, context_params, reading_params};
use super::memory::Memory;
use super::metrics::Metrics;
use super::placement::Placement;
use super::prefixes::PREFIXES_MAX;
use super::prepare::{Preparer, prompt_tokens_max};
use super::reader::Reader;
use super::thread::{Channels, EngineThread, Size};
use super::{Command, EngineError, EngineOptions, HiddenStates, Request, SEQUENCES_MAX};
use crate::adapter::{self, AdapterError, AdapterFile};
use crate::backend::{BackendError, LlamaCpp, backend, with_last_error};
use crate::grammar::{GrammarError, Grammars};
use crate::prompt::Prompt;
use crate::vocabulary::{Cutting, Vocabulary};

/// Architectures of autoregressive text models whose context can drop its last tokens.
const ARCHITECTURES: [&str; 5] = ["llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe"];
/// Supported values of `tokenizer.ggml.model`.
const TOKENIZERS: [&str; 2] = ["gpt2", "llama"];

/// llama.cpp tokenises some vocabularies with recursive regular expressions, for which the default 2 MiB are too little.
pub(crate) const STACK_BYTES: usize = 32 << 20;

/// Why an engine could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is missing or is not a regular file.
    #[error("weights `{path}` cannot be read", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// llama.cpp rejected the file.
    #[error("weights `{path}` cannot be loaded: {reason}", path = path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// llama.cpp's error.
        reason: String,
    },
    /// The adapter is invalid or was made for other weights.
    #[error("adapter `{path}` cannot be applied to the weights", path = path.display())]
    Adapter {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: AdapterError,
    },
    /// The weights have an unsupported property.
    #[error("weights have {key} `{value}`, supported are: {supported}")]
    Unsupported {
        /// The key of the file's metadata.
        key: &'static str,
        /// Its value.
        value: String,
        /// The supported values.
        supported: String,
    },
    /// The weights were trained for shorter contexts.
    #[error("context_tokens is {context_tokens}, the weights were trained for at most {trained_tokens}")]
    ContextTooLong {
        /// The configured value.
        context_tokens: u32,
        /// The limit of the weights.
        trained_tokens: u32,
    },
    /// More sequences than llama.cpp supports.
    #[error("sequences_max is {sequences_max}, the limit is {SEQUENCES_MAX}")]
    Sequences {
        /// The configured value.
        sequences_max: u16,
    },
    /// The context does not fit into memory.
    #[error("a context of {sequences_max} times {context_tokens} tokens cannot be created: {reason}")]
    Context {
        /// Tokens per request.
        context_tokens: u32,
        /// Concurrent requests.
        sequences_max: u16,
        /// llama.cpp's error.
        reason: String,
    },
    /// A configured GPU is missing or too small.
    #[error("the configured GPU is unavailable")]
    Gpu(#[from] GpuError),
    /// llama.cpp is unavailable in this process.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The grammar library cannot use the vocabulary.
    #[error("the plan's grammar cannot use the weights' vocabulary")]
    Grammar(#[from] GrammarError),
    /// The system could not start a thread.
    #[error("the engine's thread cannot be started")]
    Thread(#[source] std::io::Error),
}

/// Rejects prompts that can never fit by the length of their text, without tokenising it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextBound {
    context_tokens: usize,
    token_bytes_max: usize,
}

impl TextBound {
    /// Rejects a request whose prompt is too long even if all its tokens have the maximal length.
    pub(super) fn check(self, request: &Request) -> Result<(), EngineError> {
        self.check_prompt(&request.prompt, prompt_tokens_max(self.context_tokens, request))
    }

    /// The same for a prompt to read, after which nothing is written.
    pub(super) fn check_read(self, prompt: &Prompt) -> Result<(), EngineError> {
        self.check_prompt(prompt, self.context_tokens)
    }

    fn check_prompt(self, prompt: &Prompt, tokens_max: usize) -> Result<(), EngineError> {
        let tokens = prompt.text_bytes() / self.token_bytes_max;
        if tokens > tokens_max { Err(EngineError::PromptTooLong { tokens, tokens_max }) } else { Ok(()) }
    }
}

/// Parameters of the engine's thread.
pub(super) struct Start {
    pub(super) options: EngineOptions,
    pub(super) queue: mpsc::UnboundedReceiver<Command>,
    /// The sending end of the queue.
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) stop: CancellationToken,
    /// Dropped after the model is freed.
    pub(super) ended: DropGuard,
}

type IsLoaded = std::sync::mpsc::SyncSender<Result<TextBound, LoadError>>;

/// Serialises loading: each model's memory check depends on the previous ones and redirects llama.cpp's log.
pub(crate) static LOADING: Mutex<()> = Mutex::new(());

/// Starts the thread and waits until it has loaded the weights.
pub(super) fn start(start: Start) -> Result<TextBound, LoadError> {
    let sequences_max = start.options.sequences_max.get();
    if sequences_max > SEQUENCES_MAX {
        return Err(LoadError::Sequences { sequences_max });
    }
    let (loaded, is_loaded) = std::sync::mpsc::sync_channel(1);
    let body = move || {
        let Start { options, queue, commands, stop, ended } = start;
        // Dropped last, even on a panic: it signals that the model is freed.
        let _ended = ended;
        let turn = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        match Loaded::new(&options) {
            Ok(engine) => engine.run(&options, queue, commands, stop, &loaded, turn),
            Err(error) => drop(loaded.send(Err(error))),
        }
    };
    let thread = std::thread::Builder::new().name("llama".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(body).map_err(LoadError::Thread)?;
    let panicked = |_| LoadError::Thread(std::io::Error::other("the thread panicked while it loaded"));
    is_loaded.recv().map_err(panicked)?
}

struct Loaded {
    backend: &'static LlamaBackend,
    placement: Placement,
    memory: Memory,
    model: Arc<LlamaModel>,
    adapter: Option<Adapter>,
    vocabulary: Arc<Vocabulary>,
    grammars: Grammars,
}

/// An adapter that llama.cpp has loaded. It belongs to the model and is freed with it.
struct Adapter {
    file: AdapterFile,
    loaded: LlamaLoraAdapter,
}

impl Loaded {
    fn new(options: &EngineOptions) -> Result<Self, LoadError> {
        let LlamaCpp { backend, modules } = backend()?;
        let placement = Placement::find(options.hardware, modules)?;
        readable(&options.weights)?;
        metadata_is_safe(&options.weights)?;
        let memory = Memory::of(options, cells(options));
        placement.check_memory(&options.weights, &mut decoding_params(options, &placement, 1), &memory)?;
        let mut model = load_model(backend, &options.weights, &placement)?;
        require(&model, "general.architecture", &ARCHITECTURES)?;
        let tokenizer = require(&model, "tokenizer.ggml.model", &TOKENIZERS)?;
        let trained_tokens = model.n_ctx_train();
        if options.context_tokens > trained_tokens {
            return Err(LoadError::ContextTooLong { context_tokens: options.context_tokens, trained_tokens });
        }
        // Before anything else borrows the model, because llama.cpp modifies it.
        let adapter = options.adapter.as_ref().map(|file| load_adapter(&mut model, file, &options.weights));
        let (adapter, model) = (adapter.transpose()?, Arc::new(model));
        let cutting = if tokenizer == "gpt2" { Cutting::Canonical } else { Cutting::Approximate };
        let vocabulary =
            Vocabulary::read(Arc::clone(&model), cutting).ok_or_else(|| LoadError::Unsupported {
                key: "tokenizer.ggml.eos_token_id",
                value: "none".to_owned(),
                supported: "a token that ends a text".to_owned(),
            })?;
        let vocabulary = Arc::new(vocabulary);
        let environment: TokEnv = Arc::<Vocabulary>::clone(&vocabulary);
        let grammars = Grammars::new(&environment)?;
        Ok(Self { backend, placement, memory, model, adapter, vocabulary, grammars })
    }

    fn run(
        self,
        options: &EngineOptions,
        queue: mpsc::UnboundedReceiver<Command>,
        commands: mpsc::UnboundedSender<Command>,
        stop: CancellationToken,
        loaded: &IsLoaded,
        turn: MutexGuard<'_, ()>,
    ) {
        let Self { backend, placement, memory, model, mut adapter, vocabulary, grammars } = self;
        let threads = threads(options.threads, model.n_params());
        let mut make = Contexts { backend, model: &model, adapter: adapter.as_mut() };
        let contexts = make
            .decoder(options, &placement, threads)
            .and_then(|decoder| Ok((decoder, make.reader(options, threads)?)));
        let (decoder, reader) = match contexts {
            Ok(contexts) => contexts,
            Err(error) => return drop(loaded.send(Err(error))),
        };
        placement.log(&memory);
        drop(turn);
        let (vocabulary, context_tokens) = (&*vocabulary, options.context_tokens as usize);
        let bound = TextBound { context_tokens, token_bytes_max: vocabulary.token_bytes_max() };
        let preparer = Preparer { vocabulary, grammars, context_tokens, commands };
        let (orders, ordered) = std::sync::mpsc::channel();
        let metrics = Metrics::new(&options.name);
        let size = Size {
            sequences: options.sequences_max.get(),
            context_tokens,
            threads,
            has_gpu: placement.has_gpu(),
        };
        let engine =
            EngineThread::new(decoder, reader, vocabulary, &size, Channels { queue, orders, stop, metrics });
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("llama-prepare".to_owned()).stack_size(STACK_BYTES);
            match thread.spawn_scoped(scope, move || preparer.run(&ordered)) {
                Ok(_) => {
                    let _ = loaded.send(Ok(bound));
                    engine.run();
                }
                Err(error) => drop(loaded.send(Err(LoadError::Thread(error)))),
            }
        });
    }
}

/// Creates contexts of a model, all with its adapter. So shared prefixes are computed with the adapter, too.
struct Contexts<'a, 'model> {
    backend: &'a LlamaBackend,
    model: &'model LlamaModel,
    adapter: Option<&'a mut Adapter>,
}

impl<'model> Contexts<'_, 'model> {
    fn decoder(
        &mut self,
        options: &EngineOptions,
        placement: &Placement,
        threads: usize,
    ) -> Result<Decoder<'model>, LoadError> {
        let (context_tokens, sequences_max) = (options.context_tokens, options.sequences_max.get());
        let params = decoding_params(options, placement, threads);
        let context = self.context(params, context_tokens, sequences_max)?;
        tracing::info!(
            weights = %options.weights.display(),
            parameters = self.model.n_params(),
            context_tokens,
            sequences_max,
            threads,
            "conductor weights are loaded"
        );
        Ok(Decoder::new(context))
    }

    fn reader(
        &mut self,
        options: &EngineOptions,
        threads: usize,
    ) -> Result<Option<Reader<'model>>, LoadError> {
        if options.hidden_states == HiddenStates::NotReadable {
            return Ok(None);
        }
        let params = reading_params(options.context_tokens, i32::try_from(threads).unwrap_or(1));
        Ok(Some(Reader::new(self.context(params, options.context_tokens, 1)?)))
    }

    fn context(
        &mut self,
        params: LlamaContextParams,
        context_tokens: u32,
        sequences_max: u16,
    ) -> Result<LlamaContext<'model>, LoadError> {
        let (context, reason) = with_last_error(|| self.model.new_context(self.backend, params));
        let mut context = context.map_err(|error| LoadError::Context {
            context_tokens,
            sequences_max,
            reason: reason.unwrap_or_else(|| error.to_string()),
        })?;
        if let Some(Adapter { file, loaded }) = &mut self.adapter {
            let (set, reason) = with_last_error(|| context.lora_adapter_set(loaded, file.scale));
            set.map_err(|error| refused(file, reason, &error))?;
        }
        Ok(context)
    }
}

/// Rejects metadata values on which llama.cpp aborts the process. A file that is not GGUF is left to llama.cpp, which reports it.
pub(crate) fn metadata_is_safe(weights: &Path) -> Result<(), LoadError> {
    let checked = Gguf::read(weights).and_then(|head| head.check_metadata());
    match checked {
        Err(error @ GgufError::Metadata { .. }) => {
            Err(LoadError::Refused { path: weights.to_owned(), reason: error.to_string() })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn load_adapter(model: &mut LlamaModel, file: &AdapterFile, weights: &Path) -> Result<Adapter, LoadError> {
    adapter::check(file, weights).map_err(|source| LoadError::Adapter { path: file.path.clone(), source })?;
    let (loaded, reason) = with_last_error(|| model.lora_adapter_init(&file.path));
    let loaded = loaded.map_err(|error| refused(file, reason, &error))?;
    tracing::info!(adapter = %file.path.display(), scale = file.scale, "an adapter is applied to the conductor weights");
    Ok(Adapter { file: file.clone(), loaded })
}

fn refused(file: &AdapterFile, reason: Option<String>, error: &dyn std::error::Error) -> LoadError {
    let reason = reason.unwrap_or_else(|| error.to_string());
    LoadError::Adapter { path: file.path.clone(), source: AdapterError::Refused { reason } }
}

/// Cells of a decoding context: those of each request, plus once the context size for prefixes.
fn cells(options: &EngineOptions) -> u32 {
    options.context_tokens.saturating_mul(u32::from(options.sequences_max.get()) + 1)
}

fn decoding_params(options: &EngineOptions, placement: &Placement, threads: usize) -> LlamaContextParams {
    let threads = i32::try_from(threads).unwrap_or(1);
    let sequences = options.sequences_max.get() + PREFIXES_MAX;
    placement.with_cache(context_params(cells(options), sequences, threads))
}

pub(crate) fn readable(weights: &Path) -> Result<(), LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: weights.to_owned(), source };
    let metadata = std::fs::metadata(weights).map_err(unreadable)?;
    if metadata.is_file() { Ok(()) } else { Err(unreadable(std::io::Error::other("not a file"))) }
}

pub(crate) fn load_model(
    backend: &LlamaBackend,
    path: &Path,
    placement: &Placement,
) -> Result<LlamaModel, LoadError> {
    let refused = |reason: Option<String>, error: &dyn std::error::Error| LoadError::Refused {
        path: path.to_owned(),
        reason: reason.unwrap_or_else(|| error.to_string()),
    };
    let params = placement.model_params().map_err(|error| refused(None, &error))?;
    let (model, reason) = with_last_error(|| LlamaModel::load_from_file(backend, path, &params));
    model.map_err(|error| refused(reason, &error))
}

/// The value of a metadata key, if it is one of `supported`.
fn require(model: &LlamaModel, key: &'static str, supported: &[&str]) -> Result<String, LoadError> {
    let value = model.meta_val_str(key).unwrap_or_else(|_| "none".to_owned());
    if supported.contains(&value.as_str()) {
        return Ok(value);
    }
    Err(LoadError::Unsupported { key, value, supported: supported.join(", ") })
}

/// Below this number of parameters, computing a token takes less time than synchronising threads.
const PARAMETERS_OF_ONE_THREAD: u64 = 50_000_000;

/// The configured number of threads, or one that suits the machine and the weights.
pub(crate) fn threads(configured: Option<NonZeroUsize>, parameters: u64) -> usize {
    let of_machine = || match parameters {
        0..PARAMETERS_OF_ONE_THREAD => Some(NonZeroUsize::MIN),
        // It respects the cgroup's CPU quota.
        _ => std::thread::available_parallelism().ok(),
    };
    configured.or_else(of_machine).map_or(1, NonZeroUsize::get)
}
