//! A remote model as conductor: asked like any worker, read leniently, asked again with what was wrong.
//!
//! Such a model writes under no grammar, so what it writes may be no plan. It gets a bounded number of tries, each told what
//! was wrong with the one before; after that the caller has [`ConductorError::NoPlan`], with what all tries consumed.

mod tally;
mod writing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use podium_domain::bundle::{PromptTemplate, SubtaskWords, WorkersInPrompt};
use podium_domain::conversation::{Message, Role};
use podium_domain::money::Cost;
use podium_domain::plan::PlanStream;
use podium_domain::policy::{Effort, Policy, ROUNDS_MAX, STEPS_MAX};
use podium_domain::pool::{Feature, Pool, Worker};
use podium_domain::prompt::{self, PlanContext};
use podium_domain::run::{FinishReason, PlanResult, Planned};
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use podium_ports::vendor::{ChatRequest, VendorError, Vendors};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use tally::Tally;
use writing::{Broken, Written, write};

/// Most bytes of reasoning that a run records.
const REASONING_BYTES_MAX: usize = 8 << 10;
/// Most bytes of a text without a plan that its writer is shown again. The end says most: the lists are there.
const SHOWN_BYTES_MAX: usize = 8 << 10;
/// Bytes of a token, at the very most, in a text of any language: what is too long even so cannot be planned.
const BYTES_PER_TOKEN_MAX: usize = 6;

/// How a remote model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// How often it may write before it counts as having no plan; at least once.
    pub tries_max: u32,
    /// Most tokens of what it writes, hidden reasoning included.
    pub plan_tokens_max: u32,
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
            effort: None,
            abilities: Abilities { steps_max: STEPS_MAX, rounds_max: ROUNDS_MAX },
        }
    }
}

/// Plans with a model that is called like a worker.
pub struct RemoteConductor {
    id: String,
    vendors: Arc<dyn Vendors>,
    model: Worker,
    pool: Arc<Pool>,
    template: PromptTemplate,
    options: RemoteOptions,
    /// Some models take one temperature only and refuse a call that names another. Learnt at the first refusal.
    refuses_temperature: AtomicBool,
}

impl RemoteConductor {
    /// A conductor that asks `model` by way of `vendors`, which must know the model's vendor, for plans over `pool`.
    /// The model itself need not be of the pool.
    pub fn new(vendors: Arc<dyn Vendors>, model: Worker, pool: Arc<Pool>, options: RemoteOptions) -> Self {
        let template = PromptTemplate {
            workers: WorkersInPrompt::Described,
            template: "chat".to_owned(),
            system: None,
            user: prompt::DESCRIBED_PROMPT.to_owned(),
            assistant_prefix: String::new(),
            subtasks: SubtaskWords::Free,
        };
        Self::with_prompt(vendors, model, pool, template, options)
    }

    /// As [`Self::new`], with a prompt of its own, such as a trained checkpoint needs.
    ///
    /// Turns are sent as chat messages: the template's chat format and the beginning of the assistant's turn are the
    /// server's affair and are not used.
    pub fn with_prompt(
        vendors: Arc<dyn Vendors>,
        model: Worker,
        pool: Arc<Pool>,
        template: PromptTemplate,
        options: RemoteOptions,
    ) -> Self {
        let id = format!("remote-{}", model.id);
        let refuses_temperature = AtomicBool::new(false);
        Self { id, vendors, model, pool, template, options, refuses_temperature }
    }

    async fn sample(&self, request: &PlanRequest, text: TextSink<'_>) -> Result<PlanOutcome, ConductorError> {
        let question = self.turns(request)?;
        let mut turns = question.clone();
        let mut tally = Tally::new(*self.model.prices.at(request.asked_at));
        let mut try_number = 0;
        loop {
            try_number += 1;
            let is_last = try_number >= self.options.tries_max;
            if try_number > 1 {
                // A plan that was broken off in a list must not swallow the beginning of the next one.
                text("\n");
            }
            let problem = match self.ask(&turns, try_number, text).await {
                Ok(written) => {
                    tally.add(written.usage);
                    match self.read(&written, request) {
                        Ok(result) => {
                            return Ok(PlanOutcome { result, usage: tally.usage(), cost: tally.cost() });
                        }
                        Err(problem) => {
                            turns.clone_from(&question);
                            turns.extend(correction(&written.text, &problem, &request.policy));
                            problem
                        }
                    }
                }
                Err(broken) => {
                    tally.add(broken.usage);
                    let problem = broken.error.to_string();
                    if is_last || !is_worth_another_try(&broken.error) {
                        return Err(tally.give_up(try_number, problem, broken.error));
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
        let turns = prompt::for_conductor(
            &self.template,
            &PlanContext {
                question: &request.question,
                pool: &self.pool,
                policy: &request.policy,
                earlier: request.earlier.as_deref(),
            },
        );
        let bytes: usize = turns.iter().map(|turn| turn.text.len()).sum();
        let (tokens, tokens_max) = (bytes / BYTES_PER_TOKEN_MAX, self.prompt_tokens_max());
        if tokens > tokens_max {
            return Err(ConductorError::QuestionTooLong { tokens, tokens_max });
        }
        Ok(turns)
    }

    fn prompt_tokens_max(&self) -> usize {
        self.model.context_tokens.saturating_sub(self.options.plan_tokens_max) as usize
    }

    /// One try. A model that refuses to be given a temperature is asked again without, which is no try of its own.
    async fn ask(&self, turns: &[Message], try_number: u32, text: TextSink<'_>) -> Result<Written, Broken> {
        let takes_temperature = self.model.takes(Feature::Temperature);
        let with_temperature = takes_temperature && !self.refuses_temperature.load(Ordering::Relaxed);
        let mut request = ChatRequest {
            temperature: with_temperature.then(|| temperature(try_number)),
            effort: self.options.effort,
            ..ChatRequest::new(turns.to_vec(), self.options.plan_tokens_max)
        };
        let result = write(&*self.vendors, &self.model, &request, text).await;
        match result {
            Err(broken) if with_temperature && is_about_temperature(&broken.error) => {
                self.refuses_temperature.store(true, Ordering::Relaxed);
                request.temperature = None;
                write(&*self.vendors, &self.model, &request, text).await
            }
            result => result,
        }
    }

    /// The plan in what was written, or what is wrong with it.
    fn read(&self, written: &Written, request: &PlanRequest) -> Result<PlanResult, String> {
        let mut stream = PlanStream::new();
        stream.push(&written.text);
        let (draft, at) = stream.finish_located().map_err(|error| match written.reason {
            FinishReason::Stop | FinishReason::ToolCalls => error.to_string(),
            FinishReason::Length => {
                format!("{error}: it was cut off after {} tokens", self.options.plan_tokens_max)
            }
            FinishReason::ContentFilter => format!("{error}: the vendor withheld the rest"),
        })?;
        if draft.keeps_answer() && request.earlier.is_some() {
            return Ok(PlanResult::KeepAnswer);
        }
        let plan = draft.check(&self.pool, &request.policy).map_err(|error| error.to_string())?;
        let reasoning = reasoning(written.text.get(..at).unwrap_or_default());
        Ok(PlanResult::Plan(Planned { plan, reasoning, fallback: None }))
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
        let one = prices.most_cost(tokens, self.options.plan_tokens_max.into());
        std::iter::repeat_n(one, self.options.tries_max as usize).sum()
    }

    async fn plan(
        &self,
        request: &PlanRequest,
        text: TextSink<'_>,
        stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        let limit = request.time_max;
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(ConductorError::Stopped),
            outcome = timeout(limit, self.sample(request, text)) => {
                outcome.unwrap_or(Err(ConductorError::Timeout { limit }))
            }
        }
    }
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

/// Whether the next try may go better right away. Who asks to be left alone, or was waited for in vain, gets no other try
/// now: the caller knows when to come back.
fn is_worth_another_try(error: &VendorError) -> bool {
    error.is_retryable() && !matches!(error, VendorError::Throttled { .. } | VendorError::Timeout { .. })
}

fn is_about_temperature(error: &VendorError) -> bool {
    matches!(error, VendorError::Rejected { status: 400 | 422, message, .. } if message.contains("temperature"))
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
