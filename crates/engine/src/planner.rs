//! Planning: the conductor is asked, and when it has no usable plan the whole question goes to one safe worker; in a
//! further round the answer before stands. Steps that are final begin while the rest of the plan is being written.

mod early;

use std::sync::Arc;
use std::time::Duration;

use podium_domain::conversation::Conversation;
use podium_domain::ids::{ClaimId, RunId};
use podium_domain::money::Cost;
use podium_domain::plan::PlanDraft;
use podium_domain::policy::Policy;
use podium_domain::prompt::{self, Earlier};
use podium_domain::run::{AttemptError, Command, PlanResult, Planned, Run, Task, TaskRef};
use podium_domain::time::Timestamp;
use podium_domain::usage::{Spent, Usage};
use podium_ports::conductor::{Asker, Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use podium_ports::live::Signal;
use podium_ports::queue::{Lane, TaskMessage};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::commit::InHand;
use crate::cost_bounds::Question;
use crate::engine::{Engine, seed};
use crate::executor::retry;
use crate::lanes::task::{Acked, Claimed, Settle, Slot, Slots, Work, serve_lane};
use crate::options::Parts;
use crate::planner::early::begin_steps;

/// How much longer than its limit a conductor may take to say what it has consumed. Then it is not waited for.
const OVERTIME: Duration = Duration::from_secs(1);

/// Serves the lanes of plans.
#[derive(Clone)]
pub(crate) struct Planner {
    engine: Engine,
}

impl Planner {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    pub(crate) async fn run(self, lane: Lane, stop: CancellationToken, abandon: CancellationToken) {
        let slots = Slots::new([lane.clone()], self.engine.options().plan_slots);
        serve_lane(self.engine.clone(), (lane, slots), self, stop, abandon).await;
    }

    async fn plan(
        &self,
        claimed: &Claimed,
        abandon: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        let engine = &self.engine;
        let spec = claimed.run.spec();
        let request = engine.plan_request(&claimed.run, claimed.task, claimed.claim);
        let attempts = claimed.run.task(claimed.task).map_or(0, |task| task.attempts_with(None));
        let until = engine.plan_until(&claimed.run, claimed.task);
        let may_retry =
            if attempts < spec.policy.attempts_max { MayRetry::Before(until) } else { MayRetry::No };
        let (texts, heard) = mpsc::unbounded_channel();
        let (copies, to_read) = mpsc::unbounded_channel();
        // The conductor's own bound on tokens bounds these channels.
        let sink = move |text: &str| {
            drop(copies.send(text.to_owned()));
            drop(texts.send(text.to_owned()));
        };
        let stop = claimed.held.token().child_token();
        let conductor = engine.conductor_of(&claimed.run);
        let is_of_tenant = spec.key.is_some();
        let planning = Planning { parts: engine.parts(), conductor, request: &request, is_of_tenant };
        let planning = planning.plan_or_fall_back(&sink, &stop, may_retry);
        tokio::pin!(planning);
        let telling = tell(engine.parts(), &claimed.run, claimed.task.round(), heard);
        tokio::pin!(telling);
        let beginning = begin_steps(engine, claimed, to_read);
        tokio::pin!(beginning);
        loop {
            tokio::select! {
                biased;
                outcome = &mut planning => return outcome,
                () = abandon.cancelled(), if !stop.is_cancelled() => stop.cancel(),
                () = &mut beginning => {}
                () = &mut telling => {}
            }
        }
    }
}

impl Engine {
    /// What the conductor is asked for the first round of a question that is no run yet.
    pub(crate) fn first_request(&self, conversation: &Conversation, policy: Policy) -> PlanRequest {
        let id = self.parts().ids.claim_id();
        PlanRequest {
            asker: Asker::nobody(RunId::new(*id.as_uuid())),
            question: conversation.question(),
            policy,
            earlier: None,
            seed: seed(id),
            asked_at: self.now(),
            time_max: self.options().plan_time_max,
        }
    }

    /// The longest request for a further round: it shows as much of the round before as it may.
    pub(crate) fn further_request(&self, conversation: &Conversation, policy: Policy) -> PlanRequest {
        let text = "x".repeat(prompt::EARLIER_BYTES_MAX);
        let earlier = Some(Earlier { text, gave_answer: true });
        PlanRequest { earlier, ..self.first_request(conversation, policy) }
    }

    /// What a plan reserves of the budgets of its run: its steps, and the planning of the round after it.
    pub(crate) fn reserve_for(&self, run: &Run, result: &PlanResult) -> Cost {
        let (spec, parts) = (run.spec(), self.parts());
        let PlanResult::Plan(planned) = result else { return Cost::ZERO };
        if spec.budgets.is_empty() {
            return Cost::ZERO;
        }
        let question = Question {
            conversation: &spec.conversation,
            policy: &spec.policy,
            answer_tokens_max: spec.answer_tokens_max,
            at: self.now(),
        };
        let is_last = run.current_round() + 1 >= spec.policy.rounds_max;
        let next = || {
            // Who is not here costs nothing here: the round is going to be abandoned.
            self.conductor_of(run).map_or(Cost::ZERO, |conductor| {
                conductor.plan_cost_max(&self.further_request(&spec.conversation, spec.policy.clone()))
            })
        };
        question.plan_max(&parts.pool, &planned.plan) + if is_last { Cost::ZERO } else { next() }
    }

    /// What the conductor is asked for a round of a run.
    pub(crate) fn plan_request(&self, run: &Run, task: TaskRef, claim: ClaimId) -> PlanRequest {
        let (spec, round) = (run.spec(), task.round());
        let conductor = self.conductor_of(run).ok();
        // A conductor that has no words for an earlier round plans anew, without the workers that failed.
        let plans_anew = run.is_corrective(round) && conductor.is_some_and(|c| c.abilities().rounds_max == 1);
        let pool = conductor.and_then(|conductor| conductor.pool_in_text());
        let earlier = if plans_anew { None } else { Earlier::before(run, round, pool) };
        let policy = if plans_anew {
            spec.policy.without(&run.workers_without_output(round - 1), &self.parts().pool)
        } else {
            spec.policy.clone()
        };
        PlanRequest {
            asker: Asker { tenant: spec.tenant.clone(), run: run.id(), round },
            question: spec.conversation.question(),
            policy,
            earlier,
            seed: spec.sampling.seed.map_or_else(|| seed(claim), |chosen| seed_of(run, task, chosen)),
            asked_at: self.now(),
            time_max: self.plan_until(run, task).since(self.now()),
        }
    }

    /// Until when a plan may be asked for: all attempts at it together take at most `plan_time_max`, and at most half of the time that
    /// the run had left when the first of them began. The other half is for the steps, or for one worker that gets the question.
    fn plan_until(&self, run: &Run, task: TaskRef) -> Timestamp {
        let first = run.task(task).and_then(|task| task.attempts.first());
        let began = first.map_or_else(|| self.now(), |attempt| attempt.started_at);
        began.after(self.options().plan_time_max.min(run.spec().deadline_at.since(began) / 2))
    }

    /// The conductor that the run was given at its acceptance. No other one plans for it: the run says who did.
    fn conductor_of(&self, run: &Run) -> Result<&Arc<dyn Conductor>, ConductorError> {
        let id = &run.spec().conductor;
        let mut all = self.parts().conductors.all();
        all.find(|conductor| conductor.id() == id).ok_or_else(|| ConductorError::Absent { id: id.clone() })
    }
}

/// The seed of an attempt at a plan where the client chose one: the same for the same attempt at the same question, and another
/// for the next attempt.
fn seed_of(run: &Run, task: TaskRef, chosen: u32) -> u64 {
    let attempt = run.task(task).map_or(0, Task::attempt_number);
    u64::from(chosen) | (u64::from(task.round()) << 32) | (u64::from(attempt) << 48)
}

/// Publishes what the conductor writes; never returns before it is dropped.
async fn tell(parts: &Parts, run: &Run, round: u16, mut heard: mpsc::UnboundedReceiver<String>) {
    while let Some(text) = heard.recv().await {
        if let Err(error) = parts.live.publish(run.id(), Signal::Planning { round, text }).await {
            debug!(run = %run.id(), %error, "watchers were not told");
        }
    }
    std::future::pending::<()>().await;
}

impl Work for Planner {
    /// What a plan makes ready are steps, which others run.
    type Task = (Claimed, Slot);

    async fn take(
        &self,
        message: TaskMessage,
        slot: Slot,
        _abandon: &CancellationToken,
    ) -> Result<Self::Task, Settle> {
        if let Some(settle) = self.leave(message).await {
            return Err(settle);
        }
        let in_hand = InHand { task: message.task, lane: slot.lane.clone() };
        Ok((self.engine.claim(message.run, &in_hand).await?, slot))
    }

    async fn carry_out(
        &self,
        (claimed, _slot): Self::Task,
        acked: &Acked,
        abandon: &CancellationToken,
    ) -> Option<Self::Task> {
        if let Some(command) = self.command_for(&claimed, abandon).await {
            if !matches!(command, Command::CompletePlan { .. }) {
                acked.settled().await;
            }
            self.engine.record_both(claimed.run.id(), (command, None), None, abandon).await;
        }
        None
    }
}

impl Planner {
    /// How to answer the message of a run whose conductor this process lacks: it is left to planners that have it, without an
    /// attempt. Nothing where the conductor is here, or where the deadline is near: then planning fails, with the reason.
    async fn leave(&self, message: TaskMessage) -> Option<Settle> {
        let engine = &self.engine;
        let run = match engine.known().get(message.run) {
            Some(run) => run,
            // Whatever is wrong, the claim will say.
            None => Arc::new(engine.run(message.run).await.ok().flatten()?),
        };
        engine.known().note(&run);
        if engine.conductor_of(&run).is_ok() || run.is_ended() {
            return None;
        }
        debug!(run = %run.id(), conductor = run.spec().conductor, "the plan is left to planners that have the conductor");
        engine.leave_to_others(&run)
    }

    /// Plans, and says what is to be recorded of it, if anything.
    async fn command_for(&self, claimed: &Claimed, abandon: &CancellationToken) -> Option<Command> {
        let (claim, task, round) = (claimed.claim, claimed.task, claimed.task.round());
        Some(match self.plan(claimed, abandon).await {
            Ok(PlanOutcome { result, usage, cost }) => {
                let reserve = self.engine.reserve_for(&claimed.run, &result);
                Command::CompletePlan { round, claim, result, spent: Spent { usage, cost }, reserve }
            }
            Err(error) if matches!(error.cause(), ConductorError::Stopped) => {
                let (usage, cost) = error.consumed();
                // Fenced: of a claim that was lost, only what was consumed is recorded.
                if usage == Usage::default() && claimed.held.token().is_cancelled() {
                    return None;
                }
                Command::HandBack { task, claim, spent: Spent { usage, cost } }
            }
            Err(error) => {
                warn!(run = %claimed.run.id(), error = &error as &dyn std::error::Error, "planning failed");
                let failed = claimed.run.task(task).map_or(1, |task| task.attempts_with(None));
                let message = told(&error, claimed.run.spec().key.is_some());
                self.failure((task, claim, failed), message, &error)
            }
        })
    }

    fn failure(
        &self,
        (task, claim, failed): (TaskRef, ClaimId, u32),
        message: String,
        error: &ConductorError,
    ) -> Command {
        let asked = error.retry_after().unwrap_or_default();
        let pause = retry::pause(self.engine.options(), failed, claim, asked);
        let is_retryable = error.is_retryable() && !matches!(error.cause(), ConductorError::Absent { .. });
        let retry_at = is_retryable.then(|| self.engine.now().after(pause));
        let (usage, cost) = error.consumed();
        let spent = Spent { usage, cost };
        let error = AttemptError { message, retry_at, is_rate_limit: false, fall_back_to: None, spent };
        Command::FailAttempt { task, claim, error }
    }
}

/// Whether planning that failed is going to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayRetry {
    /// Yes, if it begins before this.
    Before(Timestamp),
    No,
}

impl MayRetry {
    fn allows(self, error: &ConductorError, now: Timestamp) -> bool {
        match self {
            Self::Before(end) => {
                error.is_retryable() && now.after(error.retry_after().unwrap_or_default()) < end
            }
            Self::No => false,
        }
    }
}

/// A conductor, or why there is none, and what it is asked.
pub(crate) struct Planning<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) conductor: Result<&'a Arc<dyn Conductor>, ConductorError>,
    pub(crate) request: &'a PlanRequest,
    /// Whether the plan is for a tenant, who is not shown a vendor's own words.
    pub(crate) is_of_tenant: bool,
}

/// Why planning failed, for whoever reads the run. The log has all of it.
fn told(error: &ConductorError, is_of_tenant: bool) -> String {
    if is_of_tenant { error.told_to_tenant() } else { error.told() }
}

impl Planning<'_> {
    /// The conductor's plan. When it has none, and either asking again cannot help or must not be tried, one safe worker gets
    /// the whole question; the plan then says why. Not so in a further round: the answer before stands, or the run fails with the
    /// failure that the round was to correct.
    pub(crate) async fn plan_or_fall_back(
        self,
        text: TextSink<'_>,
        stop: &CancellationToken,
        may_retry: MayRetry,
    ) -> Result<PlanOutcome, ConductorError> {
        let Self { parts, conductor, request, is_of_tenant } = self;
        // Another process may have the conductor: no plan of this one takes its place.
        let conductor = conductor?;
        let planned = if request.time_max.is_zero() {
            Err(ConductorError::Timeout { limit: request.time_max })
        } else {
            tokio::select! {
                biased;
                planned = conductor.plan(request, text, stop) => planned,
                () = parts.clock.sleep(request.time_max.saturating_add(OVERTIME)) => {
                    Err(ConductorError::Timeout { limit: request.time_max })
                }
            }
        };
        let planned = match planned {
            Ok(PlanOutcome { result: PlanResult::KeepAnswer, usage, cost }) if !request.may_keep_answer() => {
                let message = "it keeps an answer, but there is none".to_owned();
                Err(ConductorError::NoPlan { tries: 1, message, usage, cost })
            }
            planned => planned,
        };
        let error = match planned {
            Ok(outcome) => return Ok(outcome),
            Err(error) if matches!(error.cause(), ConductorError::Stopped) => return Err(error),
            Err(error) if may_retry.allows(&error, parts.clock.now()) => return Err(error),
            Err(error) if request.is_further() => return Err(error),
            Err(error) => error,
        };
        let Some(worker) = parts.pool.safest(&request.policy) else {
            return Err(error);
        };
        let subtask = prompt::whole_question_subtask(&request.question);
        let Ok(plan) = PlanDraft::single(&worker.id, subtask).check(&parts.pool, &request.policy) else {
            return Err(error);
        };
        let (usage, cost) = error.consumed();
        // A workflow that does not fit the policy, such as one of several steps in a mini run: the same for each such run.
        if matches!(error.cause(), ConductorError::NoPlan { .. }) && usage == Usage::default() {
            debug!(error = &error as &dyn std::error::Error, worker = %worker.id, "no plan: one worker gets the question");
        } else {
            warn!(error = &error as &dyn std::error::Error, worker = %worker.id, "no plan: one worker gets the question");
        }
        let planned = Planned { plan, reasoning: String::new(), fallback: Some(told(&error, is_of_tenant)) };
        Ok(PlanOutcome { result: PlanResult::Plan(planned), usage, cost })
    }
}
