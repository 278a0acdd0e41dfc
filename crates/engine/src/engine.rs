//! The engine's public API. Every process accepts, watches, reads and cancels runs; [`Engine::work`] adds the loops.

use std::ops::Range;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{BoxStream, FuturesUnordered};
use podium_domain::conversation::{Conversation, Message};
use podium_domain::ids::{RunId, TenantId};
use podium_domain::policy::Policy;
use podium_domain::pool::Pool;
use podium_domain::rating::Rating;
use podium_domain::run::{Command, Planned, Run, SequencedEvent};
use podium_domain::time::Timestamp;
use podium_ports::conductor::{Conductor, ConductorError, PlanOutcome, TextSink};
use podium_ports::store::{RunFilter, RunSummary, StoreError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::commit::CommandError;
use crate::context::Context;
use crate::front::answer::{AnswerError, AnswerPart, answer};
use crate::front::estimate::{Estimate, estimate};
use crate::front::history::{Reads, history};
use crate::front::ratings::{OutcomePage, RateError, outcomes, rate};
use crate::front::readiness::{NotReady, Readiness, readiness};
use crate::front::replies::as_of;
use crate::front::submit::{Submit, SubmitError, Submitted, ask, ask_planned, submit, within_abilities};
use crate::front::wait_for_end::Ending;
use crate::front::watch::{Update, Wants, WatchError, Watcher};
use crate::loops::Loops;
use crate::metrics::Observed;
use crate::metrics::cache_counts::CacheCounts;
use crate::options::Options;
use crate::parts::{Parts, Work};
use crate::planner::fallback::{MayRetry, Planning};
use crate::planner::request::first_request;
use crate::upkeep::supervision::{LoopEnded, Supervision};
use crate::upkeep::sweeper::Sweeper;

/// The engine of a process. Cheap to clone.
///
/// It works on one [`Parts`] at a time. [`Self::replace`] exchanges them, with the pool, the conductors and the services of calls, while
/// the process goes on: all clones use the new ones from then on, and work in flight ends with the ones that it began with.
#[derive(Clone)]
pub struct Engine {
    current: watch::Sender<Arc<Core>>,
    reads: Reads,
    observed: Observed,
}

/// The engine on certain parts.
struct Core {
    context: Context,
    supervision: Supervision,
    /// The work that came with these parts; `None` for the first ones, whose work [`Engine::work`] names.
    work: Option<Work>,
}

/// The new parts have other conductors. Only the conductor that a run records plans it, so conductors change by a rollout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the conductor would change from {before} to {after}; conductors change at a start only")]
pub struct OtherConductors {
    /// The names and versions now.
    pub before: String,
    /// Those of the new parts.
    pub after: String,
}

fn ids(parts: &Parts) -> Vec<String> {
    parts.conductors.all().map(|profile| profile.id().to_owned()).collect()
}

impl Core {
    fn new(parts: Parts, options: Options, work: Option<Work>, observed: Observed) -> Arc<Self> {
        let supervision = Supervision::default();
        let context = Context::new(parts, options, &supervision, observed);
        Arc::new(Self { context, supervision, work })
    }
}

impl Engine {
    /// Builds the engine. Must be called inside a tokio runtime, after the process' meter is set: commands, creations and loads run in
    /// tasks of their own, which end with the last handle.
    pub fn new(parts: Parts, options: Options) -> Self {
        let observed = Observed::new();
        let current = watch::Sender::new(Core::new(parts, options, None, observed.clone()));
        Self { current, reads: Reads::new(), observed }
    }

    /// Exchanges the parts, the options and the work. Requests and tasks that begin from now on use these; what is in flight ends with
    /// the earlier ones, without a limit of time until the process stops. Meanwhile both have slots of their own. Must be called inside
    /// a tokio runtime. After an error nothing has changed.
    pub fn replace(&self, parts: Parts, options: Options, work: Work) -> Result<(), OtherConductors> {
        let (before, after) = (ids(self.context().parts()), ids(&parts));
        if before != after {
            return Err(OtherConductors { before: before.join(" and "), after: after.join(" and ") });
        }
        let core = Core::new(parts, options, Some(work), self.observed.clone());
        core.context.set_takes_tasks(self.is_at_work());
        self.current.send_replace(core);
        Ok(())
    }

    fn context(&self) -> Context {
        self.current.borrow().context.clone()
    }

    /// Its options.
    pub fn options(&self) -> Options {
        self.context().options().clone()
    }

    /// The time of its clock.
    pub fn now(&self) -> Timestamp {
        self.context().now()
    }

    /// The counters of the step cache in this process.
    pub fn cache_counts(&self) -> CacheCounts {
        self.context().metrics().cache().counts()
    }

    /// The workers.
    pub fn pool(&self) -> Arc<Pool> {
        Arc::clone(self.context().pool())
    }

    /// The current conductor's name and version.
    pub fn conductor_id(&self) -> String {
        self.context().parts().conductors.current().id().to_owned()
    }

    /// Name and version of each conductor that runs get without naming it, the current one first.
    pub fn conductor_ids(&self) -> Vec<String> {
        let context = self.context();
        context.parts().conductors.versions().map(|conductor| conductor.id().to_owned()).collect()
    }

    /// Name and version of the conductor that chooses among workflows, which only runs get that name it, if there is one.
    pub fn workflow_head_id(&self) -> Option<String> {
        self.context().parts().conductors.on_request().map(|conductor| conductor.id().to_owned())
    }

    /// Accepts a request, or continues the suspended run whose tool results it has. When this returns, the run is durable and will end
    /// or wait for the client, whatever happens to this process.
    pub async fn submit(&self, request: Submit) -> Result<Submitted, SubmitError> {
        submit(&self.context(), request).await
    }

    /// Accepts a request of a caller that waits for the end and needs nothing before it. As after [`Self::submit`], the run is
    /// durable.
    pub async fn ask(&self, request: Submit) -> Result<(Submitted, Ending), SubmitError> {
        ask(&self.context(), request).await
    }

    /// Accepts a request with the plan of its first round, of a caller that waits for the end. The plan must have been checked against
    /// the pool and the request's policy. No conductor is asked, and nothing replaces the plan. As after [`Self::submit`], the run is
    /// durable.
    pub async fn ask_planned(
        &self,
        request: Submit,
        planned: Planned,
    ) -> Result<(Submitted, Ending), SubmitError> {
        ask_planned(&self.context(), request, planned).await
    }

    /// The end of a run, to wait for.
    pub fn ending(&self, id: RunId) -> Ending {
        Ending::of_known(self.context(), id, None)
    }

    /// Estimates the cost of a request, by its plan if that needs no model, else by the bounds of its policy. No worker is called, and
    /// nothing is stored. The bounds hold for this run; the typical cost is that of other runs.
    pub async fn estimate(&self, request: &Submit) -> Result<Estimate, SubmitError> {
        estimate(&self.context(), request).await
    }

    /// The stored run.
    pub async fn run(&self, id: RunId) -> Result<Option<Run>, StoreError> {
        self.context().run_for_client(id).await
    }

    /// The stored run as it was at the end of a reply; as it is now if that reply is the current one.
    pub async fn run_at(&self, id: RunId, reply: u16) -> Result<Option<Run>, StoreError> {
        let Some(now) = self.context().run_for_client(id).await? else { return Ok(None) };
        let run = as_of(self.context().parts(), Arc::new(now), reply).await?;
        Ok(Some(Arc::unwrap_or_clone(run)))
    }

    /// Gives the results of its tool calls to a suspended run: messages with one result for each pending call. Repeating the same
    /// results changes nothing.
    pub async fn give_results(&self, id: RunId, results: Vec<Message>) -> Result<Run, CommandError> {
        let give = Command::GiveResults { results };
        self.context().commands().send(id, give).await.map(|run| (*run).clone())
    }

    /// Cancels a run. A run that was cancelled before is returned unchanged.
    pub async fn cancel(&self, id: RunId) -> Result<Run, CommandError> {
        self.context().commands().send(id, Command::Cancel).await.map(|run| (*run).clone())
    }

    /// Ends a run as its deadline, or the end of its suspension, would; for operators.
    pub async fn expire(&self, id: RunId) -> Result<Run, CommandError> {
        self.context().commands().send(id, Command::Expire).await.map(|run| (*run).clone())
    }

    /// A tenant's runs that pass `filter`, the newest first; only those before `before` if it is given.
    pub async fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunSummary>, StoreError> {
        self.context().parts().store.list(tenant, filter, before, limit).await
    }

    /// All updates after event `after` (0: from the beginning): stored events without gaps, and live text between them. The stream ends
    /// after the event that ends the run.
    pub async fn watch(
        &self,
        id: RunId,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Update, StoreError>>, WatchError> {
        let parts = self.context().parts().clone();
        Ok(Watcher::new(parts, id, after, Wants::Everything).await?.into_stream())
    }

    /// The stored events after event `after` of an ended run, up to the one that ended it. They are read while the caller consumes
    /// them, so that a slow reader holds few of them.
    pub fn history(&self, id: RunId, after: u64) -> BoxStream<'static, Result<SequencedEvent, StoreError>> {
        history(self.context().parts().clone(), self.reads.clone(), id, after)
    }

    /// The answer of a run while it is written: its first reply.
    pub async fn answer(
        &self,
        id: RunId,
    ) -> Result<BoxStream<'static, Result<AnswerPart, AnswerError>>, WatchError> {
        self.reply(id, 0).await
    }

    /// A reply of a run while it is written: texts that concatenate to the reply's text, its tool calls, then the run at the end of the
    /// reply. Replies count from 0.
    pub async fn reply(
        &self,
        id: RunId,
        reply: u16,
    ) -> Result<BoxStream<'static, Result<AnswerPart, AnswerError>>, WatchError> {
        let context = self.context();
        let parts = context.parts();
        let updates = Watcher::new(parts.clone(), id, 0, Wants::Reply(reply)).await?.into_stream();
        Ok(answer(parts.clone(), id, reply, updates))
    }

    /// Stores a tenant's rating of its own ended run, in place of an earlier one.
    pub async fn rate(&self, tenant: &TenantId, id: RunId, rating: &Rating) -> Result<(), RateError> {
        rate(&self.context(), tenant, id, rating).await
    }

    /// The rated answers of single workers: of a tenant's rated runs after `after` that were accepted in a span of time, at most `limit`
    /// are read, and those that one worker answered alone are returned.
    pub async fn outcomes(
        &self,
        tenant: &TenantId,
        accepted: Range<Timestamp>,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<OutcomePage, StoreError> {
        outcomes(&self.context(), tenant, accepted, after, limit).await
    }

    /// Plans a question with `conductor`. Nothing is run or stored.
    pub async fn plan(
        &self,
        conductor: &Arc<dyn Conductor>,
        conversation: &Conversation,
        policy: Policy,
        text: TextSink<'_>,
    ) -> Result<PlanOutcome, ConductorError> {
        let policy = within_abilities(conductor.abilities(), policy);
        let context = self.context();
        let request = first_request(&context, conversation, policy);
        let planning = Planning { parts: context.parts(), conductor, request: &request, is_of_tenant: false };
        planning.plan_or_fall_back(text, &CancellationToken::new(), MayRetry::No).await
    }

    /// The state of the parts of the process, within a second.
    pub async fn readiness(&self) -> Readiness {
        readiness(&self.context()).await
    }

    /// Whether the process can do its work.
    pub async fn ready(&self) -> Result<(), NotReady> {
        self.readiness().await.outcome()
    }

    /// Whether the process takes tasks from lanes.
    pub fn is_at_work(&self) -> bool {
        self.context().takes_tasks()
    }

    /// Takes over all tasks of a process that is known to be dead. Only for the one process on the store: claims are released and
    /// ready tasks published at once instead of after their leases.
    pub async fn take_over(&self) -> Result<(), StoreError> {
        Sweeper::new(self.context()).take_over().await
    }

    /// Runs the loops for `work` until `stop`. Then work in flight is finished within the drain time, or released. After an error (a
    /// loop panicked or ended by itself) the process must end, because it would look healthy and do nothing.
    pub async fn work(&self, work: Work, stop: CancellationToken) -> Result<(), LoopEnded> {
        let (mut cores, mut first, mut running) =
            (self.current.subscribe(), Some(work), FuturesUnordered::new());
        loop {
            let core = Arc::clone(&cores.borrow_and_update());
            let work = core.work.clone().or_else(|| first.take()).unwrap_or_default();
            core.context.set_takes_tasks(work.takes_tasks());
            let (context, supervision) = (core.context.clone(), core.supervision.clone());
            let replaced = CancellationToken::new();
            running.push(Loops::new(context, supervision, stop.clone(), replaced.clone()).run(work));
            drop(core);
            loop {
                tokio::select! {
                    biased;
                    Some(ended) = running.next() => {
                        ended?;
                        if running.is_empty() {
                            return Ok(());
                        }
                    }
                    // The sender is a part of this engine, so only new parts end the wait.
                    _ = cores.changed() => {
                        replaced.cancel();
                        break;
                    }
                }
            }
        }
    }
}
