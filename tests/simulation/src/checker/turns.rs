//! The earlier turns of a step, as its worker sees them.

use podium_domain::conversation::Message;
use podium_domain::ids::StepIndex;
use podium_domain::run::Run;
use podium_ports::vendor::ChatRequest;

use super::{Checker, Invariant, Violation};
use crate::clients::tool_output;

impl Checker {
    /// Checks the earlier turns in a call: each tool call is of the same step and is followed by its one result.
    ///
    /// A step that turns out to be the final one gets the plain conversation from then on.
    pub(super) fn turns(
        &self,
        question: &str,
        subtask: &str,
        request: &ChatRequest,
    ) -> Result<(), Violation> {
        let violated = |what: String| Err(Violation { invariant: Invariant::Turns, what });
        let results: Vec<_> = request.messages.iter().flat_map(Message::results).collect();
        let calls: Vec<_> = request.messages.iter().flat_map(Message::calls).collect();
        let ids = |ids: Vec<&str>| ids.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let asked = ids(calls.iter().map(|call| call.id.as_str()).collect());
        let answered = ids(results.iter().map(|result| result.call_id.as_str()).collect());
        if asked != answered {
            return violated(format!("`{subtask}`: calls {asked:?} have the results {answered:?}"));
        }
        for (call, result) in calls.iter().zip(results) {
            let own = call.own_id.as_ref().map(|own| own.mark.as_str()).unwrap_or_default();
            let number = own.strip_prefix('v').and_then(|own| own.split_once('.')?.0.parse::<usize>().ok());
            let made = number.and_then(|number| self.calls.get(number));
            let is_own = made.is_some_and(|made| {
                let is_step = made.subtask == subtask || subtask == question;
                made.question == question && is_step
            });
            if !is_own || result.output != tool_output(own) {
                return violated(format!("`{subtask}`: call `{own}` has the result `{}`", result.output));
            }
        }
        Ok(())
    }
}

/// Whether the worker of a step may get the client's messages unchanged: it is final, sees no step, and is offered tools.
pub(super) fn may_be_plain(run: &Run, round: u16, index: StepIndex) -> bool {
    let sees_nothing =
        run.step(round, index).is_some_and(|step| step.access.is_empty() && !step.sees_earlier_round);
    sees_nothing && run.is_final_step(round, index) && run.spec().request.tools.is_some()
}
