//! Accepting a request.

use podium_domain::conversation::Conversation;
use podium_domain::ids::{RequestId, RunId, TenantId};
use podium_domain::policy::{Policy, PolicyError};
use podium_domain::run::{Run, RunSpec, SequencedEvent, TaskRef};
use podium_ports::store::{Commit, Created, StoreError};

use crate::engine::Engine;

/// A request, already read and bounded by a door.
#[derive(Clone, Debug)]
pub struct Submit {
    /// Whose it is.
    pub tenant: TenantId,
    /// The client's own name for it: repeating it gives the same run.
    pub request_id: Option<RequestId>,
    /// The model that the client named.
    pub model: String,
    /// The messages.
    pub conversation: Conversation,
    /// The bounds.
    pub policy: Policy,
    /// Most tokens of the answer.
    pub answer_tokens_max: Option<u32>,
}

/// Which run a request became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// A new one.
    New(RunId),
    /// The one that the same request id had become before.
    Existing(RunId),
}

impl Submitted {
    /// The run.
    pub const fn run_id(self) -> RunId {
        match self {
            Self::New(id) | Self::Existing(id) => id,
        }
    }
}

/// Why a request is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// A bound is out of bounds.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No worker is left.
    #[error("policy workers_allowed leaves no worker of the pool")]
    NoWorkerAllowed,
    /// The store failed. The run may exist: repeating with a request id is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store refuses its own first event: a defect.
    #[error("the run could not begin")]
    Illegal(#[source] podium_domain::run::IllegalEvent),
}

impl Engine {
    /// Accepts a request: after this the run is durable and will end, whatever happens to this process.
    pub async fn submit(&self, request: Submit) -> Result<Submitted, SubmitError> {
        let policy = self.within_abilities(request.policy);
        policy.check()?;
        if self.parts().pool.safest(&policy).is_none() {
            return Err(SubmitError::NoWorkerAllowed);
        }
        let now = self.parts().clock.now();
        let spec = RunSpec {
            tenant: request.tenant,
            request_id: request.request_id,
            model: request.model,
            conversation: request.conversation,
            deadline_at: now.after(policy.deadline()),
            policy,
            answer_tokens_max: request.answer_tokens_max,
            pool: self.parts().pool.version(),
            conductor: self.parts().conductor.id().to_owned(),
            accepted_at: now,
        };
        let id = self.parts().ids.run_id(now);
        let events = vec![SequencedEvent { sequence: 1, at: now, event: Run::accept(spec) }];
        let after = Run::replay(id, &events).map_err(SubmitError::Illegal)?;
        let commit = Commit { after, events };
        match self.parts().store.create(std::slice::from_ref(&commit)).await?.first() {
            Some(Created::Existing(id)) => Ok(Submitted::Existing(*id)),
            Some(Created::New) | None => {
                self.dispatch().publish(&commit.after, TaskRef::Plan { round: 0 }, now).await;
                Ok(Submitted::New(id))
            }
        }
    }

    /// The policy, narrowed to what the conductor can do.
    pub(crate) fn within_abilities(&self, policy: Policy) -> Policy {
        let abilities = self.parts().conductor.abilities();
        Policy {
            steps_max: policy.steps_max.min(abilities.steps_max),
            rounds_max: policy.rounds_max.min(abilities.rounds_max),
            ..policy
        }
    }
}
