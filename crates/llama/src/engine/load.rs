//! Loads weights and starts the thread. What this crate cannot run safely is refused here, by name.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use toktrie::TokEnv;

use super::decoder::{Decoder, context_params};
use super::thread::{EngineThread, SLOTS};
use super::{Command, EngineOptions};
use crate::backend::{ForeignBackend, backend, overheard};
use crate::grammar::{GrammarError, Grammars};
use crate::vocabulary::{Cutting, Vocabulary};

/// Architectures that write text token by token and whose context can drop its last tokens.
const ARCHITECTURES: [&str; 5] = ["llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe"];
/// Kinds of vocabulary, as `tokenizer.ggml.model` names them.
const TOKENIZERS: [&str; 2] = ["gpt2", "llama"];

/// llama.cpp cuts text by regular expressions that recurse for some vocabularies: the default of 2 MiB is not much.
const STACK_BYTES: usize = 32 << 20;

/// Why no engine was started.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is missing or not a file.
    #[error("weights `{path}` cannot be read", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// llama.cpp does not take the file.
    #[error("weights `{path}` cannot be loaded: {reason}", path = path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What llama.cpp says.
        reason: String,
    },
    /// The file is fine, but nothing that this crate can run.
    #[error("weights have {key} `{value}`, supported are: {supported}")]
    Unsupported {
        /// The key of the file's metadata.
        key: &'static str,
        /// Its value.
        value: String,
        /// The values that would do.
        supported: String,
    },
    /// The weights were trained for shorter texts.
    #[error("context_tokens is {context_tokens}, the weights were trained for at most {trained_tokens}")]
    ContextTooLong {
        /// What was asked for.
        context_tokens: u32,
        /// What there is.
        trained_tokens: u32,
    },
    /// The context does not fit into memory.
    #[error("no context of {context_tokens} tokens can be made: {reason}")]
    Context {
        /// What was asked for.
        context_tokens: u32,
        /// What llama.cpp says.
        reason: String,
    },
    /// A GPU was promised.
    #[error("gpu_layers is {gpu_layers}, but this build or machine has no GPU for llama.cpp")]
    NoGpu {
        /// What was asked for.
        gpu_layers: u32,
    },
    /// llama.cpp belongs to somebody else.
    #[error(transparent)]
    ForeignBackend(#[from] ForeignBackend),
    /// The vocabulary does not fit the grammar library.
    #[error("the plan's grammar cannot use the weights' vocabulary")]
    Grammar(#[from] GrammarError),
    /// The system gives no thread.
    #[error("the engine's thread cannot be started")]
    Thread(#[source] std::io::Error),
}

/// Starts the thread and waits until it has loaded.
pub(super) fn start(
    options: EngineOptions,
    queue: mpsc::Receiver<Command>,
    stop: CancellationToken,
    ended: DropGuard,
) -> Result<(), LoadError> {
    let (loaded, is_loaded) = std::sync::mpsc::sync_channel(1);
    let body = move || {
        // The last to be dropped, even by a panic: when it is, the model is freed.
        let _ended = ended;
        match Loaded::new(&options) {
            Ok(engine) => engine.run(&options, queue, stop, &loaded),
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
    model: Arc<LlamaModel>,
    vocabulary: Arc<Vocabulary>,
    grammars: Grammars,
}

impl Loaded {
    fn new(options: &EngineOptions) -> Result<Self, LoadError> {
        let backend = backend()?;
        if options.gpu_layers > 0 && !backend.supports_gpu_offload() {
            return Err(LoadError::NoGpu { gpu_layers: options.gpu_layers });
        }
        let model = Arc::new(load_model(backend, options)?);
        require(&model, "general.architecture", &ARCHITECTURES)?;
        let tokenizer = require(&model, "tokenizer.ggml.model", &TOKENIZERS)?;
        let trained_tokens = model.n_ctx_train();
        if options.context_tokens > trained_tokens {
            return Err(LoadError::ContextTooLong { context_tokens: options.context_tokens, trained_tokens });
        }
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
        Ok(Self { backend, model, vocabulary, grammars })
    }

    fn run(
        self,
        options: &EngineOptions,
        queue: mpsc::Receiver<Command>,
        stop: CancellationToken,
        loaded: &std::sync::mpsc::SyncSender<Result<(), LoadError>>,
    ) {
        let parameters = self.model.n_params();
        let threads = threads(options, parameters);
        let params = context_params(options.context_tokens, SLOTS, threads);
        let (context, reason) = overheard(|| self.model.new_context(self.backend, params));
        let decoder = match context {
            Ok(context) => Decoder::new(context),
            Err(error) => {
                let reason = reason.unwrap_or_else(|| error.to_string());
                let _ =
                    loaded.send(Err(LoadError::Context { context_tokens: options.context_tokens, reason }));
                return;
            }
        };
        tracing::info!(
            weights = %options.weights.display(),
            parameters,
            context_tokens = options.context_tokens,
            threads,
            "conductor weights are loaded"
        );
        let _ = loaded.send(Ok(()));
        let engine = EngineThread {
            decoder,
            vocabulary: &self.vocabulary,
            grammars: self.grammars,
            context_tokens: options.context_tokens as usize,
            queue,
            stop,
            slots: (0..SLOTS).map(|_| None).collect(),
        };
        engine.run();
    }
}

fn load_model(backend: &LlamaBackend, options: &EngineOptions) -> Result<LlamaModel, LoadError> {
    let path = &options.weights;
    let unreadable = |source| LoadError::Unreadable { path: path.clone(), source };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(std::io::Error::other("not a file")));
    }
    let params = LlamaModelParams::default().with_n_gpu_layers(options.gpu_layers);
    let (model, reason) = overheard(|| LlamaModel::load_from_file(backend, path, &params));
    model.map_err(|error| LoadError::Refused {
        path: path.clone(),
        reason: reason.unwrap_or_else(|| error.to_string()),
    })
}

/// The value of a key of the weights' metadata, if it is one of `supported`.
fn require(model: &LlamaModel, key: &'static str, supported: &[&str]) -> Result<String, LoadError> {
    let value = model.meta_val_str(key).unwrap_or_else(|_| "none".to_owned());
    if supported.contains(&value.as_str()) {
        return Ok(value);
    }
    Err(LoadError::Unsupported { key, value, supported: supported.join(", ") })
}

/// Below so many parameters, a token takes less than threads need to meet.
const PARAMETERS_OF_ONE_THREAD: u64 = 50_000_000;

fn threads(options: &EngineOptions, parameters: u64) -> i32 {
    let of_machine = || match parameters {
        0..PARAMETERS_OF_ONE_THREAD => Some(NonZeroUsize::MIN),
        // It knows the cgroup's share.
        _ => std::thread::available_parallelism().ok(),
    };
    options.threads.or_else(of_machine).and_then(|threads| i32::try_from(threads.get()).ok()).unwrap_or(1)
}
