//! Accepts requests: each becomes a durable run.

use std::pin::pin;
use std::sync::Arc;

use podium_domain::answer::AnswerFormError;
use podium_domain::budget::{Budget, Charge, Shortage};
use podium_domain::ids::{KeyId, RequestId, RunId, TenantId, WorkerId};
use podium_domain::money::Cost;
use podium_domain::policy::{FailedStep, Policy, PolicyError, Tier, WorkersAllowed};
use podium_domain::pool::Pool;
use podium_domain::request::RunRequest;
use podium_domain::required_features::{NoneTakes, narrowed};
use podium_domain::run::{
    Claim, Command, Effect, PlanResult, Planned, Refusal, Run, RunSpec, SequencedEvent, TaskRef,
};
use podium_domain::sampling::SamplingError;
use podium_domain::token_estimate::{message_tokens, text_tokens};
use podium_domain::tools::{ToolUse, ToolsError};
use podium_domain::usage::{Spent, Usage};
use podium_ports::conductor::{Abilities, PlanOutcome};
use podium_ports::conductor_profile::ConductorProfile;
use podium_ports::store::{Appended, Commit, StoreError, Unwritten};

use super::tool_loop::{Continued, continued, loop_plan};
use super::wait_for_end::Ending;
use crate::commit::rehearse;
use crate::context::Context;
use crate::cost_bounds::Question;
use crate::metrics::Stage;
use crate::planner::request::{first_request, plan_request, reserve_for};

/// Most names of workers that an error shows.
const NAMES_SHOWN_MAX: usize = 4;

/// The planning of a run's first round.
const FIRST_PLAN: TaskRef = TaskRef::Plan { round: 0 };

/// A request, parsed and bounded by an API.
#[derive(Clone, Debug)]
pub struct Submit {
    /// The tenant.
    pub tenant: TenantId,
    /// The key of the request, if any.
    pub key: Option<KeyId>,
    /// The budgets that it is charged to.
    pub budgets: Vec<Budget>,
    /// The client's own id for the request. Repeating it returns the same run.
    pub request_id: Option<RequestId>,
    /// A hash of the request. A request id that was used with another hash is rejected.
    pub request_digest: Option<String>,
    /// The model in the request.
    pub model: String,
    /// The name and version of the only acceptable conductor, if the client named one.
    pub conductor: Option<String>,
    /// The question, and the parameters of its answer.
    pub request: RunRequest,
}

/// The run of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Submitted {
    /// A new run, as it was accepted. It may have progressed since.
    New(Arc<Run>),
    /// The run that the request id belongs to already.
    Existing(RunId),
    /// The run that continues with the tool results of the request. It may have begun this reply, or a later one, before.
    Continued {
        /// The run.
        run: RunId,
        /// The number of the reply that the results begin.
        reply: u16,
    },
}

impl Submitted {
    /// The id of the run.
    pub fn run_id(&self) -> RunId {
        match self {
            Self::New(run) => run.id(),
            Self::Existing(id) | Self::Continued { run: id, .. } => *id,
        }
    }

    /// The number of the run's reply to this request.
    pub fn reply(&self) -> u16 {
        match self {
            Self::New(_) | Self::Existing(_) => 0,
            Self::Continued { reply, .. } => *reply,
        }
    }
}

/// A request was rejected.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// A part of the policy is out of bounds.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A sampling parameter is out of bounds.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The response format is invalid.
    #[error(transparent)]
    Answer(#[from] AnswerFormError),
    /// The tools are invalid.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// No worker supports the images, the PDFs, the response format, the stop sequences or the tools.
    #[error(transparent)]
    NoneTakes(#[from] NoneTakes),
    /// The conversation fits the context of no worker.
    #[error(
        "messages and tools have about {tokens} tokens, and the largest context of the workers that the policy allows has {tokens_max}"
    )]
    ContextExceeded {
        /// Tokens of the messages and the tools, estimated by their bytes.
        tokens: u64,
        /// The context, in tokens, of the allowed worker with the largest one.
        tokens_max: u32,
    },
    /// The named conductor is unknown.
    #[error("there is no conductor `{pinned}` here")]
    UnknownConductor {
        /// The name in the request.
        pinned: String,
    },
    /// The policy permits no worker of the pool.
    #[error("workers_allowed names no worker of the pool (got {named})")]
    NoWorkerAllowed {
        /// The first names that it has.
        named: String,
    },
    /// The tenant used the request id before, for a different request.
    #[error(
        "the request id was used for another request, which is run {run}; use a new id for a new request"
    )]
    OtherRequest {
        /// The run of the earlier request.
        run: RunId,
    },
    /// The least that the run can cost does not fit a budget.
    #[error(transparent)]
    OverBudget(Shortage),
    /// The store failed. The run may exist: repeating the request with a request id is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run's first event cannot be applied. This is a defect of Podium.
    #[error("the run could not begin")]
    Illegal(#[source] podium_domain::run::IllegalEvent),
    /// The given plan cannot be the first plan of the run.
    #[error("the given plan cannot begin the run")]
    GivenPlan(#[source] Refusal),
}

/// A run that is about to be created, and the effects of its creation.
struct Draft {
    commit: Commit,
    effects: Vec<Effect>,
}

/// Accepts a request. When this returns, the run is durable and will end, whatever happens to this process.
pub(crate) async fn submit(context: &Context, submit: Submit) -> Result<Submitted, SubmitError> {
    match begin(context, submit).await? {
        Begun::New(draft) => create(context, *draft).await,
        Begun::Continued(submitted) => Ok(submitted),
    }
}

/// Accepts a request of a caller that waits for the end and needs nothing before it. As after [`submit`], the run is durable.
pub(crate) async fn ask(context: &Context, submit: Submit) -> Result<(Submitted, Ending), SubmitError> {
    let draft = match begin(context, submit).await? {
        Begun::New(draft) => draft,
        Begun::Continued(submitted) => {
            let ending = Ending::of_known(context.clone(), submitted.run_id(), Some(submitted.reply()));
            return Ok((submitted, ending));
        }
    };
    create_and_listen(context, *draft).await
}

/// Accepts a request whose plan is given, of a caller that waits for the end. No conductor is asked, and nothing replaces the plan. As
/// after [`submit`], the run is durable.
pub(crate) async fn ask_planned(
    context: &Context,
    submit: Submit,
    planned: Planned,
) -> Result<(Submitted, Ending), SubmitError> {
    let Accepted { run, events, .. } = accepted(context, submit, None)?;
    let outcome = PlanOutcome { result: PlanResult::Plan(planned), usage: Usage::NONE, cost: Cost::ZERO };
    let draft = with_plan(context, outcome, &run, &events).map_err(SubmitError::GivenPlan)?;
    create_and_listen(context, draft).await
}

async fn create_and_listen(context: &Context, draft: Draft) -> Result<(Submitted, Ending), SubmitError> {
    let id = draft.commit.after.id();
    // Usually the subscription is complete first, and no end can be missed. Accepting a run never waits for the live stream.
    let mut ending = Ending::of_new(context.clone(), id);
    let mut create = pin!(create(context, draft));
    let submitted = tokio::select! {
        biased;
        submitted = &mut create => submitted?,
        () = ending.listen() => create.await?,
    };
    match submitted {
        Submitted::New(_) => Ok((submitted, ending)),
        Submitted::Existing(id) | Submitted::Continued { run: id, .. } => {
            Ok((submitted, Ending::of_known(context.clone(), id, Some(0))))
        }
    }
}

/// A run, or a part of a run, that a request begins.
enum Begun {
    /// A run of its own.
    New(Box<Draft>),
    /// The next reply of a suspended run.
    Continued(Submitted),
}

/// Continues the suspended run whose results the request has. Otherwise drafts a run, with what earlier runs of the conversation
/// have of its tool calls.
async fn begin(context: &Context, submit: Submit) -> Result<Begun, SubmitError> {
    match continued(context, Box::new(submit)).await? {
        Continued::SameRun { run, reply } => Ok(Begun::Continued(Submitted::Continued { run, reply })),
        Continued::NewRun { submit, waiting } => Ok(Begun::New(Box::new(draft(context, *submit, waiting)?))),
    }
}

/// A run with its first event, before it is stored.
struct Accepted<'a> {
    conductor: &'a ConductorProfile,
    run: Run,
    events: Vec<SequencedEvent>,
    /// The worker that waits for the tool results at the end of the conversation, if the policy allows it.
    waiting: Option<WorkerId>,
}

/// `waiting` is the worker that waits for the tool results at the end of the conversation: it gets them without a plan.
fn draft(context: &Context, submit: Submit, waiting: Option<WorkerId>) -> Result<Draft, SubmitError> {
    let Accepted { conductor, run, events, waiting } = accepted(context, submit, waiting)?;
    let known = waiting.and_then(|worker| loop_plan(context, &run, &worker));
    if let Some(planned) = planned_at_once(context, conductor, known, &run, &events) {
        return Ok(planned);
    }
    let effects = vec![Effect::Dispatch { task: FIRST_PLAN, not_before: context.now() }];
    Ok(Draft { commit: first_commit(context, run, events), effects })
}

fn accepted(
    context: &Context,
    submit: Submit,
    waiting: Option<WorkerId>,
) -> Result<Accepted<'_>, SubmitError> {
    let (parts, now) = (context.parts(), context.now());
    let id = parts.ids.run_id(now);
    let unknown = |pinned: &String| SubmitError::UnknownConductor { pinned: pinned.clone() };
    let conductor = match &submit.conductor {
        Some(pinned) => parts.conductor(pinned).ok_or_else(|| unknown(pinned))?,
        None => parts.conductors.for_run(id),
    };
    let mut policy = bounded(context, conductor, &submit.request)?;
    let waiting = waiting.filter(|worker| policy.allows(worker) && parts.pool.worker(worker).is_some());
    if waiting.is_some() {
        // No conductor judges a turn in the middle of a loop.
        policy.rounds_max = 1;
    }
    let request = RunRequest { policy, ..submit.request };
    request.sampling.check()?;
    let question = Question {
        conversation: &request.conversation,
        policy: &request.policy,
        answer_tokens_max: request.answer_tokens_max,
        tools_bytes: request.tools.as_ref().map_or(0, ToolUse::bytes),
        at: now,
    };
    let hold = if submit.budgets.is_empty() { Cost::ZERO } else { least(context, conductor, &question) };
    let spec = RunSpec {
        tenant: submit.tenant,
        key: submit.key,
        budgets: submit.budgets.iter().map(|budget| budget.at(now)).collect(),
        hold,
        request_id: submit.request_id,
        request_digest: submit.request_digest,
        model: submit.model,
        deadline_at: now.after(request.policy.deadline()),
        request,
        pool: parts.pool.version(),
        conductor: conductor.id().to_owned(),
        accepted_at: now,
    };
    let events = vec![SequencedEvent { sequence: 1, at: now, event: Run::accept(spec) }];
    let run = Run::replay(id, &events).map_err(SubmitError::Illegal)?;
    Ok(Accepted { conductor, run, events, waiting })
}

/// The run with its plan, if the plan is known or needs no model: that saves a commit, a message and a process.
fn planned_at_once(
    context: &Context,
    conductor: &ConductorProfile,
    known: Option<PlanOutcome>,
    accepted: &Run,
    events: &[SequencedEvent],
) -> Option<Draft> {
    let id = context.parts().ids.claim_id();
    let plan_at_once = || conductor.plan_at_once(&plan_request(context, accepted, FIRST_PLAN, id, None));
    with_plan(context, known.or_else(plan_at_once)?, accepted, events).ok()
}

/// The run with this plan.
fn with_plan(
    context: &Context,
    PlanOutcome { result, usage, cost }: PlanOutcome,
    accepted: &Run,
    events: &[SequencedEvent],
) -> Result<Draft, Refusal> {
    let (now, id) = (context.now(), context.parts().ids.claim_id());
    let (mut after, mut events) = (accepted.clone(), events.to_vec());
    let claim = Claim {
        id,
        executor: context.options().executor.clone(),
        process: context.leases().process(),
        lease_until: now.after(context.options().lease),
        reserve: Cost::ZERO,
    };
    let (reserve, spent) = (reserve_for(context, &after, &result), Spent { usage, cost });
    let complete = Command::CompletePlan { round: 0, claim: id, result, spent, reserve };
    let mut effects = Vec::new();
    for command in [Command::Claim { task: FIRST_PLAN, claim }, complete] {
        let change = rehearse(&mut after, &command, now)?;
        events.extend(change.events);
        effects = change.effects;
    }
    Ok(Draft { commit: first_commit(context, after, events), effects })
}

fn first_commit(context: &Context, after: Run, events: Vec<SequencedEvent>) -> Commit {
    context.publisher().commit(after, events).charged(Charge::default())
}

async fn create(context: &Context, draft: Draft) -> Result<Submitted, SubmitError> {
    let commit = &draft.commit;
    match context.creations(commit).ask(commit.clone()).await? {
        Ok(Appended::Existing(id)) => return existing(context, id, commit.after.spec()).await,
        Ok(Appended::New) => context.metrics().happened(&commit.after, &commit.events),
        // The earlier try has counted it, or its answer was lost.
        Ok(Appended::Already) => {}
        Err(Unwritten::OverBudget(shortage)) => {
            context.metrics().refused(Stage::Accept, &shortage);
            return Err(SubmitError::OverBudget(shortage));
        }
        Err(conflict @ Unwritten::Conflict) => {
            return Err(StoreError::Unavailable(Box::new(conflict)).into());
        }
    }
    if context.takes_tasks() {
        context.run_cache().note(&commit.after);
    }
    let ready = draft.effects.iter().filter_map(|effect| match *effect {
        Effect::Dispatch { task, not_before } => Some((task, not_before)),
        Effect::CallOff { .. } | Effect::Stop => None,
    });
    context.publisher().publish_in_background(commit.clone(), ready.collect());
    Ok(Submitted::New(draft.commit.after))
}

/// The run of the same request id, if it is for the same request. A run without a stored digest counts as the same request.
async fn existing(context: &Context, id: RunId, spec: &RunSpec) -> Result<Submitted, SubmitError> {
    let before = match &spec.request_digest {
        Some(_) => context.run_for_client(id).await?.and_then(|run| run.spec().request_digest.clone()),
        None => None,
    };
    if before.is_some() && before != spec.request_digest {
        return Err(SubmitError::OtherRequest { run: id });
    }
    Ok(Submitted::Existing(id))
}

/// The checked policy, restricted to the conductor's abilities and to the workers that can take the request.
pub(super) fn bounded(
    context: &Context,
    conductor: &ConductorProfile,
    request: &RunRequest,
) -> Result<Policy, SubmitError> {
    let policy = within_abilities(conductor.abilities(), request.policy.clone());
    policy.check()?;
    request.answer.check()?;
    let pool = context.pool();
    if pool.safest(&policy).is_none() {
        return Err(no_worker_allowed(&policy));
    }
    if let Some(tools) = &request.tools {
        tools.check()?;
    }
    let policy = narrowed(policy, pool, request)?;
    within_context(policy, pool, request)
}

/// The error for a policy that permits no worker of the pool.
pub(super) fn no_worker_allowed(policy: &Policy) -> SubmitError {
    let named = match &policy.workers_allowed {
        WorkersAllowed::Only(names) if names.is_empty() => "no name".to_owned(),
        WorkersAllowed::Only(names) => {
            let shown: Vec<_> = names.iter().take(NAMES_SHOWN_MAX).map(|name| format!("`{name}`")).collect();
            let more = names.len() - shown.len();
            let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!("{}{rest}", shown.join(", "))
        }
        WorkersAllowed::All => "all workers".to_owned(),
    };
    SubmitError::NoWorkerAllowed { named }
}

/// The least that a run can cost: its first plan, and one step.
pub(super) fn least(context: &Context, conductor: &ConductorProfile, question: &Question<'_>) -> Cost {
    let request = first_request(context, question.conversation, question.policy.clone());
    conductor.plan_cost_max(&request) + question.least(context.pool())
}

/// The policy, restricted to the workers whose context the conversation and the tools fit, because each worker may get all of it.
fn within_context(policy: Policy, pool: &Pool, request: &RunRequest) -> Result<Policy, SubmitError> {
    let tools = text_tokens(request.tools.as_ref().map_or(0, ToolUse::bytes));
    let tokens = message_tokens(request.conversation.messages()) + tools;
    let allowed = || pool.workers().iter().filter(|worker| policy.allows(&worker.id));
    let able: Vec<_> = allowed().filter(|worker| tokens < u64::from(worker.context_tokens)).collect();
    if able.len() == allowed().count() {
        return Ok(policy);
    }
    if able.is_empty() {
        let tokens_max = allowed().map(|worker| worker.context_tokens).max().unwrap_or_default();
        return Err(SubmitError::ContextExceeded { tokens, tokens_max });
    }
    let able = able.into_iter().map(|worker| worker.id.clone()).collect();
    Ok(Policy { workers_allowed: WorkersAllowed::Only(able), ..policy })
}

/// The policy, restricted to a conductor's abilities.
pub(crate) fn within_abilities(abilities: Abilities, policy: Policy) -> Policy {
    Policy {
        steps_max: policy.steps_max.min(abilities.steps_max),
        rounds_max: policy.rounds_max.min(abilities.rounds_max),
        failed_step: match (policy.failed_step, policy.tier) {
            (FailedStep::Replan, Tier::Mini) => FailedStep::Fail,
            (FailedStep::Replan, Tier::Ultra) => abilities.failed_step,
            (other, _) => other,
        },
        ..policy
    }
}
