//! One call of a worker: its text is published while it arrives, and the call ends with a result or a reason.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use podium_domain::ids::ClaimId;
use podium_domain::policy::BrokenAnswer;
use podium_domain::run::{FinishReason, Run, StepRef, StepResult};
use podium_domain::time::Timestamp;
use podium_domain::token_estimate::text_tokens;
use podium_domain::usage::{Spent, Usage};
use podium_ports::causes::with_causes;
use podium_ports::limiter::{Outcome, Permit, Settlement, outcome_of};
use podium_ports::live::{Frame, Signal};
use podium_ports::vendor::{ChatEvent, ChatStream, NoText, VendorError, Vendors};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::fallback;
use super::step_call::StepCall;
use super::written::{Written, WrittenParts};
use crate::claims::claim::Claimed;
use crate::context::Context;
use crate::live_text::Piece;
use crate::metrics::CallMeter;
use crate::token_estimates::{bounded, prompt_tokens};

/// The end of a call.
pub(super) enum Ended {
    /// It has an output.
    Finished(StepResult),
    /// It has no usable output.
    Failed { message: String, cure: Cure, spent: Spent },
    /// The claim was lost meanwhile, or the executor must stop.
    Aborted { spent: Spent },
}

/// The remedy for a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cure {
    /// The same call, after this time at the earliest; or another worker.
    Again(Duration),
    /// The same call, after this time at the earliest. The vendor asked to slow down, so the attempt does not count.
    Limited(Duration),
    /// Another worker.
    Elsewhere,
    /// None: the request itself is invalid.
    Nothing,
}

/// A call to be made under a claim.
pub(super) struct ClaimedCall<'a> {
    pub(super) context: &'a Context,
    pub(super) vendors: &'a Arc<dyn Vendors>,
    pub(super) call: &'a StepCall,
    pub(super) claimed: &'a Claimed,
}

/// A call in flight: the output so far, and the permit until it is settled.
struct Progress<'a> {
    context: &'a Context,
    call: &'a StepCall,
    began: Timestamp,
    first_token_at: Option<Timestamp>,
    written: Written,
    /// The stop sequence of the request that ended the output, if the vendor named it.
    stop_sequence: Option<String>,
    /// Whether it failed after its output had begun, in a way that a retry may cure.
    broke_off: bool,
    /// The report to the limiter. The outcome of an aborted call is unknown.
    settlement: Settlement,
    permit: Option<Box<dyn Permit>>,
}

impl Ended {
    /// Forbids a retry with the same worker, because the incomplete output is already paid for.
    fn not_again(&mut self) {
        if let Self::Failed { message, cure: cure @ Cure::Again(_), .. } = self {
            message.push_str("; not tried again: its answer had begun");
            *cure = Cure::Elsewhere;
        }
    }
}

impl<'a> Progress<'a> {
    fn begin(context: &'a Context, call: &'a StepCall, permit: Box<dyn Permit>) -> Self {
        Self {
            context,
            call,
            began: context.now(),
            first_token_at: None,
            written: Written::of_step(&call.run, call.step),
            stop_sequence: None,
            broke_off: false,
            settlement: Settlement::default(),
            permit: Some(permit),
        }
    }

    /// Settles the permit and measures the call, once.
    fn settle(&mut self) {
        if let Some(permit) = self.permit.take() {
            let first_token = self.first_token_at.map(|at| at.since(self.began));
            let settlement = Settlement { first_token, ..self.settlement };
            permit.settle(settlement);
            let took = self.context.now().since(self.began);
            self.context.metrics().calls().ended(&self.call.worker.id, CallMeter { took, settlement });
        }
    }

    /// Whether the vendor has written billable output.
    fn has_output(&self) -> bool {
        self.first_token_at.is_some() || self.written.has_hidden()
    }

    /// The estimated usage so far, if the vendor did not report it. It is zero before the first output, because vendors bill from
    /// then on.
    fn usage(&self) -> Usage {
        if !self.has_output() {
            return Usage::NONE;
        }
        Usage {
            prompt_tokens: prompt_tokens(&self.call.request),
            completion_tokens: text_tokens(self.written.all_bytes()),
            ..Usage::NONE
        }
    }

    fn first_token_ms(&self) -> Option<u64> {
        let first = self.first_token_at?.since(self.began);
        Some(u64::try_from(first.as_millis()).unwrap_or(u64::MAX))
    }
}

impl ClaimedCall<'_> {
    /// Makes the call and settles its permit. The call is aborted if its claim is lost or the executor must stop.
    pub(super) async fn make(&self, permit: Box<dyn Permit>, abandon: &CancellationToken) -> Ended {
        let mut progress = Progress::begin(self.context, self.call, permit);
        let mut ended = tokio::select! {
            // A result that has arrived is paid for, so it is checked first.
            biased;
            ended = self.answer(&mut progress) => ended,
            () = self.claimed.guard.lost() => self.aborted(&progress),
            () = abandon.cancelled() => self.aborted(&progress),
        };
        progress.settle();
        if progress.broke_off && self.run().spec().request.policy.broken_answer == BrokenAnswer::Elsewhere {
            ended.not_again();
        }
        ended
    }

    /// Sends the request, and publishes the text as it arrives until it ends.
    async fn answer(&self, progress: &mut Progress<'_>) -> Ended {
        let mut events = match self.vendors.chat(&self.call.worker, &self.call.request).await {
            Ok(events) => events,
            Err(error) => return self.vendor_failure(progress, &error),
        };
        loop {
            let piece = match self.next(&mut events, progress).await {
                Ok(piece) => piece,
                Err(ended) => return ended,
            };
            if !matches!(piece, Piece::Reasoning(_)) {
                progress.first_token_at.get_or_insert_with(|| self.context.now());
            }
            if let Err(ended) = self.show(&piece, progress).await {
                return ended;
            }
        }
    }

    /// The next piece of output, or how the call ended.
    async fn next(&self, events: &mut ChatStream, progress: &mut Progress<'_>) -> Result<Piece, Ended> {
        while let Some(event) = events.next().await {
            let written = &mut progress.written;
            match event {
                Ok(ChatEvent::Reasoning(text)) => {
                    if written.think(&text) {
                        return Ok(Piece::Reasoning(text));
                    }
                }
                Ok(ChatEvent::ReasoningSealed(seal)) => written.seal(seal),
                Ok(ChatEvent::Unread(bytes)) => written.add_unread(bytes),
                Ok(ChatEvent::Quota(quota)) => progress.settlement.quota = quota,
                Ok(ChatEvent::Delta(text)) if text.is_empty() => {}
                Ok(ChatEvent::Delta(text)) => return Ok(Piece::Text(text)),
                Ok(ChatEvent::ToolCallBegun { index, name }) if written.takes_call(index) => {
                    return Ok(Piece::CallBegun { index, name });
                }
                Ok(ChatEvent::ToolArguments { index, text }) if written.takes_call(index) => {
                    return Ok(Piece::Arguments { index, text });
                }
                // Servers may have stop sequences of their own, which the client does not know.
                Ok(ChatEvent::StopSequence(stop)) if self.call.request.stops.contains(&stop) => {
                    progress.stop_sequence = Some(stop);
                }
                Ok(
                    ChatEvent::Started { .. }
                    | ChatEvent::ToolCallBegun { .. }
                    | ChatEvent::ToolArguments { .. }
                    | ChatEvent::StopSequence(_),
                ) => {}
                Ok(ChatEvent::ToolCall(call)) => {
                    progress.first_token_at.get_or_insert_with(|| self.context.now());
                    written.add_call(call);
                    if let Some(ended) = self.exceeded(0, progress) {
                        return Err(ended);
                    }
                }
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

    /// Whether the step is certainly not the answer. That is known only when its plan is complete.
    fn is_inner(&self) -> bool {
        let (step, run) = (self.call.step, self.run());
        let is_planned =
            run.rounds().get(usize::from(step.round)).is_some_and(|round| round.plan().is_some());
        let is_answer = step.round + 1 >= run.spec().request.policy.rounds_max
            && run.is_final_step(step.round, step.step);
        is_planned && !is_answer
    }

    /// The end of the call if its output and `more` bytes exceed the limit of the policy.
    fn exceeded(&self, more: usize, progress: &mut Progress<'_>) -> Option<Ended> {
        let bytes_max = self.run().spec().request.policy.output_bytes_max;
        if progress.written.bytes() + more <= bytes_max {
            return None;
        }
        progress.settlement.outcome = Outcome::Refused;
        progress.settlement.usage = Some(progress.usage());
        let message = format!("the output exceeds output_bytes_max of {bytes_max}");
        Some(self.failed(progress, message, Cure::Nothing))
    }

    /// Publishes a piece of output.
    async fn show(&self, piece: &Piece, progress: &mut Progress<'_>) -> Result<(), Ended> {
        let bytes = match piece {
            Piece::Text(text) | Piece::CallBegun { name: text, .. } | Piece::Arguments { text, .. } => {
                text.len()
            }
            // It has a limit of its own.
            Piece::Reasoning(_) => 0,
        };
        if let Some(ended) = self.exceeded(bytes, progress) {
            return Err(ended);
        }
        let (offset, text) = progress.written.add(piece);
        let StepRef { round, step } = self.call.step;
        let frame = Frame { round, step, claim: self.claim(), offset, text };
        let (live, run) = (&self.context.parts().live, self.run().id());
        let published = if self.is_inner() {
            live.publish_inner(run, frame).await
        } else {
            live.publish(run, Signal::Frame(frame)).await
        };
        if let Err(error) = published {
            debug!(%run, %error, "watchers were not notified");
        }
        Ok(())
    }

    fn finished(&self, finish: FinishReason, usage: Option<Usage>, progress: &mut Progress<'_>) -> Ended {
        let usage = usage.map_or_else(|| progress.usage(), |usage| self.plausible(usage));
        progress.settlement.outcome = Outcome::Answered;
        progress.settlement.usage = Some(usage);
        let spent = self.priced(usage);
        if progress.written.is_blank()
            && let Some((message, cure)) = self.without_text(finish, usage)
        {
            return Ended::Failed { message, cure, spent };
        }
        let written = std::mem::replace(&mut progress.written, Written::of_call(None));
        let WrittenParts { text: output, calls, reasoning, reasoning_text } = written.into_parts();
        let first_token_ms = progress.first_token_ms();
        Ended::Finished(StepResult {
            output,
            calls,
            reasoning,
            reasoning_text,
            spent,
            finish,
            stop_sequence: progress.stop_sequence.take(),
            first_token_ms,
            saved: None,
        })
    }

    /// The error of an answer without text, and its remedy. Three kinds of answers without text are results: a worker declined, which
    /// the run records; a stop sequence may have ended the answer before its first word; or reasoning used up the limit that the
    /// client set, and no other worker can be tried.
    fn without_text(&self, finish: FinishReason, usage: Usage) -> Option<(String, Cure)> {
        let worker = &self.call.worker.id;
        match NoText::of(finish) {
            NoText::Declined => None,
            // A stop sequence may be the first thing that a worker writes. Not every vendor says that one was found.
            NoText::Empty if finish == FinishReason::Stop && !self.call.request.stops.is_empty() => None,
            NoText::LimitUsedUp if self.is_client_limit() && !self.may_go_elsewhere() => None,
            NoText::LimitUsedUp => {
                let tokens = usage.completion_tokens;
                let message = format!(
                    "worker `{worker}` used up its output limit before any text ({tokens} tokens, finish reason length)"
                );
                // Another worker may reason less. After two workers, no other one is tried.
                Some((message, if self.has_fallen_back() { Cure::Nothing } else { Cure::Elsewhere }))
            }
            NoText::Empty => {
                Some((format!("worker `{worker}` gave an empty answer"), Cure::Again(Duration::ZERO)))
            }
        }
    }

    fn has_fallen_back(&self) -> bool {
        let step = self.call.step;
        let round = self.run().rounds().get(usize::from(step.round));
        let found = round.and_then(|round| round.steps.get(step.step.as_usize()));
        found.is_some_and(|step| step.fallbacks > 0)
    }

    /// Whether another worker may do the step after an answer without text.
    fn may_go_elsewhere(&self) -> bool {
        !self.has_fallen_back()
            && self.run().can_fall_back(self.call.task())
            && fallback::next(self.context.pool(), self.call).is_some()
    }

    /// Whether the client set the limit of tokens of this call, below that of the worker.
    fn is_client_limit(&self) -> bool {
        let limit = self.run().answer_tokens_max_of(self.call.step);
        limit.is_some_and(|limit| limit < self.call.worker.output_tokens_max)
    }

    /// The usage that a vendor reported, but at most what the call can have used. A higher number is the vendor's error, and must not
    /// empty a budget or block a worker. A prompt has at least one token: if the vendor reported none, it did not count the prompt, and
    /// its tokens are estimated.
    fn plausible(&self, reported: Usage) -> Usage {
        let prompt_tokens = match reported.prompt_tokens {
            0 => prompt_tokens(&self.call.request),
            counted => counted,
        };
        let reported = Usage { prompt_tokens, ..reported };
        let bounded = bounded(reported, &self.call.request);
        if bounded != reported {
            let worker = &self.call.worker.id;
            warn!(%worker, ?reported, ?bounded, "the vendor reported more usage than the call can have taken");
            self.context.metrics().calls().misreported(worker);
        }
        bounded
    }

    fn vendor_failure(&self, progress: &mut Progress<'_>, error: &VendorError) -> Ended {
        progress.settlement.outcome = outcome_of(error);
        if progress.settlement.outcome == Outcome::Refused || progress.has_output() {
            progress.settlement.usage = Some(progress.usage());
        }
        let cure = match error {
            VendorError::Throttled { retry_after, .. } if !progress.has_output() => {
                Cure::Limited(retry_after.unwrap_or_default())
            }
            error if error.is_retryable() => {
                progress.broke_off = progress.has_output();
                Cure::Again(error.retry_after().unwrap_or_default())
            }
            error if error.is_workers_own() => Cure::Elsewhere,
            _ => Cure::Nothing,
        };
        let mut message = with_causes(&error);
        if self.run().spec().key.is_some() {
            warn!(run = %self.run().id(), worker = %self.call.worker.id, error = message, "a call failed");
            message = error.for_tenant();
        }
        self.failed(progress, message, cure)
    }

    fn failed(&self, progress: &Progress<'_>, message: String, cure: Cure) -> Ended {
        Ended::Failed { message, cure, spent: self.priced(progress.usage()) }
    }

    fn aborted(&self, progress: &Progress<'_>) -> Ended {
        Ended::Aborted { spent: self.priced(progress.usage()) }
    }

    fn priced(&self, usage: Usage) -> Spent {
        Spent { usage, cost: self.call.prices(self.claim()).cost(&usage) }
    }

    fn run(&self) -> &Run {
        &self.call.run
    }

    fn claim(&self) -> ClaimId {
        self.claimed.claim
    }
}
