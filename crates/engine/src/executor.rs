//! Running steps: take the worker's budget, claim, call, stream, record. It holds nothing that a crash could lose.
//!
//! When a step's result readies another step and there are a slot and a permit for that one here, it is claimed in the commit of
//! the result and called at once: a commit and a message less. A crash in between is a lease that runs out, as ever.
//!
//! The permit is acquired before the claim is committed, so a step that waits for capacity holds nothing.

mod cache_key;
pub(crate) mod call;
mod chain;
mod fallback;
pub(crate) mod retry;
pub(crate) mod retry_budget;
mod step_cache;

use std::sync::Arc;
use std::time::Duration;

use podium_domain::answer::AnswerForm;
use podium_domain::ids::StepIndex;
use podium_domain::money::Cost;
use podium_domain::pool::Worker;
use podium_domain::prompt;
use podium_domain::run::{AttemptError, Command, Run, Task, TaskRef, TaskState};
use podium_domain::sampling::Sampling;
use podium_domain::time::Timestamp;
use podium_domain::usage::Spent;
use podium_ports::limiter::{CallWish, Grant, Outcome, Patience, Permit, Settlement, Why};
use podium_ports::queue::{Lane, TaskMessage};
use podium_ports::store::StoreError;
use podium_ports::vendor::ChatRequest;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::commit::InHand;
use crate::engine::Engine;
use crate::executor::call::{Call, Cure, Ended};
use crate::executor::fallback::Shut;
use crate::executor::retry_budget::RetryBudgets;
use crate::lanes::task::{Acked, Claimed, Settle, Slot, Slots, Work, serve_lane};

/// Serves the lanes of steps.
#[derive(Clone)]
pub(crate) struct Executor {
    engine: Engine,
    slots: Slots,
    retries: Arc<RetryBudgets>,
    stop: CancellationToken,
}

/// A step in hand, and all that its call needs.
pub(crate) struct Step {
    claimed: Claimed,
    at: (u16, StepIndex),
    worker: Worker,
    permit: Box<dyn Permit>,
    slot: Slot,
}

/// A step that there is room for.
struct Cleared {
    worker: Worker,
    permit: Box<dyn Permit>,
    /// The most that the call may cost.
    reserve: Cost,
    /// What has to be carried out before it is claimed.
    first: Option<Command>,
}

/// There is no room for a call now.
struct NoRoom {
    /// Why not; nothing where the limiter failed.
    why: Option<Why>,
    /// When to ask again.
    after: Duration,
}

impl Executor {
    /// Begins no further step by itself after `stop`.
    pub(crate) fn new(engine: Engine, slots: Slots, stop: CancellationToken) -> Self {
        let retries = Arc::new(RetryBudgets::new(engine.options().retries));
        Self { engine, slots, retries, stop }
    }

    pub(crate) async fn run(self, lane: Lane, abandon: CancellationToken) {
        let (engine, served, stop) = (self.engine.clone(), (lane, self.slots.clone()), self.stop.clone());
        serve_lane(engine, served, self, stop, abandon).await;
    }

    /// Room for a step's call of `worker`.
    async fn permit(
        &self,
        run: &Run,
        at: (u16, StepIndex),
        (worker, request): (&Worker, &ChatRequest),
        patience: Patience,
    ) -> Result<Box<dyn Permit>, NoRoom> {
        let wish = CallWish {
            worker,
            tenant: &run.spec().tenant,
            tier: run.spec().policy.tier,
            run: run.id(),
            task: TaskRef::Step { round: at.0, step: at.1 },
            estimate: call::estimate(request),
            patience,
        };
        let permit = match self.engine.parts().limiter.acquire(&wish).await {
            Ok(Grant::Permit(permit)) => Ok(permit),
            Ok(Grant::AskAgain { after, why }) => Err(NoRoom { why: Some(why), after }),
            Err(error) => {
                warn!(worker = %worker.id, error = &error as &dyn std::error::Error, "the limiter failed");
                Err(NoRoom { why: None, after: self.engine.options().retry_pause })
            }
        };
        self.engine.metrics().asked(&worker.id, permit.as_ref().map(drop).map_err(|refused| refused.why));
        permit
    }

    /// The run that a message is about, if the step may be ready.
    async fn run_of(&self, message: TaskMessage) -> Result<Arc<Run>, Settle> {
        let is_ready = |run: &Run| {
            run.task(message.task).is_some_and(|task| matches!(task.state, TaskState::Ready { .. }))
        };
        if let Some(run) = self.engine.known().get(message.run).filter(|run| is_ready(run)) {
            return Ok(run);
        }
        let run = match self.engine.run(message.run).await {
            Ok(Some(run)) => Arc::new(run),
            Ok(None) => return Err(Settle::Ack),
            Err(error @ StoreError::Inconsistent { .. }) => {
                self.engine.unreadable().note(message.run, &error);
                return Err(Settle::Unreadable);
            }
            Err(error) => {
                warn!(run = %message.run, error = &error as &dyn std::error::Error, "could not load");
                return Err(Settle::Nak(self.engine.options().retry_pause));
            }
        };
        self.engine.known().note(&run);
        let may_run = run.task(message.task).is_some_and(|task| !task.state.is_final());
        if may_run { Ok(run) } else { Err(Settle::Ack) }
    }

    async fn claim(
        &self,
        message: TaskMessage,
        slot: Slot,
        abandon: &CancellationToken,
    ) -> Result<Step, Settle> {
        let TaskRef::Step { round, step } = message.task else { return Err(Settle::Ack) };
        let (engine, at) = (&self.engine, (round, step));
        let in_hand = InHand { task: message.task, lane: slot.lane.clone() };
        let run = self.run_of(message).await?;
        let named = run.worker_of(message.task).ok_or(Settle::Ack)?;
        let Some(worker) = engine.pool().worker(named) else {
            let text = format!("the pool has no worker `{named}`");
            return Err(self.leave(&run, text, (&in_hand, abandon)).await);
        };
        if !worker.prices.is_valid_at(engine.now()) {
            let text = format!("worker `{}` has no price list that is valid yet", worker.id);
            return Err(self.leave(&run, text, (&in_hand, abandon)).await);
        }
        let request = request(&run, at, worker).ok_or(Settle::Ack)?;
        let recall = self.recall(&run, at, (worker, &request));
        self.answer_known(recall.as_ref(), (&in_hand, abandon)).await?;
        let cleared = self.clear(&run, at, (worker, &request), (&in_hand, abandon)).await?;
        let Cleared { worker, permit, reserve, first } = cleared;
        match engine.claim_after(run.id(), first, &in_hand, reserve).await {
            Ok(claimed) => Ok(Step { claimed, at, worker, permit, slot }),
            Err(settle) => {
                permit.settle(Settlement::of(Outcome::NotSent));
                Err(settle)
            }
        }
    }

    /// Gives a step back that was not called for.
    async fn hand_back(&self, claimed: &Claimed, acked: &Acked, abandon: &CancellationToken) {
        let hand_back = Command::HandBack { task: claimed.task, claim: claimed.claim, spent: Spent::NONE };
        acked.settled().await;
        self.engine.record_both(claimed.run.id(), (hand_back, None), None, abandon).await;
    }

    /// Finds room for a step: with its worker, or, where nobody is let through to that one, with the next that may stand in.
    async fn clear(
        &self,
        run: &Run,
        at: (u16, StepIndex),
        asked: (&Worker, &ChatRequest),
        in_hand: (&InHand, &CancellationToken),
    ) -> Result<Cleared, Settle> {
        let (worker, request) = asked;
        let task = TaskRef::Step { round: at.0, step: at.1 };
        if !fallback::fits(worker, request) {
            let may_go = run.can_fall_back(task)
                && fallback::candidates(self.engine.pool(), run, task, asked).next().is_some();
            if !may_go {
                return Err(self.fail(run, fallback::too_long(worker, request), in_hand).await);
            }
            let shut = Shut::by_context(worker, request, self.engine.options().retry_pause);
            return self.go_round(run, at, asked, shut).await;
        }
        match self.permit(run, at, asked, Patience::Waits).await {
            Ok(permit) => Ok(self.cleared(run, at, asked, permit)),
            Err(NoRoom { why: Some(why), after }) if self.is_shut(run, why, after) => {
                self.go_round(run, at, asked, Shut::by_limiter(worker, why, after)).await
            }
            Err(NoRoom { after, .. }) => Err(Settle::Nak(after)),
        }
    }

    /// Whether to wait for the worker is of no use: calls of it fail, or its vendor wants to be left alone for longer than the
    /// run has time.
    fn is_shut(&self, run: &Run, why: Why, after: Duration) -> bool {
        match why {
            Why::Broken => true,
            Why::Blocked => self.engine.now().after(after) >= run.spec().deadline_at,
            Why::Busy | Why::Rate | Why::Away => false,
        }
    }

    fn cleared(
        &self,
        run: &Run,
        at: (u16, StepIndex),
        (worker, request): (&Worker, &ChatRequest),
        permit: Box<dyn Permit>,
    ) -> Cleared {
        self.waited(run, TaskRef::Step { round: at.0, step: at.1 });
        let reserve = call::most_cost(worker, request, self.engine.now());
        Cleared { worker: worker.clone(), permit, reserve, first: None }
    }

    /// A step that was ready has its permit.
    fn waited(&self, run: &Run, task: TaskRef) {
        if let Some(TaskState::Ready { not_before }) = run.task(task).map(|task| &task.state) {
            self.engine.metrics().waited(run.spec().policy.tier, self.engine.now().since(*not_before));
        }
    }

    /// Leaves a step to executors that have its worker, and fails it when the deadline is near.
    async fn leave(&self, run: &Run, message: String, in_hand: (&InHand, &CancellationToken)) -> Settle {
        match self.engine.leave_to_others(run) {
            Some(settle) => {
                debug!(run = %run.id(), reason = message, "the step is left to other executors");
                settle
            }
            None => self.fail(run, message, in_hand).await,
        }
    }

    /// Fails a step that no worker can be called for.
    async fn fail(
        &self,
        run: &Run,
        message: String,
        (in_hand, abandon): (&InHand, &CancellationToken),
    ) -> Settle {
        let task = in_hand.task;
        let claimed = match self.engine.claim(run.id(), in_hand).await {
            Ok(claimed) => claimed,
            Err(settle) => return settle,
        };
        let (retry_at, fall_back_to, spent) = (None, None, Spent::NONE);
        let error = AttemptError { message, retry_at, is_rate_limit: false, fall_back_to, spent };
        let command = Command::FailAttempt { task, claim: claimed.claim, error };
        self.engine.record(run.id(), command, in_hand, abandon).await
    }

    /// Calls the step's worker and records what came of it, together with the claim of a step that can be next.
    async fn call(&self, step: Step, acked: &Acked, abandon: &CancellationToken) -> Option<Step> {
        let Step { claimed, at, worker, permit, slot } = step;
        if claimed.run.worker_of(claimed.task) != Some(&worker.id) {
            // Somebody else tried meanwhile, and the step goes on with another worker: another lane's permit is needed.
            permit.settle(Settlement::of(Outcome::NotSent));
            self.hand_back(&claimed, acked, abandon).await;
            return None;
        }
        // What the step sees may have failed or changed since the run was loaded: ask by what the claim was granted on.
        let Some(request) = request(&claimed.run, at, &worker) else {
            permit.settle(Settlement::of(Outcome::NotSent));
            return None;
        };
        let call = Call {
            parts: self.engine.parts(),
            metrics: self.engine.metrics(),
            run: &claimed.run,
            worker: &worker,
            at,
            claim: claimed.claim,
            request: &request,
        };
        self.retries.called(&worker.id, self.engine.now());
        let key = self.key_of(&claimed.run, (&worker, &request));
        let ended = call.make(permit, (&claimed.held, abandon)).await;
        self.keep(key, &ended).await;
        let command = self.command_for(&claimed, at, (&worker, &request), ended);
        if !matches!(command, Command::CompleteStep { .. }) {
            acked.settled().await;
        }
        let next = self.next_after(&claimed.run, &command, &slot.lane).await;
        let then = next.as_ref().map(|next| next.wish.command());
        let (_, run) = self.engine.record_both(claimed.run.id(), (command, then), None, abandon).await;
        next.zip(run).and_then(|(next, run)| self.begin_next(next, run, slot))
    }

    fn command_for(
        &self,
        claimed: &Claimed,
        (round, step): (u16, StepIndex),
        (worker, request): (&Worker, &ChatRequest),
        ended: Ended,
    ) -> Command {
        let (task, claim) = (claimed.task, claimed.claim);
        match ended {
            Ended::Finished(result) => Command::CompleteStep { round, step, claim, result },
            Ended::Failed { mut message, cure, spent } => {
                let is_rate_limit = matches!(cure, Cure::Limited(_));
                let retry_at = self.retry_at(claimed, worker, cure, &mut message);
                let asked = (worker, request);
                let elsewhere = || fallback::next(self.engine.pool(), &claimed.run, task, asked);
                let fall_back_to = if cure == Cure::Nothing { None } else { elsewhere() };
                let error = AttemptError { message, retry_at, is_rate_limit, fall_back_to, spent };
                Command::FailAttempt { task, claim, error }
            }
            // Fenced: of a claim that was really lost, only the cost is recorded.
            Ended::Lost { spent } | Ended::Abandoned { spent } => Command::HandBack { task, claim, spent },
        }
    }
}

impl Executor {
    /// When the worker is to be asked again, if at all. Where only its budget of retries forbids it, the message says so.
    fn retry_at(
        &self,
        claimed: &Claimed,
        worker: &Worker,
        cure: Cure,
        message: &mut String,
    ) -> Option<Timestamp> {
        let (task, options, now) = (claimed.run.task(claimed.task), self.engine.options(), self.engine.now());
        let asked = match cure {
            Cure::Again(asked) => asked,
            // Its limits are the limiter's to keep. The pauses grow with all attempts, so that their number stays small.
            Cure::Limited(asked) => {
                let made = task.map_or(1, Task::attempt_number);
                return Some(now.after(retry::pause(options, made, claimed.claim, asked)));
            }
            Cure::Elsewhere | Cure::Nothing => return None,
        };
        let made = task.map_or(1, |task| task.attempts_with(Some(&worker.id)));
        if made < claimed.run.spec().policy.attempts_max && !self.retries.take(&worker.id, now) {
            message.push_str("; not tried again: the worker's budget of retries is used up");
            return None;
        }
        Some(now.after(retry::pause(options, made, claimed.claim, asked)))
    }
}

impl Work for Executor {
    type Task = Step;

    async fn take(
        &self,
        message: TaskMessage,
        slot: Slot,
        abandon: &CancellationToken,
    ) -> Result<Step, Settle> {
        self.claim(message, slot, abandon).await
    }

    async fn carry_out(&self, step: Step, acked: &Acked, abandon: &CancellationToken) -> Option<Step> {
        self.call(step, acked, abandon).await
    }
}

/// What a step's worker is asked.
fn request(run: &Run, (round, step): (u16, StepIndex), worker: &Worker) -> Option<ChatRequest> {
    let spec = run.spec();
    let is_final = run.is_final_step(round, step);
    let answer_tokens_max = spec.answer_tokens_max.filter(|_| is_final).unwrap_or(u32::MAX);
    let answer = if is_final { spec.answer.clone() } else { AnswerForm::Text };
    let stops = if is_final { spec.stops.as_slice() } else { &[] };
    let messages = prompt::for_worker(run, round, step)?;
    let Sampling { temperature, top_p, seed } = spec.sampling.for_worker(worker);
    Some(ChatRequest {
        temperature,
        top_p,
        seed,
        stops: stops.to_vec(),
        answer,
        effort: worker.takes_effort().then_some(spec.policy.effort),
        ..ChatRequest::new(messages, worker.output_tokens_max.min(answer_tokens_max))
    })
}
