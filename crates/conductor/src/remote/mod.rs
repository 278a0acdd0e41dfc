//! A remote model as conductor: it is called like a worker, and its output is parsed leniently.
//!
//! Its output may not be a plan, even if the endpoint supports a constraint. The model gets a bounded number of tries, each
//! with the problem of the previous one; then the caller receives [`ConductorError::NoPlan`]. A failed call without any
//! output is retried after a pause and is not a try. Every error reports the usage so far.

mod admission;
mod call;
mod form;
mod metrics;
mod optional_parameters;
mod permits;
mod retries;
mod usage_account;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_bundle::manifest::{PromptTemplate, SubtaskWords, WorkersInPrompt};
use podium_bundle::prompt::{self, PlanContext};
use podium_domain::conversation::{Message, Role};
use podium_domain::money::Cost;
use podium_domain::plan::PlanStream;
use podium_domain::policy::{Effort, FailedStep, Policy, ROUNDS_MAX, STEPS_MAX};
use podium_domain::pool::{Pool, Worker};
use podium_domain::run::{FinishReason, PlanResult, Planned};
use podium_domain::split_mix::split_mix;
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use podium_ports::limiter::Limiter;
use podium_ports::vendor::{ChatRequest, VendorError, Vendors};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use admission::Admission;
use call::{Broken, Call, Written};
use metrics::Metrics;
use optional_parameters::OptionalParameters;
use retries::EndpointBudget;
use usage_account::UsageAccount;

/// Most bytes of reasoning that a run records.
const REASONING_BYTES_MAX: usize = 8 << 10;
/// Most bytes of an invalid output that the model is shown again. The end matters most: it contains the lists.
const SHOWN_BYTES_MAX: usize = 8 << 10;
/// Upper bound of the bytes per token in any language. A prompt that is too long even so cannot be planned.
const BYTES_PER_TOKEN_MAX: usize = 6;
/// HTTP statuses of rejections that concern this question only, usually its length or content.
const ABOUT_THE_QUESTION: [u16; 3] = [400, 413, 422];

/// How a remote model is called. Its timeouts, concurrency and rate limits are those of the worker entry, and so are its
/// output constraints (by feature).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Most outputs that are tried; at least 1.
    pub tries_max: u32,
    /// Most tokens of one output, hidden reasoning included. Lower if the model's output limit or half its context is smaller.
    pub plan_tokens_max: u32,
    /// Most plans that wait for a permit; further ones are rejected.
    pub waiting_max: usize,
    /// Reasoning effort; the vendor's default if absent.
    pub effort: Option<Effort>,
    /// The plans that the model may be asked for.
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

/// Plans with a remote model that is called like a worker.
pub struct RemoteConductor {
    id: String,
    vendors: Arc<dyn Vendors>,
    limiter: Arc<dyn Limiter>,
    model: Worker,
    pool: Arc<Pool>,
    template: PromptTemplate,
    options: RemoteOptions,
    admission: Admission,
    retries: EndpointBudget,
    optional: OptionalParameters,
    metrics: Metrics,
}

impl RemoteConductor {
    /// The id of a conductor that uses `model`.
    pub fn id_of(model: &Worker) -> String {
        format!("remote-{}", model.id)
    }

    /// Creates a conductor that asks `model` for plans over `pool`. `vendors` must know the model's vendor; `limiter`
    /// permits each call. The model need not be in the pool.
    pub fn new(
        vendors: Arc<dyn Vendors>,
        limiter: Arc<dyn Limiter>,
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
        Self::with_prompt(vendors, limiter, model, pool, template, options)
    }

    /// Like [`Self::new`], with a different prompt, as a trained checkpoint needs.
    ///
    /// Turns are sent as chat messages: the server applies its own chat format, so the template's is not used.
    pub fn with_prompt(
        vendors: Arc<dyn Vendors>,
        limiter: Arc<dyn Limiter>,
        model: Worker,
        pool: Arc<Pool>,
        template: PromptTemplate,
        options: RemoteOptions,
    ) -> Self {
        let id = Self::id_of(&model);
        let admission = Admission::new(model.limits.in_flight_max as usize, options.waiting_max);
        let optional = OptionalParameters::of(&model);
        let (retries, metrics) = (EndpointBudget::new(), Metrics::new(&id));
        Self { id, vendors, limiter, model, pool, template, options, admission, retries, optional, metrics }
    }

    async fn sample(&self, asking: &Asking<'_>) -> Result<PlanOutcome, ConductorError> {
        let Asking { request, account, .. } = *asking;
        let question = self.turns(request)?;
        let _place = self.admission.admit()?;
        let _in_hand = self.metrics.in_hand();
        let mut turns = question.clone();
        let mut retries = 0;
        let mut try_number = 0;
        loop {
            try_number += 1;
            let is_last = try_number >= self.options.tries_max;
            if try_number > 1 {
                // A plan that broke off inside a list must not absorb the beginning of the next one.
                (asking.text)("\n");
            }
            let problem = match self.ask(asking, &turns, try_number, &mut retries).await {
                Ok(written) => match self.read(&written, request) {
                    Ok(result) => {
                        let (usage, cost) = account.sums();
                        return Ok(PlanOutcome { result, usage, cost });
                    }
                    Err(problem) => {
                        turns.clone_from(&question);
                        turns.extend(correction(&written.text, &problem, &request.policy));
                        problem
                    }
                },
                Err(Unwritten::NoCapacity(error)) => return Err(error),
                Err(Unwritten::Broken(Broken { error, has_text })) => {
                    let problem = error.to_string();
                    let is_text_cut = has_text
                        && error.is_retryable()
                        && !matches!(error, VendorError::Throttled { .. } | VendorError::Timeout { .. });
                    if is_last || !is_text_cut {
                        return Err(vendor_error(account, try_number, problem, error));
                    }
                    problem
                }
            };
            if is_last {
                return Err(account.no_plan(try_number, problem));
            }
        }
    }

    fn turns(&self, request: &PlanRequest) -> Result<Vec<Message>, ConductorError> {
        let mut turns = prompt::for_conductor(
            &self.template,
            &PlanContext {
                question: &request.question,
                // The template has its own examples.
                examples: &[],
                pool: &self.pool,
                policy: &request.policy,
                earlier: request.earlier.as_ref(),
            },
        );
        self.optional.form().describe(&mut turns);
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

    /// Most output tokens of one plan.
    fn plan_tokens_max(&self) -> u32 {
        self.options.plan_tokens_max.min(self.model.output_tokens_max).min(self.model.context_tokens / 2)
    }

    /// Runs one try. A failed call without output is retried within the limits. If the endpoint rejects an optional
    /// parameter, the call is repeated at once without it.
    async fn ask(
        &self,
        asking: &Asking<'_>,
        turns: &[Message],
        try_number: u32,
        retries: &mut u32,
    ) -> Result<Written, Unwritten> {
        loop {
            let optional = self.optional.now();
            let request = ChatRequest {
                temperature: optional.temperature.then(|| temperature(try_number)),
                seed: optional.seed.then(|| seed(asking.request.seed, try_number)),
                effort: self.options.effort,
                answer: optional.form.answer(
                    &self.pool,
                    &asking.request.policy,
                    asking.request.earlier.is_some(),
                ),
                ..ChatRequest::new(turns.to_vec(), self.plan_tokens_max())
            };
            let broken = {
                let permit = self.permit_for(asking, &request).await.map_err(Unwritten::NoCapacity)?;
                self.retries.called();
                let _calling = self.metrics.calling();
                let (vendors, model, request) = (&*self.vendors, &self.model, &request);
                let call = Call { vendors, model, request, sink: asking.text, account: asking.account };
                match call.make(permit).await {
                    Ok(written) => return Ok(written),
                    Err(broken) => broken,
                }
            };
            if self.optional.stops_sending(optional, &broken.error) {
                continue;
            }
            let pause = retries::pause(*retries + 1, asking.request.seed, &broken.error);
            let may_repeat = *retries < retries::RETRIES_MAX
                && retries::is_worth_a_retry(&broken)
                && asking.has_time_for(pause)
                && self.retries.take();
            if !may_repeat {
                return Err(Unwritten::Broken(broken));
            }
            *retries += 1;
            tracing::debug!(
                conductor = self.id,
                error = &broken.error as &dyn std::error::Error,
                "the call is retried after a pause"
            );
            wait(pause).await;
        }
    }

    /// Parses the plan, or returns what is wrong with the output.
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
        let json_text = form::json_reasoning(&written.text);
        let before = json_text.as_deref().unwrap_or_else(|| written.text.get(..at).unwrap_or_default());
        Ok(PlanResult::Plan(Planned { plan, reasoning: reasoning(before), fallback: None }))
    }
}

/// Why a try has no output.
enum Unwritten {
    /// The call was not permitted.
    NoCapacity(ConductorError),
    /// The call failed.
    Broken(Broken),
}

/// Sleeps. A caller that stops planning drops the future.
async fn wait(time: Duration) {
    let _elapsed = timeout(time, std::future::pending::<()>()).await;
}

/// One plan in progress.
struct Asking<'a> {
    request: &'a PlanRequest,
    text: TextSink<'a>,
    account: &'a UsageAccount,
    began: Instant,
}

impl Asking<'_> {
    /// Whether a call after `pause` would begin in time.
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

    /// All tries, at about two bytes a token, each prompt including the problem of the previous try.
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
        let account = UsageAccount::new(*self.model.prices.at(request.asked_at));
        let asking = Asking { request, text, account: &account, began: Instant::now() };
        let planned = tokio::select! {
            biased;
            () = stop.cancelled() => Err(ConductorError::Stopped),
            outcome = timeout(limit, self.sample(&asking)) => {
                outcome.unwrap_or(Err(ConductorError::Timeout { limit }))
            }
        };
        planned.map_err(|error| account.charge(error))
    }
}

/// The error for a failed vendor. The caller may retry later, unless the vendor rejects this question.
fn vendor_error(account: &UsageAccount, tries: u32, message: String, error: VendorError) -> ConductorError {
    let refused =
        matches!(&error, VendorError::Rejected { status, .. } if ABOUT_THE_QUESTION.contains(status));
    if refused { account.no_plan(tries, message) } else { ConductorError::Unavailable(Box::new(error)) }
}

/// A different seed for each try and each planning attempt.
fn seed(of_attempt: u64, try_number: u32) -> u32 {
    // Some vendors read a signed 32-bit number.
    u32::try_from(split_mix(of_attempt, try_number.into()) >> 33).unwrap_or_default()
}

/// The first try samples almost greedily; each further one samples more freely.
fn temperature(try_number: u32) -> f32 {
    match try_number {
        0 | 1 => 0.1,
        2 => 0.5,
        3 => 0.8,
        _ => 1.0,
    }
}

/// The turns that show the model its output and name the problem.
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

/// The text before the lists, as a run records it.
fn reasoning(before: &str) -> String {
    let before = before.trim_end();
    // A code fence that encloses the lists is not part of it.
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
    fn the_end_of_a_text_is_cut_at_a_character() {
        assert_eq!(last_bytes("aéb", 2), "b");
        assert_eq!(last_bytes("aéb", 3), "éb");
        assert_eq!(last_bytes("aéb", 9), "aéb");
    }

    #[test]
    fn the_temperature_rises_with_each_try() {
        let temperatures: Vec<_> = (1..6).map(temperature).collect();
        assert!(temperatures.is_sorted() && temperatures[0] < temperatures[2], "{temperatures:?}");
    }
}
