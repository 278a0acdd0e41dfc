//! The planner serves the lanes of plans: it calls the conductor and records the plan. Complete steps begin while the rest of the
//! plan is being written.

mod early;
pub(crate) mod fallback;
pub(crate) mod request;

use std::sync::Arc;

use podium_domain::ids::RunId;
use podium_domain::run::{AttemptError, Command, Run};
use podium_domain::usage::{Spent, Usage};
use podium_ports::conductor::{Conductor, ConductorError, Conductors, PlanOutcome};
use podium_ports::live::Signal;
use podium_ports::queue::{Lane, TaskMessage};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::claims::claim::{Claimed, claim};
use crate::claims::record::record;
use crate::claims::settle::Settle;
use crate::context::Context;
use crate::executor::retry;
use crate::lanes::serve::{Acked, LaneWork, Service};
use crate::lanes::slots::{Slot, Slots};
use early::begin_steps;
use fallback::{MayRetry, Planning, reason};
use request::{plan_request, plan_until, reserve_for};

/// Plans the tasks of the lanes of plans. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Planner {
    context: Context,
    conductors: Conductors,
}

/// A claimed plan and the slot for it.
pub(crate) struct ClaimedPlan {
    claimed: Claimed,
    _slot: Slot,
}

impl Planner {
    pub(crate) fn new(context: Context, conductors: Conductors) -> Self {
        Self { context, conductors }
    }

    pub(crate) async fn run(self, lane: Lane, stop: CancellationToken, abandon: CancellationToken) {
        let slots = Slots::new([lane.clone()], self.context.options().plan_slots);
        let context = self.context.clone();
        Service { context, lane, slots, work: self, stop, abandon }.serve_lane().await;
    }

    /// The conductor that the run was assigned at its acceptance. The run names it, so no other conductor plans for the run.
    fn conductor_of(&self, run: &Run) -> Result<&Arc<dyn Conductor>, ConductorError> {
        let id = &run.spec().conductor;
        let mut all = self.conductors.all();
        all.find(|conductor| conductor.id() == id).ok_or_else(|| ConductorError::Absent { id: id.clone() })
    }

    /// Calls the conductor, publishes its text and begins complete steps, all concurrently.
    async fn plan(
        &self,
        claimed: &Claimed,
        abandon: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        let (context, run, task) = (&self.context, &claimed.run, claimed.task);
        // Another process may have the conductor, so this process does not use a fallback plan.
        let conductor = self.conductor_of(run)?;
        let request = plan_request(context, run, task, claimed.claim, Some(&**conductor));
        let attempts = run.task(task).map_or(0, |task| task.attempts_with(None));
        let may_retry = if attempts < run.spec().request.policy.attempts_max {
            MayRetry::Before(plan_until(context, run, task))
        } else {
            MayRetry::No
        };
        // The conductor's limit of tokens bounds these channels.
        let (texts, to_publish) = mpsc::unbounded_channel();
        let (copies, to_read) = mpsc::unbounded_channel();
        let sink = move |text: &str| {
            drop(copies.send(text.to_owned()));
            drop(texts.send(text.to_owned()));
        };
        let stop = claimed.guard.token().child_token();
        let is_of_tenant = run.spec().key.is_some();
        let planning = Planning { parts: context.parts(), conductor, request: &request, is_of_tenant };
        let planning = planning.plan_or_fall_back(&sink, &stop, may_retry);
        let publishing = self.publish(run, task.round(), to_publish);
        let beginning = begin_steps(context, claimed, conductor.pool_in_text(), to_read);
        tokio::pin!(planning, publishing, beginning);
        loop {
            tokio::select! {
                biased;
                outcome = &mut planning => return outcome,
                () = abandon.cancelled(), if !stop.is_cancelled() => stop.cancel(),
                () = &mut beginning => {}
                () = &mut publishing => {}
            }
        }
    }

    /// Publishes the conductor's text; never returns before it is dropped.
    async fn publish(&self, run: &Run, round: u16, mut texts: mpsc::UnboundedReceiver<String>) {
        while let Some(text) = texts.recv().await {
            let signal = Signal::Planning { round, text };
            if let Err(error) = self.context.parts().live.publish(run.id(), signal).await {
                debug!(run = %run.id(), %error, "watchers were not notified");
            }
        }
        std::future::pending::<()>().await;
    }

    /// The answer to a message whose run has a conductor that this process lacks: planners that have it get the message. `None` if
    /// this process has the conductor, or if the deadline is near: then planning fails with the reason.
    async fn leave(&self, id: RunId) -> Option<Settle> {
        let context = &self.context;
        let run = match context.run_cache().get(id) {
            Some(run) => run,
            // The claim will report any error.
            None => Arc::new(context.run(id).await.ok().flatten()?),
        };
        context.run_cache().note(&run);
        let (policy, mut workers) = (&run.spec().request.policy, context.pool().workers().iter());
        let may_plan = self.conductor_of(&run).is_ok() && workers.any(|worker| policy.allows(&worker.id));
        if may_plan || run.is_ended() {
            return None;
        }
        let conductor = &run.spec().conductor;
        debug!(run = %run.id(), conductor, "the plan is left to planners that have the conductor and the allowed workers");
        Settle::for_others(context, &run)
    }

    /// Plans, and returns what is to be recorded, if anything.
    async fn command_for(&self, claimed: &Claimed, abandon: &CancellationToken) -> Option<Command> {
        let (claim, round) = (claimed.claim, claimed.task.round());
        let error = match self.plan(claimed, abandon).await {
            Ok(PlanOutcome { result, usage, cost }) => {
                let reserve = reserve_for(&self.context, &claimed.run, &result);
                return Some(Command::CompletePlan {
                    round,
                    claim,
                    result,
                    spent: Spent { usage, cost },
                    reserve,
                });
            }
            Err(error) => error,
        };
        let (usage, cost) = error.consumed();
        let spent = Spent { usage, cost };
        if !matches!(error.cause(), ConductorError::Stopped) {
            warn!(run = %claimed.run.id(), error = &error as &dyn std::error::Error, "planning failed");
            return Some(self.failure(claimed, &error, spent));
        }
        // Fenced by the claim: if the claim was lost, only the usage is recorded.
        let is_lost = claimed.guard.token().is_cancelled();
        (!is_lost || spent.usage != Usage::NONE).then(|| claimed.hand_back(spent))
    }

    fn failure(&self, claimed: &Claimed, error: &ConductorError, spent: Spent) -> Command {
        let (task, claim) = (claimed.task, claimed.claim);
        let failed = claimed.run.task(task).map_or(1, |task| task.attempts_with(None));
        let asked = error.retry_after().unwrap_or_default();
        let pause = retry::pause(self.context.options(), failed, claim, asked);
        let is_retryable = error.is_retryable() && !matches!(error.cause(), ConductorError::Absent { .. });
        let retry_at = is_retryable.then(|| self.context.now().after(pause));
        let message = reason(error, claimed.run.spec().key.is_some());
        let error = AttemptError { message, retry_at, is_rate_limit: false, fall_back_to: None, spent };
        Command::FailAttempt { task, claim, error }
    }
}

impl LaneWork for Planner {
    type Task = ClaimedPlan;

    async fn take(&self, message: TaskMessage, slot: Slot) -> Result<ClaimedPlan, Settle> {
        if let Some(settle) = self.leave(message.run).await {
            return Err(settle);
        }
        let claimed = claim(&self.context, message).await?;
        Ok(ClaimedPlan { claimed, _slot: slot })
    }

    /// A plan makes steps ready, which executors run: no other plan follows.
    async fn carry_out(
        &self,
        plan: ClaimedPlan,
        acked: &Acked,
        abandon: &CancellationToken,
    ) -> Option<ClaimedPlan> {
        let claimed = &plan.claimed;
        if let Some(command) = self.command_for(claimed, abandon).await {
            if !matches!(command, Command::CompletePlan { .. }) {
                acked.settled().await;
            }
            record(&self.context, claimed.run.id(), command, abandon).await;
        }
        None
    }
}
