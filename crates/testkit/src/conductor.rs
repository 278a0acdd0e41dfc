//! A conductor that returns the plans of a test's script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use podium_domain::money::Cost;
use podium_domain::plan::Plan;
use podium_domain::policy::{FailedStep, ROUNDS_MAX, STEPS_MAX};
use podium_domain::pool::Pool;
use podium_domain::run::PlanResult;
use podium_domain::usage::Usage;
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::builders::{POOL, a_planned};
use crate::gate::Gate;

/// The script of one planning.
#[derive(Debug)]
pub struct Planning {
    says: Vec<String>,
    gate: Option<Gate>,
    spent: (Usage, Cost),
    result: Result<PlanOutcome, ConductorError>,
}

impl Planning {
    /// The tokens of a planning.
    pub const USAGE: Usage = Usage { prompt_tokens: 50, completion_tokens: 20, ..Usage::NONE };

    /// Returns a plan.
    pub fn gives(plan: Plan) -> Self {
        Self::outcome(PlanResult::Plan(a_planned(plan)))
    }

    /// Keeps the answer of the previous round.
    pub fn keeps_answer() -> Self {
        Self::outcome(PlanResult::KeepAnswer)
    }

    /// Fails with `error`.
    pub fn fails(error: ConductorError) -> Self {
        Self { says: Vec::new(), gate: None, spent: (Usage::default(), Cost::ZERO), result: Err(error) }
    }

    /// Has used these tokens when it is stopped.
    #[must_use]
    pub fn spending(self, usage: Usage, cost: Cost) -> Self {
        Self { spent: (usage, cost), ..self }
    }

    /// Writes text first, piece by piece.
    #[must_use]
    pub fn saying<T: Into<String>>(mut self, pieces: impl IntoIterator<Item = T>) -> Self {
        self.says.extend(pieces.into_iter().map(Into::into));
        self
    }

    /// Waits for the gate after the text.
    #[must_use]
    pub fn behind(self, gate: &Gate) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }

    fn outcome(result: PlanResult) -> Self {
        let outcome = PlanOutcome { result, usage: Self::USAGE, cost: Cost::ZERO };
        Self { says: Vec::new(), gate: None, spent: (Usage::default(), Cost::ZERO), result: Ok(outcome) }
    }
}

#[derive(Debug, Default)]
struct Script {
    plannings: VecDeque<Planning>,
    otherwise: Option<Plan>,
    at_once: Option<Plan>,
    requests: Vec<PlanRequest>,
}

/// A conductor with a script: each request gets the next scripted planning, then the default plan. A request with neither fails
/// with [`ConductorError::Unavailable`]. Clones share everything.
#[derive(Clone, Debug)]
pub struct ScriptedConductor {
    id: &'static str,
    abilities: Abilities,
    script: Arc<Mutex<Script>>,
    requested: watch::Sender<usize>,
}

impl ScriptedConductor {
    /// The name that runs record.
    pub const ID: &'static str = "scripted-1";

    /// A conductor without plans. It supports everything that a policy can allow, except corrective plans.
    pub fn new() -> Self {
        let failed_step = FailedStep::Fail;
        let abilities = Abilities { steps_max: STEPS_MAX, rounds_max: ROUNDS_MAX, failed_step };
        Self { id: Self::ID, abilities, script: Arc::default(), requested: watch::Sender::new(0) }
    }

    /// The same with another name, for a process with two.
    #[must_use]
    pub fn called(self, id: &'static str) -> Self {
        Self { id, ..self }
    }

    /// The same with fewer abilities.
    #[must_use]
    pub fn able_to(self, abilities: Abilities) -> Self {
        Self { abilities, ..self }
    }

    /// Adds the results of the next requests.
    pub fn script(&self, plannings: impl IntoIterator<Item = Planning>) -> &Self {
        self.lock().plannings.extend(plannings);
        self
    }

    /// Sets the plan for requests without a scripted planning.
    pub fn otherwise(&self, plan: Plan) -> &Self {
        self.lock().otherwise = Some(plan);
        self
    }

    /// Sets the plan of every first round, as of a conductor that needs no model.
    #[must_use]
    pub fn at_once(self, plan: Plan) -> Self {
        self.lock().at_once = Some(plan);
        self
    }

    /// All requests so far, in order. Plans that are made at acceptance are not requested.
    pub fn requests(&self) -> Vec<PlanRequest> {
        self.lock().requests.clone()
    }

    /// Waits until there were `count` requests.
    pub async fn until_requested(&self, count: usize) {
        // It cannot fail: `self` holds the sender.
        let _ = self.requested.subscribe().wait_for(|requested| *requested >= count).await;
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_planning(&self, request: &PlanRequest) -> Planning {
        let mut script = self.lock();
        script.requests.push(request.clone());
        let scripted = script.plannings.pop_front();
        scripted
            .or_else(|| script.otherwise.clone().map(Planning::gives))
            .unwrap_or_else(|| Planning::fails(ConductorError::Unavailable("no plan is scripted".into())))
    }
}

impl Default for ScriptedConductor {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Conductor for ScriptedConductor {
    fn id(&self) -> &str {
        self.id
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    async fn plan(
        &self,
        request: &PlanRequest,
        text: TextSink<'_>,
        stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        let planning = self.next_planning(request);
        self.requested.send_modify(|requested| *requested += 1);
        planning.says.iter().for_each(|piece| text(piece));
        let Some(gate) = planning.gate else { return planning.result };
        tokio::select! {
            () = gate.pass() => planning.result,
            () = stop.cancelled() => {
                let (usage, cost) = planning.spent;
                Err(ConductorError::Stopped.charged(usage, cost))
            }
        }
    }

    fn pool_in_text(&self) -> Option<&Pool> {
        Some(&POOL)
    }

    fn plan_at_once(&self, _request: &PlanRequest) -> Option<PlanOutcome> {
        let plan = self.lock().at_once.clone()?;
        Planning::gives(plan).result.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use podium_domain::policy::{Effort, Policy, Tier};
    use podium_domain::time::Timestamp;

    use super::*;
    use crate::builders::{a_plan, an_asker};

    fn a_request() -> PlanRequest {
        PlanRequest {
            asker: an_asker(),
            question: "why?".to_owned(),
            policy: Policy::new(Tier::Ultra, Effort::Medium),
            earlier: None,
            seed: 1,
            asked_at: Timestamp::default(),
            time_max: Duration::from_secs(1),
        }
    }

    #[tokio::test]
    async fn plannings_are_returned_in_order_and_streamed() {
        let conductor = ScriptedConductor::new();
        conductor.script([Planning::keeps_answer().saying(["a", "b"])]).otherwise(a_plan());
        let (heard, stop) = (Mutex::new(String::new()), CancellationToken::new());
        let sink = |piece: &str| heard.lock().unwrap().push_str(piece);
        let first = conductor.plan(&a_request(), &sink, &stop).await.unwrap();
        assert_eq!((first.result, heard.lock().unwrap().as_str()), (PlanResult::KeepAnswer, "ab"));
        let second = conductor.plan(&a_request(), &sink, &stop).await.unwrap();
        assert_eq!(second.result, PlanResult::Plan(a_planned(a_plan())));
        assert_eq!(conductor.requests().len(), 2);
    }

    #[tokio::test]
    async fn planning_behind_a_gate_can_be_stopped() {
        let (conductor, stop) = (ScriptedConductor::new(), CancellationToken::new());
        conductor.script([Planning::keeps_answer().behind(&Gate::closed())]);
        let stopper = async {
            conductor.until_requested(1).await;
            stop.cancel();
        };
        let request = a_request();
        let (planned, ()) = futures::join!(conductor.plan(&request, &|_| {}, &stop), stopper);
        assert!(matches!(planned, Err(ConductorError::Stopped)));
    }
}
