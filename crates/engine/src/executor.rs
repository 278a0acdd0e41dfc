//! Running steps: take the worker's budget, claim, call, stream, record. It holds nothing that a crash could lose.

mod call;

use podium_domain::ids::StepIndex;
use podium_domain::money::Cost;
use podium_domain::pool::Worker;
use podium_domain::prompt;
use podium_domain::run::{AttemptError, Command, Run, TaskRef};
use podium_domain::usage::Usage;
use podium_ports::limiter::{Grant, Permit};
use podium_ports::queue::{Lane, TaskMessage};
use podium_ports::store::StoreError;
use podium_ports::vendor::ChatRequest;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::engine::Engine;
use crate::executor::call::{Call, Ended};
use crate::retry;
use crate::task::{Claimed, Settle, Work, serve_lane};

/// Serves the lanes of steps.
#[derive(Clone)]
pub(crate) struct Executor {
    engine: Engine,
}

impl Executor {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    pub(crate) async fn run(self, lane: Lane, stop: CancellationToken, abandon: CancellationToken) {
        let slots = self.engine.options().step_slots;
        serve_lane(self.engine.clone(), (lane, slots), self, stop, abandon).await;
    }

    /// Room for a call of `worker`, or how to answer the message.
    async fn permit(&self, worker: &Worker) -> Result<Box<dyn Permit>, Settle> {
        match self.engine.parts().limiter.acquire(worker).await {
            Ok(Grant::Permit(permit)) => Ok(permit),
            Ok(Grant::AskAgain { after }) => Err(Settle::Nak(after)),
            Err(error) => {
                warn!(worker = %worker.id, error = &error as &dyn std::error::Error, "the limiter failed");
                Err(Settle::Nak(self.engine.options().retry_pause))
            }
        }
    }

    async fn step(
        &self,
        run: &Run,
        (round, step): (u16, StepIndex),
        abandon: &CancellationToken,
    ) -> Result<Settle, Settle> {
        let task = TaskRef::Step { round, step };
        let engine = &self.engine;
        let planned = run.step(round, step).ok_or(Settle::Ack)?;
        let Some(worker) = engine.pool().worker(&planned.worker) else {
            let claimed = engine.claim(run.id(), task, Cost::ZERO).await?;
            let message = format!("the pool has no worker `{}`", planned.worker);
            let error = AttemptError { message, retry_at: None, usage: Usage::default(), cost: Cost::ZERO };
            let command = Command::FailAttempt { task, claim: claimed.claim, error };
            return Ok(engine.record(run.id(), command, abandon).await);
        };
        let permit = self.permit(worker).await?;
        let request = request(run, round, step, worker).ok_or(Settle::Ack)?;
        let claimed = engine.claim(run.id(), task, call::most_cost(worker, &request)).await?;
        // What the step sees may have failed or changed since the run was loaded: ask by what the claim was granted on.
        let request = self::request(&claimed.run, round, step, worker).ok_or(Settle::Ack)?;
        let call = Call {
            parts: engine.parts(),
            run: &claimed.run,
            worker,
            at: (round, step),
            claim: claimed.claim,
        };
        let ended = call.make(&request, &claimed.held, abandon).await;
        drop(permit);
        let command = self.command_for(&claimed, (round, step), worker, ended);
        Ok(engine.record(run.id(), command, abandon).await)
    }

    fn command_for(
        &self,
        claimed: &Claimed,
        (round, step): (u16, StepIndex),
        worker: &Worker,
        ended: Ended,
    ) -> Command {
        let (task, claim) = (claimed.task, claimed.claim);
        match ended {
            Ended::Finished(result) => Command::CompleteStep { round, step, claim, result },
            Ended::Failed { message, retry, usage } => {
                let failed = claimed.run.task(task).map_or(1, podium_domain::run::Task::attempt_number);
                let pause = |asked| retry::pause(self.engine.options(), failed, claim, asked);
                let retry_at = retry.map(|asked| self.engine.now().after(pause(asked)));
                let cost = worker.prices.cost(&usage);
                Command::FailAttempt { task, claim, error: AttemptError { message, retry_at, usage, cost } }
            }
            // Fenced: of a claim that was really lost, only the cost is recorded.
            Ended::Lost { usage } | Ended::Abandoned { usage } => {
                let cost = worker.prices.cost(&usage);
                Command::HandBack { task, claim, usage, cost }
            }
        }
    }
}

impl Work for Executor {
    async fn work(&self, message: TaskMessage, abandon: CancellationToken) -> Settle {
        let TaskRef::Step { round, step } = message.task else {
            return Settle::Ack;
        };
        let run = match self.engine.run(message.run).await {
            Ok(Some(run)) => run,
            Ok(None) | Err(StoreError::Inconsistent { .. }) => return Settle::Ack,
            Err(error) => {
                warn!(run = %message.run, error = &error as &dyn std::error::Error, "could not load");
                return Settle::Nak(self.engine.options().retry_pause);
            }
        };
        if run.task(message.task).is_none_or(|task| task.state.is_final()) {
            return Settle::Ack;
        }
        self.step(&run, (round, step), &abandon).await.unwrap_or_else(|settle| settle)
    }
}

/// What a step's worker is asked.
fn request(run: &Run, round: u16, step: StepIndex, worker: &Worker) -> Option<ChatRequest> {
    let spec = run.spec();
    let is_final = run.rounds().get(usize::from(round))?.plan()?.final_step() == step;
    let answer_tokens_max = spec.answer_tokens_max.filter(|_| is_final).unwrap_or(u32::MAX);
    Some(ChatRequest {
        messages: prompt::for_worker(run, round, step)?,
        output_tokens_max: worker.output_tokens_max.min(answer_tokens_max),
        temperature: None,
        effort: worker.takes_effort.then_some(spec.policy.effort),
    })
}
