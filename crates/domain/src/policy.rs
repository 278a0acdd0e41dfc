//! The policy of a run: tier, effort, and a named bound for everything that could grow.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::WorkerId;
use crate::money::Cost;

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

    /// The name of its model. The names of pinned models begin with it, followed by `@`.
    pub const fn model(self) -> &'static str {
        match self {
            Self::Mini => "podium-mini",
            Self::Ultra => "podium-ultra",
        }
    }
}

/// How much to spend on an answer, with the values of the OpenAI `reasoning_effort` parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// At most two steps; workers that support it are asked not to reason.
    None,
    /// At most two steps; workers that support it are asked to reason as little as possible.
    Minimal,
    /// At most two steps.
    Low,
    /// The default: as many steps as the tier allows, in one round.
    #[default]
    Medium,
    /// As medium; workers that support it are asked to reason more.
    High,
    /// A second round may correct the first.
    XHigh,
    /// As extra high; workers that support it are asked to reason as much as possible.
    Max,
}

impl Effort {
    /// Every effort, in ascending order.
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

    /// The effort with that name.
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
    /// Only these workers.
    Only(BTreeSet<WorkerId>),
}

/// Whether a rule of the pool applies to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolRule {
    /// The rule does not apply.
    None,
    /// The rule applies, within the bounds of the policy.
    Pool,
}

impl PoolRule {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::None, Self::Pool];

    /// The behaviour of policies that were stored before this field existed.
    const fn before() -> Self {
        Self::None
    }

    /// Whether it has the value that the stored form omits.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires it")]
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

    /// The value with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == name)
    }
}

/// The reaction to a worker's answer that broke off: the vendor failed, stopped sending or ended too early after output had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BrokenAnswer {
    /// The worker is not called again, because its output was paid for. The step continues with another worker if
    /// [`Policy::fallback`] allows it; otherwise it fails.
    Elsewhere,
    /// The worker is called again, within the attempts; the output is paid for twice.
    Again,
}

impl BrokenAnswer {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::Elsewhere, Self::Again];

    /// The behaviour of policies that were stored before this field existed.
    const fn before() -> Self {
        Self::Again
    }

    /// Whether it has the value that the stored form omits.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires it")]
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

    /// The value with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == name)
    }
}

/// The reaction to a step that has failed for good: its worker's attempts are used up and no other worker may do it, or its worker
/// declined to answer.
///
/// A step that the answer does not need has no effect. A final step whose worker declined is the run's answer, with any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedStep {
    /// The conductor is asked once per run for a plan that corrects the failed one. It sees the known outputs and the failure. A
    /// conductor that cannot judge an earlier round writes a new plan, without the workers that failed. If that plan produces no
    /// answer either, the run fails with the first failure.
    Replan,
    /// Prompts of steps that see the failed step say that its output is missing. The response reports the failed step.
    Continue,
    /// The run fails.
    Fail,
}

impl FailedStep {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Replan, Self::Continue, Self::Fail];

    /// The behaviour of policies that were stored before this field existed.
    const fn before() -> Self {
        Self::Continue
    }

    /// Whether it has the value that the stored form omits.
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

    /// The value with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == name)
    }
}

/// Whether a step may reuse its worker's stored answer to an identical request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepCaching {
    /// Every step calls its worker.
    Off,
    /// A stored answer is reused if there is a step cache and the request is identical, of the same tenant, and asks for a
    /// repeatable answer by a temperature of zero or a seed.
    Exact,
}

impl StepCaching {
    /// The behaviour of policies that were stored before this field existed.
    const fn before() -> Self {
        Self::Off
    }

    /// Whether it has the value that the stored form omits.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires it")]
    const fn is_as_before(&self) -> bool {
        matches!(self, Self::Off)
    }
}

/// Which steps may call tools, and who continues after the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepTools {
    /// Every step may call tools. A step that does waits for the results, and the same run continues with them. If the client forces
    /// a call, the run behaves as with [`Self::Last`]: the call is the answer.
    All,
    /// Only the final step may. The run ends with its calls, and the results begin a new run with the same worker.
    Last,
}

impl StepTools {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::All, Self::Last];

    /// The behaviour of policies that were stored before this field existed.
    const fn before() -> Self {
        Self::Last
    }

    /// Whether it has the value that the stored form omits.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    const fn is_as_before(&self) -> bool {
        matches!(self, Self::Last)
    }

    /// The name that clients use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Last => "last",
        }
    }

    /// The value with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == name)
    }
}

/// Most fallbacks of one step, in addition to the planned worker.
pub const FALLBACKS_MAX: usize = 3;
/// Upper bound of [`Policy::steps_max`].
pub const STEPS_MAX: u16 = 16;
/// Upper bound of [`Policy::rounds_max`].
pub const ROUNDS_MAX: u16 = 4;
/// Upper bound of [`Policy::attempts_max`].
pub const ATTEMPTS_MAX: u32 = 20;
/// Upper bound of the deadline.
pub const DEADLINE_MAX: Duration = Duration::from_hours(24);
/// Upper bound of [`Policy::output_bytes_max`].
pub const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Upper bound of [`Policy::turns_max`].
pub const TURNS_MAX: u16 = 1_000;
/// The default of [`Policy::turns_max`].
const TURNS_DEFAULT: u16 = 100;
/// Upper bound of [`Policy::suspended_ms_max`].
pub const SUSPENDED_MAX: Duration = Duration::from_hours(7 * 24);
/// Lower bound of [`Policy::suspended_ms_max`].
pub const SUSPENDED_MIN: Duration = Duration::from_secs(1);
/// The default of [`Policy::suspended_ms_max`].
const SUSPENDED_MS_DEFAULT: u64 = 3_600_000;

const fn turns_default() -> u16 {
    TURNS_DEFAULT
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_turns_default(turns: &u16) -> bool {
    *turns == TURNS_DEFAULT
}

const fn suspended_default() -> u64 {
    SUSPENDED_MS_DEFAULT
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_suspended_default(ms: &u64) -> bool {
    *ms == SUSPENDED_MS_DEFAULT
}

const fn shown() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_shown(shown: &bool) -> bool {
    *shown
}

/// The bounds of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Whether latency or quality matters more.
    pub tier: Tier,
    /// How much to spend on an answer.
    pub effort: Effort,
    /// Most steps of one round's plan, from 1 to [`STEPS_MAX`].
    pub steps_max: u16,
    /// Most rounds, from 1 to [`ROUNDS_MAX`].
    pub rounds_max: u16,
    /// Most attempts at planning or at one step, from 1 to [`ATTEMPTS_MAX`]. Tasks that are handed back do not count.
    pub attempts_max: u32,
    /// From acceptance to answer, in milliseconds, at most [`DEADLINE_MAX`].
    pub deadline_ms: u64,
    /// The highest cost of the run. An attempt does not begin if the cost so far, the reservations in flight and its own estimate
    /// together exceed it.
    pub cost_max: Option<Cost>,
    /// Most bytes of one step's output.
    pub output_bytes_max: usize,
    /// Which workers may be used.
    pub workers_allowed: WorkersAllowed,
    /// Whether a step may continue with another worker if its own cannot do it.
    #[serde(default = "PoolRule::before", skip_serializing_if = "PoolRule::is_as_before")]
    pub fallback: PoolRule,
    /// The reaction to a worker's answer that broke off.
    #[serde(default = "BrokenAnswer::before", skip_serializing_if = "BrokenAnswer::is_as_before")]
    pub broken_answer: BrokenAnswer,
    /// The reaction to a step that has failed for good.
    #[serde(default = "FailedStep::before", skip_serializing_if = "FailedStep::is_as_before")]
    pub failed_step: FailedStep,
    /// Whether a step may reuse a stored answer.
    #[serde(default = "StepCaching::before", skip_serializing_if = "StepCaching::is_as_before")]
    pub step_cache: StepCaching,
    /// Which steps may call tools.
    #[serde(default = "StepTools::before", skip_serializing_if = "StepTools::is_as_before")]
    pub tools: StepTools,
    /// Most turns of one step that end with tool calls, from 1 to [`TURNS_MAX`]. Afterwards the step must answer without tools.
    #[serde(default = "turns_default", skip_serializing_if = "is_turns_default")]
    pub turns_max: u16,
    /// How long a suspended run waits for the results of its tool calls, in milliseconds, from [`SUSPENDED_MIN`] to
    /// [`SUSPENDED_MAX`]. Then it fails.
    #[serde(default = "suspended_default", skip_serializing_if = "is_suspended_default")]
    pub suspended_ms_max: u64,
    /// Whether responses list the steps with their workers, and streams say which step is under way.
    #[serde(default = "shown", skip_serializing_if = "is_shown")]
    pub shows_steps: bool,
}

/// A field is out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy {field} is {value}, it must be {min} to {max}")]
pub struct PolicyError {
    /// The name of the field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The smallest permitted value.
    pub min: u64,
    /// The largest permitted value.
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
            tools: match tier {
                Tier::Mini => StepTools::Last,
                Tier::Ultra => StepTools::All,
            },
            turns_max: TURNS_DEFAULT,
            suspended_ms_max: SUSPENDED_MS_DEFAULT,
            shows_steps: true,
        }
    }

    /// Checks every bound.
    pub fn check(&self) -> Result<(), PolicyError> {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let bounds = [
            ("steps_max", u64::from(self.steps_max), 1, u64::from(STEPS_MAX)),
            ("rounds_max", u64::from(self.rounds_max), 1, u64::from(ROUNDS_MAX)),
            ("attempts_max", u64::from(self.attempts_max), 1, u64::from(ATTEMPTS_MAX)),
            ("deadline_ms", self.deadline_ms, 1, ms(DEADLINE_MAX)),
            ("output_bytes_max", self.output_bytes_max as u64, 1, OUTPUT_BYTES_MAX as u64),
            ("turns_max", u64::from(self.turns_max), 1, u64::from(TURNS_MAX)),
            ("suspended_ms_max", self.suspended_ms_max, ms(SUSPENDED_MIN), ms(SUSPENDED_MAX)),
        ];
        for (field, value, min, max) in bounds {
            if !(min..=max).contains(&value) {
                return Err(PolicyError { field, value, min, max });
            }
        }
        Ok(())
    }

    /// The deadline as a duration.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    /// The same policy without `workers`: those of `all` that remain allowed, perhaps none.
    #[must_use]
    pub fn without<'w>(
        &self,
        workers: &BTreeSet<WorkerId>,
        all: impl IntoIterator<Item = &'w WorkerId>,
    ) -> Self {
        let rest = all.into_iter().filter(|id| self.allows(id) && !workers.contains(*id));
        Self { workers_allowed: WorkersAllowed::Only(rest.cloned().collect()), ..self.clone() }
    }

    /// Whether a plan may use `worker`.
    pub fn allows(&self, worker: &WorkerId) -> bool {
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
    fn a_field_out_of_bounds_is_named() {
        let policy = Policy { steps_max: 17, ..Policy::new(Tier::Ultra, Effort::Medium) };
        let text = policy.check().unwrap_err().to_string();
        assert_eq!(text, "policy steps_max is 17, it must be 1 to 16");
    }

    #[test]
    fn policies_stored_without_a_field_keep_their_behaviour() {
        let policy = Policy::new(Tier::Ultra, Effort::Medium);
        let mut stored = serde_json::to_value(&policy).unwrap();
        for name in ["fallback", "broken_answer", "failed_step", "step_cache", "tools"] {
            assert!(stored.as_object_mut().unwrap().remove(name).is_some(), "{name}");
        }
        let before: Policy = serde_json::from_value(stored.clone()).unwrap();
        let expected = Policy {
            fallback: PoolRule::None,
            broken_answer: BrokenAnswer::Again,
            failed_step: FailedStep::Continue,
            step_cache: StepCaching::Off,
            tools: StepTools::Last,
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
        for choice in StepTools::ALL {
            assert_eq!(StepTools::from_name(choice.as_str()), Some(choice));
        }
    }
}
