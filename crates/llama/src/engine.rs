//! The engine: one thread that owns llama.cpp's model and context, and a handle that any task can ask through.
//!
//! Requests are decoded together: each is a sequence of one batch, joins and leaves between two tokens, and begins with what
//! prompts share, which is computed once. A long prompt is computed in parts beside the others' tokens.
//!
//! The same request gives the same plan whatever else is decoded, as far as llama.cpp computes the same: the last bits of its
//! numbers depend on how many tokens are in a batch, so a choice that hangs on these may fall either way. It rarely does where
//! the likeliest token is taken, and sometimes where tokens are drawn. Nothing else of one request reaches another.
//!
//! llama.cpp aborts the whole process when it is misused. So nothing of it is reachable from here: a request is a prompt,
//! the shape of a plan and bounds, and the answer is text. Prompt and completion are known to fit the context before the
//! first token is computed, and the thread reads no logits but those that it asked for.

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
pub use placement::inspect;
pub use podium_ports::conductor::SEQUENCES_MAX;
use podium_ports::hardware::Hardware;
pub use reader::{Hidden, PendingRead, ReadRequest};

use crate::adapter::AdapterFile;
use crate::grammar::{GrammarError, PlanShape};
use crate::prompt::Prompt;
use crate::sampler::Sampling;
use load::TextBound;
use prepare::Prepared;
use reader::ReadJob;

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Whose engine it is, in what it measures: a conductor's name and version.
    pub name: String,
    /// The GGUF file.
    pub weights: PathBuf,
    /// What changes them in all that the engine computes.
    pub adapter: Option<AdapterFile>,
    /// Most tokens of a request's prompt and completion together; at most what the weights were trained for.
    pub context_tokens: u32,
    /// Most requests that are decoded at the same time, at most [`SEQUENCES_MAX`]. Memory is taken for so many times
    /// `context_tokens`, and once more for what prompts share.
    pub sequences_max: NonZeroU16,
    /// Most requests that wait while so many are decoded.
    pub waiting_max: NonZeroUsize,
    /// Threads that compute. None takes what the process may use of the machine, and one for weights that are so small that
    /// more would not help. More than the machine has is far slower.
    pub threads: Option<NonZeroUsize>,
    /// What of the machine is used beside its processor. GPUs need the feature `dynamic` and their module.
    pub hardware: Hardware,
    /// Whether prompts can be read, which takes memory for one text more.
    pub hidden_states: HiddenStates,
}

/// Whether an engine can be asked for hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenStates {
    /// [`EngineHandle::read`] works.
    Readable,
    /// It is refused.
    NotReadable,
}

/// A plan that is asked for.
#[derive(Debug)]
pub struct Request {
    /// What the model is told.
    pub prompt: Prompt,
    /// Mini goes before ultra.
    pub tier: Tier,
    /// Which plans it may write.
    pub shape: PlanShape,
    /// How its tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens of free text before the plan is begun for it.
    pub reasoning_tokens_max: u32,
    /// Most tokens of the plan.
    pub plan_tokens_max: u32,
    /// When to stop, finished or not.
    pub deadline: Instant,
    /// Told from outside to stop.
    pub stop: CancellationToken,
}

/// What the model wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The free text; ends with a line break if it is not empty and a plan follows.
    pub reasoning: String,
    /// The three lists; whole if `ended` is [`Ended::Complete`].
    pub plan: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that were computed for an earlier request.
    pub cached_tokens: usize,
    /// Tokens of the free text that were kept.
    pub reasoning_tokens: usize,
    /// All tokens that were kept, those of the free text and those that the grammar left no choice about included.
    pub completion_tokens: usize,
    /// Why it ends there.
    pub ended: Ended,
}

/// Why a completion ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The plan is whole.
    Complete,
    /// `plan_tokens_max` was reached.
    TokensMax,
    /// It was told to stop, or nobody waits for it any more.
    Stopped,
    /// The deadline passed.
    Deadline,
}

/// Why there is no completion.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The queue is full. Later there may be room.
    #[error("{waiting_max} requests are waiting already")]
    Overloaded {
        /// The bound of the queue.
        waiting_max: usize,
    },
    /// The prompt leaves no room for reasoning and plan.
    #[error("the prompt takes {tokens} tokens, there is room for {tokens_max}")]
    PromptTooLong {
        /// Tokens of the prompt; at least so many, where it is far too long.
        tokens: usize,
        /// Most that leave room.
        tokens_max: usize,
    },
    /// The prompt was written for other weights.
    #[error("the weights have no token `{name}`")]
    UnknownControl {
        /// The control token.
        name: &'static str,
    },
    /// The engine was shut down, or its thread has failed.
    #[error("the engine has ended")]
    Ended,
    /// llama.cpp refused a batch.
    #[error("llama.cpp failed to compute a batch")]
    Decode(#[source] Arc<llama_cpp_2::DecodeError>),
    /// llama.cpp did not give back part of a sequence.
    #[error("llama.cpp failed to drop the end of a sequence")]
    Forget,
    /// llama.cpp cannot let a sequence begin like another one.
    #[error("llama.cpp failed to share the beginning of a prompt")]
    Share,
    /// The model's logits allow no token: the weights are damaged.
    #[error("the model gives no token a probability")]
    NoToken,
    /// The engine was not made for reading.
    #[error("the engine was loaded without hidden_states")]
    NotReadable,
    /// A prompt was not read to its end.
    #[error("reading ended early: {0:?}")]
    Interrupted(Ended),
    /// llama.cpp gave no hidden state.
    #[error("llama.cpp gave no hidden state")]
    NoHidden,
    /// The grammar could not be built or walked.
    #[error("the plan's grammar failed")]
    Grammar(#[from] GrammarError),
}

/// A running engine. Dropping it stops the thread at its next step; [`Engine::shut_down`] also waits for it.
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

    /// A way to ask.
    pub fn handle(&self) -> &EngineHandle {
        &self.handle
    }

    /// Stops what is running, refuses what waits, and returns when the model is freed. A program does this before it exits:
    /// libraries are torn down at exit while the thread might still compute.
    pub async fn shut_down(&self) {
        self.tell_to_stop();
        self.ended.cancelled().await;
    }

    fn tell_to_stop(&self) {
        self.stop.cancel();
        // Wakes an idle thread.
        let _ = self.handle.commands.send(Command::Stop);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}

/// Asks an engine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    /// Without a bound of its own: each request in it holds a place.
    commands: mpsc::UnboundedSender<Command>,
    places: Arc<Semaphore>,
    waiting_max: usize,
    bound: TextBound,
    hidden_states: HiddenStates,
}

impl EngineHandle {
    /// Queues a request. Never waits. A prompt whose text cannot fit, whatever its tokens, is refused here.
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

    /// Queues a prompt whose hidden state is wanted. Never waits. Nothing is decoded.
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

    /// A place among those that wait or are worked on.
    fn place(&self) -> Result<OwnedSemaphorePermit, EngineError> {
        if self.commands.is_closed() {
            return Err(EngineError::Ended);
        }
        let overloaded = |_| EngineError::Overloaded { waiting_max: self.waiting_max };
        Arc::clone(&self.places).try_acquire_owned().map_err(overloaded)
    }
}

/// A request on its way. Dropping it stops the work.
#[derive(Debug)]
pub struct Pending {
    text: mpsc::UnboundedReceiver<String>,
    answer: oneshot::Receiver<Result<Completion, EngineError>>,
    _guard: DropGuard,
}

impl Pending {
    /// The next piece of text as the model writes it; none after the last. All of them joined are reasoning and plan.
    pub async fn next_text(&mut self) -> Option<String> {
        self.text.recv().await
    }

    /// Waits for the end.
    pub async fn finish(self) -> Result<Completion, EngineError> {
        self.answer.await.unwrap_or(Err(EngineError::Ended))
    }
}

/// What goes through the queue.
enum Command {
    Generate(Box<Job>),
    /// A request that was given a sequence is ready to be decoded there, or is not.
    Ready {
        sequence: u16,
        job: Box<Job>,
        prepared: Result<Box<Prepared>, EngineError>,
    },
    Read(Box<ReadJob>),
    /// A prompt to be read is cut into tokens, or is refused.
    ReadReady {
        job: Box<ReadJob>,
        tokens: Result<Vec<u32>, EngineError>,
    },
    Stop,
}

/// A request and where its results go. The channel of text needs no bound of its own: a request writes at most one piece a
/// token, and tokens are bounded.
#[derive(Debug)]
struct Job {
    request: Request,
    abandoned: CancellationToken,
    listener: mpsc::UnboundedSender<String>,
    reply: oneshot::Sender<Result<Completion, EngineError>>,
    /// Among those that wait or are worked on. Free again when the request is answered.
    _place: OwnedSemaphorePermit,
}

impl Job {
    /// Why it is to end now, finished or not, if it is.
    fn interrupted(&self, now: Instant) -> Option<Ended> {
        if self.request.stop.is_cancelled() || self.abandoned.is_cancelled() {
            return Some(Ended::Stopped);
        }
        (now >= self.request.deadline).then_some(Ended::Deadline)
    }

    /// Answers a request that wrote nothing.
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
        // Nobody may be waiting.
        let _ = self.reply.send(answer.map(nothing));
    }
}
