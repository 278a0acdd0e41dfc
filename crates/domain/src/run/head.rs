//! Steps that begin before their plan is complete: when they may begin, and how the complete plan treats them.

use super::Run;
use super::command::{Decision, Effect, Planned, Refusal};
use super::event::RunEvent;
use super::settle::{Sight, Steps};
use super::task::{TaskRef, TaskState};
use crate::ids::{ClaimId, StepIndex};
use crate::plan::{Plan, PlanHead};
use crate::time::Timestamp;

impl Run {
    pub(super) fn decide_head(
        &self,
        round: u16,
        claim: ClaimId,
        head: &PlanHead,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let planning = self.task(TaskRef::Plan { round }).ok_or(Refusal::UnknownTask)?;
        if planning.state.is_final() {
            return Err(Refusal::Ended);
        }
        if !planning.is_held_by(claim) {
            return Err(Refusal::ClaimLost);
        }
        let current = self.rounds.get(usize::from(round)).ok_or(Refusal::UnknownTask)?;
        let head = &if round == 0 { head.of_first_round() } else { head.clone() };
        if let Some(begun) = &current.head {
            if begun.begins_with(head) {
                return Ok(Decision::default());
            }
            if !head.begins_with(begun) {
                return Err(Refusal::OtherSteps);
            }
        }
        let planned = RunEvent::StepsPlanned { round, claim, head: head.clone() };
        let mut decision = Decision { events: vec![planned], effects: vec![] };
        let mut sights = current.sights();
        sights.resize(head.len(), Sight::Waiting);
        self.settle(&Steps { round, known: head.steps(), last: None }, sights, now, &mut decision);
        Ok(decision)
    }

    /// The plan with which the round continues, and the state of its steps. Steps that began and are not part of it are superseded.
    pub(super) fn with_head(
        &self,
        round: u16,
        written: &Planned,
        decision: &mut Decision,
    ) -> (Plan, Vec<Sight>) {
        let current = &self.rounds[usize::from(round)];
        let mut sights = current.sights();
        let plan = match &current.head {
            None => written.plan.clone(),
            Some(head) => self.keeping(head, written, &sights).unwrap_or_else(|| {
                let steps = u16::try_from(head.len()).unwrap_or(u16::MAX);
                decision.events.push(RunEvent::StepsSuperseded { round, steps });
                for (step, sight) in (0..steps).map(StepIndex::new).zip(&mut sights) {
                    let task = TaskRef::Step { round, step };
                    if self.task(task).is_some_and(|task| matches!(task.state, TaskState::Running { .. })) {
                        decision.effects.push(Effect::CallOff { task });
                    }
                    if *sight != Sight::Done {
                        *sight = Sight::Failed;
                    }
                }
                written.plan.behind(head)
            }),
        };
        sights.resize(plan.len(), Sight::Waiting);
        (plan, sights)
    }

    /// The plan that begins with the steps that began: the written plan, or, if that is a substitute, those steps followed by the
    /// substitute. `None` if the plan does not use them.
    fn keeping(&self, head: &PlanHead, written: &Planned, sights: &[Sight]) -> Option<Plan> {
        let plan = &written.plan;
        // A final step gets the token limit, response format and stop sequences of the answer; a step that began early did not.
        let may_end_with_head = !self.spec.request.shapes_answer();
        if plan.begins_with(head) && (plan.len() > head.len() || may_end_with_head) {
            return Some(plan.clone());
        }
        // A substitute must be able to answer even if other steps fail.
        if written.fallback.is_none() || sights.iter().any(|sight| sight.is_missing()) {
            return None;
        }
        if head.len() + plan.len() <= usize::from(self.spec.request.policy.steps_max) {
            return Some(plan.completing(head));
        }
        may_end_with_head.then(|| Plan::from(head))
    }
}
