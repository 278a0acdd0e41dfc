//! What a run may do: tier, effort, and a named bound for everything that could grow.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::WorkerId;
use crate::money::Cost;
use crate::pool::{Pool, Worker};

/// The two ways to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Latency: one worker, one step.
    Mini,
    /// Quality: a workflow.
    Ultra,
}

impl Tier {
    /// The name that clients use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mini => "mini",
            Self::Ultra => "ultra",
        }
    }
}

/// How hard to try, in the words of the OpenAI `reasoning_effort` parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// At most two steps; workers that can are asked not to reason.
    None,
    /// At most two steps; workers that can are asked to reason as little as possible.
    Minimal,
    /// At most two steps.
    Low,
    /// The default: as many steps as the tier allows, one round.
    #[default]
    Medium,
    /// As medium; workers that can are asked to reason more.
    High,
    /// A second round may correct the first.
    XHigh,
    /// As extra high; workers that can are asked to reason as much as possible.
    Max,
}

impl Effort {
    /// Every effort, in rising order.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max];

    /// The name that clients use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// The effort of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effort| effort.as_str() == name)
    }
}

/// Which workers a plan may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkersAllowed {
    /// Every worker of the pool.
    #[default]
    All,
    /// These and no others.
    Only(BTreeSet<WorkerId>),
}

/// Whether something is done for a run that the pool has rules for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolRule {
    /// It is not done.
    None,
    /// As the pool has it, as far as the rest of the policy allows.
    Pool,
}

impl PoolRule {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::None, Self::Pool];

    /// What policies meant that were stored before there was a choice.
    const fn before() -> Self {
        Self::None
    }

    /// Whether it says no more than policies did then.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
    const fn is_as_before(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The name that clients use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pool => "pool",
        }
    }

    /// The choice of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == name)
    }
}

/// What follows where a worker's answer breaks off: its vendor failed, fell silent or ended too early after output had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BrokenAnswer {
    /// The worker is not asked again: what it wrote is paid for. The step goes on with another one where [`Policy::fallback`] lets
    /// it, else it fails.
    Elsewhere,
    /// The worker is asked again, within the attempts: the same is paid for twice.
    Again,
}

impl BrokenAnswer {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::Elsewhere, Self::Again];

    /// What policies meant that were stored before there was a choice.
    const fn before() -> Self {
        Self::Again
    }

    /// Whether it says no more than policies did then.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
    const fn is_as_before(&self) -> bool {
        matches!(self, Self::Again)
    }

    /// The name that clients use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Elsewhere => "elsewhere",
            Self::Again => "again",
        }
    }

    /// The choice of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == name)
    }
}

/// What follows a step that failed for good: its worker's attempts are used up, and no other worker may do it; or its worker
/// declined to answer.
///
/// A step that the answer does not need changes nothing. A final step whose worker declined is the run's answer, by any of
/// these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedStep {
    /// The conductor is asked, once a run, for a plan that corrects the failed one. It is shown what is known and what failed; one
    /// that cannot judge an earlier round plans anew, without the workers that failed.
    /// If that gives no answer either, the run fails with the first failure.
    Replan,
    /// Steps that see the failed step are told that its output is missing. The response says so.
    Continue,
    /// The run fails.
    Fail,
}

impl FailedStep {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Replan, Self::Continue, Self::Fail];

    /// What policies meant that were stored before there was a choice.
    const fn before() -> Self {
        Self::Continue
    }

    /// Whether it says no more than policies did then.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    const fn is_as_before(&self) -> bool {
        matches!(self, Self::Continue)
    }

    /// The name that clients use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replan => "replan",
            Self::Continue => "continue",
            Self::Fail => "fail",
        }
    }

    /// The choice of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == name)
    }
}

/// Whether a step may be answered with what its worker answered to the same request before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepCaching {
    /// Every step is asked of its worker.
    Off,
    /// Where there is a step cache and the request is the same word for word, of the same tenant, and with a temperature of zero
    /// or a seed, by which its answer is meant to be the same.
    Exact,
}

impl StepCaching {
    /// What policies meant that were stored before there was a choice.
    const fn before() -> Self {
        Self::Off
    }

    /// Whether it says no more than policies did then.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
    const fn is_as_before(&self) -> bool {
        matches!(self, Self::Off)
    }
}

/// Most workers that one step goes on with, one after the other, beside the planned one.
pub const FALLBACKS_MAX: usize = 3;
/// Most steps that any policy can allow.
pub const STEPS_MAX: u16 = 16;
/// Most rounds that any policy can allow.
pub const ROUNDS_MAX: u16 = 4;
/// Most attempts at one step that any policy can allow.
pub const ATTEMPTS_MAX: u32 = 20;
/// Longest deadline that any policy can allow.
pub const DEADLINE_MAX: Duration = Duration::from_hours(24);
/// Most bytes of one output that any policy can allow.
pub const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// The bounds of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Latency or quality.
    pub tier: Tier,
    /// How hard to try.
    pub effort: Effort,
    /// Most steps of one round's plan, from 1 to [`STEPS_MAX`].
    pub steps_max: u16,
    /// Most rounds, from 1 to [`ROUNDS_MAX`].
    pub rounds_max: u16,
    /// Most attempts at planning or at one step, from 1 to [`ATTEMPTS_MAX`]. What is handed back does not count.
    pub attempts_max: u32,
    /// From accept to answer, in milliseconds, at most [`DEADLINE_MAX`].
    pub deadline_ms: u64,
    /// Most that the run may cost. An attempt is not begun when what is spent, what is in flight and its own
    /// estimate exceed this.
    pub cost_max: Option<Cost>,
    /// Most bytes of one step's output.
    pub output_bytes_max: usize,
    /// Which workers may be used.
    pub workers_allowed: WorkersAllowed,
    /// Whether a step may go on with another worker when its own cannot do it.
    #[serde(default = "PoolRule::before", skip_serializing_if = "PoolRule::is_as_before")]
    pub fallback: PoolRule,
    /// What follows where a worker's answer breaks off.
    #[serde(default = "BrokenAnswer::before", skip_serializing_if = "BrokenAnswer::is_as_before")]
    pub broken_answer: BrokenAnswer,
    /// What follows a step that failed for good.
    #[serde(default = "FailedStep::before", skip_serializing_if = "FailedStep::is_as_before")]
    pub failed_step: FailedStep,
    /// Whether a step may be answered from the step cache.
    #[serde(default = "StepCaching::before", skip_serializing_if = "StepCaching::is_as_before")]
    pub step_cache: StepCaching,
}

/// A bound that is out of its own bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy {field} is {value}, it must be {min} to {max}")]
pub struct PolicyError {
    /// Which bound.
    pub field: &'static str,
    /// What it was.
    pub value: u64,
    /// The least that is allowed.
    pub min: u64,
    /// The most that is allowed.
    pub max: u64,
}

impl Policy {
    /// The defaults of a tier at an effort.
    pub fn new(tier: Tier, effort: Effort) -> Self {
        let (steps_max, rounds_max) = match (tier, effort) {
            (Tier::Mini, _) => (1, 1),
            (Tier::Ultra, Effort::None | Effort::Minimal | Effort::Low) => (2, 1),
            (Tier::Ultra, Effort::Medium | Effort::High) => (5, 1),
            (Tier::Ultra, Effort::XHigh | Effort::Max) => (5, 2),
        };
        Self {
            tier,
            effort,
            steps_max,
            rounds_max,
            attempts_max: 3,
            deadline_ms: 600_000,
            cost_max: None,
            output_bytes_max: 256 << 10,
            workers_allowed: WorkersAllowed::All,
            fallback: PoolRule::Pool,
            broken_answer: BrokenAnswer::Elsewhere,
            failed_step: match tier {
                Tier::Mini => FailedStep::Fail,
                Tier::Ultra => FailedStep::Replan,
            },
            step_cache: StepCaching::Exact,
        }
    }

    /// Checks every bound.
    pub fn check(&self) -> Result<(), PolicyError> {
        let deadline_max = u64::try_from(DEADLINE_MAX.as_millis()).unwrap_or(u64::MAX);
        let bounds = [
            ("steps_max", u64::from(self.steps_max), u64::from(STEPS_MAX)),
            ("rounds_max", u64::from(self.rounds_max), u64::from(ROUNDS_MAX)),
            ("attempts_max", u64::from(self.attempts_max), u64::from(ATTEMPTS_MAX)),
            ("deadline_ms", self.deadline_ms, deadline_max),
            ("output_bytes_max", self.output_bytes_max as u64, OUTPUT_BYTES_MAX as u64),
        ];
        for (field, value, max) in bounds {
            if !(1..=max).contains(&value) {
                return Err(PolicyError { field, value, min: 1, max });
            }
        }
        Ok(())
    }

    /// The deadline as a span.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    /// Whether a plan may use `worker`.
    pub fn allows(&self, worker: &Worker) -> bool {
        self.allows_id(&worker.id)
    }

    /// The same policy without `workers`; of the pool's workers, those that it allows otherwise remain, maybe none.
    #[must_use]
    pub fn without(&self, workers: &BTreeSet<WorkerId>, pool: &Pool) -> Self {
        let allowed = pool.workers().iter().filter(|worker| self.allows(worker));
        let rest = allowed.map(|worker| &worker.id).filter(|id| !workers.contains(*id));
        Self { workers_allowed: WorkersAllowed::Only(rest.cloned().collect()), ..self.clone() }
    }

    /// As [`Self::allows`], by name.
    pub fn allows_id(&self, worker: &WorkerId) -> bool {
        match &self.workers_allowed {
            WorkersAllowed::All => true,
            WorkersAllowed::Only(ids) => ids.contains(worker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_within_its_bounds() {
        for tier in [Tier::Mini, Tier::Ultra] {
            for effort in Effort::ALL {
                assert_eq!(Policy::new(tier, effort).check(), Ok(()));
                assert_eq!(Effort::from_name(effort.as_str()), Some(effort));
            }
        }
    }

    #[test]
    fn a_bound_out_of_bounds_is_named() {
        let policy = Policy { steps_max: 17, ..Policy::new(Tier::Ultra, Effort::Medium) };
        let text = policy.check().unwrap_err().to_string();
        assert_eq!(text, "policy steps_max is 17, it must be 1 to 16");
    }

    #[test]
    fn what_was_stored_before_there_was_a_choice_reads_as_it_was_meant() {
        let policy = Policy::new(Tier::Ultra, Effort::Medium);
        let mut stored = serde_json::to_value(&policy).unwrap();
        for name in ["fallback", "broken_answer", "failed_step", "step_cache"] {
            assert!(stored.as_object_mut().unwrap().remove(name).is_some(), "{name}");
        }
        let before: Policy = serde_json::from_value(stored.clone()).unwrap();
        let expected = Policy {
            fallback: PoolRule::None,
            broken_answer: BrokenAnswer::Again,
            failed_step: FailedStep::Continue,
            step_cache: StepCaching::Off,
            ..policy.clone()
        };
        assert_eq!(before, expected);
        assert_eq!(serde_json::to_value(&before).unwrap(), stored);
        let stored = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&stored).unwrap(), policy);
        for choice in BrokenAnswer::ALL {
            assert_eq!(BrokenAnswer::from_name(choice.as_str()), Some(choice));
        }
        for choice in FailedStep::ALL {
            assert_eq!(FailedStep::from_name(choice.as_str()), Some(choice));
        }
    }
}
