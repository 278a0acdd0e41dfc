//! A layer around the call of a worker: what was answered before is not asked again, and what is being asked is asked once.
//!
//! A step whose output is known is claimed and completed with it at once: it takes no permit, spends nothing, and is shown to
//! those who watch as if its worker had written it in one go. A step whose request somebody else is calling for goes back to the
//! queue for a while and holds nothing meanwhile; the run's deadline holds for it as ever. No text passes from one step to the
//! other but a whole output. Where the cache does not answer, steps are called for as if there was none.

use std::convert::Infallible;
use std::time::Duration;

use podium_domain::ids::{ClaimId, StepIndex};
use podium_domain::money::Cost;
use podium_domain::policy::StepCaching;
use podium_domain::pool::Worker;
use podium_domain::run::{Command, FinishReason, Hedge, Run, Saved, StepResult, TaskRef, Winner};
use podium_domain::usage::Usage;
use podium_ports::cache::{CacheError, CacheKey, CachedOutput, GivenUp, Look, StepCache};
use podium_ports::live::{Frame, Signal};
use podium_ports::vendor::ChatRequest;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::call::{self, Ended};
use super::hedge::Attempted;
use super::{Executor, request};
use crate::engine::Engine;
use crate::metrics::CacheUse;
use crate::task::{Claimed, Settle};

/// Shortest and longest time after which a step is tried again whose request is being called for.
const WAIT_MIN: Duration = Duration::from_millis(25);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A request of a step as the cache knows it.
pub(super) struct Recall<'a> {
    run: &'a Run,
    at: (u16, StepIndex),
    worker: &'a Worker,
    key: CacheKey,
}

/// The right to call for a request while others wait for what comes of it. One that is dropped runs out.
pub(super) struct Lead {
    key: CacheKey,
    id: ClaimId,
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

    /// Answers the step if its output is known, and puts it off if somebody is calling for it; then how to answer its message.
    pub(super) async fn answer_known(
        &self,
        recall: Option<&Recall<'_>>,
        abandon: &CancellationToken,
    ) -> Result<(), Settle> {
        let Some(recall) = recall else { return Ok(()) };
        match self.look(recall, None).await {
            Ok(_) => Ok(()),
            Err(look) => Err(self.instead(recall, look, abandon).await),
        }
    }

    /// Takes the lead, if the cache is to know what comes of the call; or as [`Self::answer_known`].
    pub(super) async fn take_lead(
        &self,
        recall: Option<&Recall<'_>>,
        abandon: &CancellationToken,
    ) -> Result<Option<Lead>, Settle> {
        match self.try_lead(recall).await {
            Ok(lead) => Ok(lead),
            Err((recall, look)) => Err(self.instead(recall, look, abandon).await),
        }
    }

    /// Whether nothing is known and nobody is calling, as far as the cache says.
    pub(super) async fn is_unknown(&self, recall: Option<&Recall<'_>>) -> bool {
        match recall {
            Some(recall) => self.look(recall, None).await.is_ok(),
            None => true,
        }
    }

    /// Takes the lead, or says what there is instead.
    pub(super) async fn try_lead<'r, 'a>(
        &self,
        recall: Option<&'r Recall<'a>>,
    ) -> Result<Option<Lead>, (&'r Recall<'a>, Look)> {
        let Some(recall) = recall else { return Ok(None) };
        let id = self.engine.parts().ids.claim_id();
        self.look(recall, Some(id)).await.map_err(|look| (recall, look))
    }

    /// Asks the cache. Where there is no answer, nothing is known.
    async fn look(&self, recall: &Recall<'_>, lead: Option<ClaimId>) -> Result<Option<Lead>, Look> {
        let Some(cache) = &self.engine.parts().cache else { return Ok(None) };
        let key = recall.key;
        let looked = match lead {
            None => cache.look_up(&key).await,
            Some(id) => cache.lead(&key, id).await,
        };
        match looked {
            Ok(Look::Nothing) => Ok(lead.map(|id| Lead { key, id })),
            Ok(look) => Err(look),
            Err(error) => {
                self.did_not_answer(&error);
                Ok(None)
            }
        }
    }

    fn did_not_answer(&self, error: &CacheError) {
        self.engine.metrics().cache().used(CacheUse::Failed);
        debug!(error = error as &dyn std::error::Error, "done without the step cache");
    }

    async fn instead(&self, recall: &Recall<'_>, look: Look, abandon: &CancellationToken) -> Settle {
        let cache = self.engine.metrics().cache();
        match look {
            Look::Known(known) => {
                cache.used(CacheUse::Hit);
                self.answer_with(recall, known, abandon).await
            }
            Look::UnderWay { since } => {
                cache.used(CacheUse::Wait);
                Settle::Nak(wait(since))
            }
            Look::Nothing => Settle::Nak(Duration::ZERO),
        }
    }

    /// Claims the step and completes it.
    async fn answer_with(
        &self,
        recall: &Recall<'_>,
        known: CachedOutput,
        abandon: &CancellationToken,
    ) -> Settle {
        let (engine, (round, step)) = (&self.engine, recall.at);
        let (id, task) = (recall.run.id(), TaskRef::Step { round, step });
        let claimed = match engine.claim(id, task).await {
            Ok(claimed) => claimed,
            Err(settle) => return settle,
        };
        let claim = claimed.claim;
        if !is_still_asked(engine, &claimed, recall) {
            let (usage, cost) = (Usage::default(), Cost::ZERO);
            return engine
                .record(id, Command::HandBack { task, claim, usage, cost, hedge: None }, abandon)
                .await;
        }
        let CachedOutput { output, finish, usage } = known;
        let frame = Frame { round, step, claim, offset: 0, text: output.clone() };
        if let Err(error) = engine.parts().live.publish(id, Signal::Frame(frame)).await {
            debug!(run = %id, %error, "watchers were not told");
        }
        let cost = call::prices(recall.worker, &claimed.run, task, claim).cost(&usage);
        let result = StepResult {
            output,
            usage: Usage::default(),
            cost: Cost::ZERO,
            finish,
            first_token_ms: None,
            hedge: None,
            saved: Some(Saved { usage, cost }),
        };
        engine.record(id, Command::CompleteStep { round, step, claim, result }, abandon).await
    }

    /// The lead, if it is for the request that is going to be made. It is not where what the step sees has changed meanwhile.
    pub(super) async fn lead_for(
        &self,
        lead: Option<Lead>,
        run: &Run,
        (worker, request): (&Worker, &ChatRequest),
    ) -> Option<Lead> {
        let key = key(&self.engine, run, (worker, request));
        if lead.as_ref().is_some_and(|lead| key != Some(lead.key)) {
            self.give_up(lead).await;
            return None;
        }
        lead
    }

    /// Makes the call, and keeps the lead for as long as it takes.
    pub(super) async fn leading<T>(&self, lead: Option<&Lead>, call: impl Future<Output = T>) -> T {
        let (Some(lead), Some(cache)) = (lead, &self.engine.parts().cache) else { return call.await };
        self.engine.metrics().cache().used(CacheUse::Miss);
        tokio::select! {
            biased;
            outcome = call => outcome,
            never = self.stay_leading(&**cache, lead) => match never {},
        }
    }

    /// Tells the cache what came of the call of the worker that the lead is for. What another one wrote, who was asked beside and
    /// was faster, is not what others wait for.
    pub(super) async fn called(&self, lead: Option<Lead>, worker: &Worker, attempted: &Attempted) {
        let Attempted { ended, hedge } = attempted;
        let is_elses = |hedge: &Hedge| hedge.winner == Winner::Second && hedge.worker != worker.id;
        if hedge.as_ref().is_some_and(is_elses) {
            return self.give_up(lead).await;
        }
        let (Some(Lead { key, id }), Some(cache)) = (lead, &self.engine.parts().cache) else { return };
        let told = match ended {
            Ended::Finished(StepResult { output, finish, usage, .. }) if can_be_kept(*finish) => {
                let output = CachedOutput { output: output.clone(), finish: *finish, usage: *usage };
                self.engine.metrics().cache().used(CacheUse::Kept);
                cache.keep(&key, id, &output).await
            }
            Ended::Finished(_) | Ended::Failed { .. } => cache.give_up(&key, id, GivenUp::Failed).await,
            Ended::Lost { .. } | Ended::Abandoned { .. } => cache.give_up(&key, id, GivenUp::Stopped).await,
        };
        if let Err(error) = told {
            self.did_not_answer(&error);
        }
    }

    /// No call comes of the lead.
    pub(super) async fn give_up(&self, lead: Option<Lead>) {
        let (Some(Lead { key, id }), Some(cache)) = (lead, &self.engine.parts().cache) else { return };
        if let Err(error) = cache.give_up(&key, id, GivenUp::Stopped).await {
            self.did_not_answer(&error);
        }
    }

    async fn stay_leading(&self, cache: &dyn StepCache, lead: &Lead) -> Infallible {
        loop {
            self.engine.parts().clock.sleep(cache.extend_every()).await;
            if let Err(error) = cache.extend(&lead.key, lead.id).await {
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
    CacheKey::of((&spec.tenant, spec.policy.output_bytes_max), (engine.pool(), worker), request)
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

/// In proportion to how long the call has taken: it makes what is waited for a quarter longer at most, and long calls are not asked
/// for often.
fn wait(since: Duration) -> Duration {
    (since / 4).clamp(WAIT_MIN, WAIT_MAX)
}
