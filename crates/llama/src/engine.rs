//! The engine: one thread that owns llama.cpp's model and context, and a handle that any task can ask through.
//!
//! llama.cpp aborts the whole process when it is misused. So nothing of it is reachable from here: a request is a prompt,
//! the shape of a plan and bounds, and the answer is text. Prompt and completion are known to fit the context before the
//! first token is computed, and the thread reads no logits but those that it asked for.

mod decoder;
mod load;
mod slot;
mod thread;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use load::LoadError;

use crate::grammar::{GrammarError, PlanShape};
use crate::prompt::Prompt;
use crate::sampler::Sampling;

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The GGUF file.
    pub weights: PathBuf,
    /// Most tokens of prompt and completion together; at most what the weights were trained for.
    pub context_tokens: u32,
    /// Most requests that wait while one is worked on.
    pub waiting_max: NonZeroUsize,
    /// Threads that compute. None takes what the process may use of the machine, and one for weights that are so small that
    /// more would not help. More than the machine has is far slower.
    pub threads: Option<NonZeroUsize>,
    /// Layers that a GPU computes. More than 0 needs the feature `cuda`.
    pub gpu_layers: u32,
}

/// A plan that is asked for.
#[derive(Debug)]
pub struct Request {
    /// What the model is told.
    pub prompt: Prompt,
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
    /// The model's logits allow no token: the weights are damaged.
    #[error("the model gives no token a probability")]
    NoToken,
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
        let waiting_max = options.waiting_max.get();
        let (commands, queue) = mpsc::channel(waiting_max);
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        load::start(options, queue, stop.clone(), ended.clone().drop_guard())?;
        Ok(Self { handle: EngineHandle { commands, waiting_max }, stop, ended })
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
        // Wakes an idle thread. A full queue means that it is not idle.
        let _ = self.handle.commands.try_send(Command::Stop);
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
    commands: mpsc::Sender<Command>,
    waiting_max: usize,
}

impl EngineHandle {
    /// Queues a request. Never waits.
    pub fn submit(&self, request: Request) -> Result<Pending, EngineError> {
        let (reply, answer) = oneshot::channel();
        let (listener, text) = mpsc::unbounded_channel();
        let abandoned = CancellationToken::new();
        let guard = abandoned.clone().drop_guard();
        let job = Box::new(Job { request, abandoned, listener, reply });
        self.commands.try_send(Command::Generate(job)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => EngineError::Overloaded { waiting_max: self.waiting_max },
            mpsc::error::TrySendError::Closed(_) => EngineError::Ended,
        })?;
        Ok(Pending { text, answer, _guard: guard })
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
#[derive(Debug)]
enum Command {
    Generate(Box<Job>),
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
}
