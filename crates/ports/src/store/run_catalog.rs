//! The catalog of runs: lists, ratings and removal.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::policy::Tier;
use podium_domain::rating::Rating;
use podium_domain::run::{Run, StateKind};
use podium_domain::time::Timestamp;

use super::StoreError;

/// Lists a tenant's runs, keeps their ratings, and removes old runs.
#[async_trait]
pub trait RunCatalog: Send + Sync {
    /// A tenant's runs that pass `filter`, newest first, at most `limit`; only those before `before` if it is given.
    ///
    /// Reads the tenant's runs from the newest of the filter's period on, until `limit` have passed. A state or a model that few
    /// runs have makes it read the whole period.
    async fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunSummary>, StoreError>;

    /// Stores a tenant's rating of one of its ended runs, in place of an earlier one. It is removed with the run. Returns whether
    /// there is such a run; otherwise nothing is stored. Repeating it changes only the time.
    async fn rate(
        &self,
        tenant: &TenantId,
        run: RunId,
        rating: &Rating,
        at: Timestamp,
    ) -> Result<bool, StoreError>;

    /// A tenant's rated runs by id, at most `limit`: those after `after`, if it is given, and before `before`.
    async fn rated(
        &self,
        tenant: &TenantId,
        after: Option<RunId>,
        before: RunId,
        limit: u32,
    ) -> Result<Vec<RatedRun>, StoreError>;

    /// Removes runs that ended at least `kept` before `now`, with their events and tasks: at most `limit`, in the order of
    /// acceptance. Returns the number removed. If it is below `limit`, no more are left, or others are removing them. A store with
    /// a clock uses the earlier of `now` and its own time, so that a caller with a wrong clock deletes nothing.
    ///
    /// Also removes the sums of budget periods that began [`SUMS_KEPT`](crate::accounts::SUMS_KEPT) before `now - kept`.
    ///
    /// An active run is never removed. A removed run is unknown afterwards and its request id is free: a client that repeats it
    /// begins a new run. The removal blocks no work on other runs, may run concurrently, and can be repeated.
    async fn remove_ended(&self, now: Timestamp, kept: Duration, limit: u32) -> Result<u32, StoreError>;
}

/// The runs that a list shows. The default shows all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Runs in one of these states; empty: in any.
    pub states: Vec<StateKind>,
    /// Runs of this tier, of pinned models too.
    pub tier: Option<Tier>,
    /// Runs whose client requested exactly this model.
    pub model: Option<String>,
    /// Runs that were accepted at this time or later.
    pub created_after: Option<Timestamp>,
    /// Runs that were accepted before this time.
    pub created_before: Option<Timestamp>,
}

impl RunFilter {
    /// The ids of the runs that it may show: from the first, if there is one, up to and without the second. `before` is the last
    /// run of the previous page.
    pub fn ids(&self, before: Option<RunId>) -> (Option<RunId>, Option<RunId>) {
        let created_before = self.created_before.map(RunId::least_at);
        let end = match (before, created_before) {
            (Some(before), Some(created)) => Some(before.min(created)),
            (before, created) => before.or(created),
        };
        (self.created_after.map(RunId::least_at), end)
    }

    /// Whether it shows a run of this id, state and model; for stores without a query language.
    pub fn shows(&self, id: RunId, state: StateKind, model: &str) -> bool {
        let (first, end) = self.ids(None);
        let tier = model.split('@').next().unwrap_or(model);
        first.is_none_or(|first| first <= id)
            && end.is_none_or(|end| id < end)
            && (self.states.is_empty() || self.states.contains(&state))
            && self.tier.is_none_or(|wanted| wanted.model() == tier)
            && self.model.as_ref().is_none_or(|wanted| wanted == model)
    }
}

/// An entry in a list of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// The run.
    pub id: RunId,
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// The model that the client requested.
    pub model: String,
    /// Its state's name.
    pub state: String,
    /// The beginning of the question.
    pub question: String,
    /// Its cost and counts so far.
    pub sums: RunSums,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// The cost and counts of a run so far, over all its rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunSums {
    /// Steps of all its plans.
    pub steps: u32,
    /// The cost of everything.
    pub cost: Cost,
    /// The share of the cost whose output was not used.
    pub wasted: Cost,
    /// The additional cost without the step cache.
    pub saved: Cost,
    /// How often a step continued with another worker.
    pub fallbacks: u32,
    /// The missing parts of its answer. `None` while the run is active, and for runs that ended under a version without this column.
    pub lack: Option<Lack>,
}

/// The missing parts of an ended run's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lack {
    /// The number of steps without an output; see [`Run::failed_steps`].
    pub failed_steps: u32,
    /// Whether the answer was built without the output of a step that it needs.
    pub degraded: bool,
    /// Whether the worker of the final step declined to answer.
    pub refused: bool,
}

impl Lack {
    fn of(run: &Run) -> Self {
        Self {
            failed_steps: u32::try_from(run.failed_steps().len()).unwrap_or(u32::MAX),
            degraded: run.is_degraded(),
            refused: run.refusal().is_some(),
        }
    }
}

impl RunSums {
    /// The sums of `run`.
    pub fn of(run: &Run) -> Self {
        let steps: usize = run.rounds().iter().map(|round| round.steps.len()).sum();
        Self {
            steps: u32::try_from(steps).unwrap_or(u32::MAX),
            cost: run.cost(),
            wasted: run.wasted_cost(),
            saved: run.saved().cost,
            fallbacks: run.fallbacks(),
            lack: run.ended_at().is_some().then(|| Lack::of(run)),
        }
    }
}

/// A run with its rating.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedRun {
    /// The rated run.
    pub run: RunId,
    /// The rating of its tenant.
    pub rating: Rating,
    /// When it was rated.
    pub rated_at: Timestamp,
}
