//! One executor, as far as limits go: asks for a permit, calls, settles.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use podium_domain::conversation::{Message, Role};
use podium_domain::ids::{RunId, StepIndex, TenantId};
use podium_domain::policy::Tier;
use podium_domain::pool::Pool;
use podium_domain::run::TaskRef;
use podium_domain::token_estimate::text_tokens;
use podium_ports::clock::{Clock, Ids};
use podium_ports::limiter::{
    CallRequest, Grant, Limiter, Outcome, Patience, Settlement, TokenEstimate, outcome_of,
};
use podium_ports::vendor::{ChatEvent, ChatRequest, VendorError, Vendors};
use podium_redis::limits::{Options, RedisLimiter};
use podium_setup::{RandomIds, SystemClock};
use podium_vendors::HttpVendors;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::prompt::prompt;

/// How long to wait when Redis fails.
const TROUBLE_PAUSE: Duration = Duration::from_millis(200);

/// The results of all calls.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answered: AtomicU64,
    pub(crate) tokens: AtomicU64,
    pub(crate) limited: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// One executor; clones are the same.
#[derive(Clone)]
pub(crate) struct Executor {
    limiter: RedisLimiter,
    vendors: Arc<HttpVendors>,
    pool: Arc<Pool>,
    tally: Arc<Tally>,
    stop: CancellationToken,
}

impl Executor {
    pub(crate) fn start(
        redis_url: &str,
        pool: &Arc<Pool>,
        tally: &Arc<Tally>,
        stop: &CancellationToken,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self> {
        let instance = *RandomIds.claim_id().as_uuid();
        let (limiter, extender) =
            RedisLimiter::open(redis_url, Options::default(), instance, Arc::new(SystemClock))?;
        tasks.spawn(extender.run(stop.clone()));
        let vendors = HttpVendors::new(pool, &BTreeMap::new())?;
        Ok(Self {
            limiter,
            vendors: Arc::new(vendors),
            pool: Arc::clone(pool),
            tally: Arc::clone(tally),
            stop: stop.clone(),
        })
    }

    pub(crate) async fn call_until_stopped(self, seed: u64, words_max: u64, output_tokens_max: u32) {
        let mut calls = 0;
        while !self.stop.is_cancelled() {
            calls += 1;
            let text = prompt(seed, calls, words_max);
            let request = ChatRequest::new(vec![Message::new(Role::User, text)], output_tokens_max);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = self.call(seed, &request) => {}
            }
        }
    }

    async fn call(&self, seed: u64, request: &ChatRequest) {
        let worker = &self.pool.workers()[0];
        let run: RunId = RandomIds.run_id(SystemClock.now());
        let tenant = TenantId::new(if seed.is_multiple_of(2) { "even" } else { "odd" });
        let Ok(tenant) = tenant else { return };
        let bytes: usize = request.messages.iter().map(|message| message.text.len()).sum();
        let input = text_tokens(bytes);
        let call = CallRequest {
            worker,
            tenant: &tenant,
            tier: if seed.is_multiple_of(4) { Tier::Mini } else { Tier::Ultra },
            run,
            task: TaskRef::Step { round: 0, step: StepIndex::new(0) },
            estimate: TokenEstimate { input, output_max: request.output_tokens_max.into() },
            patience: Patience::Waits,
        };
        let permit = loop {
            match self.limiter.acquire(&call).await {
                Ok(Grant::Permit(permit)) => break permit,
                Ok(Grant::AskAgain { after, .. }) => {
                    self.tally.refused.fetch_add(1, Ordering::Relaxed);
                    SystemClock.sleep(after).await;
                }
                Err(_) => SystemClock.sleep(TROUBLE_PAUSE).await,
            }
        };
        let began = SystemClock.now();
        let mut settlement = Settlement::default();
        match self.answer(request, &mut settlement).await {
            Ok(()) => {
                self.tally.answered.fetch_add(1, Ordering::Relaxed);
                let tokens = settlement.usage.unwrap_or_default().total_tokens();
                self.tally.tokens.fetch_add(tokens, Ordering::Relaxed);
                settlement.first_token = Some(SystemClock.now().since(began));
            }
            Err(error) => {
                settlement.outcome = outcome_of(&error);
                let is_limited = matches!(settlement.outcome, Outcome::Limited { .. });
                let counter = if is_limited { &self.tally.limited } else { &self.tally.failed };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        permit.settle(settlement);
    }

    async fn answer(&self, request: &ChatRequest, settlement: &mut Settlement) -> Result<(), VendorError> {
        let mut events = self.vendors.chat(&self.pool.workers()[0], request).await?;
        while let Some(event) = events.next().await {
            match event? {
                ChatEvent::Quota(quota) => settlement.quota = quota,
                ChatEvent::Finished { usage, .. } => {
                    settlement.outcome = Outcome::Answered;
                    settlement.usage = usage;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
