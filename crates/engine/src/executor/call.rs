//! One call of a worker: its text goes to whoever watches while it comes, and ends as a result or as a reason.

use std::time::Duration;

use futures::StreamExt;
use podium_domain::ids::{ClaimId, StepIndex};
use podium_domain::money::{Cost, Prices};
use podium_domain::pool::Worker;
use podium_domain::run::{FinishReason, Run, StepResult, TaskRef};
use podium_domain::time::Timestamp;
use podium_domain::usage::Usage;
use podium_ports::limiter::{Outcome, Permit, Settlement, TokenEstimate, outcome_of};
use podium_ports::live::{Frame, Signal};
use podium_ports::vendor::{ChatEvent, ChatRequest, VendorError};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::holds::Held;
use crate::parts::Parts;

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
        usage: Usage,
    },
    /// The claim was lost meanwhile.
    Lost {
        /// What it consumed.
        usage: Usage,
    },
    /// The executor must stop.
    Abandoned {
        /// What it consumed.
        usage: Usage,
    },
}

/// What may be done about a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cure {
    /// The same again, after so long at the earliest; or by another worker.
    Again(Duration),
    /// The same by another worker.
    Elsewhere,
    /// Nothing: it is the request's own fault.
    Nothing,
}

/// A call to be made under a claim.
pub(super) struct Call<'a> {
    pub(super) parts: &'a Parts,
    pub(super) run: &'a Run,
    pub(super) worker: &'a Worker,
    pub(super) at: (u16, StepIndex),
    pub(super) claim: ClaimId,
}

/// What has come so far.
struct Progress {
    began: Timestamp,
    first_token_ms: Option<u64>,
    text: String,
    prompt_tokens: u64,
    /// What the limiter is to be told. Of a call that is broken off, nothing is known.
    settlement: Settlement,
}

impl Progress {
    /// What the call has consumed by now, where the vendor did not say. Nothing before the first token: vendors bill from
    /// then on.
    fn estimate(&self) -> Usage {
        if self.first_token_ms.is_none() {
            return Usage::default();
        }
        let completion_tokens = (self.text.len() as u64).div_ceil(BYTES_PER_TOKEN);
        Usage { prompt_tokens: self.prompt_tokens, completion_tokens, ..Usage::default() }
    }

    fn failed(&self, message: String, cure: Cure) -> Ended {
        Ended::Failed { message, cure, usage: self.estimate() }
    }
}

impl Call<'_> {
    /// Makes the call and settles its permit.
    pub(super) async fn make(
        &self,
        request: &ChatRequest,
        permit: Box<dyn Permit>,
        held: &Held,
        abandon: &CancellationToken,
    ) -> Ended {
        let mut progress = Progress {
            began: self.parts.clock.now(),
            first_token_ms: None,
            text: String::new(),
            prompt_tokens: prompt_tokens(request),
            settlement: Settlement::default(),
        };
        let ended = tokio::select! {
            // A result that is there was paid for, whatever else has happened.
            biased;
            ended = self.stream(request, &mut progress) => ended,
            () = held.lost() => Ended::Lost { usage: progress.estimate() },
            () = abandon.cancelled() => Ended::Abandoned { usage: progress.estimate() },
        };
        let first_token = progress.first_token_ms.map(Duration::from_millis);
        permit.settle(Settlement { first_token, ..progress.settlement });
        ended
    }

    async fn stream(&self, request: &ChatRequest, progress: &mut Progress) -> Ended {
        let mut events = match self.parts.vendors.chat(self.worker, request).await {
            Ok(events) => events,
            Err(error) => return vendor_failure(progress, &error),
        };
        while let Some(event) = events.next().await {
            match event {
                // No tool was offered, and nobody watches a worker reason.
                Ok(
                    ChatEvent::Started { .. }
                    | ChatEvent::Reasoning(_)
                    | ChatEvent::ReasoningSealed(_)
                    | ChatEvent::ToolCall(_),
                ) => {}
                Ok(ChatEvent::Quota(quota)) => progress.settlement.quota = quota,
                Ok(ChatEvent::Delta(text)) => {
                    if let Err(ended) = self.delta(text, progress).await {
                        return ended;
                    }
                }
                Ok(ChatEvent::Finished { reason, usage }) => return self.finished(reason, usage, progress),
                Err(error) => return vendor_failure(progress, &error),
            }
        }
        progress.settlement.outcome = Outcome::Failed;
        progress.failed("the vendor's answer ended early".to_owned(), Cure::Again(Duration::ZERO))
    }

    async fn delta(&self, text: String, progress: &mut Progress) -> Result<(), Ended> {
        if text.is_empty() {
            return Ok(());
        }
        if progress.first_token_ms.is_none() {
            progress.first_token_ms = Some(self.elapsed_ms(progress));
        }
        let bytes_max = self.run.spec().policy.output_bytes_max;
        if progress.text.len() + text.len() > bytes_max {
            progress.settlement.outcome = Outcome::Refused;
            progress.settlement.usage = Some(progress.estimate());
            let message = format!("the output exceeds output_bytes_max of {bytes_max}");
            return Err(progress.failed(message, Cure::Nothing));
        }
        let (round, step) = self.at;
        let offset = progress.text.len() as u64;
        progress.text.push_str(&text);
        let signal = Signal::Frame(Frame { round, step, claim: self.claim, offset, text });
        if let Err(error) = self.parts.live.publish(self.run.id(), signal).await {
            debug!(run = %self.run.id(), %error, "watchers were not told");
        }
        Ok(())
    }

    fn finished(&self, finish: FinishReason, usage: Option<Usage>, progress: &mut Progress) -> Ended {
        let usage = usage.unwrap_or_else(|| progress.estimate());
        progress.settlement.outcome = Outcome::Answered;
        progress.settlement.usage = Some(usage);
        if progress.text.trim().is_empty() {
            let message = format!("worker `{}` gave an empty answer", self.worker.id);
            return Ended::Failed { message, cure: Cure::Again(Duration::ZERO), usage };
        }
        Ended::Finished(StepResult {
            output: std::mem::take(&mut progress.text),
            usage,
            cost: prices(self.worker, self.run, self.task(), self.claim).cost(&usage),
            finish,
            first_token_ms: progress.first_token_ms,
            saved: None,
        })
    }

    fn task(&self) -> TaskRef {
        TaskRef::Step { round: self.at.0, step: self.at.1 }
    }

    fn elapsed_ms(&self, progress: &Progress) -> u64 {
        u64::try_from(self.parts.clock.now().since(progress.began).as_millis()).unwrap_or(u64::MAX)
    }
}

fn vendor_failure(progress: &mut Progress, error: &VendorError) -> Ended {
    progress.settlement.outcome = outcome_of(error);
    if progress.settlement.outcome == Outcome::Refused || progress.first_token_ms.is_some() {
        progress.settlement.usage = Some(progress.estimate());
    }
    let cure = if error.is_retryable() {
        Cure::Again(error.retry_after().unwrap_or_default())
    } else if error.is_workers_own() {
        Cure::Elsewhere
    } else {
        Cure::Nothing
    };
    let mut message = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        message = format!("{message}: {source}");
    }
    progress.failed(message, cure)
}

pub(super) fn prompt_tokens(request: &ChatRequest) -> u64 {
    let bytes: u64 = request.messages.iter().map(|message| message.text.len() as u64).sum();
    bytes.div_ceil(BYTES_PER_TOKEN)
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
pub(super) fn prices<'w>(worker: &'w Worker, run: &Run, task: TaskRef, claim: ClaimId) -> &'w Prices {
    let attempt = run.task(task).and_then(|task| task.attempt(claim));
    attempt.map_or(worker.prices.latest(), |attempt| worker.prices.at(attempt.started_at))
}
