//! The engine: one thread that owns llama.cpp's model and context, and a handle that any task can use.
//!
//! Requests are decoded together. Each is a sequence of a shared batch, may join or leave between two tokens, and reuses the common
//! beginning of prompts, which is computed once. A long prompt is computed in parts, between the tokens of other requests.
//!
//! The same request gives the same plan whatever else is decoded, as far as llama.cpp computes the same. The last bits of
//! its numbers depend on the size of the batch, so a choice that depends on these bits may differ. This is rare with greedy
//! decoding and happens sometimes with sampling. Requests influence each other in no other way.
//!
//! llama.cpp aborts the whole process when it is misused, so none of its objects is reachable from outside. A request is a
//! prompt, the shape of a plan and bounds; the answer is text. A request's prompt and completion are known to fit the
//! context before its first token is computed, and the thread reads only logits that it requested.

mod advance;
mod batch;
mod decoder;
mod load;
mod memory;
mod metrics;
mod placement;
mod prefixes;
mod prepare;
mod reader;
mod slot;
mod thread;
mod waiting;

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use podium_domain::policy::Tier;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use load::LoadError;
/// Parts of the loading of weights, shared with encoders.
pub(crate) mod loading {
    pub(crate) use super::decoder::encoding_params;
    pub(crate) use super::load::{LOADING, STACK_BYTES, load_model, metadata_is_safe, readable, threads};
    pub(crate) use super::placement::Placement;
}
pub use placement::inspect;
pub use podium_bundle::SEQUENCES_MAX;
use podium_bundle::hardware::Hardware;
pub use reader::{Hidden, PendingRead, ReadRequest};

use crate::adapter::AdapterFile;
use crate::grammar::{GrammarError, PlanShape};
use crate::prompt::Prompt;
use crate::sampler::Sampling;
use load::TextBound;
use prepare::Prepared;
use reader::ReadJob;

/// Options of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Name and version of the conductor, for metrics.
    pub name: String,
    /// The weights, a GGUF file.
    pub weights: PathBuf,
    /// An adapter for these weights.
    pub adapter: Option<AdapterFile>,
    /// Most tokens of a request's prompt and completion together; at most what the weights were trained for.
    pub context_tokens: u32,
    /// Most requests that are decoded concurrently, at most [`SEQUENCES_MAX`]. Memory is allocated for this many times
    /// `context_tokens`, plus once for shared prompt beginnings.
    pub sequences_max: NonZeroU16,
    /// Most requests that wait while all sequences are in use.
    pub waiting_max: NonZeroUsize,
    /// Compute threads. `None` uses the CPUs available to the process, or one for weights that are too small to gain from
    /// more. More threads than CPUs are far slower.
    pub threads: Option<NonZeroUsize>,
    /// GPUs and caches. GPUs need the feature `dynamic` and their module.
    pub hardware: Hardware,
    /// Whether hidden states can be read, which needs memory for one more context.
    pub hidden_states: HiddenStates,
}

/// Whether an engine can return hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenStates {
    /// [`EngineHandle::read`] works.
    Readable,
    /// [`EngineHandle::read`] returns an error.
    NotReadable,
}

/// A request for a plan.
#[derive(Debug)]
pub struct Request {
    /// The model's input.
    pub prompt: Prompt,
    /// Mini is scheduled before ultra.
    pub tier: Tier,
    /// The plans that are allowed.
    pub shape: PlanShape,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens of free text; then the plan is started.
    pub reasoning_tokens_max: u32,
    /// Most tokens of the plan.
    pub plan_tokens_max: u32,
    /// The request ends at this time, finished or not.
    pub deadline: Instant,
    /// Cancels the request.
    pub stop: CancellationToken,
}

/// The model's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The free text. Ends with a line break if it is not empty and a plan follows.
    pub reasoning: String,
    /// The three lists; complete if `ended` is [`Ended::Complete`].
    pub plan: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens that an earlier request had computed.
    pub cached_tokens: usize,
    /// Tokens of the free text, without discarded ones.
    pub reasoning_tokens: usize,
    /// All tokens without discarded ones, including free text and tokens that the grammar forced.
    pub completion_tokens: usize,
    /// Why the completion ended.
    pub ended: Ended,
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The plan is complete.
    Complete,
    /// `plan_tokens_max` was reached.
    TokensMax,
    /// It was cancelled, or its receiver was dropped.
    Stopped,
    /// The deadline passed.
    Deadline,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The queue is full. Retry later.
    #[error("{waiting_max} requests are already waiting; retry later")]
    Overloaded {
        /// The bound of the queue.
        waiting_max: usize,
    },
    /// The prompt leaves too few tokens for reasoning and plan.
    #[error("the prompt has {tokens} tokens, the limit is {tokens_max}")]
    PromptTooLong {
        /// Tokens of the prompt; a lower bound if it is far too long.
        tokens: usize,
        /// The limit for this request.
        tokens_max: usize,
    },
    /// The prompt's template does not fit the weights.
    #[error("the weights have no token `{name}`")]
    UnknownControl {
        /// The control token.
        name: &'static str,
    },
    /// The engine was shut down, or its thread failed.
    #[error("the engine has ended")]
    Ended,
    /// llama.cpp rejected a batch.
    #[error("llama.cpp failed to compute a batch")]
    Decode(#[source] Arc<llama_cpp_2::DecodeError>),
    /// llama.cpp could not remove the end of a sequence.
    #[error("llama.cpp failed to remove the end of a sequence")]
    Forget,
    /// llama.cpp could not copy the beginning of a sequence.
    #[error("llama.cpp failed to share the beginning of a prompt")]
    Share,
    /// No token has a valid logit: the weights are damaged.
    #[error("the model gives no token a probability")]
    NoToken,
    /// The engine was loaded without hidden states.
    #[error("the engine was loaded without hidden_states")]
    NotReadable,
    /// Reading a prompt was cancelled or timed out.
    #[error("reading ended early: {0:?}")]
    Interrupted(Ended),
    /// llama.cpp returned no hidden state.
    #[error("llama.cpp returned no hidden state")]
    NoHidden,
    /// The grammar library failed.
    #[error("the plan's grammar failed")]
    Grammar(#[from] GrammarError),
}

/// A running engine. Dropping it stops the thread at its next step. [`Engine::shut_down`] also waits for the thread.
#[derive(Debug)]
pub struct Engine {
    handle: EngineHandle,
    stop: CancellationToken,
    ended: CancellationToken,
}

impl Engine {
    /// Loads the weights and starts the thread. Blocks while it loads, seconds for large weights.
    pub fn load(options: EngineOptions) -> Result<Self, LoadError> {
        let (waiting_max, hidden_states) = (options.waiting_max.get(), options.hidden_states);
        let places = Arc::new(Semaphore::new(
            waiting_max.saturating_add(options.sequences_max.get().into()).min(Semaphore::MAX_PERMITS),
        ));
        let (commands, queue) = mpsc::unbounded_channel();
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let thread = load::Start {
            options,
            queue,
            commands: commands.clone(),
            stop: stop.clone(),
            ended: ended.clone().drop_guard(),
        };
        let bound = load::start(thread)?;
        let handle = EngineHandle { commands, places, waiting_max, bound, hidden_states };
        Ok(Self { handle, stop, ended })
    }

    /// The handle for requests.
    pub fn handle(&self) -> &EngineHandle {
        &self.handle
    }

    /// Cancels running requests, rejects waiting ones and returns when the model is freed. Programs must call this before
    /// they exit: exit handlers unload libraries that the thread may still use.
    pub async fn shut_down(&self) {
        self.request_stop();
        self.ended.cancelled().await;
    }

    fn request_stop(&self) {
        self.stop.cancel();
        // Wakes the thread if it is idle.
        let _ = self.handle.commands.send(Command::Stop);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.request_stop();
    }
}

/// Submits requests to an engine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    /// Unbounded; each request in it has a permit of `places`, which are bounded.
    commands: mpsc::UnboundedSender<Command>,
    places: Arc<Semaphore>,
    waiting_max: usize,
    bound: TextBound,
    hidden_states: HiddenStates,
}

impl EngineHandle {
    /// Queues a request without waiting. A prompt whose text can never fit is rejected here.
    pub fn submit(&self, request: Request) -> Result<Pending, EngineError> {
        let place = self.place()?;
        self.bound.check(&request)?;
        let (reply, answer) = oneshot::channel();
        let (listener, text) = mpsc::unbounded_channel();
        let abandoned = CancellationToken::new();
        let guard = abandoned.clone().drop_guard();
        let job = Box::new(Job { request, abandoned, listener, reply, _place: place });
        self.commands.send(Command::Generate(job)).map_err(|_| EngineError::Ended)?;
        Ok(Pending { text, answer, _guard: guard })
    }

    /// Queues a prompt whose hidden state is requested, without waiting. Nothing is decoded.
    pub fn read(&self, request: ReadRequest) -> Result<PendingRead, EngineError> {
        if self.hidden_states == HiddenStates::NotReadable {
            return Err(EngineError::NotReadable);
        }
        let place = self.place()?;
        self.bound.check_read(&request.prompt)?;
        let (reply, answer) = oneshot::channel();
        let abandoned = CancellationToken::new();
        let guard = abandoned.clone().drop_guard();
        let job = Box::new(ReadJob { request, abandoned, reply, _place: place });
        self.commands.send(Command::Read(job)).map_err(|_| EngineError::Ended)?;
        Ok(PendingRead { answer, _guard: guard })
    }

    /// Takes one of the places for waiting and running requests.
    fn place(&self) -> Result<OwnedSemaphorePermit, EngineError> {
        if self.commands.is_closed() {
            return Err(EngineError::Ended);
        }
        let overloaded = |_| EngineError::Overloaded { waiting_max: self.waiting_max };
        Arc::clone(&self.places).try_acquire_owned().map_err(overloaded)
    }
}

/// A submitted request. Dropping it cancels the request.
#[derive(Debug)]
pub struct Pending {
    text: mpsc::UnboundedReceiver<String>,
    answer: oneshot::Receiver<Result<Completion, EngineError>>,
    _guard: DropGuard,
}

impl Pending {
    /// The next piece of text; `None` after the last. All pieces together are reasoning and plan.
    pub async fn next_text(&mut self) -> Option<String> {
        self.text.recv().await
    }

    /// Waits for the result.
    pub async fn finish(self) -> Result<Completion, EngineError> {
        self.answer.await.unwrap_or(Err(EngineError::Ended))
    }
}

/// The messages to the engine's thread.
enum Command {
    Generate(Box<Job>),
    /// The preparation of a request for this sequence succeeded or failed.
    Ready {
        sequence: u16,
        job: Box<Job>,
        prepared: Result<Box<Prepared>, EngineError>,
    },
    Read(Box<ReadJob>),
    /// The tokens of a prompt to read, or the error.
    ReadReady {
        job: Box<ReadJob>,
        tokens: Result<Vec<u32>, EngineError>,
    },
    Stop,
}

/// A request and its reply channels. The text channel needs no bound: a request writes at most one piece per token, and
/// tokens are bounded.
#[derive(Debug)]
struct Job {
    request: Request,
    abandoned: CancellationToken,
    listener: mpsc::UnboundedSender<String>,
    reply: oneshot::Sender<Result<Completion, EngineError>>,
    /// Its place, freed when the request is answered.
    _place: OwnedSemaphorePermit,
}

impl Job {
    /// Why the request must end now, if it must.
    fn interrupted(&self, now: Instant) -> Option<Ended> {
        if self.request.stop.is_cancelled() || self.abandoned.is_cancelled() {
            return Some(Ended::Stopped);
        }
        (now >= self.request.deadline).then_some(Ended::Deadline)
    }

    /// Answers a request without output.
    fn refuse(self, answer: Result<Ended, EngineError>) {
        let nothing = |ended| Completion {
            reasoning: String::new(),
            plan: String::new(),
            prompt_tokens: 0,
            cached_tokens: 0,
            reasoning_tokens: 0,
            completion_tokens: 0,
            ended,
        };
        // The receiver may be dropped.
        let _ = self.reply.send(answer.map(nothing));
    }
}
