//! The model that plans.

use std::error::Error;
use std::fmt;
use std::num::{NonZeroU16, NonZeroUsize};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::limits::Why;
use podium_domain::money::Cost;
use podium_domain::policy::{FailedStep, Policy};
use podium_domain::pool::Pool;
use podium_domain::prompt::Earlier;
use podium_domain::run::PlanResult;
use podium_domain::time::Timestamp;
use podium_domain::usage::Usage;
use tokio_util::sync::CancellationToken;

use crate::BoxError;
use crate::hardware::Hardware;
use crate::vendor::VendorError;

/// For whom a plan is asked: a model that is shared is shared out by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Whose run it is.
    pub tenant: TenantId,
    /// The run; of a question that is no run, an id of its own.
    pub run: RunId,
    /// Which round is planned, from 0.
    pub round: u16,
}

impl Asker {
    /// Nobody, who tries something out under a name of its own.
    pub fn nobody(run: RunId) -> Self {
        Self { tenant: TenantId::nobody(), run, round: 0 }
    }
}

/// A question to plan for.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRequest {
    /// For whom.
    pub asker: Asker,
    /// The whole task.
    pub question: String,
    /// The bounds, already within the conductor's own [`Abilities`].
    pub policy: Policy,
    /// The round before, when this is a further one.
    pub earlier: Option<Earlier>,
    /// Seeds the choice of tokens: another attempt should not write the same.
    pub seed: u64,
    /// When it is asked: what planning costs is priced by the list that is valid then.
    pub asked_at: Timestamp,
    /// Longest time for it.
    pub time_max: Duration,
}

impl PlanRequest {
    /// Whether it is for a round after the first: then no safe worker takes the place of a plan.
    pub const fn is_further(&self) -> bool {
        self.asker.round > 0
    }

    /// Whether the conductor may keep the answer of the round before instead of writing a plan.
    pub fn may_keep_answer(&self) -> bool {
        self.earlier.as_ref().is_some_and(|earlier| earlier.gave_answer)
    }
}

/// What planning came to.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOutcome {
    /// A checked plan, or the word that the earlier answer is good.
    pub result: PlanResult,
    /// The tokens of all tries.
    pub usage: Usage,
    /// What they cost; nothing for a local model.
    pub cost: Cost,
}

/// What a conductor can do at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Steps of a plan.
    pub steps_max: u16,
    /// Rounds: 1 when it cannot judge what came out.
    pub rounds_max: u16,
    /// What follows a failed step where the policy asks for a corrective plan: [`FailedStep::Replan`] if it can write one. A
    /// conductor that cannot judge a round (`rounds_max` 1) is not shown the failed one: it is asked for a new first plan by a
    /// policy that no longer allows the workers that failed.
    pub failed_step: FailedStep,
}

/// Told what the conductor writes, piece by piece.
pub type TextSink<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Plans workflows.
#[async_trait]
pub trait Conductor: Send + Sync {
    /// Name and version, as runs record them.
    fn id(&self) -> &str;

    /// What it can do at most.
    fn abilities(&self) -> Abilities;

    /// Writes a plan. `text` hears what the model writes; `stop` ends the work early with [`ConductorError::Stopped`]. An error
    /// says what was consumed all the same.
    async fn plan(
        &self,
        request: &PlanRequest,
        text: TextSink<'_>,
        stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError>;

    /// The pool in the order in which positions in the text count it, of a conductor whose text is its plan as it is written. Steps
    /// that are final in such a text begin before the plan is complete. `None` where all has to wait for the plan.
    ///
    /// A plan that in the end does not begin with them is no error, but costs what they did: not for conductors that write
    /// several plans and choose.
    fn pool_in_text(&self) -> Option<&Pool> {
        None
    }

    /// What [`Self::plan`] would give, where that needs no model and no waiting: then whoever accepts a run plans it as well.
    /// `None` where it does, and where there is no plan.
    fn plan_at_once(&self, _request: &PlanRequest) -> Option<PlanOutcome> {
        None
    }

    /// The most that one plan may cost, for whoever has to reserve it; nothing for a model that is not paid for.
    fn plan_cost_max(&self, _request: &PlanRequest) -> Cost {
        Cost::ZERO
    }

    /// Stops all planning and frees what is held. A program does this before it exits.
    async fn shut_down(&self) {}
}

/// Most plans that a model in this process writes at the same time: llama.cpp holds 256 sequences apart, and each of these
/// takes memory for a whole text.
pub const SEQUENCES_MAX: u16 = 64;
/// Most requests that may wait for a model in this process.
pub const WAITING_MAX: usize = 100_000;

/// What a conductor whose model runs in this process may take of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalLimits {
    /// Most plans that are written at the same time, in one batch; at most [`SEQUENCES_MAX`]. The model's memory for text
    /// grows with them.
    pub sequences_max: NonZeroU16,
    /// Most requests that wait while so many are worked on, at most [`WAITING_MAX`]; further ones are refused with [`ConductorError::Overloaded`].
    pub waiting_max: NonZeroUsize,
    /// What of the machine it may use.
    pub hardware: Hardware,
}

impl Default for LocalLimits {
    fn default() -> Self {
        const SEQUENCES_MAX: NonZeroU16 = NonZeroU16::new(8).expect("8 is not 0");
        const WAITING_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("256 is not 0");
        Self { sequences_max: SEQUENCES_MAX, waiting_max: WAITING_MAX, hardware: Hardware::default() }
    }
}

/// How planning went wrong.
#[derive(Debug, thiserror::Error)]
pub enum ConductorError {
    /// It was told to stop.
    #[error("planning was stopped")]
    Stopped,
    /// Its queue is full.
    #[error("the conductor has {waiting_max} requests waiting already")]
    Overloaded {
        /// The bound of its queue.
        waiting_max: usize,
    },
    /// Its model may not be called now, and will not be in the time that there is.
    #[error("the conductor's model has no room for a call: {why}, for another {} ms", after.as_millis())]
    NoRoom {
        /// Why not.
        why: Why,
        /// When to ask again.
        after: Duration,
    },
    /// It did not finish in time.
    #[error("the conductor did not finish within {} ms", limit.as_millis())]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// The prompt leaves no room for a plan.
    #[error("the question takes {tokens} tokens with its prompt, the conductor has room for {tokens_max}")]
    QuestionTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Most tokens that leave room for a plan.
        tokens_max: usize,
    },
    /// It wrote no plan that checks, in all its tries.
    #[error("the conductor wrote no usable plan in {tries} tries: {message}")]
    NoPlan {
        /// How many.
        tries: u32,
        /// What was wrong with the last one.
        message: String,
        /// The tokens of all tries.
        usage: Usage,
        /// What they cost.
        cost: Cost,
    },
    /// It is not of this process: it was taken away, or has not come to all processes yet.
    #[error("conductor `{id}` is not in this process")]
    Absent {
        /// Its name and version.
        id: String,
    },
    /// The model or its server failed.
    #[error("the conductor failed")]
    Unavailable(#[source] BoxError),
    /// One of the others, after something had been consumed.
    #[error(transparent)]
    Charged(Box<Charged>),
}

/// A failure that was paid for. It reads like the failure alone.
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
    /// The same, and that so much was consumed before it, on top of what it says already.
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

    /// What went wrong, whatever was consumed.
    pub const fn cause(&self) -> &Self {
        match self {
            Self::Charged(charged) => &charged.error,
            error => error,
        }
    }

    /// What went wrong, with what the model or its server said, for whoever reads the run.
    pub fn told(&self) -> String {
        match self.source() {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }

    /// The same for a tenant: without the words of a vendor, as in [`VendorError::for_tenant`].
    pub fn told_to_tenant(&self) -> String {
        match self.source().and_then(|source| source.downcast_ref::<VendorError>()) {
            Some(source) => format!("{self}: {}", source.for_tenant()),
            None => self.told(),
        }
    }

    /// What was consumed all the same, as far as the conductor knows.
    pub fn consumed(&self) -> (Usage, Cost) {
        match self {
            Self::NoPlan { usage, cost, .. } => (*usage, *cost),
            Self::Charged(charged) => (charged.usage, charged.cost),
            _ => (Usage::default(), Cost::ZERO),
        }
    }

    /// Whether the same request may succeed later. If not, the question goes to one safe worker as it is.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self.cause(),
            Self::Overloaded { .. }
                | Self::NoRoom { .. }
                | Self::Timeout { .. }
                | Self::Absent { .. }
                | Self::Unavailable(_)
        )
    }

    /// How long whoever serves the model, or keeps its limits, wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.cause() {
            Self::NoRoom { after, .. } => Some(*after),
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
    fn a_failure_that_was_paid_for_reads_like_the_failure() {
        let cost = Cost::from_nano_usd(7);
        assert!(matches!(
            ConductorError::Stopped.charged(Usage::default(), Cost::ZERO),
            ConductorError::Stopped
        ));
        let asked = Some(Duration::from_secs(9));
        let slow = VendorError::Throttled { vendor: "v".to_owned(), retry_after: asked };
        let error = ConductorError::Unavailable(Box::new(slow)).charged(USAGE, cost).charged(USAGE, cost);
        assert_eq!(error.to_string(), "the conductor failed");
        assert_eq!(error.told(), "the conductor failed: vendor `v` asked to slow down");
        assert_eq!(error.source().unwrap().to_string(), "vendor `v` asked to slow down");
        assert_eq!(error.consumed(), (USAGE + USAGE, cost + cost));
        assert!(error.is_retryable() && matches!(error.cause(), ConductorError::Unavailable(_)));
        assert_eq!(error.retry_after(), asked);
    }
}
