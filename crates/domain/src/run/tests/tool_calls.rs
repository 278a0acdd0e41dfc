//! Steps whose worker calls tools, and the runs that get the results.

use serde_json::json;

use super::*;
use crate::call_id::CallId;
use crate::content::{Part, Reasoning, Seal, ToolCall, ToolResult};
use crate::conversation::{Message, Role};
use crate::ids::WorkerId;
use crate::policy::StepTools;
use crate::stops::Stops;
use crate::tool_loop::{earlier_run, restored, waiting_worker};
use crate::tools::{CallsAtOnce, Tool, ToolChoice, ToolUse};

pub(super) fn tools() -> ToolUse {
    let (name, schema) = ("look".to_owned(), json!({ "type": "object" }));
    let tools = vec![Tool { name, description: String::new(), schema, strict: None }];
    ToolUse { tools, choice: ToolChoice::Auto, at_once: CallsAtOnce::Several }
}

pub(super) fn w() -> WorkerId {
    WorkerId::new("w").unwrap()
}

pub(super) fn seal(mark: &str) -> Seal {
    Seal { worker: w(), mark: mark.to_owned() }
}

/// A policy under which a run ends with the calls of its final step.
fn last(attempts_max: u32, rounds_max: u16) -> Policy {
    Policy { tools: StepTools::Last, ..policy(attempts_max, rounds_max) }
}

/// A run with the plan `access` that offers tools and continues `conversation`.
pub(super) fn offering(number: u128, conversation: Conversation, access: &str, policy: &Policy) -> Run {
    planned_with(number, access, policy, |request| {
        request.conversation = conversation;
        request.tools = Some(tools());
    })
}

/// A run with the plan `access`, whose request is changed before.
fn planned_with(number: u128, access: &str, policy: &Policy, change: impl FnOnce(&mut RunRequest)) -> Run {
    let template = accepted(policy.clone());
    let mut spec = template.spec().clone();
    change(&mut spec.request);
    let first = SequencedEvent { sequence: 1, at: NOW, event: Run::accept(spec) };
    let run = Run::replay(RunId::new(Uuid::from_u128(number)), &[first]).unwrap();
    let task = TaskRef::Plan { round: 0 };
    let planned = Planned { plan: plan(access, policy), reasoning: String::new(), fallback: None };
    let (claim, spent, reserve) = (claim_id(task, 1), Spent::NONE, Cost::ZERO);
    let result = PlanResult::Plan(planned);
    let complete = Command::CompletePlan { round: 0, claim, result, spent, reserve };
    drive(run, &[claimed(task, 1), complete])
}

pub(super) fn question() -> Conversation {
    Conversation::question_only("why?").unwrap()
}

pub(super) fn calling(index: u16, ids: &[&str]) -> Command {
    let calls = ids.iter().map(|id| ToolCall {
        seal: Some(seal(&format!("seal of {id}"))),
        ..ToolCall::new(*id, "look", r#"{"at": "sky"}"#)
    });
    let reasoning = vec![Reasoning { text: "hm".to_owned(), seal: Some(seal("signature")) }];
    let (output, finish) = (String::new(), FinishReason::ToolCalls);
    let result = StepResult { output, calls: calls.collect(), reasoning, finish, ..result() };
    let claim = claim_id(step(index), 1);
    Command::CompleteStep { round: 0, step: StepIndex::new(index), claim, result }
}

/// The conversation of a client that executed the calls of `run`.
pub(super) fn answered(run: &Run, output: &str) -> Conversation {
    let calls = run.tool_calls();
    let sent =
        calls.iter().map(|call| Part::ToolCall(ToolCall::new(call.id.clone(), "look", r#"{"at":"sky"}"#)));
    let results = calls.iter().map(|call| Part::ToolResult(ToolResult::new(call.id.clone(), "", output)));
    let mut messages = run.spec().request.conversation.messages().to_vec();
    // Clients know neither seals nor the workers' own ids.
    for message in &mut messages {
        message.parts.retain(|part| !matches!(part, Part::Reasoning(_)));
        for part in &mut message.parts {
            if let Part::ToolCall(call) = part {
                (call.seal, call.own_id) = (None, None);
            }
        }
    }
    messages.push(Message::new(Role::Assistant, "").with(sent));
    messages.push(Message::new(Role::User, "").with(results));
    Conversation::new(messages).unwrap()
}

#[test]
fn a_run_ends_with_the_calls_of_its_final_step() {
    let run = offering(1, question(), "[[], [0]]", &last(1, 2));
    let run = drive(run, &[claimed(step(0), 1), done(0), claimed(step(1), 1)]);
    assert!(run.tools_of(StepRef { round: 0, step: StepIndex::new(0) }).is_none());
    assert!(run.tools_of(StepRef { round: 0, step: StepIndex::new(1) }).is_some());
    let run = drive(run, &[calling(1, &["a", "b"])]);
    // A second round would judge an answer that the client has to complete first.
    assert!(matches!(run.state(), RunState::Succeeded { round: 0, .. }), "{:?}", run.state());
    assert_eq!((run.rounds().len(), run.answer()), (1, Some("")));
    let calls = run.tool_calls();
    let own: Vec<_> = calls.iter().map(|call| call.own_id.as_ref().unwrap().mark.as_str()).collect();
    assert_eq!(own, ["a", "b"]);
    for (index, call) in calls.iter().enumerate() {
        let id: CallId = call.id.parse().unwrap();
        assert_eq!((id.run(), id.step().step.get(), id.index()), (run.id(), 1, index));
    }
}

#[test]
fn a_blank_output_without_calls_is_refused() {
    let run = drive(offering(1, question(), "[[]]", &last(1, 1)), &[claimed(step(0), 1)]);
    let refused = run.decide(&calling(0, &[]), NOW);
    assert_eq!(refused.unwrap_err(), Refusal::BlankOutput);
}

#[test]
fn only_a_stop_sequence_may_leave_the_answer_empty() {
    let stopped = |step: u16, stops: &[&str], finish| {
        let stops = Stops::new(stops.iter().map(ToString::to_string).collect()).unwrap();
        let run = planned_with(1, "[[], [0]]", &last(1, 1), |request| request.stops = stops);
        let run = drive(run, &[claimed(self::step(0), 1)]);
        let run = if step == 0 { run } else { drive(run, &[done(0), claimed(self::step(1), 1)]) };
        let (claim, step) = (claim_id(self::step(step), 1), StepIndex::new(step));
        let result = StepResult { output: String::new(), finish, ..result() };
        run.decide(&Command::CompleteStep { round: 0, step, claim, result }, NOW)
    };
    assert!(stopped(1, &["END"], FinishReason::Stop).is_ok());
    for refused in [
        stopped(1, &[], FinishReason::Stop),
        stopped(1, &["END"], FinishReason::Length),
        stopped(0, &["END"], FinishReason::Stop),
    ] {
        assert_eq!(refused.unwrap_err(), Refusal::BlankOutput);
    }
}

#[test]
fn results_restore_the_seals_and_ids_of_every_earlier_turn() {
    let first =
        drive(offering(1, question(), "[[]]", &last(1, 1)), &[claimed(step(0), 1), calling(0, &["a", "b"])]);
    let sent = answered(&first, "blue");
    assert_eq!(earlier_run(&sent), Some(first.id()));
    assert_eq!(waiting_worker(&sent, &first), Some(&w()));
    let whole = restored(&sent, &first);
    let second = drive(offering(2, whole, "[[]]", &last(1, 1)), &[claimed(step(0), 1), calling(0, &["c"])]);
    let sent = answered(&second, "red");
    assert_eq!(earlier_run(&sent), Some(second.id()));
    let whole = restored(&sent, &second);
    let turns: Vec<_> = whole.messages().iter().filter(|m| m.role == Role::Assistant).collect();
    let marks = |message: &Message| {
        let calls = message.calls().map(|call| {
            (
                call.own_id.as_ref().unwrap().mark.clone(),
                call.seal.as_ref().unwrap().mark.clone(),
                call.arguments.clone(),
            )
        });
        calls.collect::<Vec<_>>()
    };
    let whole_call = |id: &str| (id.to_owned(), format!("seal of {id}"), r#"{"at": "sky"}"#.to_owned());
    assert_eq!(marks(turns[0]), [whole_call("a"), whole_call("b")]);
    assert_eq!(marks(turns[1]), [whole_call("c")]);
    for turn in turns {
        let Part::Reasoning(reasoning) = &turn.parts[0] else { panic!("{turn:?}") };
        assert_eq!(reasoning.seal, Some(seal("signature")));
    }
}

#[test]
fn a_call_that_the_client_changed_keeps_its_id_but_loses_its_seal() {
    let run = drive(offering(1, question(), "[[]]", &last(1, 1)), &[claimed(step(0), 1), calling(0, &["a"])]);
    let mut messages: Vec<_> = answered(&run, "blue").into();
    let Part::ToolCall(call) = &mut messages[1].parts[0] else { panic!("no call") };
    call.arguments = r#"{"at":"sea"}"#.to_owned();
    let whole = restored(&Conversation::new(messages).unwrap(), &run);
    let call = whole.messages()[1].calls().next().unwrap();
    assert_eq!((call.arguments.as_str(), &call.seal), (r#"{"at":"sea"}"#, &None));
    assert_eq!(call.own_id, Some(seal("a")));
}

#[test]
fn ids_of_other_runs_and_systems_wait_for_no_worker() {
    let run = drive(offering(1, question(), "[[]]", &last(1, 1)), &[claimed(step(0), 1), calling(0, &["a"])]);
    let other =
        drive(offering(2, question(), "[[]]", &last(1, 1)), &[claimed(step(0), 1), calling(0, &["a"])]);
    let sent = answered(&run, "blue");
    assert_eq!(waiting_worker(&sent, &other), None);
    assert_eq!(restored(&sent, &other), sent);
    // A guessed tag names the run, but none of its calls.
    let guessed = {
        let id = run.tool_calls()[0].id.clone();
        let mut text = serde_json::to_string(&sent).unwrap();
        text = text
            .replace(&id, &format!("{}{}", &id[..id.len() - 1], if id.ends_with('0') { '1' } else { '0' }));
        serde_json::from_str::<Conversation>(&text).unwrap()
    };
    assert_eq!(waiting_worker(&guessed, &run), None);
    assert_eq!(restored(&guessed, &run), guessed);
    let foreign = vec![
        Message::new(Role::User, "look"),
        Message::new(Role::Assistant, "").with([Part::ToolCall(ToolCall::new("call_x", "look", "{}"))]),
        Message::new(Role::User, "").with([Part::ToolResult(ToolResult::new("call_x", "look", "blue"))]),
    ];
    let foreign = Conversation::new(foreign).unwrap();
    assert_eq!(earlier_run(&foreign), None);
    assert_eq!(waiting_worker(&foreign, &run), None);
}

#[test]
fn a_stored_result_without_calls_keeps_its_form() {
    let run = drive(offering(1, question(), "[[]]", &last(1, 1)), &[claimed(step(0), 1)]);
    let decision = run.decide(&done(0), NOW).unwrap();
    let stored = serde_json::to_string(&decision.events[0]).unwrap();
    assert!(!stored.contains("calls") && !stored.contains("reasoning\":["), "{stored}");
    let decision = run.decide(&calling(0, &["a"]), NOW).unwrap();
    let stored = serde_json::to_string(&decision.events[0]).unwrap();
    assert_eq!(serde_json::from_str::<RunEvent>(&stored).unwrap(), decision.events[0]);
}
