//! One call of a worker: its text goes to whoever watches while it comes, and ends as a result or as a reason.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use podium_domain::content::IMAGE_TOKENS;
use podium_domain::conversation::Message;
use podium_domain::ids::{ClaimId, StepIndex, WorkerId};
use podium_domain::money::Cost;
use podium_domain::policy::BrokenAnswer;
use podium_domain::pool::Worker;
use podium_domain::prices::PriceList;
use podium_domain::run::{FinishReason, Run, StepResult, TaskRef};
use podium_domain::time::Timestamp;
use podium_domain::usage::{Spent, Usage};
use podium_ports::clock::Clock;
use podium_ports::limiter::{Outcome, Permit, Settlement, TokenEstimate, outcome_of};
use podium_ports::live::{Frame, Signal};
use podium_ports::vendor::{AnswerForm, ChatEvent, ChatRequest, ChatStream, NoText, VendorError};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::claims::leases::Held;
use crate::metrics::{CallMeter, Metrics};
use crate::options::Parts;

/// Bytes that are taken for a token where nobody says better. English text has about four.
const BYTES_PER_TOKEN: u64 = 4;

/// How a call ended.
pub(super) enum Ended {
    /// With an output.
    Finished(StepResult),
    /// Without one.
    Failed {
        /// What went wrong.
        message: String,
        /// What may be done about it.
        cure: Cure,
        /// What it consumed all the same.
        spent: Spent,
    },
    /// The claim was lost meanwhile.
    Lost {
        /// What it consumed.
        spent: Spent,
    },
    /// The executor must stop.
    Abandoned {
        /// What it consumed.
        spent: Spent,
    },
}

/// What may be done about a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cure {
    /// The same again, after so long at the earliest; or by another worker.
    Again(Duration),
    /// The same again, after so long at the earliest: the vendor asked to slow down, which is no attempt.
    Limited(Duration),
    /// The same by another worker.
    Elsewhere,
    /// Nothing: it is the request's own fault.
    Nothing,
}

/// A call to be made under a claim.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) parts: &'a Parts,
    pub(super) metrics: &'a Metrics,
    pub(super) run: &'a Run,
    pub(super) worker: &'a Worker,
    pub(super) at: (u16, StepIndex),
    pub(super) claim: ClaimId,
    pub(super) request: &'a ChatRequest,
}

/// A call under way: what has come so far, and its permit until that is settled.
struct Progress {
    began: Timestamp,
    first_token_at: Option<Timestamp>,
    text: String,
    /// Bytes of output that are shown to nobody: reasoning, and what broke off before it could be read.
    hidden_bytes: usize,
    /// Whether it failed, and may go better, after its output had begun.
    broke_off: bool,
    /// What the limiter is to be told. Of a call that is broken off, nothing is known.
    settlement: Settlement,
    permit: Option<Box<dyn Permit>>,
    /// Whom it is of, and what measures it.
    worker: WorkerId,
    metrics: Metrics,
    clock: Arc<dyn Clock>,
}

impl Ended {
    /// The worker is not asked again: it has been paid for output that broke off.
    fn not_again(&mut self) {
        if let Self::Failed { message, cure: cure @ Cure::Again(_), .. } = self {
            message.push_str("; not tried again: its answer had begun");
            *cure = Cure::Elsewhere;
        }
    }
}

impl Progress {
    /// Settles the permit and measures the call, once.
    fn settle(&mut self) {
        if let Some(permit) = self.permit.take() {
            let first_token = self.first_token_at.map(|at| at.since(self.began));
            let settlement = Settlement { first_token, ..self.settlement };
            permit.settle(settlement);
            let took = self.clock.now().since(self.began);
            self.metrics.calls().ended(&self.worker, CallMeter { took, settlement });
        }
    }

    /// Whether its vendor has written anything, which it bills.
    fn has_output(&self) -> bool {
        self.first_token_at.is_some() || self.hidden_bytes > 0
    }
}

impl Call<'_> {
    fn begin(&self, permit: Box<dyn Permit>) -> Progress {
        Progress {
            began: self.parts.clock.now(),
            first_token_at: None,
            text: String::new(),
            hidden_bytes: 0,
            broke_off: false,
            settlement: Settlement::default(),
            permit: Some(permit),
            worker: self.worker.id.clone(),
            metrics: self.metrics.clone(),
            clock: Arc::clone(&self.parts.clock),
        }
    }

    /// Makes the call and settles its permit. The call is broken off if its claim is lost or the executor must stop.
    pub(super) async fn make(
        &self,
        permit: Box<dyn Permit>,
        (held, abandon): (&Held, &CancellationToken),
    ) -> Ended {
        let mut progress = self.begin(permit);
        let mut ended = tokio::select! {
            // A result that is there was paid for, whatever else has happened.
            biased;
            ended = self.answer(&mut progress) => ended,
            () = held.lost() => Ended::Lost { spent: self.spent(&progress) },
            () = abandon.cancelled() => Ended::Abandoned { spent: self.spent(&progress) },
        };
        progress.settle();
        if progress.broke_off && self.run.spec().policy.broken_answer == BrokenAnswer::Elsewhere {
            ended.not_again();
        }
        ended
    }

    /// Sends the request and publishes the text as it comes, to its end.
    async fn answer(&self, progress: &mut Progress) -> Ended {
        let mut events = match self.parts.vendors.chat(self.worker, self.request).await {
            Ok(events) => events,
            Err(error) => return self.vendor_failure(progress, &error),
        };
        loop {
            let text = match self.next(&mut events, progress).await {
                Ok(text) => text,
                Err(ended) => return ended,
            };
            progress.first_token_at.get_or_insert_with(|| self.parts.clock.now());
            if let Err(ended) = self.delta(text, progress).await {
                return ended;
            }
        }
    }

    /// More text, or how the call ended.
    async fn next(&self, events: &mut ChatStream, progress: &mut Progress) -> Result<String, Ended> {
        while let Some(event) = events.next().await {
            match event {
                // No tool was offered.
                Ok(ChatEvent::Started { .. } | ChatEvent::ReasoningSealed(_) | ChatEvent::ToolCall(_)) => {}
                // Nobody watches a worker reason.
                Ok(ChatEvent::Reasoning(text)) => progress.hidden_bytes += text.len(),
                Ok(ChatEvent::Unread(bytes)) => progress.hidden_bytes += bytes,
                Ok(ChatEvent::Quota(quota)) => progress.settlement.quota = quota,
                Ok(ChatEvent::Delta(text)) if text.is_empty() => {}
                Ok(ChatEvent::Delta(text)) => return Ok(text),
                Ok(ChatEvent::Finished { reason, usage }) => {
                    return Err(self.finished(reason, usage, progress));
                }
                Err(error) => return Err(self.vendor_failure(progress, &error)),
            }
        }
        progress.settlement.outcome = Outcome::Failed;
        progress.broke_off = progress.has_output();
        Err(self.failed(progress, "the vendor's answer ended early".to_owned(), Cure::Again(Duration::ZERO)))
    }

    /// Whether the step is known not to be the answer: not before its plan is complete.
    fn is_inner(&self) -> bool {
        let ((round, step), run) = (self.at, self.run);
        let is_planned = run.rounds().get(usize::from(round)).is_some_and(|round| round.plan().is_some());
        let is_answer = round + 1 >= run.spec().policy.rounds_max && run.is_final_step(round, step);
        is_planned && !is_answer
    }

    async fn delta(&self, text: String, progress: &mut Progress) -> Result<(), Ended> {
        let bytes_max = self.run.spec().policy.output_bytes_max;
        if progress.text.len() + text.len() > bytes_max {
            progress.settlement.outcome = Outcome::Refused;
            progress.settlement.usage = Some(self.estimate(progress));
            let message = format!("the output exceeds output_bytes_max of {bytes_max}");
            return Err(self.failed(progress, message, Cure::Nothing));
        }
        let (round, step) = self.at;
        let offset = progress.text.len() as u64;
        progress.text.push_str(&text);
        let frame = Frame { round, step, claim: self.claim, offset, text };
        let (live, run) = (&self.parts.live, self.run.id());
        let published = if self.is_inner() {
            live.publish_inner(run, frame).await
        } else {
            live.publish(run, Signal::Frame(frame)).await
        };
        if let Err(error) = published {
            debug!(run = %self.run.id(), %error, "watchers were not told");
        }
        Ok(())
    }

    fn finished(&self, finish: FinishReason, usage: Option<Usage>, progress: &mut Progress) -> Ended {
        let usage = usage.map_or_else(|| self.estimate(progress), |usage| self.believable(usage));
        progress.settlement.outcome = Outcome::Answered;
        progress.settlement.usage = Some(usage);
        let spent = self.priced(usage);
        if let Some((message, cure)) = self.without_text(progress, finish, usage) {
            return Ended::Failed { message, cure, spent };
        }
        Ended::Finished(StepResult {
            output: std::mem::take(&mut progress.text),
            spent,
            finish,
            first_token_ms: progress.first_token_at.map(|at| milliseconds(progress.began, at)),
            saved: None,
        })
    }

    /// What is said and done about an answer without text. A refusal without text is a result like one with text: the run
    /// records that the worker declined.
    fn without_text(
        &self,
        progress: &Progress,
        finish: FinishReason,
        usage: Usage,
    ) -> Option<(String, Cure)> {
        if !progress.text.trim().is_empty() {
            return None;
        }
        let worker = &self.worker.id;
        match NoText::of(finish) {
            NoText::Declined => None,
            NoText::LimitUsedUp => {
                let tokens = usage.completion_tokens;
                let message = format!(
                    "worker `{worker}` used up its output limit before any text ({tokens} tokens, finish reason length)"
                );
                // Another worker may reason less; two that do not are enough.
                let (round, step) = self.at;
                let steps = self.run.rounds().get(usize::from(round)).map(|round| &round.steps);
                let step = steps.and_then(|steps| steps.get(step.as_usize()));
                let has_fallen_back = step.is_some_and(|step| step.fallbacks > 0);
                Some((message, if has_fallen_back { Cure::Nothing } else { Cure::Elsewhere }))
            }
            NoText::Empty => {
                Some((format!("worker `{worker}` gave an empty answer"), Cure::Again(Duration::ZERO)))
            }
        }
    }

    /// The usage that a vendor reported, at most what the call can have taken: beyond that, a number is an error of the vendor, which
    /// must not empty a budget or block a worker.
    fn believable(&self, reported: Usage) -> Usage {
        let bounded = bounded(reported, self.request);
        if bounded != reported {
            let worker = &self.worker.id;
            warn!(%worker, ?reported, ?bounded, "the vendor reported more usage than the call can have taken");
            self.metrics.calls().misreported(worker);
        }
        bounded
    }

    fn vendor_failure(&self, progress: &mut Progress, error: &VendorError) -> Ended {
        progress.settlement.outcome = outcome_of(error);
        if progress.settlement.outcome == Outcome::Refused || progress.has_output() {
            progress.settlement.usage = Some(self.estimate(progress));
        }
        let cure = if let VendorError::Throttled { retry_after, .. } = error
            && !progress.has_output()
        {
            Cure::Limited(retry_after.unwrap_or_default())
        } else if error.is_retryable() {
            progress.broke_off = progress.has_output();
            Cure::Again(error.retry_after().unwrap_or_default())
        } else if error.is_workers_own() {
            Cure::Elsewhere
        } else {
            Cure::Nothing
        };
        let mut message = error.in_full();
        if self.run.spec().key.is_some() {
            warn!(run = %self.run.id(), worker = %self.worker.id, error = message, "a call failed");
            message = error.for_tenant();
        }
        self.failed(progress, message, cure)
    }

    fn failed(&self, progress: &Progress, message: String, cure: Cure) -> Ended {
        Ended::Failed { message, cure, spent: self.spent(progress) }
    }

    /// What the call has consumed by now, where the vendor did not say. Nothing before the first of its output: vendors bill from
    /// then on.
    fn estimate(&self, progress: &Progress) -> Usage {
        if !progress.has_output() {
            return Usage::default();
        }
        let bytes = progress.text.len().saturating_add(progress.hidden_bytes);
        let completion_tokens = (bytes as u64).div_ceil(BYTES_PER_TOKEN);
        let prompt_tokens = prompt_tokens(self.request);
        Usage { prompt_tokens, completion_tokens, ..Usage::default() }
    }

    /// The same with its cost.
    fn spent(&self, progress: &Progress) -> Spent {
        self.priced(self.estimate(progress))
    }

    fn priced(&self, usage: Usage) -> Spent {
        let task = TaskRef::Step { round: self.at.0, step: self.at.1 };
        Spent { usage, cost: prices(self.worker, self.run, task, self.claim).cost(&usage) }
    }
}

fn milliseconds(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX)
}

/// Tokens that vendors may add to a prompt or a completion.
const TOKENS_SLACK: u64 = 4096;
/// Most tokens of an image, at any vendor and in any resolution.
const IMAGE_TOKENS_MAX: u64 = 20_000;

/// The usage, bounded by what the request can have taken: two prompt tokens for each byte sent, [`IMAGE_TOKENS_MAX`] for each
/// image, twice the limit of output tokens, and [`TOKENS_SLACK`] more of each. Parts of a sum are at most the sum.
fn bounded(usage: Usage, request: &ChatRequest) -> Usage {
    let images: usize = request.messages.iter().map(Message::image_count).sum();
    let bytes = prompt_bytes(request) as u64;
    let prompt_max = bytes * 2 + images as u64 * IMAGE_TOKENS_MAX + TOKENS_SLACK;
    let prompt_tokens = usage.prompt_tokens.min(prompt_max);
    let completion_max = u64::from(request.output_tokens_max) * 2 + TOKENS_SLACK;
    let completion_tokens = usage.completion_tokens.min(completion_max);
    let cached_tokens = usage.cached_tokens.min(prompt_tokens);
    Usage {
        prompt_tokens,
        cached_tokens,
        cache_write_tokens: usage.cache_write_tokens.min(prompt_tokens - cached_tokens),
        completion_tokens,
        reasoning_tokens: usage.reasoning_tokens.min(completion_tokens),
    }
}

/// Bytes of a prompt that are no image.
fn prompt_bytes(request: &ChatRequest) -> usize {
    let words: usize = request.messages.iter().map(Message::text_bytes).sum();
    let schema = match &request.answer {
        AnswerForm::JsonSchema(form) => form.schema.to_string().len(),
        AnswerForm::Text | AnswerForm::JsonObject | AnswerForm::Regex(_) => 0,
    };
    words + schema
}

/// What messages are taken for: their words and their images.
pub(crate) fn tokens_of(messages: &[Message]) -> u64 {
    let words: usize = messages.iter().map(Message::text_bytes).sum();
    let images: usize = messages.iter().map(Message::image_count).sum();
    (words as u64).div_ceil(BYTES_PER_TOKEN) + images as u64 * IMAGE_TOKENS
}

/// What a prompt is taken for: its words, its pictures, and the schema of the answer, which vendors put before it.
pub(super) fn prompt_tokens(request: &ChatRequest) -> u64 {
    let images: usize = request.messages.iter().map(Message::image_count).sum();
    (prompt_bytes(request) as u64).div_ceil(BYTES_PER_TOKEN) + images as u64 * IMAGE_TOKENS
}

/// What a call may take of its worker's limits.
pub(super) fn estimate(request: &ChatRequest) -> TokenEstimate {
    TokenEstimate { input: prompt_tokens(request), output_max: request.output_tokens_max.into() }
}

/// The most that a call is expected to cost that begins at `at`: its prompt, generously counted, and every token it may write.
pub(super) fn most_cost(worker: &Worker, request: &ChatRequest, at: Timestamp) -> Cost {
    let prompt_tokens = prompt_tokens(request).saturating_mul(2);
    worker.prices.at(at).most_cost(prompt_tokens, request.output_tokens_max.into())
}

/// The prices of an attempt: those that were valid when it began.
pub(super) fn prices<'w>(worker: &'w Worker, run: &Run, task: TaskRef, claim: ClaimId) -> &'w PriceList {
    let attempt = run.task(task).and_then(|task| task.attempt(claim));
    attempt.map_or(worker.prices.latest(), |attempt| worker.prices.at(attempt.started_at))
}
