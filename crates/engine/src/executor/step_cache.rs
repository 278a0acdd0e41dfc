//! The step cache around calls: an identical request reuses a cached output. If the cache does not answer, workers are called as if
//! it were absent.

use std::sync::Arc;

use podium_domain::policy::StepCaching;
use podium_domain::pool::Pool;
use podium_domain::run::{FinishReason, StepResult};
use podium_ports::cache::{CacheError, CacheKey, CachedOutput, StepCache};
use tracing::debug;

use super::cache_key::cache_key;
use super::call::Ended;
use super::step_call::StepCall;
use crate::context::Context;
use crate::metrics::CacheUse;

/// The step cache, if the process has one. Cheap to clone.
#[derive(Clone)]
pub(super) struct CachedCalls {
    context: Context,
    cache: Option<Arc<dyn StepCache>>,
}

/// An output from the cache.
pub(super) struct Known {
    key: CacheKey,
    pub(super) output: CachedOutput,
}

impl CachedCalls {
    pub(super) fn new(context: Context, cache: Option<Arc<dyn StepCache>>) -> Self {
        Self { context, cache }
    }

    /// The output of an identical earlier call.
    pub(super) async fn look_up(&self, call: &StepCall) -> Option<Known> {
        let cache = self.cache.as_ref()?;
        let key = key(self.context.pool(), call)?;
        let found = cache.look_up(&key).await.unwrap_or_else(|error| {
            self.note_failure(&error);
            None
        });
        found.map(|output| Known { key, output })
    }

    /// Whether the output is one of this call.
    pub(super) fn is_of(&self, known: &Known, call: &StepCall) -> bool {
        key(self.context.pool(), call) == Some(known.key)
    }

    /// Makes the call, and caches its output if the policy allows it and the worker finished it.
    pub(super) async fn cached(&self, call: &StepCall, attempt: impl Future<Output = Ended>) -> Ended {
        let (Some(cache), Some(key)) = (&self.cache, key(self.context.pool(), call)) else {
            return attempt.await;
        };
        let uses = self.context.metrics().cache();
        uses.used(CacheUse::Miss);
        let ended = attempt.await;
        if let Ended::Finished(StepResult { output, finish, stop_sequence, spent, .. }) = &ended
            && matches!(finish, FinishReason::Stop | FinishReason::Length)
        {
            let output = CachedOutput {
                output: output.clone(),
                finish: *finish,
                stop_sequence: stop_sequence.clone(),
                usage: spent.usage,
            };
            uses.used(CacheUse::Kept);
            if let Err(error) = cache.keep(&key, &output).await {
                self.note_failure(&error);
            }
        }
        ended
    }

    fn note_failure(&self, error: &CacheError) {
        self.context.metrics().cache().used(CacheUse::Failed);
        debug!(error = error as &dyn std::error::Error, "the step cache did not answer");
    }
}

/// The key of a call whose output may be cached.
fn key(pool: &Pool, call: &StepCall) -> Option<CacheKey> {
    let spec = call.run.spec();
    if spec.request.policy.step_cache != StepCaching::Exact {
        return None;
    }
    cache_key(&spec.tenant, spec.request.policy.output_bytes_max, pool, &call.worker, &call.request)
}
