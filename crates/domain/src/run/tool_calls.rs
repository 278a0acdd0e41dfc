//! The tool calls of a run: which steps may make them, the ids that clients get for them, and the turns in which steps wait for
//! their results.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::command::{Decision, Effect, Refusal, StepResult};
use super::event::{FailReason, RunEvent};
use super::settle::Sight;
use super::task::TaskState;
use super::{AttemptOutcome, Run, RunState, SequencedEvent, StepRef, StepRun, ToolTurn};
use crate::call_id::CallId;
use crate::content::{Part, Seal, ToolCall, ToolResult};
use crate::conversation::{CONVERSATION_BYTES_MAX, Message, Role};
use crate::ids::{ClaimId, RunId, StepIndex, WorkerId};
use crate::time::Timestamp;
use crate::tools::{ToolChoice, ToolUse};

impl Run {
    /// The tools that a step is offered. If the run is not suspended by calls, only a final step is offered any. A step that has used
    /// up its turns is offered them without permission to call.
    pub fn tools_of(&self, step: StepRef) -> Option<Cow<'_, ToolUse>> {
        let request = &self.spec.request;
        let tools = request.offered_tools()?;
        if !request.suspends() {
            return self.is_final_step(step.round, step.step).then_some(Cow::Borrowed(tools));
        }
        let turns = self.step_run(step).map_or(0, |step| step.turns.len());
        if turns < usize::from(request.policy.turns_max) {
            return Some(Cow::Borrowed(tools));
        }
        Some(Cow::Owned(ToolUse { choice: ToolChoice::None, ..tools.clone() }))
    }

    /// The steps that wait for `results`, each with those that it would get.
    pub fn steps_given(&self, results: &[Message]) -> Vec<(StepRef, Vec<Message>)> {
        let given = self.calling().filter_map(|(step, found)| {
            let turn = found.turns.last()?;
            Some((step, turn.own_results(self.id, step, results)))
        });
        given.collect()
    }

    pub(super) fn may_call(&self, step: StepRef) -> bool {
        self.tools_of(step).is_some_and(|tools| tools.may_call())
    }

    /// The tool calls of a step by the ids that clients get: those that wait for results, or those of its result. The ids of the
    /// worker are in `own_id`.
    pub fn calls_of(&self, step: StepRef) -> Vec<ToolCall> {
        let Some(found) = self.step_run(step) else { return Vec::new() };
        if found.task.state == TaskState::Calling {
            return found.turns.last().map(|turn| turn.client_calls(self.id, step)).unwrap_or_default();
        }
        let mut attempts = found.task.attempts.iter().rev();
        let accepted = attempts.find(|attempt| attempt.outcome == AttemptOutcome::Accepted);
        let Some(attempt) = accepted else { return Vec::new() };
        let calls = Calls { run: self.id, step, claim: attempt.claim, worker: attempt.worker.as_ref() };
        calls.by_client_ids(&found.calls)
    }

    /// The tool calls at the end of the current reply, by the ids that clients get: those of the answer, or those that a suspended
    /// run waits for. Empty if it has none.
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        match self.state {
            RunState::Succeeded { round, step } => self.calls_of(StepRef { round, step }),
            RunState::Suspended => self.calling().flat_map(|(step, _)| self.calls_of(step)).collect(),
            RunState::Active | RunState::Failed { .. } | RunState::Cancelled => Vec::new(),
        }
    }

    /// The text of the current reply: the answer, or what was written before the calls of a suspended run. If several steps wait,
    /// only the text of a final step counts. `None` if the reply is not complete, or the run failed.
    pub fn reply_text(&self) -> Option<&str> {
        if self.is_suspended() { Some(self.text_before_calls(self.reply)) } else { self.answer() }
    }

    /// The reasoning before the text of the current reply. Empty if the worker wrote none, if the client may not see it, or if the
    /// reply is incomplete.
    pub fn reply_reasoning(&self) -> &str {
        match self.state {
            RunState::Succeeded { round, step } => {
                self.step_run(StepRef { round, step }).map_or("", |step| &step.reasoning_text)
            }
            RunState::Suspended => {
                self.turns_of(self.reply).first().map_or("", |(_, turn)| &turn.reasoning_text)
            }
            RunState::Active | RunState::Failed { .. } | RunState::Cancelled => "",
        }
    }

    /// The most tokens of a step's output, if the client set a limit; it concerns steps that may be the answer.
    pub fn answer_tokens_max_of(&self, step: StepRef) -> Option<u32> {
        self.spec.request.answer_tokens_max.filter(|_| self.may_be_answer(step))
    }

    /// Whether the client is shown the reasoning of a step, which must be one that may be the answer.
    pub fn shows_reasoning_of(&self, step: StepRef) -> bool {
        self.spec.request.shows_reasoning && self.may_be_answer(step)
    }

    /// The time at which the current reply was complete; `None` if it is not.
    pub fn replied_at(&self) -> Option<Timestamp> {
        if self.is_suspended() { self.suspended_at } else { self.ended_at }
    }

    /// Whether it failed because the results of its calls did not come in time.
    pub fn is_expired(&self) -> bool {
        matches!(self.state, RunState::Failed { reason: FailReason::SuspensionExpired { .. } })
    }

    /// Whether a client cancelled it while it waited for the results of its calls.
    pub fn is_cancelled_with_calls(&self) -> bool {
        self.state == RunState::Cancelled && self.ended_suspended
    }

    /// The replies that ended with tool calls, from the first one. The last one has no results while the run waits for them, if they
    /// did not come in time, and if the run was cancelled meanwhile.
    pub fn replies_with_calls(&self) -> Vec<ReplyWithCalls> {
        let is_open = self.is_suspended() || self.is_expired() || self.is_cancelled_with_calls();
        let count = self.reply + u16::from(is_open);
        (0..count).map(|reply| self.reply_with_calls(reply)).collect()
    }

    fn reply_with_calls(&self, reply: u16) -> ReplyWithCalls {
        let turns = self.turns_of(reply);
        let calls = turns.iter().flat_map(|(step, turn)| turn.client_calls(self.id, *step)).collect();
        let is_result = |part: &Part| matches!(part, Part::ToolResult(_));
        let given = turns.iter().flat_map(|(_, turn)| &turn.results).flat_map(|message| &message.parts);
        let given: Vec<_> = given.filter(|part| is_result(part)).cloned().collect();
        // Each turn has everything else that the client said.
        let said = turns.first().into_iter().flat_map(|(_, turn)| &turn.results).map(|message| {
            let parts = message.parts.iter().filter(|part| !is_result(part)).cloned().collect();
            Message { parts, ..Message::new(message.role, &*message.text) }
        });
        let given = (!given.is_empty()).then(|| Message::new(Role::User, "").with(given));
        let said = said.filter(|message| !message.text.trim().is_empty() || !message.parts.is_empty());
        let results = given.into_iter().chain(said).collect();
        ReplyWithCalls { text: self.text_before_calls(reply).to_owned(), calls, results }
    }

    /// The text before the calls of a reply. If several steps called, only the text of a final step counts.
    fn text_before_calls(&self, reply: u16) -> &str {
        match self.turns_of(reply).as_slice() {
            [(_, only)] => &only.text,
            [(step, first), ..] if self.is_final_step(step.round, step.step) => &first.text,
            _ => "",
        }
    }

    /// The turns that ended with the calls of a reply, that of a final step first.
    fn turns_of(&self, reply: u16) -> Vec<(StepRef, &ToolTurn)> {
        let mut turns: Vec<_> = self.turns().filter(|(_, turn)| turn.reply == reply).collect();
        turns.sort_by_key(|(step, _)| !self.is_final_step(step.round, step.step));
        turns
    }

    /// The worker's earlier turns of a step and the results of their calls, as messages for a worker.
    pub fn transcript_of(&self, step: StepRef) -> Vec<Message> {
        let turns = self.step_run(step).map(|step| step.turns.as_slice()).unwrap_or_default();
        turns.iter().flat_map(|turn| turn.messages(self.id, step)).collect()
    }

    /// The reply that the results begin, if the run has exactly these results already.
    pub fn reply_to(&self, results: &[Message]) -> Option<u16> {
        let asked: CallId = results.iter().flat_map(Message::results).next()?.call_id.parse().ok()?;
        let turns = &self.step_run(asked.step())?.turns;
        let is_asked = |turn: &&Arc<ToolTurn>| {
            turn.client_calls(self.id, asked.step()).iter().any(|call| call.id == asked.to_string())
        };
        let reply = turns.iter().find(is_asked)?.reply;
        let given = self.turns().filter(|(_, turn)| turn.reply == reply);
        let (mut calls, mut is_same) = (BTreeSet::new(), true);
        for (step, turn) in given {
            is_same &= !turn.results.is_empty() && turn.own_results(self.id, step, results) == turn.results;
            calls.extend(turn.client_calls(self.id, step).into_iter().map(|call| call.id));
        }
        (is_same && calls == ids_of(results)).then(|| reply.saturating_add(1))
    }

    /// Whether nothing but tool calls keeps it from going on.
    pub(super) fn has_only_calls(&self) -> bool {
        let is_open =
            |state: &TaskState| matches!(state, TaskState::Ready { .. } | TaskState::Running { .. });
        self.state == RunState::Active
            && self.calling().next().is_some()
            && !self.tasks().any(|(_, task)| is_open(&task.state))
    }

    pub(super) fn decide_calls(
        &self,
        step: StepRef,
        claim: ClaimId,
        result: &StepResult,
        now: Timestamp,
    ) -> Decision {
        let mut decision = Decision::default();
        decision.events.push(RunEvent::StepCalled {
            round: step.round,
            step: step.step,
            claim,
            text: result.output.clone(),
            calls: result.calls.clone(),
            reasoning: result.reasoning.clone(),
            reasoning_text: result.reasoning_text.clone(),
            usage: result.spent.usage,
            cost: result.spent.cost,
            first_token_ms: result.first_token_ms,
        });
        // A round that cannot answer any more does not wait for the client.
        self.settle_after(step.round, step.step, Sight::Calling, now, &mut decision);
        decision
    }

    pub(super) fn decide_results(&self, results: &[Message], now: Timestamp) -> Result<Decision, Refusal> {
        if !self.is_suspended() {
            let is_known = self.reply_to(results).is_some();
            let refusal = if self.is_ended() { Refusal::Ended } else { Refusal::NotSuspended };
            return if is_known { Ok(Decision::default()) } else { Err(refusal) };
        }
        let pending: BTreeSet<_> = self.tool_calls().into_iter().map(|call| call.id).collect();
        if ids_of(results) != pending {
            let is_known = self.reply_to(results).is_some();
            return if is_known { Ok(Decision::default()) } else { Err(Refusal::OtherResults) };
        }
        let bytes: usize = results.iter().map(Message::bytes).sum();
        let turn_bytes = |step: &StepRun| step.turns.iter().map(|turn| turn.bytes()).sum::<usize>();
        if self.calling().any(|(_, step)| turn_bytes(step) + bytes > CONVERSATION_BYTES_MAX) {
            return Err(Refusal::ResultsTooLong);
        }
        if let Some(end) = self.overdue(now) {
            return Ok(end);
        }
        let ready = self.calling().map(|(step, _)| Effect::Dispatch { task: step.into(), not_before: now });
        let effects = ready.collect();
        Ok(Decision { events: vec![RunEvent::ResultsGiven { results: results.to_vec() }], effects })
    }

    /// The same decision, which suspends the run if nothing but tool calls keeps it from going on.
    pub(super) fn suspending(&self, mut decision: Decision, now: Timestamp) -> Decision {
        let calls = |event: &RunEvent| matches!(event, RunEvent::StepCalled { .. });
        let may_suspend = self.state == RunState::Active
            && (self.calling().next().is_some() || decision.events.iter().any(calls));
        if decision.events.is_empty() || !may_suspend {
            return decision;
        }
        let mut after = self.clone();
        for event in &decision.events {
            let event = SequencedEvent { sequence: after.version() + 1, at: now, event: event.clone() };
            // The caller applies the events as well, and reports an error.
            if after.apply(&event).is_err() {
                return decision;
            }
        }
        if after.has_only_calls() {
            decision.events.push(RunEvent::Suspended);
        }
        decision
    }

    fn step_run(&self, step: StepRef) -> Option<&StepRun> {
        self.rounds.get(usize::from(step.round))?.steps.get(step.step.as_usize())
    }

    /// The steps that wait for the client: a final step first, because its calls may have been streamed.
    fn calling(&self) -> impl Iterator<Item = (StepRef, &StepRun)> {
        let mut calling: Vec<_> =
            self.step_runs().filter(|(_, step)| step.task.state == TaskState::Calling).collect();
        calling.sort_by_key(|(step, _)| !self.is_final_step(step.round, step.step));
        calling.into_iter()
    }

    fn turns(&self) -> impl Iterator<Item = (StepRef, &ToolTurn)> {
        self.step_runs().flat_map(|(step, run)| run.turns.iter().map(move |turn| (step, &**turn)))
    }

    pub(crate) fn step_runs(&self) -> impl Iterator<Item = (StepRef, &StepRun)> {
        (0u16..).zip(&self.rounds).flat_map(|(round, of)| {
            let steps = (0u16..).map(StepIndex::new).zip(&of.steps);
            steps.map(move |(step, run)| (StepRef { round, step }, run))
        })
    }
}

/// A reply that ended with tool calls.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyWithCalls {
    /// The text before the calls.
    pub text: String,
    /// The calls, by the ids that clients get.
    pub calls: Vec<ToolCall>,
    /// The client's messages after the calls: one with the results, and others. Empty until then.
    pub results: Vec<Message>,
}

impl ToolTurn {
    /// The calls by the ids that clients get.
    pub fn client_calls(&self, run: RunId, step: StepRef) -> Vec<ToolCall> {
        Calls { run, step, claim: self.claim, worker: Some(&self.worker) }.by_client_ids(&self.calls)
    }

    /// The messages without the results of other steps' calls. A result without a name gets that of its tool.
    pub(super) fn own_results(&self, run: RunId, step: StepRef, results: &[Message]) -> Vec<Message> {
        let own = self.client_calls(run, step);
        let own_part = |part: &Part| {
            let Part::ToolResult(result) = part else { return Some(part.clone()) };
            let call = own.iter().find(|call| call.id == result.call_id)?;
            let name = if result.name.is_empty() { call.name.clone() } else { result.name.clone() };
            Some(Part::ToolResult(ToolResult { name, ..result.clone() }))
        };
        let messages = results.iter().map(|message| {
            let parts = message.parts.iter().filter_map(own_part).collect();
            Message { parts, ..Message::new(message.role, message.text.clone()) }
        });
        messages.filter(|message| !message.text.trim().is_empty() || !message.parts.is_empty()).collect()
    }

    fn messages(&self, run: RunId, step: StepRef) -> Vec<Message> {
        let reasoning = self.reasoning.iter().cloned().map(Part::Reasoning);
        let calls = self.client_calls(run, step).into_iter().map(Part::ToolCall);
        let called = Message::new(Role::Assistant, self.text.clone()).with(reasoning.chain(calls));
        std::iter::once(called).chain(self.results.iter().cloned()).collect()
    }
}

/// The attempt that made calls.
struct Calls<'a> {
    run: RunId,
    step: StepRef,
    claim: ClaimId,
    worker: Option<&'a WorkerId>,
}

impl Calls<'_> {
    /// Calls with the ids of the worker, by the ids that clients get.
    fn by_client_ids(&self, calls: &[ToolCall]) -> Vec<ToolCall> {
        let call = |(index, call): (usize, &ToolCall)| ToolCall {
            id: CallId::new(self.run, self.step, self.claim, index).to_string(),
            own_id: self.worker.map(|worker| Seal { worker: worker.clone(), mark: call.id.clone() }),
            ..call.clone()
        };
        calls.iter().enumerate().map(call).collect()
    }
}

/// The ids of the calls that have results in `messages`.
fn ids_of(messages: &[Message]) -> BTreeSet<String> {
    messages.iter().flat_map(Message::results).map(|result| result.call_id.clone()).collect()
}
