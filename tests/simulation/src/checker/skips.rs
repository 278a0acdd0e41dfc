//! Steps that took over the output of an earlier step.

use std::collections::BTreeSet;

use podium_domain::ids::StepIndex;
use podium_domain::run::{Run, RunState, StepRef};

use crate::vendor::AGREED;

/// Whether the step may take over the output of `same_as`: that is the first step that its condition names, and all of them state the
/// same answer.
pub(super) fn is_agreed(run: &Run, step: StepRef, same_as: StepIndex) -> bool {
    let StepRef { round, step } = step;
    let named = run.step(round, step).map_or(&[][..], |step| step.unless_agree.as_slice());
    let said =
        |step: &StepIndex| run.output(round, *step)?.rsplit_once(AGREED).map(|(_, said)| said.to_owned());
    let answers: Option<BTreeSet<String>> = named.iter().map(said).collect();
    named.first() == Some(&same_as) && answers.is_some_and(|answers| answers.len() == 1)
}

/// Whether the step with the answer sees a step without an output, directly or through others.
pub(super) fn lacks_a_step(run: &Run) -> bool {
    let RunState::Succeeded { round, step } = run.state() else { return false };
    let mut to_visit = vec![*step];
    while let Some(step) = to_visit.pop() {
        if run.output(*round, step).is_none() {
            return true;
        }
        let found = run.rounds().get(usize::from(*round)).and_then(|round| round.steps.get(step.as_usize()));
        match found.and_then(|step| step.same_as) {
            Some(same_as) => to_visit.push(same_as),
            None => {
                to_visit.extend(run.step(*round, step).into_iter().flat_map(|step| step.access.as_slice()));
            }
        }
    }
    false
}
