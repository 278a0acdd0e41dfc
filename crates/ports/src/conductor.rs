//! The port of the conductor, the model that plans.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::limits::RefusalReason;
use podium_domain::money::Cost;
use podium_domain::policy::{FailedStep, Policy};
use podium_domain::pool::Pool;
use podium_domain::prompt::Earlier;
use podium_domain::run::PlanResult;
use podium_domain::share::Rollout;
use podium_domain::time::Timestamp;
use podium_domain::usage::Usage;
use tokio_util::sync::CancellationToken;

use crate::BoxError;
use crate::vendor::VendorError;

/// The requester of a plan. A shared model divides its capacity fairly between requesters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The tenant that owns the run.
    pub tenant: TenantId,
    /// The run; for a question outside a run, a separate id.
    pub run: RunId,
    /// The index of the round that is planned, from 0.
    pub round: u16,
}

impl Asker {
    /// A requester for trials, with a separate tenant.
    pub fn nobody(run: RunId) -> Self {
        Self { tenant: TenantId::nobody(), run, round: 0 }
    }
}

/// A question to plan for.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRequest {
    /// The requester.
    pub asker: Asker,
    /// The user's whole question.
    pub question: String,
    /// The bounds, already restricted to the conductor's [`Abilities`].
    pub policy: Policy,
    /// The previous round; present in follow-up rounds only.
    pub earlier: Option<Earlier>,
    /// The seed for sampling; each attempt gets another one, so that it does not write the same text again.
    pub seed: u64,
    /// The time of the request; the price list of that moment applies.
    pub asked_at: Timestamp,
    /// Longest time that planning may take.
    pub time_max: Duration,
}

impl PlanRequest {
    /// Whether this plans a follow-up round. A follow-up round has no fallback to a single worker.
    pub const fn is_further(&self) -> bool {
        self.asker.round > 0
    }

    /// Whether the conductor may keep the answer of the previous round instead of writing a plan.
    pub fn may_keep_answer(&self) -> bool {
        self.earlier.as_ref().is_some_and(|earlier| earlier.gave_answer)
    }
}

/// The result of planning, with its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOutcome {
    /// A checked plan, or the verdict that the earlier answer stands.
    pub result: PlanResult,
    /// The tokens of all tries together.
    pub usage: Usage,
    /// The cost of these tokens; zero for a local model.
    pub cost: Cost,
}

/// The upper bounds of what a conductor supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Most steps of a plan.
    pub steps_max: u16,
    /// Most rounds; 1 if the conductor cannot judge a result.
    pub rounds_max: u16,
    /// The reaction to a failed step if the policy asks for a corrective plan: [`FailedStep::Replan`] if the conductor can write one.
    /// A conductor with `rounds_max` 1 never sees the failed round: it writes a new first plan, under a policy that excludes the
    /// workers that failed.
    pub failed_step: FailedStep,
}

/// Receives the conductor's text, piece by piece.
pub type TextSink<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Plans workflows.
#[async_trait]
pub trait Conductor: Send + Sync {
    /// Name and version, as runs record them.
    fn id(&self) -> &str;

    /// The upper bounds of what it supports.
    fn abilities(&self) -> Abilities;

    /// Writes a plan. `text` receives the model's output; `stop` ends the work early with [`ConductorError::Stopped`]. An error
    /// reports the tokens that were used before it.
    async fn plan(
        &self,
        request: &PlanRequest,
        text: TextSink<'_>,
        stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError>;

    /// The pool whose order the positions in the text refer to, if the conductor's text is its plan. Completely written steps of such
    /// a text begin before the plan is complete. `None` if all steps must wait for the plan.
    ///
    /// If the complete plan does not begin with these steps, their cost is wasted, which is no error. So a conductor that writes
    /// several plans and chooses one returns `None`.
    fn pool_in_text(&self) -> Option<&Pool> {
        None
    }

    /// The result of [`Self::plan`] if it needs neither a model nor waiting; the process that accepts the run then plans it as well.
    /// `None` otherwise, or if there is no plan.
    fn plan_at_once(&self, _request: &PlanRequest) -> Option<PlanOutcome> {
        None
    }

    /// The highest cost of one plan, which is the amount to reserve; zero for a model without a price.
    fn plan_cost_max(&self, _request: &PlanRequest) -> Cost {
        Cost::ZERO
    }

    /// The same conductor for a changed pool, on the model that is loaded; the error says why it cannot plan over that pool. `None` if
    /// building it anew loads nothing.
    fn for_pool(&self, _pool: &Pool) -> Option<Result<Arc<dyn Conductor>, BoxError>> {
        None
    }

    /// Stops all planning and frees its memory. A program calls this before it exits.
    async fn shut_down(&self) {}
}

/// The conductors of a process, which differ in their [`Conductor::id`]. Each run is assigned to one of them when it is accepted.
pub type Conductors = Rollout<Arc<dyn Conductor>>;

/// Planning failed.
#[derive(Debug, thiserror::Error)]
pub enum ConductorError {
    /// The caller stopped it.
    #[error("planning was stopped")]
    Stopped,
    /// Its queue is full.
    #[error("the conductor is overloaded: {waiting_max} requests are waiting; try again later")]
    Overloaded {
        /// The bound of the queue.
        waiting_max: usize,
    },
    /// The conductor's model is out of capacity for longer than the request may wait.
    #[error("the conductor's model has no capacity for a call: {why}, for another {} ms", after.as_millis())]
    NoCapacity {
        /// The limit or condition that refused the call.
        why: RefusalReason,
        /// How long to wait before the next try.
        after: Duration,
    },
    /// It did not finish in time.
    #[error("the conductor did not finish within {} ms", limit.as_millis())]
    Timeout {
        /// The time limit.
        limit: Duration,
    },
    /// The prompt leaves too few tokens for a plan.
    #[error(
        "the question is too long: its prompt has {tokens} tokens, the conductor accepts at most {tokens_max}"
    )]
    QuestionTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Most tokens of a prompt that leave enough for a plan.
        tokens_max: usize,
    },
    /// None of its tries contains a plan that passes the checks.
    #[error("the conductor wrote no usable plan in {tries} tries: {message}")]
    NoPlan {
        /// The number of tries.
        tries: u32,
        /// The error of the last one.
        message: String,
        /// The tokens of all tries together.
        usage: Usage,
        /// The cost of these tokens.
        cost: Cost,
    },
    /// This process does not have the conductor: it was removed, or is not deployed to all processes yet.
    #[error("conductor `{id}` is not in this process")]
    Absent {
        /// The conductor's name and version.
        id: String,
    },
    /// The model or its server failed.
    #[error("the conductor failed")]
    Unavailable(#[source] BoxError),
    /// Another error, after tokens had been used.
    #[error(transparent)]
    Charged(Box<Charged>),
}

/// An error after tokens had been used. Its message is that of the error alone.
#[derive(Debug)]
pub struct Charged {
    error: ConductorError,
    usage: Usage,
    cost: Cost,
}

impl fmt::Display for Charged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for Charged {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl ConductorError {
    /// Adds tokens and cost that were used before this error to those that it already reports.
    #[must_use]
    pub fn charged(self, usage: Usage, cost: Cost) -> Self {
        if usage == Usage::default() && cost.is_zero() {
            return self;
        }
        let (before, paid) = self.consumed();
        let (usage, cost) = (before + usage, paid + cost);
        match self {
            Self::NoPlan { tries, message, .. } => Self::NoPlan { tries, message, usage, cost },
            Self::Charged(charged) => Self::Charged(Box::new(Charged { usage, cost, ..*charged })),
            error => Self::Charged(Box::new(Charged { error, usage, cost })),
        }
    }

    /// The error without its charges.
    pub const fn cause(&self) -> &Self {
        match self {
            Self::Charged(charged) => &charged.error,
            error => error,
        }
    }

    /// The message with all causes, including the vendor's or server's own text, for readers that may see that.
    pub fn full_message(&self) -> String {
        match self.source() {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }

    /// The message for a tenant, without a vendor's own words, as in [`VendorError::for_tenant`].
    pub fn message_for_tenant(&self) -> String {
        match self.source().and_then(|source| source.downcast_ref::<VendorError>()) {
            Some(source) => format!("{self}: {}", source.for_tenant()),
            None => self.full_message(),
        }
    }

    /// The tokens and cost that were used in spite of the error, as far as the conductor knows.
    pub fn consumed(&self) -> (Usage, Cost) {
        match self {
            Self::NoPlan { usage, cost, .. } => (*usage, *cost),
            Self::Charged(charged) => (charged.usage, charged.cost),
            _ => (Usage::default(), Cost::ZERO),
        }
    }

    /// Whether the same request may succeed later. If not, the question goes to the fallback worker unchanged.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self.cause(),
            Self::Overloaded { .. }
                | Self::NoCapacity { .. }
                | Self::Timeout { .. }
                | Self::Absent { .. }
                | Self::Unavailable(_)
        )
    }

    /// The back-off that the model's server or the limiter asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.cause() {
            Self::NoCapacity { after, .. } => Some(*after),
            Self::Unavailable(source) => source.downcast_ref::<VendorError>()?.retry_after(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: Usage = Usage { prompt_tokens: 3, ..Usage::NONE };

    #[test]
    fn a_charged_error_has_the_message_of_its_cause() {
        let cost = Cost::from_nano_usd(7);
        assert!(matches!(
            ConductorError::Stopped.charged(Usage::default(), Cost::ZERO),
            ConductorError::Stopped
        ));
        let asked = Some(Duration::from_secs(9));
        let slow = VendorError::Throttled { vendor: "v".to_owned(), retry_after: asked };
        let error = ConductorError::Unavailable(Box::new(slow)).charged(USAGE, cost).charged(USAGE, cost);
        assert_eq!(error.to_string(), "the conductor failed");
        assert_eq!(error.full_message(), "the conductor failed: vendor `v` asked to slow down");
        assert_eq!(error.source().unwrap().to_string(), "vendor `v` asked to slow down");
        assert_eq!(error.consumed(), (USAGE + USAGE, cost + cost));
        assert!(error.is_retryable() && matches!(error.cause(), ConductorError::Unavailable(_)));
        assert_eq!(error.retry_after(), asked);
    }
}
