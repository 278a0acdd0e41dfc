//! The local conductor: a bundle's weights and the engine behind the `Conductor` port.

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::BoxFuture;
use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::plan::PlanDraft;
use podium_domain::policy::{FailedStep, STEPS_MAX, Tier};
use podium_domain::pool::Pool;
use podium_domain::prompt::whole_question_subtask;
use podium_domain::run::{PlanResult, Planned};
use podium_domain::usage::Usage;
use podium_head::{FileError, Head, Input, text};
use podium_ports::BoxError;
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use tokio_util::sync::CancellationToken;

use crate::bundle::hardware::Hardware;
use crate::bundle::manifest::{OtherPool, SubtaskWords};
use crate::bundle::prompt::{PlanContext, for_conductor};
use crate::bundle::{Bundle, LocalLimits, Manifest};
use crate::encoder::Encoder;
use crate::engine::{
    Completion, Ended, Engine, EngineError, EngineOptions, Hidden, HiddenStates, LoadError, Pending,
    ReadRequest, Request,
};
use crate::grammar::{MayKeepAnswer, PlanShape};
use crate::prompt::{Prompt, Template, UnknownTemplate};
use crate::reading;
use crate::sampler::Sampling;

/// Most tries at a plan. Tries differ only in the sampled tokens.
const TRIES_MAX: u32 = 3;

/// Resources of the machine for a conductor. The bundle defines what the model needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlamaOptions {
    /// Most plans that are written concurrently; see [`EngineOptions::sequences_max`].
    pub sequences_max: NonZeroU16,
    /// Most requests that wait while all sequences are in use.
    pub waiting_max: NonZeroUsize,
    /// Compute threads; see [`EngineOptions::threads`].
    pub threads: Option<NonZeroUsize>,
    /// GPUs and caches; see [`EngineOptions::hardware`].
    pub hardware: Hardware,
}

impl Default for LlamaOptions {
    fn default() -> Self {
        Self::within(LocalLimits::default())
    }
}

impl LlamaOptions {
    /// The defaults, within the configured limits.
    pub const fn within(LocalLimits { sequences_max, waiting_max, hardware }: LocalLimits) -> Self {
        Self { sequences_max, waiting_max, threads: None, hardware }
    }
}

/// Why a bundle cannot be used as conductor.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its prompt template is unknown.
    #[error("bundle `{bundle}` cannot be used")]
    Template {
        /// Name and version.
        bundle: String,
        /// The error.
        #[source]
        source: UnknownTemplate,
    },
    /// It was trained for another pool.
    #[error(transparent)]
    Pool(#[from] OtherPool),
    /// Its mini head cannot be read.
    #[error("bundle `{bundle}` has an invalid mini head")]
    HeadFile {
        /// Name and version.
        bundle: String,
        /// The error.
        #[source]
        source: FileError,
    },
    /// Its mini head was trained with other weights, another adapter or another prompt.
    #[error(
        "the mini head of bundle `{bundle}` was trained with {theirs}, and the bundle has {ours}; train it again with `podium head train`, or remove [head] from conductor.toml"
    )]
    Head {
        /// Name and version.
        bundle: String,
        /// The weights, the adapter and the reading of its training.
        theirs: String,
        /// Those of the bundle.
        ours: String,
    },
    /// Its weights cannot be loaded.
    #[error("bundle `{bundle}` cannot be loaded")]
    Load {
        /// Name and version.
        bundle: String,
        /// The error.
        #[source]
        source: LoadError,
    },
}

/// Plans with a language model under llama.cpp.
#[derive(Debug)]
pub struct LlamaConductor {
    id: String,
    manifest: Manifest,
    template: Template,
    /// The pool in the order that the model was trained on.
    pool: Pool,
    /// The mini head, if the bundle has one that fits the pool.
    head: Option<Head>,
    /// The encoder that the mini head reads; without one it reads the engine's hidden states.
    encoder: Option<Arc<Encoder>>,
    /// Shared by the conductors of earlier and later versions of the pool.
    engine: Arc<Engine>,
}

/// Opens the bundle in a folder. Loading takes seconds and runs on a blocking thread. Must be called within a tokio runtime.
pub fn open(
    folder: PathBuf,
    pool: Arc<Pool>,
    limits: LocalLimits,
) -> BoxFuture<'static, Result<Arc<dyn Conductor>, BoxError>> {
    let load = move || -> Result<Arc<dyn Conductor>, BoxError> {
        let bundle = Bundle::open(&folder)?;
        Ok(Arc::new(LlamaConductor::open(&bundle, &pool, LlamaOptions::within(limits))?))
    };
    Box::pin(async { tokio::task::spawn_blocking(load).await.unwrap_or_else(|panic| Err(Box::new(panic))) })
}

impl LlamaConductor {
    /// Loads a bundle for a pool. Blocks while it loads.
    pub fn open(bundle: &Bundle, pool: &Pool, options: LlamaOptions) -> Result<Self, OpenError> {
        let manifest = bundle.manifest().clone();
        let id = manifest.id();
        let template = Template::from_name(&manifest.prompt.template)
            .map_err(|source| OpenError::Template { bundle: id.clone(), source })?;
        let pool = manifest.fit(pool)?;
        let head = fitting_head(bundle, &pool)?;
        let encoder = match (&manifest.encoder, &head) {
            (Some(encoder), Some(_)) => {
                let encoder =
                    Encoder::load(&bundle.path(&encoder.file), options.waiting_max, options.threads);
                Some(encoder.map_err(|source| OpenError::Load { bundle: id.clone(), source })?)
            }
            _ => None,
        };
        let hidden_states = match (&head, &encoder) {
            (Some(_), None) => HiddenStates::Readable,
            _ => HiddenStates::NotReadable,
        };
        let engine = Engine::load(EngineOptions {
            name: id.clone(),
            weights: bundle.weights().to_owned(),
            adapter: reading::adapter(bundle),
            context_tokens: manifest.sampling.context_tokens,
            sequences_max: options.sequences_max,
            waiting_max: options.waiting_max,
            threads: options.threads,
            hardware: options.hardware,
            hidden_states,
        });
        let engine = engine.map_err(|source| OpenError::Load { bundle: id.clone(), source })?;
        let (encoder, engine) = (encoder.map(Arc::new), Arc::new(engine));
        Ok(Self { id, manifest, template, pool, head, encoder, engine })
    }

    /// The mini head's choice; no plan if it leaves the question to the prompted conductor.
    async fn mini(
        &self,
        head: &Head,
        request: &PlanRequest,
        deadline: Instant,
        stop: &CancellationToken,
    ) -> Result<(Option<PlanOutcome>, Usage), ConductorError> {
        let reading = async {
            if let Some(encoder) = &self.encoder {
                return Ok(encoder.read(&request.question).await);
            }
            let read = ReadRequest {
                prompt: reading::prompt(self.template, &request.question),
                deadline,
                stop: stop.clone(),
            };
            Ok(self.engine.handle().read(read).map_err(failed)?.finish().await)
        };
        let timeout = || ConductorError::Timeout { limit: request.time_max };
        let hidden = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(ConductorError::Stopped),
            hidden = tokio::time::timeout_at(deadline.into(), reading) => hidden,
        };
        let Hidden { values, prompt_tokens } = match hidden.map_err(|_| timeout())?? {
            Err(EngineError::Interrupted(Ended::Deadline)) => return Err(timeout()),
            Err(EngineError::Interrupted(_)) => return Err(ConductorError::Stopped),
            hidden => hidden.map_err(failed)?,
        };
        let usage = Usage { prompt_tokens: prompt_tokens as u64, ..Usage::default() };
        let allowed =
            |id: &WorkerId| self.pool.worker(id).is_some_and(|worker| request.policy.allows(&worker.id));
        let form = text::form(&request.question);
        let worker = match head.choose(Input { hidden: &values, form: Some(&form) }, allowed) {
            Ok(worker) => worker,
            Err(reason) => {
                tracing::debug!(%reason, "the mini head passes a question to the prompted conductor");
                return Ok((None, usage));
            }
        };
        let draft = PlanDraft::single(worker, whole_question_subtask(&request.question));
        let plan = draft.check(&self.pool, &request.policy).map_err(|error| ConductorError::NoPlan {
            tries: 1,
            message: error.to_string(),
            usage,
            cost: Cost::ZERO,
        })?;
        let result = PlanResult::Plan(Planned { plan, reasoning: String::new(), fallback: None });
        Ok((Some(PlanOutcome { result, usage, cost: Cost::ZERO }), usage))
    }

    fn shape(&self, request: &PlanRequest) -> Result<PlanShape, ConductorError> {
        let workers = (0u16..).zip(self.pool.workers());
        let allowed =
            workers.filter(|(_, worker)| request.policy.allows(&worker.id)).map(|(position, _)| position);
        let may_keep_answer = if request.earlier.is_some() { MayKeepAnswer::Yes } else { MayKeepAnswer::No };
        let shape = PlanShape::new(allowed, request.policy.steps_max, may_keep_answer);
        let shape = match self.manifest.prompt.subtasks {
            SubtaskWords::Free => shape,
            SubtaskWords::Copied => shape.map(|shape| shape.with_subtasks_copied_from(&request.question)),
        };
        shape.map_err(|error| ConductorError::NoPlan {
            tries: 0,
            message: error.to_string(),
            usage: Usage::default(),
            cost: Cost::ZERO,
        })
    }

    fn prompt(&self, request: &PlanRequest) -> Prompt {
        let about = |question: &str| {
            let context = PlanContext {
                question,
                examples: &self.manifest.examples,
                pool: &self.pool,
                policy: &request.policy,
                earlier: request.earlier.as_ref(),
            };
            let messages = for_conductor(&self.manifest.prompt, &context);
            Prompt::new(self.template, &messages, &self.manifest.prompt.assistant_prefix)
        };
        // The part of the prompt that does not depend on the question.
        about(&request.question).beginning_like(&about(""))
    }

    fn submit(&self, work: &Work<'_>, attempt: u32) -> Result<Pending, ConductorError> {
        let sampling = &self.manifest.sampling;
        let request = Request {
            prompt: work.prompt.clone(),
            tier: work.request.policy.tier,
            shape: work.shape.clone(),
            sampling: Sampling {
                temperature: sampling.temperature,
                top_p: 1.0,
                seed: work.request.seed.wrapping_add(u64::from(attempt)),
            },
            reasoning_tokens_max: sampling.reasoning_tokens_max,
            plan_tokens_max: sampling.plan_tokens_max,
            deadline: work.deadline,
            stop: work.stop.clone(),
        };
        self.engine.handle().submit(request).map_err(failed)
    }

    /// Parses and checks the model's plan; the error is a message for people.
    fn read(&self, completion: &Completion, request: &PlanRequest) -> Result<PlanResult, String> {
        if completion.ended != Ended::Complete {
            let plan_tokens_max = self.manifest.sampling.plan_tokens_max;
            return Err(format!("the plan is longer than sampling.plan_tokens_max, {plan_tokens_max}"));
        }
        let draft = PlanDraft::parse(&completion.plan).map_err(|error| error.to_string())?;
        if draft.keeps_answer() && request.may_keep_answer() {
            return Ok(PlanResult::KeepAnswer);
        }
        let plan = draft.check(&self.pool, &request.policy).map_err(|error| error.to_string())?;
        let reasoning = completion.reasoning.trim().to_owned();
        Ok(PlanResult::Plan(Planned { plan, reasoning, fallback: None }))
    }
}

/// The parts of a plan request that all tries share.
struct Work<'a> {
    request: &'a PlanRequest,
    prompt: Prompt,
    shape: PlanShape,
    deadline: Instant,
    stop: &'a CancellationToken,
}

impl Work<'_> {
    /// Forwards text until the completion arrives, the deadline passes or the request is cancelled. A request that waits in
    /// the queue does not notice these itself.
    async fn receive(&self, mut pending: Pending, text: TextSink<'_>) -> Result<Completion, ConductorError> {
        let timeout = || ConductorError::Timeout { limit: self.request.time_max };
        let receiving = async {
            while let Some(piece) = pending.next_text().await {
                text(&piece);
            }
            pending.finish().await
        };
        let completion = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(ConductorError::Stopped),
            completion = tokio::time::timeout_at(self.deadline.into(), receiving) => completion,
        };
        let completion = completion.map_err(|_| timeout())?.map_err(failed)?;
        match completion.ended {
            Ended::Stopped => Err(ConductorError::Stopped),
            Ended::Deadline => Err(timeout()),
            Ended::Complete | Ended::TokensMax => Ok(completion),
        }
    }
}

#[async_trait]
impl Conductor for LlamaConductor {
    fn id(&self) -> &str {
        &self.id
    }

    async fn shut_down(&self) {
        if let Some(encoder) = &self.encoder {
            encoder.shut_down().await;
        }
        self.engine.shut_down().await;
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            steps_max: STEPS_MAX,
            rounds_max: self.manifest.rounds_max(),
            failed_step: FailedStep::Replan,
        }
    }

    fn pool_in_text(&self) -> Option<&Pool> {
        Some(&self.pool)
    }

    fn for_pool(&self, pool: &Pool) -> Option<Result<Arc<dyn Conductor>, BoxError>> {
        let pool = match self.manifest.fit(pool) {
            Ok(pool) => pool,
            Err(other) => return Some(Err(other.into())),
        };
        let head = self.head.clone().filter(|head| is_of(head, &pool));
        let (id, manifest) = (self.id.clone(), self.manifest.clone());
        let (encoder, engine) = (self.encoder.clone(), Arc::clone(&self.engine));
        Some(Ok(Arc::new(Self { id, manifest, template: self.template, pool, head, encoder, engine })))
    }

    async fn plan(
        &self,
        request: &PlanRequest,
        text: TextSink<'_>,
        stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        let now = Instant::now();
        let deadline = now.checked_add(request.time_max).unwrap_or(now + FAR);
        let mut usage = Usage::default();
        if let (Tier::Mini, None, Some(head)) = (request.policy.tier, &request.earlier, &self.head) {
            match self.mini(head, request, deadline, stop).await? {
                (Some(outcome), _) => return Ok(outcome),
                (None, read) => usage = read,
            }
        }
        let (shape, prompt) = (self.shape(request)?, self.prompt(request));
        let work = Work { request, prompt, shape, deadline, stop };
        let tries = if self.manifest.sampling.temperature > 0.0 { TRIES_MAX } else { 1 };
        let mut message = String::new();
        for attempt in 0..tries {
            if attempt > 0 {
                text("\n");
            }
            let completion = work.receive(self.submit(&work, attempt)?, text).await;
            let completion = completion.map_err(|error| error.charged(usage, Cost::ZERO))?;
            usage += used(&completion);
            match self.read(&completion, request) {
                Ok(result) => return Ok(PlanOutcome { result, usage, cost: Cost::ZERO }),
                Err(problem) => message = problem,
            }
        }
        Err(ConductorError::NoPlan { tries, message, usage, cost: Cost::ZERO })
    }
}

/// The bundle's mini head, if it has one and the pool contains the workers that it was trained on. For other pools the
/// prompted conductor plans the mini tier as well.
fn fitting_head(bundle: &Bundle, pool: &Pool) -> Result<Option<Head>, OpenError> {
    let Some(named) = &bundle.manifest().head else { return Ok(None) };
    let unreadable = |source| OpenError::HeadFile { bundle: bundle.manifest().id(), source };
    let head = Head::read(&bundle.path(&named.file)).map_err(unreadable)?;
    let (theirs, ours) = (head.source(), reading::source(bundle));
    if *theirs != ours {
        let (theirs, ours) = (theirs.to_string(), ours.to_string());
        return Err(OpenError::Head { bundle: bundle.manifest().id(), theirs, ours });
    }
    Ok(Some(head).filter(|head| is_of(head, pool)))
}

/// Whether the pool contains the workers that the head was trained on. If not, this is logged.
fn is_of(head: &Head, pool: &Pool) -> bool {
    let fits = head.fits(pool);
    if let Err(reason) = &fits {
        tracing::warn!(%reason, "the mini head is not used: it was trained for other workers");
    }
    fits.is_ok()
}

/// Used if the clock cannot represent the deadline.
const FAR: Duration = Duration::from_hours(24);

fn used(completion: &Completion) -> Usage {
    Usage {
        prompt_tokens: completion.prompt_tokens as u64,
        cached_tokens: completion.cached_tokens as u64,
        cache_write_tokens: 0,
        completion_tokens: completion.completion_tokens as u64,
        reasoning_tokens: completion.reasoning_tokens as u64,
    }
}

fn failed(error: EngineError) -> ConductorError {
    match error {
        EngineError::Overloaded { waiting_max } => ConductorError::Overloaded { waiting_max },
        EngineError::PromptTooLong { tokens, tokens_max } => {
            ConductorError::QuestionTooLong { tokens, tokens_max }
        }
        error => ConductorError::Unavailable(error.into()),
    }
}
