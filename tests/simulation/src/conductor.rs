//! The conductor: plans of one to five steps that fan out and in, written piece by piece. At times it is slow, fails, or finds no
//! plan, and at times its final plan differs from the text that it wrote before.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::StepIndex;
use podium_domain::money::Cost;
use podium_domain::plan::{PlanDraft, RawAccess, RawId};
use podium_domain::policy::FailedStep;
use podium_domain::pool::Pool;
use podium_domain::run::{PlanResult, Planned};
use podium_domain::usage::Usage;
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use tokio_util::sync::CancellationToken;

use crate::checker::Intended;
use crate::mutation::Mutation;
use crate::trace::note;
use crate::world::{Core, Link};

/// A node's conductor.
pub(crate) struct SimConductor {
    pub(crate) link: Link,
    pub(crate) pool: Arc<Pool>,
}

#[async_trait]
impl Conductor for SimConductor {
    fn id(&self) -> &'static str {
        "simulated-1"
    }

    fn abilities(&self) -> Abilities {
        Abilities { steps_max: 5, rounds_max: 3, failed_step: FailedStep::Replan }
    }

    async fn plan(
        &self,
        request: &PlanRequest,
        text: TextSink<'_>,
        stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        let (number, takes_ms, outcome, parts) = {
            let mut core = self.link.world.lock();
            let number = core.checker.planned(request);
            note!(core, "node {}: plan {number} for `{}`", self.link.node, request.question);
            let takes_ms = core.dice.mostly_small(1, 6_000);
            let (outcome, parts) = written(&mut core, &self.pool, request, number);
            (number, takes_ms, outcome, parts)
        };
        text("Let me think.\n");
        for part in &parts {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(ConductorError::Stopped),
                () = self.link.pause(takes_ms / parts.len() as u64) => text(part),
            }
        }
        let mut core = self.link.world.lock();
        note!(
            core,
            "node {}: plan {number} is {}",
            self.link.node,
            if outcome.is_ok() { "done" } else { "missing" }
        );
        outcome
    }

    fn pool_in_text(&self) -> Option<&Pool> {
        Some(&self.pool)
    }

    /// Some plans need no model.
    fn plan_at_once(&self, request: &PlanRequest) -> Option<PlanOutcome> {
        let mut core = self.link.world.lock();
        if !core.dice.chance(250) {
            return None;
        }
        let number = core.checker.planned_at_once();
        note!(core, "node {}: plan {number} at once for `{}`", self.link.node, request.question);
        core.count("planned at once");
        let draft = next_draft(&mut core, &self.pool, request, number);
        outcome(&mut core, &self.pool, request, number, &draft).ok()
    }
}

/// The outcome of planning, and the text that is written before it.
fn written(
    core: &mut Core,
    pool: &Pool,
    request: &PlanRequest,
    number: u64,
) -> (Result<PlanOutcome, ConductorError>, Vec<String>) {
    let draft = next_draft(core, pool, request, number);
    let outcome = outcome(core, pool, request, number, &draft);
    if outcome.is_ok() && core.dice.chance(150) {
        let other = a_draft(core, pool, request, number + DISCARDED);
        return (outcome, parts_of(&other));
    }
    (outcome, parts_of(&draft))
}

/// A draft. It may repeat the last one for the same question, as a second planner may do.
fn next_draft(core: &mut Core, pool: &Pool, request: &PlanRequest, number: u64) -> PlanDraft {
    let place = (request.question.clone(), request.earlier.as_ref().map(|earlier| earlier.text.clone()));
    let again = core.drafts.get(&place).cloned().filter(|_| core.dice.chance(500));
    if again.is_some() {
        core.count("planned the same");
    }
    let draft = again.unwrap_or_else(|| a_draft(core, pool, request, number));
    core.drafts.insert(place, draft.clone());
    draft
}

/// Added to the number of a plan for a text that differs from the final plan.
const DISCARDED: u64 = 1_000_000;

/// The lists as text, in one part for each element.
fn parts_of(draft: &PlanDraft) -> Vec<String> {
    let ids = draft.model_id.iter().map(|id| match id {
        RawId::Index(index) => index.to_string(),
        RawId::Name(name) => format!("{name:?}"),
    });
    let ids: Vec<_> = ids.collect();
    let mut parts = vec![format!("model_id = [{}]\nsubtasks = [", ids.join(", "))];
    parts.extend(draft.subtasks.iter().map(|subtask| format!("{subtask:?}, ")));
    parts.push("]\naccess_list = [".to_owned());
    parts.extend(draft.access_list.iter().map(|access| match access {
        RawAccess::Indices(indices) => format!("{indices:?}, "),
        RawAccess::None => "[], ".to_owned(),
        RawAccess::All => "\"all\", ".to_owned(),
    }));
    parts.push("]\n".to_owned());
    parts
}

fn outcome(
    core: &mut Core,
    pool: &Pool,
    request: &PlanRequest,
    number: u64,
    draft: &PlanDraft,
) -> Result<PlanOutcome, ConductorError> {
    let usage = Usage { prompt_tokens: number, completion_tokens: 1, ..Usage::default() };
    let cost = Cost::from_nano_usd(number);
    let fault = core.rates.conductor_fault;
    if core.dice.chance(fault) {
        core.count("conductor fault");
        return Err(match core.dice.below(4) {
            0 => ConductorError::Overloaded { waiting_max: 1 },
            1 => ConductorError::Timeout { limit: Duration::from_secs(6) },
            2 => ConductorError::Unavailable("out of order".into()),
            _ => ConductorError::NoPlan { tries: 1, message: "no idea".to_owned(), usage, cost },
        });
    }
    if request.may_keep_answer() && core.dice.chance(400) {
        return Ok(PlanOutcome { result: PlanResult::KeepAnswer, usage, cost });
    }
    let plan = draft.check(pool, &request.policy);
    // The text that was written before has no conditions, so a step that began may be superseded.
    let last = draft.model_id.len().saturating_sub(1);
    let plan = if last > 1 && core.dice.chance(300) {
        let mut conditions = vec![Vec::new(); last];
        conditions.push(vec![0, 1]);
        plan.and_then(|plan| plan.with_conditions(&conditions))
    } else {
        plan
    };
    let plan = plan.map_err(|_| ConductorError::Unavailable("no plan".into()))?;
    let planned = Planned { plan, reasoning: String::new(), fallback: None };
    Ok(PlanOutcome { result: PlanResult::Plan(planned), usage, cost })
}

fn a_draft(core: &mut Core, pool: &Pool, request: &PlanRequest, number: u64) -> PlanDraft {
    let mut draft = PlanDraft::default();
    let steps = core.dice.between(1, request.policy.steps_max.min(5).into()).cast_signed();
    for step in 0..steps {
        let worker = &pool.workers()[core.dice.index(pool.workers().len())];
        let subtask = format!("Part {step} of plan {number}.");
        let mut sees: Vec<i64> = (0..step).filter(|_| core.dice.chance(400)).collect();
        if step + 1 == steps && sees.is_empty() && step > 0 {
            sees.push(step - 1);
        }
        let sees_all = core.dice.chance(200);
        if sees_all {
            sees = (0..step).collect();
        }
        let indices = sees.iter().filter_map(|seen| u16::try_from(*seen).ok()).map(StepIndex::new).collect();
        let sees_earlier_round = sees_all && request.earlier.is_some();
        core.checker
            .intend(&subtask, Intended { worker: worker.id.clone(), sees: indices, sees_earlier_round });
        let is_blind = core.is_mutated(Mutation::BlindPlan);
        if is_blind {
            sees.clear();
        }
        draft.model_id.push(RawId::Name(worker.id.to_string()));
        draft.subtasks.push(subtask);
        let written = if sees_all && !is_blind { RawAccess::All } else { RawAccess::Indices(sees) };
        draft.access_list.push(written);
    }
    draft
}
