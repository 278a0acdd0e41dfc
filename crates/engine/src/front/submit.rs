//! Accepting a request.

use std::pin::pin;
use std::sync::Arc;

use podium_domain::answer::{AnswerForm, AnswerFormError};
use podium_domain::budget::{Budget, Charge, Shortage};
use podium_domain::conversation::Conversation;
use podium_domain::ids::{KeyId, RequestId, RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::needs::{NoneTakes, narrowed};
use podium_domain::policy::{FailedStep, Policy, PolicyError, Tier, WorkersAllowed};
use podium_domain::pool::Pool;
use podium_domain::run::{Claim, Command, Effect, Run, RunSpec, SequencedEvent, TaskRef};
use podium_domain::sampling::{Sampling, SamplingError};
use podium_domain::stops::Stops;
use podium_domain::usage::Spent;
use podium_ports::conductor::{Conductor, PlanOutcome};
use podium_ports::store::{Commit, Created, StoreError};

use crate::commit::rehearse;
use crate::cost_bounds::Question;
use crate::engine::Engine;
use crate::executor::call;
use crate::front::wait_for_end::Ending;
use crate::metrics::Stage;

/// A request, already parsed and bounded by a server.
#[derive(Clone, Debug)]
pub struct Submit {
    /// Whose it is.
    pub tenant: TenantId,
    /// The key that it was asked with, if any.
    pub key: Option<KeyId>,
    /// The budgets that it is charged to.
    pub budgets: Vec<Budget>,
    /// The client's own name for it: repeating it gives the same run.
    pub request_id: Option<RequestId>,
    /// A hash of what is asked for. A request id that comes with another one is refused.
    pub request_digest: Option<String>,
    /// The model that the client named.
    pub model: String,
    /// The name and version of the conductor that alone will do, if the client named one.
    pub conductor: Option<String>,
    /// The messages.
    pub conversation: Conversation,
    /// The bounds.
    pub policy: Policy,
    /// Most tokens of the answer.
    pub answer_tokens_max: Option<u32>,
    /// How its workers are to choose their words.
    pub sampling: Sampling,
    /// The form of the answer.
    pub answer: AnswerForm,
    /// Texts that end the answer.
    pub stops: Stops,
}

/// Which run a request became.
#[derive(Clone, Debug, PartialEq)]
pub enum Submitted {
    /// A new one, as it was accepted. It may have come further since.
    New(Arc<Run>),
    /// The one that the same request id had become before.
    Existing(RunId),
}

impl Submitted {
    /// The run.
    pub fn run_id(&self) -> RunId {
        match self {
            Self::New(run) => run.id(),
            Self::Existing(id) => *id,
        }
    }
}

/// Why a request is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// A bound is out of bounds.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// So is a part of the sampling.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// So is a part of the form of the answer.
    #[error(transparent)]
    Answer(#[from] AnswerFormError),
    /// No worker takes the pictures, the form of the answer, or the texts that end it.
    #[error(transparent)]
    NoneTakes(#[from] NoneTakes),
    /// The conversation fits the context of no worker.
    #[error(
        "messages have about {tokens} tokens, and the largest context of the workers that the policy allows has {tokens_max}"
    )]
    ContextExceeded {
        /// Tokens of the messages, estimated by their bytes.
        tokens: u64,
        /// The context, in tokens, of the allowed worker with the largest one.
        tokens_max: u32,
    },
    /// The conductor that alone will do is not here.
    #[error("there is no conductor `{pinned}` here")]
    UnknownConductor {
        /// As it was named.
        pinned: String,
    },
    /// No worker is left.
    #[error("policy workers_allowed leaves no worker of the pool")]
    NoWorkerAllowed,
    /// The tenant used the request id before, for a request that asks for something else.
    #[error(
        "the request id was used for another request, which is run {run}; use a new id for a new request"
    )]
    OtherRequest {
        /// The run of that request.
        run: RunId,
    },
    /// A budget has no room for the least that the run can cost.
    #[error(transparent)]
    OverBudget(Shortage),
    /// The store failed. The run may exist: repeating with a request id is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store refuses its own first event: a defect.
    #[error("the run could not begin")]
    Illegal(#[source] podium_domain::run::IllegalEvent),
}

/// A run that is about to be created, and what follows when it is.
pub(crate) struct Draft {
    commit: Commit,
    effects: Vec<Effect>,
}

impl Draft {
    pub(crate) fn run_id(&self) -> RunId {
        self.commit.after.id()
    }
}

impl Engine {
    /// Accepts a request: after this the run is durable and will end, whatever happens to this process.
    pub async fn submit(&self, request: Submit) -> Result<Submitted, SubmitError> {
        let draft = self.draft(request)?;
        self.create(draft).await
    }

    /// Accepts a request of a caller that waits for the end and needs nothing before it. As after [`Self::submit`], the run is
    /// durable.
    pub async fn ask(&self, request: Submit) -> Result<(Submitted, Ending), SubmitError> {
        let draft = self.draft(request)?;
        let id = draft.run_id();
        // Usually the subscription is done first, and no end can be missed. An accepted run waits for no live stream.
        let mut ending = Ending::of_new(self.clone(), id);
        let mut create = pin!(self.create(draft));
        let submitted = tokio::select! {
            biased;
            submitted = &mut create => submitted?,
            () = ending.listen() => create.await?,
        };
        match submitted {
            Submitted::New(_) => Ok((submitted, ending)),
            Submitted::Existing(id) => Ok((submitted, self.ending(id))),
        }
    }

    /// Waits for the end of a run.
    pub fn ending(&self, id: RunId) -> Ending {
        Ending::of_known(self.clone(), id)
    }

    fn draft(&self, request: Submit) -> Result<Draft, SubmitError> {
        let (conductors, now) = (&self.parts().conductors, self.now());
        let id = self.parts().ids.run_id(now);
        let unknown = |pinned: &String| SubmitError::UnknownConductor { pinned: pinned.clone() };
        let conductor = match &request.conductor {
            Some(pinned) => {
                let mut all = conductors.all();
                all.find(|conductor| conductor.id() == pinned).ok_or_else(|| unknown(pinned))?
            }
            None => conductors.for_run(id),
        };
        let policy = self.bounded(&**conductor, &request)?;
        request.sampling.check()?;
        let question = Question {
            conversation: &request.conversation,
            policy: &policy,
            answer_tokens_max: request.answer_tokens_max,
            at: now,
        };
        let hold = if request.budgets.is_empty() { Cost::ZERO } else { self.least(&**conductor, &question) };
        let spec = RunSpec {
            tenant: request.tenant,
            key: request.key,
            budgets: request.budgets.iter().map(|budget| budget.at(now)).collect(),
            hold,
            request_id: request.request_id,
            request_digest: request.request_digest,
            model: request.model,
            conversation: request.conversation,
            deadline_at: now.after(policy.deadline()),
            policy,
            answer_tokens_max: request.answer_tokens_max,
            sampling: request.sampling,
            answer: request.answer,
            stops: request.stops,
            pool: self.parts().pool.version(),
            conductor: conductor.id().to_owned(),
            accepted_at: now,
        };
        let events = vec![SequencedEvent { sequence: 1, at: now, event: Run::accept(spec) }];
        let after = Run::replay(id, &events).map_err(SubmitError::Illegal)?;
        let dispatch = Effect::Dispatch { task: TaskRef::Plan { round: 0 }, not_before: now };
        let commit = self.dispatch().commit(after, events, &[]).charged(Charge::default());
        let accepted = Draft { commit, effects: vec![dispatch] };
        Ok(self.planned_at_once(&**conductor, &accepted).unwrap_or(accepted))
    }

    /// The same with its plan, where no model is needed for it: a commit, a message and a process less on the way.
    fn planned_at_once(&self, conductor: &dyn Conductor, accepted: &Draft) -> Option<Draft> {
        let now = self.now();
        let (task, id) = (TaskRef::Plan { round: 0 }, self.parts().ids.claim_id());
        let (mut after, mut events) = ((*accepted.commit.after).clone(), accepted.commit.events.clone());
        let request = self.plan_request(&after, task, id);
        let PlanOutcome { result, usage, cost } = conductor.plan_at_once(&request)?;
        let claim = Claim {
            id,
            executor: self.options().executor.clone(),
            process: self.holds().process(),
            lease_until: now.after(self.options().lease),
            reserve: Cost::ZERO,
        };
        let mut effects = Vec::new();
        let reserve = self.reserve_for(&after, &result);
        let complete =
            Command::CompletePlan { round: 0, claim: id, result, spent: Spent { usage, cost }, reserve };
        for command in [Command::Claim { task, claim }, complete] {
            let (fresh, then) = rehearse(&mut after, &command, now).ok()?;
            events.extend(fresh);
            effects = then;
        }
        let commit = self.dispatch().commit(after, events, &[]).charged(Charge::default());
        Some(Draft { commit, effects })
    }

    async fn create(&self, draft: Draft) -> Result<Submitted, SubmitError> {
        let commit = &draft.commit;
        let created = if commit.booking().is_some() {
            let created = self.charged_creations().ask(commit.clone()).await?;
            created
                .inspect_err(|shortage| self.metrics().refused(Stage::Accept, shortage))
                .map_err(SubmitError::OverBudget)?
        } else {
            self.creations().ask(commit.clone()).await?
        };
        match created {
            Created::Existing(id) => return self.existing(id, commit.after.spec()).await,
            Created::New => self.metrics().happened(&commit.after, &commit.events),
            // Whoever wrote it has counted it, or has lost the answer.
            Created::Already => {}
        }
        self.announce(&draft);
        Ok(Submitted::New(draft.commit.after))
    }

    /// The run that the same request id had become before, if it is of the same request. One that was accepted before digests
    /// were stored is.
    async fn existing(&self, id: RunId, spec: &RunSpec) -> Result<Submitted, SubmitError> {
        let before = match &spec.request_digest {
            Some(_) => self.run(id).await?.and_then(|run| run.spec().request_digest.clone()),
            None => None,
        };
        if before.is_some() && before != spec.request_digest {
            return Err(SubmitError::OtherRequest { run: id });
        }
        Ok(Submitted::Existing(id))
    }

    /// Has published what a created run begins with.
    fn announce(&self, Draft { commit, effects }: &Draft) {
        if self.is_at_work() {
            self.known().note(&commit.after);
        }
        let ready = effects.iter().filter_map(|effect| match *effect {
            Effect::Dispatch { task, not_before } => Some((task, not_before)),
            Effect::CallOff { .. } | Effect::Stop => None,
        });
        self.dispatch().publish_in_passing(commit.clone(), ready.collect());
    }

    /// The policy, checked, and narrowed to what the conductor can do and to the workers that can be asked for it.
    pub(crate) fn bounded(&self, conductor: &dyn Conductor, request: &Submit) -> Result<Policy, SubmitError> {
        let policy = within_abilities(conductor, request.policy.clone());
        policy.check()?;
        request.answer.check()?;
        let pool = &self.parts().pool;
        if pool.safest(&policy).is_none() {
            return Err(SubmitError::NoWorkerAllowed);
        }
        let policy = narrowed(policy, pool, &request.conversation, &request.answer, &request.stops)?;
        within_context(policy, pool, &request.conversation)
    }

    /// The least that a run can cost: its first plan, and one step.
    pub(crate) fn least(&self, conductor: &dyn Conductor, question: &Question<'_>) -> Cost {
        let request = self.first_request(question.conversation, question.policy.clone());
        conductor.plan_cost_max(&request) + question.least(&self.parts().pool)
    }
}

/// The policy, narrowed to the workers whose context the conversation fits: each of them is shown all of it.
fn within_context(policy: Policy, pool: &Pool, conversation: &Conversation) -> Result<Policy, SubmitError> {
    let tokens = call::tokens_of(conversation.messages());
    let allowed = || pool.workers().iter().filter(|worker| policy.allows(worker));
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

/// The policy, narrowed to what the conductor can do.
pub(crate) fn within_abilities(conductor: &dyn Conductor, policy: Policy) -> Policy {
    let abilities = conductor.abilities();
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
