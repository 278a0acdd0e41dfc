//! A remote model as conductor: asked like any worker, read leniently, asked again with what was wrong.
//!
//! What such a model writes may be no plan, though some endpoints can hold it to a form. It gets a bounded number of tries, each
//! told what was wrong with the one before; after that the caller has [`ConductorError::NoPlan`]. A call of which nothing was
//! heard is made again after a pause and is no try. Whatever happens, the error says what was consumed.

mod form;
mod metrics;
mod places;
mod retries;
mod room;
mod tally;
mod wishes;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::bundle::{PromptTemplate, SubtaskWords, WorkersInPrompt};
use podium_domain::conversation::{Message, Role};
use podium_domain::money::Cost;
use podium_domain::plan::PlanStream;
use podium_domain::policy::{Effort, FailedStep, Policy, ROUNDS_MAX, STEPS_MAX};
use podium_domain::pool::{Pool, Worker};
use podium_domain::prompt::{self, PlanContext};
use podium_domain::run::{FinishReason, PlanResult, Planned};
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use podium_ports::limiter::Limiter;
use podium_ports::vendor::{ChatRequest, VendorError, Vendors};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use metrics::Metrics;
use places::Places;
use retries::RetryPurse;
use tally::Tally;
use wishes::Wishes;
use writing::{Broken, Call, Written};

/// Most bytes of reasoning that a run records.
const REASONING_BYTES_MAX: usize = 8 << 10;
/// Most bytes of a text without a plan that its writer is shown again. The end says most: the lists are there.
const SHOWN_BYTES_MAX: usize = 8 << 10;
/// Bytes of a token, at the very most, in a text of any language: what is too long even so cannot be planned.
const BYTES_PER_TOKEN_MAX: usize = 6;
/// Statuses of a refusal that is about this question and no other: its length, most often, or its content.
const ABOUT_THE_QUESTION: [u16; 3] = [400, 413, 422];

/// How a remote model is asked. How long it may be silent, how many calls it takes at the same time and how many requests and
/// tokens a minute, is said by its limits as a worker; whether it is held to a form, by its features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// How often it may write before it counts as having no plan; at least once.
    pub tries_max: u32,
    /// Most tokens of what it writes, hidden reasoning included; fewer of a model that writes less, or whose context is less
    /// than twice as long.
    pub plan_tokens_max: u32,
    /// Most plans that wait while the model may not be called more; further ones are refused.
    pub waiting_max: usize,
    /// How hard to reason; the vendor's default when absent.
    pub effort: Option<Effort>,
    /// What it may be asked for.
    pub abilities: Abilities,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            tries_max: 3,
            plan_tokens_max: 4096,
            waiting_max: 256,
            effort: None,
            abilities: Abilities {
                steps_max: STEPS_MAX,
                rounds_max: ROUNDS_MAX,
                failed_step: FailedStep::Replan,
            },
        }
    }
}

/// Plans with a model that is called like a worker.
pub struct RemoteConductor {
    id: String,
    vendors: Arc<dyn Vendors>,
    limiter: Arc<dyn Limiter>,
    model: Worker,
    pool: Arc<Pool>,
    template: PromptTemplate,
    options: RemoteOptions,
    places: Places,
    retries: RetryPurse,
    wishes: Wishes,
    metrics: Metrics,
}

impl RemoteConductor {
    /// The id of a conductor that asks `model`.
    pub fn id_of(model: &Worker) -> String {
        format!("remote-{}", model.id)
    }

    /// A conductor that asks `model` for plans over `pool`: by way of `vendors`, which must know the model's vendor, and as
    /// `limiter` lets it. The model itself need not be of the pool.
    pub fn new(
        (vendors, limiter): (Arc<dyn Vendors>, Arc<dyn Limiter>),
        model: Worker,
        pool: Arc<Pool>,
        options: RemoteOptions,
    ) -> Self {
        let template = PromptTemplate {
            workers: WorkersInPrompt::Described,
            template: "chat".to_owned(),
            system: None,
            user: prompt::DESCRIBED_PROMPT.to_owned(),
            further: None,
            assistant_prefix: String::new(),
            subtasks: SubtaskWords::Free,
        };
        Self::with_prompt((vendors, limiter), model, pool, template, options)
    }

    /// As [`Self::new`], with a prompt of its own, such as a trained checkpoint needs.
    ///
    /// Turns are sent as chat messages: the template's chat format and the beginning of the assistant's turn are the
    /// server's affair and are not used.
    pub fn with_prompt(
        (vendors, limiter): (Arc<dyn Vendors>, Arc<dyn Limiter>),
        model: Worker,
        pool: Arc<Pool>,
        template: PromptTemplate,
        options: RemoteOptions,
    ) -> Self {
        let id = Self::id_of(&model);
        let places = Places::new(model.limits.in_flight_max as usize, options.waiting_max);
        let wishes = Wishes::of(&model);
        let (retries, metrics) = (RetryPurse::default(), Metrics::new(&id));
        Self { id, vendors, limiter, model, pool, template, options, places, retries, wishes, metrics }
    }

    async fn sample(&self, asking: &Asking<'_>) -> Result<PlanOutcome, ConductorError> {
        let Asking { request, tally, .. } = *asking;
        let question = self.turns(request)?;
        let _place = self.places.enter()?;
        let _in_hand = self.metrics.in_hand();
        let mut turns = question.clone();
        let mut retries = 0;
        let mut try_number = 0;
        loop {
            try_number += 1;
            let is_last = try_number >= self.options.tries_max;
            if try_number > 1 {
                // A plan that was broken off in a list must not swallow the beginning of the next one.
                (asking.text)("\n");
            }
            let problem = match self.ask(asking, &turns, (try_number, &mut retries)).await {
                Ok(written) => match self.read(&written, request) {
                    Ok(result) => {
                        let (usage, cost) = tally.sums();
                        return Ok(PlanOutcome { result, usage, cost });
                    }
                    Err(problem) => {
                        turns.clone_from(&question);
                        turns.extend(correction(&written.text, &problem, &request.policy));
                        problem
                    }
                },
                Err(Unwritten::NoRoom(error)) => return Err(error),
                Err(Unwritten::Broken(Broken { error, was_heard })) => {
                    let problem = error.to_string();
                    let is_text_cut = was_heard
                        && error.is_retryable()
                        && !matches!(error, VendorError::Throttled { .. } | VendorError::Timeout { .. });
                    if is_last || !is_text_cut {
                        return Err(give_up(tally, try_number, problem, error));
                    }
                    problem
                }
            };
            if is_last {
                return Err(tally.no_plan(try_number, problem));
            }
        }
    }

    fn turns(&self, request: &PlanRequest) -> Result<Vec<Message>, ConductorError> {
        let mut turns = prompt::for_conductor(
            &self.template,
            &PlanContext {
                question: &request.question,
                // Its prompt has its own.
                examples: &[],
                pool: &self.pool,
                policy: &request.policy,
                earlier: request.earlier.as_ref(),
            },
        );
        self.wishes.form().tell(&mut turns);
        let bytes: usize = turns.iter().map(|turn| turn.text.len()).sum();
        let (tokens, tokens_max) = (bytes / BYTES_PER_TOKEN_MAX, self.prompt_tokens_max());
        if tokens > tokens_max {
            return Err(ConductorError::QuestionTooLong { tokens, tokens_max });
        }
        Ok(turns)
    }

    fn prompt_tokens_max(&self) -> usize {
        self.model.context_tokens.saturating_sub(self.plan_tokens_max()) as usize
    }

    /// Most tokens of one plan of this model.
    fn plan_tokens_max(&self) -> u32 {
        self.options.plan_tokens_max.min(self.model.output_tokens_max).min(self.model.context_tokens / 2)
    }

    /// One try. A call that brought nothing is made again, as often and as soon as it may be; and so, at once, is one that the
    /// endpoint refuses for something that can be done without.
    async fn ask(
        &self,
        asking: &Asking<'_>,
        turns: &[Message],
        (try_number, retries): (u32, &mut u32),
    ) -> Result<Written, Unwritten> {
        loop {
            let wishes = self.wishes.now();
            let request = ChatRequest {
                temperature: wishes.temperature.then(|| temperature(try_number)),
                seed: wishes.seed.then(|| seed(asking.request.seed, try_number)),
                effort: self.options.effort,
                answer: wishes.form.answer(
                    &self.pool,
                    &asking.request.policy,
                    asking.request.earlier.is_some(),
                ),
                ..ChatRequest::new(turns.to_vec(), self.plan_tokens_max())
            };
            let broken = {
                let permit = self.room_for(asking, &request).await.map_err(Unwritten::NoRoom)?;
                self.retries.called();
                let _calling = self.metrics.calling();
                let (vendors, model, request) = (&*self.vendors, &self.model, &request);
                let call = Call { vendors, model, request, sink: asking.text, tally: asking.tally };
                match call.make(permit).await {
                    Ok(written) => return Ok(written),
                    Err(broken) => broken,
                }
            };
            if self.wishes.gives_up(wishes, &broken.error) {
                continue;
            }
            let pause = retries::pause(*retries + 1, asking.request.seed, &broken.error);
            let may_repeat = *retries < retries::RETRIES_MAX
                && retries::may_be_repeated(&broken)
                && asking.has_time_for(pause)
                && self.retries.take();
            if !may_repeat {
                return Err(Unwritten::Broken(broken));
            }
            *retries += 1;
            tracing::debug!(
                conductor = self.id,
                error = &broken.error as &dyn std::error::Error,
                "asked again after a pause"
            );
            wait(pause).await;
        }
    }

    /// The plan in what was written, or what is wrong with it.
    fn read(&self, written: &Written, request: &PlanRequest) -> Result<PlanResult, String> {
        let mut stream = PlanStream::new();
        stream.push(&written.text);
        let (draft, at) = stream.finish_located().map_err(|error| match written.reason {
            FinishReason::Stop | FinishReason::ToolCalls => error.to_string(),
            FinishReason::Length => {
                format!("{error}: it was cut off after {} tokens", self.plan_tokens_max())
            }
            FinishReason::ContentFilter => format!("{error}: the vendor withheld the rest"),
        })?;
        if draft.keeps_answer() && request.may_keep_answer() {
            return Ok(PlanResult::KeepAnswer);
        }
        let plan = draft.check(&self.pool, &request.policy).map_err(|error| error.to_string())?;
        let said = form::json_reasoning(&written.text);
        let before = said.as_deref().unwrap_or_else(|| written.text.get(..at).unwrap_or_default());
        Ok(PlanResult::Plan(Planned { plan, reasoning: reasoning(before), fallback: None }))
    }
}

/// Why a try brought no text.
enum Unwritten {
    /// There was no call.
    NoRoom(ConductorError),
    /// There was one.
    Broken(Broken),
}

/// Nobody ends this wait but its time: whoever stops planning drops it.
async fn wait(time: Duration) {
    let _elapsed = timeout(time, std::future::pending::<()>()).await;
}

/// One plan that is being asked for.
struct Asking<'a> {
    request: &'a PlanRequest,
    text: TextSink<'a>,
    tally: &'a Tally,
    began: Instant,
}

impl Asking<'_> {
    /// Whether a call after the pause would begin in time.
    fn has_time_for(&self, pause: Duration) -> bool {
        self.began.elapsed().saturating_add(pause) < self.request.time_max
    }
}

#[async_trait]
impl Conductor for RemoteConductor {
    fn id(&self) -> &str {
        &self.id
    }

    fn abilities(&self) -> Abilities {
        self.options.abilities
    }

    fn pool_in_text(&self) -> Option<&Pool> {
        Some(&self.pool)
    }

    /// All tries, each with a prompt of about two bytes a token, what was wrong with the try before it included.
    fn plan_cost_max(&self, request: &PlanRequest) -> Cost {
        let Ok(turns) = self.turns(request) else { return Cost::ZERO };
        let bytes: usize = turns.iter().map(|turn| turn.text.len()).sum();
        let tokens = ((bytes + 2 * SHOWN_BYTES_MAX) as u64).div_ceil(2).min(self.model.context_tokens.into());
        let prices = self.model.prices.at(request.asked_at);
        let one = prices.most_cost(tokens, self.plan_tokens_max().into());
        std::iter::repeat_n(one, self.options.tries_max as usize).sum()
    }

    async fn plan(
        &self,
        request: &PlanRequest,
        text: TextSink<'_>,
        stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        let limit = request.time_max;
        let tally = Tally::new(*self.model.prices.at(request.asked_at));
        let asking = Asking { request, text, tally: &tally, began: Instant::now() };
        let planned = tokio::select! {
            biased;
            () = stop.cancelled() => Err(ConductorError::Stopped),
            outcome = timeout(limit, self.sample(&asking)) => {
                outcome.unwrap_or(Err(ConductorError::Timeout { limit }))
            }
        };
        planned.map_err(|error| tally.charge(error))
    }
}

/// The vendor failed. The caller may ask again later, unless it is this question that the vendor refuses.
fn give_up(tally: &Tally, tries: u32, message: String, error: VendorError) -> ConductorError {
    let refused =
        matches!(&error, VendorError::Rejected { status, .. } if ABOUT_THE_QUESTION.contains(status));
    if refused { tally.no_plan(tries, message) } else { ConductorError::Unavailable(Box::new(error)) }
}

/// Another one for each try, and for each attempt at the plan.
fn seed(of_attempt: u64, try_number: u32) -> u32 {
    // Some vendors read a signed number.
    u32::try_from(retries::mixed(of_attempt, try_number) >> 33).unwrap_or_default()
}

/// Nearly the likeliest text first; each further try wanders more.
fn temperature(try_number: u32) -> f32 {
    match try_number {
        0 | 1 => 0.1,
        2 => 0.5,
        3 => 0.8,
        _ => 1.0,
    }
}

/// The turns that show a writer what it wrote and say what is wrong with it.
fn correction(text: &str, problem: &str, policy: &Policy) -> Vec<Message> {
    let steps_max = policy.steps_max;
    let order = format!(
        "That cannot be run: {problem}.\nWrite the workflow again: a brief thought, then model_id, subtasks and \
         access_list, three lists of equal length, with 1 to {steps_max} elements each."
    );
    let shown = last_bytes(text.trim(), SHOWN_BYTES_MAX);
    let mut turns = Vec::new();
    if !shown.is_empty() {
        turns.push(Message::new(Role::Assistant, shown));
    }
    turns.push(Message::new(Role::User, order));
    turns
}

/// What stands before the lists, as a run records it.
fn reasoning(before: &str) -> String {
    let before = before.trim_end();
    // The fence that the lists are in belongs to them.
    let fence = before.rfind('\n').map_or(0, |end| end + 1);
    let before = if before[fence..].starts_with("```") { &before[..fence] } else { before };
    let text = before.trim().replace('\0', "");
    let mut end = text.len().min(REASONING_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

fn last_bytes(text: &str, bytes_max: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_bounded_and_loses_the_fence_of_the_lists() {
        assert_eq!(reasoning("\n Two parts.\n```python\n"), "Two parts.");
        assert_eq!(reasoning("```\n"), "");
        assert_eq!(reasoning("a\0b"), "ab");
        let long = reasoning(&"é".repeat(REASONING_BYTES_MAX));
        assert_eq!(long.len(), REASONING_BYTES_MAX);
        assert_eq!(
            reasoning(&format!("x{}", "é".repeat(REASONING_BYTES_MAX))).len(),
            REASONING_BYTES_MAX - 1
        );
    }

    #[test]
    fn the_end_of_a_text_is_cut_between_characters() {
        assert_eq!(last_bytes("aéb", 2), "b");
        assert_eq!(last_bytes("aéb", 3), "éb");
        assert_eq!(last_bytes("aéb", 9), "aéb");
    }

    #[test]
    fn each_try_wanders_more_than_the_one_before() {
        let temperatures: Vec<_> = (1..6).map(temperature).collect();
        assert!(temperatures.is_sorted() && temperatures[0] < temperatures[2], "{temperatures:?}");
    }
}
