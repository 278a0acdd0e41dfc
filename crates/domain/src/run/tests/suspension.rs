//! Runs whose steps call tools and continue with the results.

use super::tool_calls::{calling, offering, question, seal, w};
use super::*;
use crate::budget::{BudgetRef, Payer};
use crate::content::{Part, ToolResult};
use crate::conversation::Role;
use crate::policy::StepTools;
use crate::tool_loop::{restored, results_at_end};
use crate::tools::{CallsAtOnce, ToolChoice};

fn all(attempts_max: u32, rounds_max: u16) -> Policy {
    Policy { tools: StepTools::All, ..policy(attempts_max, rounds_max) }
}

fn tasks(run: &Run) -> Vec<&'static str> {
    run.rounds()[0].steps.iter().map(|step| step.task.state.as_str()).collect()
}

/// The client's message with one result for each call.
fn results(run: &Run, output: &str) -> Vec<Message> {
    let result = |call: ToolCall| Part::ToolResult(ToolResult::new(call.id, call.name, output));
    vec![Message::new(Role::User, "").with(run.tool_calls().into_iter().map(result))]
}

fn give(results: &[Message]) -> Command {
    Command::GiveResults { results: results.to_vec() }
}

fn at(run: &Run, command: &Command, now: Timestamp) -> Run {
    let mut after = run.clone();
    for event in run.decide(command, now).unwrap().events {
        let event = SequencedEvent { sequence: after.version() + 1, at: now, event };
        after.apply(&event).unwrap();
    }
    after
}

fn again(index: u16, number: u32) -> Command {
    let claim = claim_id(step(index), number);
    Command::CompleteStep { round: 0, step: StepIndex::new(index), claim, result: result() }
}

#[test]
fn every_reachable_state_of_a_run_that_calls_tools_keeps_the_invariants() {
    let parallel = Policy { turns_max: 1, ..all(1, 1) };
    let retried = Policy { turns_max: 1, ..all(2, 1) };
    let replanned = Policy { failed_step: FailedStep::Replan, ..parallel.clone() };
    for (access, policy) in [
        ("[[]]", Policy { turns_max: 2, ..all(1, 1) }),
        ("[[]]", retried),
        ("[[], [0]]", parallel.clone()),
        ("[[], [], [0, 1]]", parallel),
        ("[[], [0]]", replanned),
    ] {
        let run = offering(1, question(), access, &policy);
        let written = Written { calls: true, ..Written::from(plan(access, &policy)) };
        let (states, events) = walk(run, &written);
        let names: std::collections::HashSet<_> = events.iter().map(RunEvent::name).collect();
        for name in ["step_called", "suspended", "results_given", "result_unused", "succeeded", "failed"] {
            assert!(names.contains(name), "{access}: `{name}` never happened");
        }
        for run in &states {
            for event in &events {
                let event = SequencedEvent { sequence: run.version() + 1, at: NOW, event: event.clone() };
                // An illegal event is refused, it does not panic.
                let _ = run.clone().apply(&event);
            }
        }
        assert!(
            states.iter().any(Run::is_suspended) && states.len() > 20,
            "{access}: {} states",
            states.len()
        );
    }
}

#[test]
fn other_steps_go_on_while_one_waits_for_the_client() {
    let run = offering(1, question(), "[[], [], [0, 1]]", &all(1, 1));
    let run = drive(run, &[claimed(step(0), 1), claimed(step(1), 1), calling(0, &["a", "b"])]);
    assert_eq!((tasks(&run), run.state()), (vec!["calling", "running", "waiting"], &RunState::Active));
    assert_eq!(run.reply_text(), None);
    let run = drive(run, &[done(1)]);
    assert_eq!((tasks(&run), run.state()), (vec!["calling", "done", "waiting"], &RunState::Suspended));
    assert_eq!((run.tool_calls().len(), run.reply_text(), run.answer()), (2, Some(""), None));
    assert!(run.has_replied(0) && !run.has_replied(1) && !run.is_ended());
    let given = results(&run, "blue");
    let decision = run.decide(&give(&given), NOW).unwrap();
    assert_eq!(decision.effects, [Effect::Dispatch { task: step(0), not_before: NOW }]);
    let run = drive(run, &[give(&given)]);
    assert_eq!((tasks(&run), run.reply()), (vec!["ready", "done", "waiting"], 1));
    assert!(!run.has_replied(1) && run.tool_calls().is_empty());
    let run = drive(run, &[claimed(step(0), 2), again(0, 2), claimed(step(2), 1), done(2)]);
    assert_eq!((run.answer(), run.has_replied(1)), (Some("42"), true));
}

#[test]
fn all_pending_calls_end_the_reply_and_each_result_reaches_its_step() {
    let run = offering(1, question(), "[[], [], [0, 1]]", &all(1, 1));
    let commands = [claimed(step(0), 1), claimed(step(1), 1), calling(0, &["a"]), calling(1, &["b"])];
    let run = drive(run, &commands);
    let own: Vec<_> = run.tool_calls().iter().map(|call| call.own_id.clone().unwrap().mark).collect();
    assert_eq!(own, ["a", "b"]);
    let mut given = results(&run, "blue");
    given[0].parts.push(Part::Text("and hurry".to_owned()));
    let run = drive(run, &[give(&given)]);
    for (index, own) in [(0, "a"), (1, "b")] {
        let of = StepRef { round: 0, step: StepIndex::new(index) };
        let messages = run.transcript_of(of);
        let call = messages[0].calls().next().unwrap();
        assert_eq!((messages[0].calls().count(), call.own_id.clone()), (1, Some(seal(own))));
        assert_eq!(call.seal, Some(seal(&format!("seal of {own}"))));
        let Part::Reasoning(reasoning) = &messages[0].parts[0] else { panic!("{messages:?}") };
        assert_eq!(reasoning.seal, Some(seal("signature")));
        let results: Vec<_> = messages[1].results().collect();
        assert_eq!((results.len(), &results[0].call_id), (1, &call.id));
        assert_eq!(messages[1].words(), "and hurry");
        let prompt = crate::prompt::for_worker(&run, 0, of.step).unwrap();
        assert_eq!(prompt[prompt.len() - 2..], messages);
    }
    let last = StepRef { round: 0, step: StepIndex::new(2) };
    assert!(run.transcript_of(last).is_empty(), "a step sees its own transcript only");
}

#[test]
fn the_time_of_a_suspension_does_not_count() {
    let policy = Policy { suspended_ms_max: 7_200_000, ..all(1, 1) };
    let run = offering(1, question(), "[[]]", &policy);
    let run = drive(run, &[claimed(step(0), 1), calling(0, &["a"])]);
    let (deadline, hour) = (run.spec().deadline_at, Duration::from_hours(1));
    assert_eq!((run.deadline_at(), run.due_at()), (deadline, NOW.after(hour * 2)));
    let decision = run.decide(&Command::CheckDeadline, deadline).unwrap();
    assert_eq!(decision, Decision::default(), "the deadline passes while the client works");
    let resumed = at(&run, &give(&results(&run, "blue")), NOW.after(hour));
    assert_eq!((resumed.deadline_at(), resumed.due_at()), (deadline.after(hour), deadline.after(hour)));
    let expired = at(&run, &Command::CheckDeadline, run.due_at());
    let RunState::Failed { reason } = expired.state() else { panic!("{:?}", expired.state()) };
    assert_eq!(reason.code(), "suspension_expired");
    assert_eq!(reason.to_string(), "the results of its tool calls did not come within 7200000 ms");
    let by_hand = at(&run, &Command::Expire, deadline);
    assert_eq!(by_hand.state(), expired.state(), "an operator may end the wait at any time");
    assert_eq!(by_hand.decide(&Command::Expire, deadline), Err(Refusal::Ended));
    let late = at(&run, &give(&results(&run, "blue")), run.due_at());
    assert_eq!(late.state(), expired.state(), "late results do not revive an expired run");
}

#[test]
fn results_count_once_and_must_be_those_of_the_calls() {
    let run = offering(1, question(), "[[]]", &all(1, 1));
    let run = drive(run, &[claimed(step(0), 1), calling(0, &["a", "b"])]);
    let whole = results(&run, "blue");
    let mut part = whole.clone();
    part[0].parts.pop();
    assert_eq!(run.decide(&give(&part), NOW), Err(Refusal::OtherResults));
    assert_eq!(run.decide(&give(&[]), NOW), Err(Refusal::OtherResults));
    assert_eq!(run.reply_to(&whole), None);
    let resumed = drive(run.clone(), &[give(&whole)]);
    assert_eq!(resumed.decide(&give(&whole), NOW), Ok(Decision::default()), "a repetition changes nothing");
    assert_eq!(resumed.decide(&give(&results(&run, "red")), NOW), Err(Refusal::NotSuspended));
    assert_eq!((resumed.reply_to(&whole), resumed.reply_to(&part)), (Some(1), None));
    let ended = drive(resumed, &[claimed(step(0), 2), again(0, 2)]);
    assert_eq!(
        (ended.decide(&give(&whole), NOW), ended.reply_to(&whole)),
        (Ok(Decision::default()), Some(1))
    );
    assert_eq!(ended.decide(&give(&results(&run, "red")), NOW), Err(Refusal::Ended));
    let long = "x".repeat(crate::conversation::CONVERSATION_BYTES_MAX);
    assert_eq!(run.decide(&give(&results(&run, &long)), NOW), Err(Refusal::ResultsTooLong));
}

#[test]
fn a_result_of_an_earlier_turn_is_paid_for_but_unused() {
    let expire = Command::ExpireLease { task: step(0), claim: claim_id(step(0), 1) };
    let second = |command: Command| match command {
        Command::CompleteStep { round, step: index, result, .. } => {
            Command::CompleteStep { round, step: index, claim: claim_id(step(0), 2), result }
        }
        other => other,
    };
    let run = offering(1, question(), "[[]]", &all(3, 1));
    let commands = [claimed(step(0), 1), expire, claimed(step(0), 2), second(calling(0, &["a"]))];
    let run = drive(run, &commands);
    let run = drive(run.clone(), &[give(&results(&run, "blue"))]);
    let late = run.decide(&done(0), NOW).unwrap();
    let names: Vec<_> = late.events.iter().map(RunEvent::name).collect();
    assert_eq!(names, ["result_unused"], "the lost attempt answered the first turn's prompt");
    assert_eq!(run.decide(&second(calling(0, &["a"])), NOW), Ok(Decision::default()));
    assert_eq!(run.task(step(0)).unwrap().attempts_with(Some(&w())), 0, "attempts count for each turn");
}

#[test]
fn steps_run_one_after_the_other_if_the_client_forbids_parallel_calls() {
    let mut spec = offering(1, question(), "[[]]", &all(1, 1)).spec().clone();
    let tools = spec.request.tools.as_mut().unwrap();
    tools.at_once = CallsAtOnce::One;
    let policy = spec.request.policy.clone();
    let first = SequencedEvent { sequence: 1, at: NOW, event: Run::accept(spec) };
    let run = Run::replay(RunId::new(Uuid::from_u128(1)), &[first]).unwrap();
    let task = TaskRef::Plan { round: 0 };
    let planned =
        Planned { plan: plan("[[], [], [0, 1]]", &policy), reasoning: String::new(), fallback: None };
    let (claim, spent, reserve) = (claim_id(task, 1), Spent::NONE, Cost::ZERO);
    let complete =
        Command::CompletePlan { round: 0, claim, result: PlanResult::Plan(planned), spent, reserve };
    let run = drive(run, &[claimed(task, 1), complete]);
    assert_eq!(tasks(&run), ["ready", "waiting", "waiting"]);
    let run = drive(run, &[claimed(step(0), 1), calling(0, &["a"])]);
    assert_eq!((tasks(&run), run.is_suspended()), (vec!["calling", "waiting", "waiting"], true));
    let run = drive(run.clone(), &[give(&results(&run, "blue")), claimed(step(0), 2), again(0, 2)]);
    assert_eq!(tasks(&run), ["done", "ready", "waiting"]);
}

#[test]
fn a_step_that_used_up_its_turns_must_answer() {
    let run = offering(1, question(), "[[]]", &Policy { turns_max: 1, ..all(1, 1) });
    let of = StepRef { round: 0, step: StepIndex::new(0) };
    assert_eq!(run.tools_of(of).unwrap().choice, ToolChoice::Auto);
    let run = drive(run, &[claimed(step(0), 1), calling(0, &["a"])]);
    let run = drive(run.clone(), &[give(&results(&run, "blue")), claimed(step(0), 2)]);
    assert_eq!(run.tools_of(of).unwrap().choice, ToolChoice::None);
    let calls = Command::CompleteStep {
        round: 0,
        step: StepIndex::new(0),
        claim: claim_id(step(0), 2),
        result: StepResult { calls: vec![ToolCall::new("b", "look", "{}")], ..result() },
    };
    assert_eq!(drive(run, &[calls]).answer(), Some("42"), "the calls are dropped, the text counts");
}

#[test]
fn a_round_that_cannot_answer_does_not_wait_for_the_client() {
    let policy = Policy { failed_step: FailedStep::Fail, ..all(1, 1) };
    let begin = offering(1, question(), "[[], [], [0, 1]]", &policy);
    let begin = drive(begin, &[claimed(step(0), 1), claimed(step(1), 1)]);
    for commands in [[calling(0, &["a"]), failed(1)], [failed(1), calling(0, &["a"])]] {
        let mut run = begin.clone();
        for command in commands {
            if let Ok(decision) = run.decide(&command, NOW) {
                run = folded(&run, &decision.events);
            }
        }
        assert!(matches!(run.state(), RunState::Failed { .. }), "{:?}", run.state());
    }
}

#[test]
fn a_suspended_run_reserves_nothing_of_its_budgets() {
    let mut spec = offering(1, question(), "[[]]", &all(1, 1)).spec().clone();
    let payer = Payer::Tenant(spec.tenant.clone());
    spec.budgets = vec![BudgetRef { payer, period: None, from: NOW }];
    spec.hold = Cost::from_nano_usd(100);
    let policy = spec.request.policy.clone();
    let first = SequencedEvent { sequence: 1, at: NOW, event: Run::accept(spec) };
    let run = Run::replay(RunId::new(Uuid::from_u128(1)), &[first]).unwrap();
    let task = TaskRef::Plan { round: 0 };
    let planned = Planned { plan: plan("[[]]", &policy), reasoning: String::new(), fallback: None };
    let (claim, spent, reserve) = (claim_id(task, 1), Spent::NONE, Cost::from_nano_usd(50));
    let complete =
        Command::CompletePlan { round: 0, claim, result: PlanResult::Plan(planned), spent, reserve };
    let run = drive(run, &[claimed(task, 1), complete, claimed(step(0), 1)]);
    assert!(!run.booked().reserved.is_zero());
    let run = drive(run, &[calling(0, &["a"])]);
    assert_eq!((run.booked().reserved, run.booked().spent), (Cost::ZERO, Cost::from_nano_usd(1)));
    let decision = run.decide(&give(&results(&run, "blue")), NOW).unwrap();
    assert!(decision.events.iter().all(RunEvent::permits_spending));
    let resumed = drive(run.clone(), &[give(&results(&run, "blue"))]);
    assert_eq!(resumed.booked().total(), Cost::from_nano_usd(50));
}

#[test]
fn usage_is_counted_once_over_all_replies() {
    let run = offering(1, question(), "[[], [0]]", &all(1, 1));
    let run = drive(run, &[claimed(step(0), 1), calling(0, &["a"])]);
    let first = run.reply_usage().all;
    let run = drive(run.clone(), &[give(&results(&run, "blue"))]);
    assert_eq!(run.reply_usage().all, Usage::NONE);
    let run = drive(run, &[claimed(step(0), 2), again(0, 2), claimed(step(1), 1), done(1)]);
    assert_eq!(first + run.reply_usage().all, run.usage());
}

#[test]
fn a_conversation_names_its_suspended_run_or_restores_seals() {
    let run = offering(1, question(), "[[]]", &all(1, 1));
    let run = drive(run, &[claimed(step(0), 1), calling(0, &["a"])]);
    let sent = super::tool_calls::answered(&run, "blue");
    let given = results_at_end(&sent).unwrap();
    assert_eq!(given, &sent.messages()[2..]);
    let resumed = drive(run.clone(), &[give(given)]);
    assert_eq!(resumed.reply_to(given), Some(1));
    let cancelled = drive(run, &[Command::Cancel]);
    let whole = restored(&sent, &cancelled);
    let call = whole.messages()[1].calls().next().unwrap();
    assert_eq!((call.own_id.clone(), call.seal.clone()), (Some(seal("a")), Some(seal("seal of a"))));
    assert_eq!(results_at_end(&question()), None);
}
