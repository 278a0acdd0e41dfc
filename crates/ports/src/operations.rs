//! The operators' view of a store: the lanes, tasks, runs and reservations of all tenants; and the record of what operators did.

use async_trait::async_trait;
use podium_domain::budget::Charge;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::time::Timestamp;

use crate::store::StoreError;

/// A task that should have been worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckTask {
    /// The run.
    pub run: RunId,
    /// The task's name, such as `plan.0` or `step.0.2`.
    pub task: String,
    /// The tenant of the run.
    pub tenant: TenantId,
    /// The lane where it waits.
    pub lane: String,
    /// Its state.
    pub state: Stuck,
    /// Since when it could be claimed, or when its lease ended. The epoch if its process has no lease at all.
    pub since: Timestamp,
}

/// Why a task is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// It waits in the store, because its lane is full or not dispatched.
    InBacklog,
    /// It has a message in the queue that nobody takes.
    Published,
    /// Its process has no lease any more, and no sweeper has released the claim.
    Abandoned,
}

/// Which open runs are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenRunFilter {
    /// Only runs in this state; both if it is `None`.
    pub state: Option<OpenState>,
    /// Only runs of this tenant.
    pub tenant: Option<TenantId>,
    /// Only runs that were accepted before this time.
    pub accepted_before: Option<Timestamp>,
}

/// The state of a run that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenState {
    /// It is planned and worked on.
    Active,
    /// It waits for the results of tool calls.
    Suspended,
}

impl OpenState {
    /// The name that stores keep.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
        }
    }
}

/// A run that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRun {
    /// The run.
    pub id: RunId,
    /// Its tenant.
    pub tenant: TenantId,
    /// The model that the client requested.
    pub model: String,
    /// The name of its state.
    pub state: String,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it ends if nothing else ends it.
    pub due_at: Timestamp,
    /// Its cost so far.
    pub cost: Cost,
}

/// Money of a budget that is reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// `tenant:NAME` or `key:ID`.
    pub payer: String,
    /// The beginning of the period.
    pub from: Timestamp,
    /// The sums of the period.
    pub charge: Charge,
}

/// An action of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorAction {
    /// When.
    pub at: Timestamp,
    /// Who, as the operator's command says: at most 200 characters.
    pub operator: String,
    /// What, such as `cancel`.
    pub action: String,
    /// On what, such as a run's id.
    pub subject: String,
    /// The amounts or the result.
    pub details: String,
}

/// Reads what is open in a store, over all tenants, and keeps a record of operators' actions. For operators, who have access to the
/// database. No call is part of serving clients.
#[async_trait]
pub trait Operations: Send + Sync {
    /// The tasks that could be claimed at `before` or earlier and still can, and those whose process had no lease then; at most
    /// `limit`, the oldest first.
    async fn stuck_tasks(&self, before: Timestamp, limit: u32) -> Result<Vec<StuckTask>, StoreError>;

    /// The runs that have not ended, by id, at most `limit`; only those after `after` if it is given.
    async fn open_runs(
        &self,
        filter: &OpenRunFilter,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<OpenRun>, StoreError>;

    /// The budgets and periods with a reserved sum, by payer, at most `limit`.
    async fn reservations(&self, limit: u32) -> Result<Vec<Reservation>, StoreError>;

    /// Records an action. The record is never changed or removed.
    async fn record_action(&self, action: &OperatorAction) -> Result<(), StoreError>;

    /// The last recorded actions, the newest first, at most `limit`.
    async fn actions(&self, limit: u32) -> Result<Vec<OperatorAction>, StoreError>;
}
