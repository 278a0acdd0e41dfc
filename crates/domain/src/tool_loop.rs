//! Tool loops across requests. A suspended run continues with the results of its calls. A run that ended with calls is followed by a
//! new run, which continues with the same worker.
//!
//! The client's conversation has our ids of the calls. The stored run has what the worker expects back: its own ids, and the seals
//! of its reasoning.

use std::collections::HashMap;

use crate::call_id::CallId;
use crate::content::{Part, Reasoning, ToolCall};
use crate::conversation::{Conversation, Message, Role};
use crate::ids::{RunId, WorkerId};
use crate::run::{Run, RunState, StepRef, TaskRef};

/// The latest run whose calls are in the conversation, if any of its calls is ours.
pub fn earlier_run(conversation: &Conversation) -> Option<RunId> {
    let mut messages = conversation.messages().iter().rev();
    messages.find_map(|message| ids(message).next()).map(|id| id.run())
}

/// The messages after the calls at the end of the conversation, if all of these calls are ours and of one run.
pub fn results_at_end(conversation: &Conversation) -> Option<&[Message]> {
    let messages = conversation.messages();
    let last = messages.iter().rposition(|message| message.role == Role::Assistant)?;
    let run = ids(&messages[last]).next()?.run();
    let is_ours = |call: &ToolCall| call.id.parse::<CallId>().is_ok_and(|id| id.run() == run);
    messages[last].calls().all(is_ours).then(|| &messages[last + 1..])
}

/// The worker that waits for the results at the end of the conversation, if `earlier` made the calls.
pub fn waiting_worker<'r>(conversation: &Conversation, earlier: &'r Run) -> Option<&'r WorkerId> {
    let RunState::Succeeded { round, step } = *earlier.state() else { return None };
    let last = conversation.messages().iter().rev().find(|message| message.role == Role::Assistant)?;
    let asked = ids(last).next().filter(|id| id.run() == earlier.id())?;
    let calls = earlier.calls_of(StepRef { round, step });
    let is_known = calls.iter().any(|call| call.id == asked.to_string());
    is_known.then(|| earlier.worker_of(TaskRef::Step { round, step }))?
}

/// The worker that waits for the results at the end of the conversation, by the ids that it gave its calls. The client may have kept
/// them, although the run that made the calls was removed.
pub fn worker_of_last_calls(conversation: &Conversation) -> Option<&WorkerId> {
    let last = conversation.messages().iter().rev().find(|message| message.role == Role::Assistant)?;
    let call = last.calls().next()?;
    call.own_id.as_ref().or(call.seal.as_ref()).map(|seal| &seal.worker)
}

/// The conversation with the seals and ids that the workers of earlier turns expect back. `earlier` is its [`earlier_run`], which
/// has its own calls and, in its conversation, those of the turns before. Parts that the client changed stay unchanged.
pub fn restored(conversation: &Conversation, earlier: &Run) -> Conversation {
    let known = Known::of(earlier);
    let messages = conversation.messages().iter().map(|message| known.restored(message)).collect();
    // Seals may make it too long; without them the loop goes on all the same.
    Conversation::new(messages).unwrap_or_else(|_| conversation.clone())
}

fn ids(message: &Message) -> impl Iterator<Item = CallId> {
    message.calls().filter_map(|call| call.id.parse().ok())
}

/// Calls and reasoning of earlier turns.
struct Known {
    calls: HashMap<String, ToolCall>,
    /// The reasoning before the calls, by the id of the first call of the turn.
    reasoning: HashMap<String, Vec<Reasoning>>,
}

impl Known {
    fn of(run: &Run) -> Self {
        let mut known = Self { calls: HashMap::new(), reasoning: HashMap::new() };
        for message in run.spec().request.conversation.messages() {
            let reasoning = message.parts.iter().filter_map(|part| match part {
                Part::Reasoning(reasoning) => Some(reasoning.clone()),
                _ => None,
            });
            known.add(message.calls().cloned().collect(), reasoning.collect());
        }
        for (step, found) in run.step_runs() {
            for turn in &found.turns {
                known.add(turn.client_calls(run.id(), step), turn.reasoning.clone());
            }
        }
        if let RunState::Succeeded { round, step } = *run.state() {
            let done =
                run.rounds().get(usize::from(round)).and_then(|round| round.steps.get(step.as_usize()));
            let reasoning = done.map(|done| done.reasoning.clone()).unwrap_or_default();
            known.add(run.calls_of(StepRef { round, step }), reasoning);
        }
        known
    }

    fn add(&mut self, calls: Vec<ToolCall>, reasoning: Vec<Reasoning>) {
        if let Some(first) = calls.first() {
            self.reasoning.insert(first.id.clone(), reasoning);
        }
        // Ids of other systems may repeat from turn to turn.
        let ours = calls.into_iter().filter(|call| call.id.parse::<CallId>().is_ok());
        self.calls.extend(ours.map(|call| (call.id.clone(), call)));
    }

    fn restored(&self, message: &Message) -> Message {
        let first = message.calls().next().filter(|call| self.calls.contains_key(&call.id));
        let Some(first) = first.filter(|_| message.role == Role::Assistant) else { return message.clone() };
        let reasoning = self.reasoning.get(&first.id).cloned().unwrap_or_default();
        // Reasoning that the client kept is known here too.
        let others = message.parts.iter().filter(|part| !matches!(part, Part::Reasoning(_)));
        let parts = others.map(|part| match part {
            Part::ToolCall(sent) => Part::ToolCall(self.call(sent)),
            part => part.clone(),
        });
        let parts: Vec<_> = reasoning.into_iter().map(Part::Reasoning).chain(parts).collect();
        Message { parts, ..Message::new(message.role, message.text.clone()) }
    }

    /// The call as its worker wrote it, unless the client changed it. A changed call keeps its id, but not its seal.
    fn call(&self, sent: &ToolCall) -> ToolCall {
        match self.calls.get(&sent.id) {
            Some(known) if known.name == sent.name && known.has_same_arguments(sent) => known.clone(),
            Some(known) => ToolCall { own_id: known.own_id.clone(), ..sent.clone() },
            None => sent.clone(),
        }
    }
}
