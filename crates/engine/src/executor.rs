//! The executor serves the lanes of steps in three stages: it takes a step (permit, then claim), attempts it (one call), and records
//! the outcome. A crash loses no state, because all of it is in the store.
//!
//! The permit is acquired before the claim is committed, so a step that waits for capacity holds nothing.
//!
//! If a result makes another step ready, and this process has a slot and a permit for that step, it claims the step in the commit of
//! the result and makes the call at once. That saves a commit and a message. After a crash in between, the lease expires as usual.

mod cache_key;
mod call;
mod chain;
mod fallback;
mod permits;
pub(crate) mod retry;
mod retry_budget;
mod step_cache;
mod step_call;
mod written;

use std::sync::Arc;

use podium_domain::run::{AttemptError, Command, Run, Saved, StepRef, StepResult, Task, TaskState};
use podium_domain::time::Timestamp;
use podium_domain::usage::Spent;
use podium_ports::cache::CachedOutput;
use podium_ports::live::{Frame, Signal};
use podium_ports::queue::{Lane, TaskMessage};
use podium_ports::store::StoreError;
use podium_ports::vendor::Vendors;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::claims::claim::{Claimed, claim, claim_after};
use crate::claims::record::record;
use crate::claims::settle::Settle;
use crate::commit::Order;
use crate::context::Context;
use crate::lanes::serve::{Acked, LaneWork, Service};
use crate::lanes::slots::{Slot, Slots};
use crate::live_text::{Form, LiveWriter, Piece};
use crate::metrics::CacheUse;
use crate::parts::CallParts;
use call::{ClaimedCall, Cure, Ended};
use chain::Chain;
use permits::{Permits, Placed, Unplaced};
use retry_budget::RetryBudgets;
use step_cache::{CachedCalls, Known};
use step_call::{Permitted, StepCall, Taken, return_permit};

/// Takes, attempts and records steps. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Executor {
    context: Context,
    vendors: Arc<dyn Vendors>,
    permits: Permits,
    cache: CachedCalls,
    retries: Arc<RetryBudgets>,
    chain: Chain,
}

/// The work on a claimed step.
pub(crate) enum StepWork {
    /// The executor calls its worker.
    Call(Box<Taken>),
    /// Its outcome is known without a call.
    Record(Box<Attempted>),
}

/// A claimed step without a call under way, with the command to record.
pub(crate) struct Attempted {
    claimed: Claimed,
    command: Command,
    slot: Slot,
}

/// Why a step's worker is not called.
enum NoCall {
    /// The step is done, or left to other executors.
    Here(Settle),
    /// The step fails, with this message.
    Anywhere(String),
}

impl Executor {
    /// After `stop` it takes no message and chains no step.
    pub(crate) fn new(context: Context, parts: CallParts, slots: Slots, stop: CancellationToken) -> Self {
        let CallParts { limiter, cache, vendors } = parts;
        let retries = Arc::new(RetryBudgets::new(context.options().retries));
        let permits = Permits::new(context.clone(), limiter);
        let cache = CachedCalls::new(context.clone(), cache);
        let chain =
            Chain { context: context.clone(), permits: permits.clone(), cache: cache.clone(), slots, stop };
        Self { context, vendors, permits, cache, retries, chain }
    }

    pub(crate) async fn run(self, lane: Lane, abandon: CancellationToken) {
        let Chain { context, slots, stop, .. } = self.chain.clone();
        Service { context, lane, slots, work: self, stop, abandon }.serve_lane().await;
    }

    /// Acquires a permit and claims the step, or says how to answer its message.
    async fn take_step(&self, message: TaskMessage, slot: Slot) -> Result<StepWork, Settle> {
        let step = message.task.step().ok_or(Settle::Ack)?;
        let run = self.run_of(message).await?;
        let call = match self.call_for(&run, step) {
            Ok(call) => call,
            Err(NoCall::Here(settle)) => return Err(settle),
            Err(NoCall::Anywhere(reason)) => return self.claim_to_fail(reason, message, slot).await,
        };
        if let Some(known) = self.cache.look_up(&call).await {
            self.context.metrics().cache().used(CacheUse::Hit);
            return self.claim_known(&call, known, message, slot).await;
        }
        let Placed { permitted: Permitted { call, permit }, first } = match self.permits.place(call).await {
            Ok(placed) => placed,
            Err(Unplaced::Later(after)) => return Err(Settle::Nak(after)),
            Err(Unplaced::Never(reason)) => return self.claim_to_fail(reason, message, slot).await,
        };
        let reserve = call.cost_max(self.context.now());
        match claim_after(&self.context, first, message, reserve).await {
            Ok(claimed) => {
                let taken = Taken { claimed, step, worker: call.worker, permit, slot };
                Ok(StepWork::Call(Box::new(taken)))
            }
            Err(settle) => {
                return_permit(permit);
                Err(settle)
            }
        }
    }

    /// The run of a message, if the step may be ready.
    async fn run_of(&self, TaskMessage { run: id, task, .. }: TaskMessage) -> Result<Arc<Run>, Settle> {
        let context = &self.context;
        let state = |run: &Run| run.task(task).map(|task| task.state.clone());
        let is_ready = |run: &Arc<Run>| matches!(state(run), Some(TaskState::Ready { .. }));
        if let Some(run) = context.run_cache().get(id).filter(is_ready) {
            return Ok(run);
        }
        let run = match context.run(id).await {
            Ok(run) => Arc::new(run.ok_or(Settle::Ack)?),
            Err(error @ StoreError::Inconsistent { .. }) => {
                context.unreadable().note(id, &error);
                return Err(Settle::Unreadable);
            }
            Err(error) => {
                warn!(run = %id, error = &error as &dyn std::error::Error, "could not load");
                return Err(Settle::Nak(context.options().retry_pause));
            }
        };
        context.run_cache().note(&run);
        if state(&run).is_some_and(|state| !state.is_final()) { Ok(run) } else { Err(Settle::Ack) }
    }

    /// The call of the step's worker. If this process cannot call the worker, other executors get the message, until the deadline is
    /// near; then the step fails.
    fn call_for(&self, run: &Arc<Run>, step: StepRef) -> Result<StepCall, NoCall> {
        let named = run.worker_of(step.into()).ok_or(NoCall::Here(Settle::Ack))?;
        let reason = match self.context.pool().worker_or_retired(named) {
            None => format!("the pool has no worker `{named}`"),
            Some(worker) if !worker.prices.is_valid_at(self.context.now()) => {
                format!("worker `{named}` has no price list that is valid yet")
            }
            Some(worker) => return StepCall::new(run, step, worker).ok_or(NoCall::Here(Settle::Ack)),
        };
        match Settle::for_others(&self.context, run) {
            Some(settle) => {
                debug!(run = %run.id(), reason, "the step is left to other executors");
                Err(NoCall::Here(settle))
            }
            None => Err(NoCall::Anywhere(reason)),
        }
    }

    /// Claims a step that no worker can be called for, to fail it.
    async fn claim_to_fail(
        &self,
        message: String,
        of_step: TaskMessage,
        slot: Slot,
    ) -> Result<StepWork, Settle> {
        let claimed = claim(&self.context, of_step).await?;
        let (retry_at, fall_back_to, spent) = (None, None, Spent::NONE);
        let error = AttemptError { message, retry_at, is_rate_limit: false, fall_back_to, spent };
        let command = Command::FailAttempt { task: claimed.task, claim: claimed.claim, error };
        Ok(StepWork::Record(Box::new(Attempted { claimed, command, slot })))
    }

    /// Claims a step with a known output, to complete it. Watchers get the output as one piece of text.
    async fn claim_known(
        &self,
        call: &StepCall,
        known: Known,
        message: TaskMessage,
        slot: Slot,
    ) -> Result<StepWork, Settle> {
        let claimed = claim(&self.context, message).await?;
        // In the claimed run, the step may have another worker or see other outputs than in the run that was looked up.
        let is_same = claimed.run.worker_of(claimed.task) == Some(&call.worker.id);
        let call = StepCall::new(&claimed.run, call.step, &call.worker)
            .filter(|call| is_same && self.cache.is_of(&known, call));
        let Some(call) = call else {
            let command = claimed.hand_back(Spent::NONE);
            return Ok(StepWork::Record(Box::new(Attempted { claimed, command, slot })));
        };
        let (StepRef { round, step }, claim) = (call.step, claimed.claim);
        let CachedOutput { output, finish, stop_sequence, usage } = known.output;
        let mut live = LiveWriter::new(Form::of(&claimed.run, call.step));
        let text = live.write(&Piece::Text(output.clone()));
        let frame = Frame { round, step, claim, offset: 0, text };
        if let Err(error) = self.context.parts().live.publish(message.run, Signal::Frame(frame)).await {
            debug!(run = %message.run, %error, "watchers were not notified");
        }
        let saved = Some(Saved { usage, cost: call.prices(claim).cost(&usage) });
        let result = StepResult {
            output,
            calls: Vec::new(),
            reasoning: Vec::new(),
            reasoning_text: String::new(),
            spent: Spent::NONE,
            finish,
            stop_sequence,
            first_token_ms: None,
            saved,
        };
        let command = Command::CompleteStep { round, step, claim, result };
        Ok(StepWork::Record(Box::new(Attempted { claimed, command, slot })))
    }

    /// Calls the step's worker. `None` if no call is possible any more.
    async fn attempt(&self, taken: Taken, abandon: &CancellationToken) -> Option<Attempted> {
        let Taken { claimed, step, worker, permit, slot } = taken;
        if claimed.run.worker_of(claimed.task) != Some(&worker.id) {
            // Another process tried meanwhile, and the step has another worker, which the permit does not cover.
            return_permit(permit);
            let command = claimed.hand_back(Spent::NONE);
            return Some(Attempted { claimed, command, slot });
        }
        // Outputs that the step sees may have changed since the run was loaded, so the request is built from the claimed run.
        let Some(call) = StepCall::new(&claimed.run, step, &worker) else {
            return_permit(permit);
            claimed.guard.disown();
            return None;
        };
        let call = call.traced(claimed.claim, self.context.parts().traces.as_deref());
        self.retries.called(&worker.id, self.context.now());
        let making =
            ClaimedCall { context: &self.context, vendors: &self.vendors, call: &call, claimed: &claimed };
        let ended = self.cache.cached(&call, making.make(permit, abandon)).await;
        let command = self.command_for(&claimed, &call, ended);
        Some(Attempted { claimed, command, slot })
    }

    /// Records an outcome, together with the claim of a next step if possible.
    async fn record_attempt(
        &self,
        attempted: Attempted,
        acked: &Acked,
        abandon: &CancellationToken,
    ) -> Option<Taken> {
        let Attempted { claimed, command, slot } = attempted;
        if !matches!(command, Command::CompleteStep { .. }) {
            acked.settled().await;
        }
        let next = self.chain.next_after(&claimed.run, &command, &slot.lane).await;
        let order = Order::both(command, next.as_ref().map(|next| next.pending.command()));
        let run = record(&self.context, claimed.run.id(), order, abandon).await;
        next.zip(run).and_then(|(next, run)| self.chain.begin(next, run, slot))
    }

    fn command_for(&self, claimed: &Claimed, call: &StepCall, ended: Ended) -> Command {
        let (task, claim, StepRef { round, step }) = (claimed.task, claimed.claim, call.step);
        match ended {
            Ended::Finished(result) => Command::CompleteStep { round, step, claim, result },
            Ended::Failed { mut message, cure, spent } => {
                let is_rate_limit = matches!(cure, Cure::Limited(_));
                let retry_at = self.retry_at(claimed, call, cure, &mut message);
                let can_go_elsewhere = cure != Cure::Nothing;
                let fall_back_to =
                    if can_go_elsewhere { fallback::next(self.context.pool(), call) } else { None };
                let error = AttemptError { message, retry_at, is_rate_limit, fall_back_to, spent };
                Command::FailAttempt { task, claim, error }
            }
            // Fenced by the claim: if the claim was lost, only the cost is recorded.
            Ended::Aborted { spent } => claimed.hand_back(spent),
        }
    }

    /// When to call the worker again, if at all. If only its retry budget forbids it, the message says so.
    fn retry_at(
        &self,
        claimed: &Claimed,
        call: &StepCall,
        cure: Cure,
        message: &mut String,
    ) -> Option<Timestamp> {
        let (task, options, now) =
            (claimed.run.task(claimed.task), self.context.options(), self.context.now());
        let worker = &call.worker.id;
        let (made, asked) = match cure {
            Cure::Again(asked) => (task.map_or(1, |task| task.attempts_with(Some(worker))), asked),
            // The limiter enforces the vendor's limits. The pauses grow with all attempts, so that their number stays low.
            Cure::Limited(asked) => (task.map_or(1, Task::attempt_number), asked),
            Cure::Elsewhere | Cure::Nothing => return None,
        };
        let needs_budget =
            matches!(cure, Cure::Again(_)) && made < claimed.run.spec().request.policy.attempts_max;
        if needs_budget && !self.retries.take(worker, now) {
            message.push_str("; not tried again: the worker's retry budget is used up");
            return None;
        }
        Some(now.after(retry::pause(options, made, claimed.claim, asked)))
    }
}

impl LaneWork for Executor {
    type Task = StepWork;

    async fn take(&self, message: TaskMessage, slot: Slot) -> Result<StepWork, Settle> {
        self.take_step(message, slot).await
    }

    async fn carry_out(
        &self,
        work: StepWork,
        acked: &Acked,
        abandon: &CancellationToken,
    ) -> Option<StepWork> {
        let attempted = match work {
            StepWork::Call(taken) => self.attempt(*taken, abandon).await?,
            StepWork::Record(attempted) => *attempted,
        };
        let next = self.record_attempt(attempted, acked, abandon).await?;
        Some(StepWork::Call(Box::new(next)))
    }
}
