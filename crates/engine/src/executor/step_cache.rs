//! A layer around the call of a worker: an output that is in the step cache is not asked for again.
//!
//! A step whose output is known is claimed and completed with it at once: it takes no permit, spends nothing, and is shown to
//! watchers as if its worker had written it in one go. If the cache does not answer, steps are called as if there was none.

use podium_domain::ids::StepIndex;
use podium_domain::policy::StepCaching;
use podium_domain::pool::Worker;
use podium_domain::run::{Command, FinishReason, Run, Saved, StepResult, TaskRef};
use podium_domain::usage::Spent;
use podium_ports::cache::{CacheError, CacheKey, CachedOutput};
use podium_ports::live::{Frame, Signal};
use podium_ports::vendor::ChatRequest;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::cache_key::cache_key;
use super::call::{self, Ended};
use super::{Executor, request};
use crate::commit::InHand;
use crate::engine::Engine;
use crate::lanes::task::{Claimed, Settle};
use crate::metrics::CacheUse;

/// A request of a step as the cache knows it.
pub(super) struct Recall<'a> {
    run: &'a Run,
    at: (u16, StepIndex),
    worker: &'a Worker,
    key: CacheKey,
}

impl Executor {
    /// The request as the cache knows it; none where it must not be known.
    pub(super) fn recall<'a>(
        &self,
        run: &'a Run,
        at: (u16, StepIndex),
        (worker, request): (&'a Worker, &ChatRequest),
    ) -> Option<Recall<'a>> {
        self.engine.parts().cache.as_ref()?;
        let key = key(&self.engine, run, (worker, request))?;
        Some(Recall { run, at, worker, key })
    }

    /// Answers the step if its output is known; then how to answer its message.
    pub(super) async fn answer_known(
        &self,
        recall: Option<&Recall<'_>>,
        (message, abandon): (&InHand, &CancellationToken),
    ) -> Result<(), Settle> {
        let Some(recall) = recall else { return Ok(()) };
        match self.look_up(recall).await {
            Some(known) => {
                self.engine.metrics().cache().used(CacheUse::Hit);
                Err(self.answer_with(recall, known, (message, abandon)).await)
            }
            None => Ok(()),
        }
    }

    /// Whether the output is known; not if the cache does not answer.
    pub(super) async fn is_known(&self, recall: Option<&Recall<'_>>) -> bool {
        match recall {
            Some(recall) => self.look_up(recall).await.is_some(),
            None => false,
        }
    }

    async fn look_up(&self, recall: &Recall<'_>) -> Option<CachedOutput> {
        let cache = self.engine.parts().cache.as_ref()?;
        cache.look_up(&recall.key).await.unwrap_or_else(|error| {
            self.did_not_answer(&error);
            None
        })
    }

    fn did_not_answer(&self, error: &CacheError) {
        self.engine.metrics().cache().used(CacheUse::Failed);
        debug!(error = error as &dyn std::error::Error, "done without the step cache");
    }

    /// Claims the step and completes it.
    async fn answer_with(
        &self,
        recall: &Recall<'_>,
        known: CachedOutput,
        (message, abandon): (&InHand, &CancellationToken),
    ) -> Settle {
        let (engine, (round, step)) = (&self.engine, recall.at);
        let (id, task) = (recall.run.id(), TaskRef::Step { round, step });
        let claimed = match engine.claim(id, message).await {
            Ok(claimed) => claimed,
            Err(settle) => return settle,
        };
        let claim = claimed.claim;
        if !is_still_asked(engine, &claimed, recall) {
            let hand_back = Command::HandBack { task, claim, spent: Spent::NONE };
            return engine.record(id, hand_back, message, abandon).await;
        }
        let CachedOutput { output, finish, usage } = known;
        let frame = Frame { round, step, claim, offset: 0, text: output.clone() };
        if let Err(error) = engine.parts().live.publish(id, Signal::Frame(frame)).await {
            debug!(run = %id, %error, "watchers were not told");
        }
        let cost = call::prices(recall.worker, &claimed.run, task, claim).cost(&usage);
        let result = StepResult {
            output,
            spent: Spent::NONE,
            finish,
            first_token_ms: None,
            saved: Some(Saved { usage, cost }),
        };
        engine.record(id, Command::CompleteStep { round, step, claim, result }, message, abandon).await
    }

    /// The key of a call that is about to be made, if the cache may learn its output.
    pub(super) fn key_of(&self, run: &Run, asked: (&Worker, &ChatRequest)) -> Option<CacheKey> {
        self.engine.parts().cache.as_ref()?;
        let key = key(&self.engine, run, asked)?;
        self.engine.metrics().cache().used(CacheUse::Miss);
        Some(key)
    }

    /// Keeps the output of a call in the step cache.
    pub(super) async fn keep(&self, key: Option<CacheKey>, ended: &Ended) {
        let (Some(key), Some(cache)) = (key, &self.engine.parts().cache) else { return };
        if let Ended::Finished(StepResult { output, finish, spent, .. }) = ended
            && can_be_kept(*finish)
        {
            let output = CachedOutput { output: output.clone(), finish: *finish, usage: spent.usage };
            self.engine.metrics().cache().used(CacheUse::Kept);
            if let Err(error) = cache.keep(&key, &output).await {
                self.did_not_answer(&error);
            }
        }
    }
}

fn key(engine: &Engine, run: &Run, (worker, request): (&Worker, &ChatRequest)) -> Option<CacheKey> {
    let spec = run.spec();
    if spec.policy.step_cache != StepCaching::Exact {
        return None;
    }
    cache_key(&spec.tenant, spec.policy.output_bytes_max, engine.pool(), worker, request)
}

/// Whether the step as it was claimed is the one that was looked up.
fn is_still_asked(engine: &Engine, claimed: &Claimed, recall: &Recall<'_>) -> bool {
    let worker = recall.worker;
    let request = || request(&claimed.run, recall.at, worker);
    claimed.run.worker_of(claimed.task) == Some(&worker.id)
        && request().and_then(|request| key(engine, &claimed.run, (worker, &request))) == Some(recall.key)
}

/// Whether the worker came to an end by itself, or by a bound that is part of the request.
const fn can_be_kept(finish: FinishReason) -> bool {
    matches!(finish, FinishReason::Stop | FinishReason::Length)
}
