//! Checks a draft against a pool and a policy.

use super::draft::{PlanDraft, RawAccess, RawId};
use super::head::{LastStep, PlanHead};
use super::steps::{AccessList, Plan, Step, check_step_count, check_subtask};
use crate::ids::{StepIndex, WorkerId};
use crate::policy::{Policy, STEPS_MAX};
use crate::pool::{Pool, Worker};

/// Most characters of an unknown worker's name that an error shows.
const NAME_CHARS_SHOWN_MAX: usize = 64;

/// A draft is not a valid plan. Steps are displayed from 1; positions in lists count from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The three lists have different lengths.
    #[error(
        "lists differ in length: {model_id} in model_id, {subtasks} in subtasks, {access_list} in access_list"
    )]
    UnequalLengths {
        /// Elements of `model_id`.
        model_id: usize,
        /// Elements of `subtasks`.
        subtasks: usize,
        /// Elements of `access_list`.
        access_list: usize,
    },
    /// The plan has no steps.
    #[error("plan has no steps")]
    NoSteps,
    /// The plan has too many steps.
    #[error("plan has {steps} steps, steps_max is {steps_max}")]
    TooManySteps {
        /// The number of steps.
        steps: usize,
        /// The limit of the policy.
        steps_max: u16,
    },
    /// A step's worker is not in the pool.
    #[error(
        "model_id of step {step} is `{worker}`, the pool has positions 0 to {position_max} and other names"
    )]
    UnknownWorker {
        /// The step.
        step: StepIndex,
        /// The text in the plan, cut to a readable length.
        worker: String,
        /// The last position in the pool.
        position_max: usize,
    },
    /// The policy does not allow a step's worker.
    #[error("worker `{worker}` of step {step} is not among the policy's workers_allowed")]
    WorkerNotAllowed {
        /// The step.
        step: StepIndex,
        /// The worker.
        worker: WorkerId,
    },
    /// A step would see itself, a later step, or a step that does not exist.
    #[error("access_list of step {step} has position {value}, earlier steps have positions below {}", .step.get())]
    NotAnEarlierStep {
        /// The step.
        step: StepIndex,
        /// The position in the plan.
        value: i64,
    },
    /// A condition of a step would name the step itself, a later step, or a step that does not exist.
    #[error("unless_agree of step {step} has position {value}, earlier steps have positions below {}", .step.get())]
    ConditionNotEarlier {
        /// The step.
        step: StepIndex,
        /// The position in the condition.
        value: i64,
    },
    /// A step has a blank subtask.
    #[error("subtask of step {step} is blank")]
    EmptySubtask {
        /// The step.
        step: StepIndex,
    },
    /// A step's subtask is too long.
    #[error("subtask of step {step} has {bytes} bytes, at most {bytes_max} are allowed")]
    SubtaskTooLong {
        /// The step.
        step: StepIndex,
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// A step's subtask has a character that databases reject.
    #[error("subtask of step {step} has a NUL at byte {offset}")]
    NulInSubtask {
        /// The step.
        step: StepIndex,
        /// Its position in the subtask.
        offset: usize,
    },
}

impl RawId {
    /// The worker at this position of the pool or with this name. If no name matches, the worker at the position in text such as
    /// `Model id 3`.
    pub fn find<'p>(&self, pool: &'p Pool) -> Option<&'p Worker> {
        let at = |position: i64| pool.workers().get(usize::try_from(position).ok()?);
        match self {
            Self::Index(position) => at(*position),
            Self::Name(name) => {
                let workers = pool.workers();
                let exact = workers.iter().find(|worker| worker.id.as_str() == name);
                exact.or_else(|| only_one_in_any_case(workers, name)).or_else(|| at(told_position(name)?))
            }
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Index(position) => position.to_string(),
            Self::Name(name) => name.chars().take(NAME_CHARS_SHOWN_MAX).collect(),
        }
    }
}

impl PlanDraft {
    /// Checks every element against the pool and the policy. The only way to create a [`Plan`].
    ///
    /// Positions in `model_id` count the whole pool, including workers that the policy excludes. A draft that [keeps the
    /// answer](Self::keeps_answer) has no steps and is rejected here; the caller must handle it first.
    pub fn check(&self, pool: &Pool, policy: &Policy) -> Result<Plan, PlanError> {
        self.check_lengths(policy.steps_max.min(STEPS_MAX))?;
        let elements = self.model_id.iter().zip(&self.subtasks).zip(&self.access_list);
        let steps = (0u16..).map(StepIndex::new).zip(elements).map(|(step, ((id, subtask), access))| {
            Ok(Step {
                worker: find_allowed(step, id, pool, policy)?.id.clone(),
                subtask: subtask.clone(),
                access: access.before(step)?,
                sees_earlier_round: *access == RawAccess::All,
                unless_agree: AccessList::default(),
            })
        });
        Plan::from_steps(steps.collect::<Result<_, _>>()?)
    }

    /// The part of [`Self::check`] that needs neither pool nor policy: the lists must have 1 to [`STEPS_MAX`] steps, with workers at
    /// the first `workers` positions. Names of workers are unknown here.
    pub fn check_form(&self, workers: usize) -> Result<(), PlanError> {
        self.check_lengths(STEPS_MAX)?;
        let elements = self.model_id.iter().zip(&self.subtasks).zip(&self.access_list);
        for (step, ((id, subtask), access)) in (0u16..).map(StepIndex::new).zip(elements) {
            let is_known = |position: i64| usize::try_from(position).is_ok_and(|position| position < workers);
            if !matches!(id, RawId::Index(position) if is_known(*position)) {
                let position_max = workers.saturating_sub(1);
                return Err(PlanError::UnknownWorker { step, worker: id.shown(), position_max });
            }
            check_subtask(step, subtask)?;
            access.before(step)?;
        }
        Ok(())
    }

    fn check_lengths(&self, steps_max: u16) -> Result<(), PlanError> {
        let (model_id, subtasks, access_list) =
            (self.model_id.len(), self.subtasks.len(), self.access_list.len());
        if model_id != subtasks || subtasks != access_list {
            return Err(PlanError::UnequalLengths { model_id, subtasks, access_list });
        }
        check_step_count(model_id, steps_max)
    }

    /// The first steps of a draft that is still being written, as far as nothing that follows can change them: their worker, subtask
    /// and access list are closed. The first step of a plan sees nothing, whatever its access list says. In a follow-up round it may
    /// see the previous round, so its access list must be closed too.
    ///
    /// `None` while there are no such steps, and for a draft that can no longer become a plan.
    pub fn head(&self, pool: &Pool, policy: &Policy, last: LastStep) -> Option<PlanHead> {
        // Subtasks are written after all workers, so the number of steps is known by then.
        let planned = self.model_id.len();
        check_step_count(planned, policy.steps_max.min(STEPS_MAX)).ok()?;
        if self.subtasks.len() > planned || self.access_list.len() > planned {
            return None;
        }
        let indices = || (0u16..).map(StepIndex::new);
        let workers = indices().zip(&self.model_id).map(|(step, id)| find_allowed(step, id, pool, policy));
        let workers: Vec<_> = workers.collect::<Result<_, _>>().ok()?;
        let steps_max = match last {
            LastStep::Included => planned,
            LastStep::Withheld => planned - 1,
        };
        let mut steps = Vec::new();
        for (step, (worker, subtask)) in indices().zip(workers.iter().zip(&self.subtasks)).take(steps_max) {
            let written = self.access_list.get(step.as_usize());
            let access = match written {
                Some(access) => access.before(step).ok()?,
                None if step.get() == 0 => AccessList::default(),
                None => break,
            };
            let sees_earlier_round = written == Some(&RawAccess::All);
            let (worker, subtask) = (worker.id.clone(), subtask.clone());
            let unless_agree = AccessList::default();
            steps.push(Step { worker, subtask, access, sees_earlier_round, unless_agree });
        }
        Plan::from_steps(steps).ok().map(PlanHead::new)
    }
}

impl RawAccess {
    fn before(&self, step: StepIndex) -> Result<AccessList, PlanError> {
        match self {
            Self::None => Ok(AccessList::default()),
            Self::All => Ok(AccessList::all_before(step)),
            Self::Indices(indices) => AccessList::before(step, indices.iter().copied())
                .map_err(|value| PlanError::NotAnEarlierStep { step, value }),
        }
    }
}

fn find_allowed<'p>(
    step: StepIndex,
    id: &RawId,
    pool: &'p Pool,
    policy: &Policy,
) -> Result<&'p Worker, PlanError> {
    let unknown = || PlanError::UnknownWorker {
        step,
        worker: id.shown(),
        position_max: pool.workers().len().saturating_sub(1),
    };
    let worker = id.find(pool).ok_or_else(unknown)?;
    if policy.allows(&worker.id) {
        return Ok(worker);
    }
    Err(PlanError::WorkerNotAllowed { step, worker: worker.id.clone() })
}

fn only_one_in_any_case<'p>(workers: &'p [Worker], name: &str) -> Option<&'p Worker> {
    let mut same = workers.iter().filter(|worker| worker.id.as_str().eq_ignore_ascii_case(name));
    same.next().filter(|_| same.next().is_none())
}

/// The position in `Model id 3`, `model 3`, `worker-3` and similar texts.
fn told_position(words: &str) -> Option<i64> {
    let rest = after_word(words, "model").or_else(|| after_word(words, "worker"))?;
    let rest = after_word(rest, "id").unwrap_or(rest);
    let is_number = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| rest.parse().ok())?
}

/// The text after `word` and the characters that join words. A dash joins only where it cannot be a sign.
fn after_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let (head, rest) = text.split_at_checked(word.len())?;
    let rest = rest.strip_prefix('-').unwrap_or(rest);
    head.eq_ignore_ascii_case(word).then(|| rest.trim_start_matches([' ', '_', ':', '#', '=']))
}
