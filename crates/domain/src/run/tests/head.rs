//! Steps that begin before their plan is complete.

use std::collections::HashSet;

use super::*;

fn begin(head: PlanHead, attempt: u32) -> Command {
    let claim = claim_id(PLAN, attempt);
    Command::BeginSteps { round: 0, claim, head }
}

const PLAN: TaskRef = TaskRef::Plan { round: 0 };

fn complete(plan: Plan, fallback: Option<&str>, attempt: u32) -> Command {
    let planned = Planned { plan, reasoning: String::new(), fallback: fallback.map(str::to_owned) };
    let spent = Spent { cost: Cost::from_nano_usd(1), ..Spent::NONE };
    let (claim, result) = (claim_id(PLAN, attempt), PlanResult::Plan(planned));
    Command::CompletePlan { round: 0, claim, result, spent, reserve: Cost::ZERO }
}

/// A run whose planner has begun the step `[[]]`.
fn begun(policy: &Policy) -> Run {
    let run = accepted(policy.clone());
    drive(run, &[claimed(PLAN, 1), begin(head_of("[[]]", "do it", policy), 1)])
}

fn states(run: &Run) -> Vec<&'static str> {
    run.rounds()[0].steps.iter().map(|step| step.task.state.as_str()).collect()
}

fn sees(run: &Run, index: u16) -> Vec<u16> {
    let step = run.step(0, StepIndex::new(index)).unwrap();
    step.access.as_slice().iter().map(|seen| seen.get()).collect()
}

#[test]
fn every_reachable_state_with_begun_steps_keeps_the_invariants() {
    for (access, heads, attempts_max) in [
        ("[[]]", vec![("[[]]", "do it")], 1),
        ("[[]]", vec![("[[]]", "something else")], 2),
        ("[[], [0]]", vec![("[[]]", "do it"), ("[[], [0]]", "do it"), ("[[]]", "something else")], 1),
    ] {
        let policy = policy(attempts_max, 1);
        let heads = heads.into_iter().map(|(access, subtask)| head_of(access, subtask, &policy)).collect();
        let written = Written { heads, ..Written::from(plan(access, &policy)) };
        let (states, events) = walk(accepted(policy), &written);
        eprintln!("{} states, {} events", states.len(), events.len());
        for run in &states {
            for event in &events {
                let event = SequencedEvent { sequence: run.version() + 1, at: NOW, event: event.clone() };
                let _ = run.clone().apply(&event);
            }
        }
        let names: HashSet<_> = events.iter().map(RunEvent::name).collect();
        for name in ["steps_planned", "plan_ready", "step_done", "succeeded"] {
            assert!(names.contains(name), "{access}: `{name}` never happened");
        }
        let other = written.heads.iter().any(|head| !written.plan.begins_with(head));
        assert_eq!(names.contains("steps_superseded"), other, "{access}");
    }
}

#[test]
fn every_reachable_state_of_a_follow_up_round_keeps_the_invariants() {
    let policy = policy(1, 2);
    let heads = [("[[]]", "do it"), ("[[]]", "something else")];
    let heads = heads.map(|(access, subtask)| head_of(access, subtask, &policy)).into();
    let written = Written { heads, ..plan("[[], [0]]", &policy).into() };
    let (states, events) = walk(in_its_second_round(policy), &written);
    eprintln!("{} states, {} events", states.len(), events.len());
    let names: HashSet<_> = events.iter().map(RunEvent::name).collect();
    for name in ["steps_planned", "steps_superseded", "round_abandoned", "answer_kept", "succeeded"] {
        assert!(names.contains(name), "`{name}` never happened");
    }
    assert!(!names.contains("failed"), "an earlier round has an answer");
    let is_open = |run: &&Run| run.rounds()[1].head.is_some() && run.rounds()[1].abandoned.is_some();
    assert!(states.iter().filter(is_open).count() > 10, "rounds are abandoned whose steps had begun");
}

/// A run whose first step of its second round runs while the plan of that round is being written.
fn begun_in_its_second_round(policy: &Policy) -> Run {
    let claim = claim_id(SECOND_PLAN, 1);
    let begin = Command::BeginSteps { round: 1, claim, head: head_of("[[]]", "do it", policy) };
    let run = drive(in_its_second_round(policy.clone()), &[claimed(SECOND_PLAN, 1), begin]);
    drive(run, &[claimed(TaskRef::Step { round: 1, step: StepIndex::new(0) }, 1)])
}

#[test]
fn an_answer_stands_when_a_follow_up_round_gives_no_plan() {
    let run = begun_in_its_second_round(&policy(1, 2));
    let (claim, begun) = (claim_id(SECOND_PLAN, 1), TaskRef::Step { round: 1, step: StepIndex::new(0) });
    let fail = Command::FailAttempt { task: SECOND_PLAN, claim, error: error(None) };
    let lost = Command::ExpireLease { task: SECOND_PLAN, claim };
    for end in [fail, lost] {
        let decision = run.decide(&end, NOW).unwrap();
        assert_eq!(decision.effects, [Effect::Stop], "the executor of the step is notified");
        let run = folded(&run, &decision.events);
        stands(&run, "planning_failed");
        // The worker's later output was paid for and changes nothing.
        let before = (run.cost(), run.wasted_cost());
        let late = Command::CompleteStep {
            round: 1,
            step: StepIndex::new(0),
            claim: claim_id(begun, 1),
            result: result(),
        };
        let run = drive(run, &[late]);
        stands(&run, "planning_failed");
        let one = Cost::from_nano_usd(1);
        assert_eq!((run.cost(), run.wasted_cost()), (before.0 + one, before.1 + one));
    }
}

#[test]
fn a_kept_answer_ends_the_steps_that_began() {
    let policy = policy(2, 2);
    let run = begun_in_its_second_round(&policy);
    let lost = Command::ExpireLease { task: SECOND_PLAN, claim: claim_id(SECOND_PLAN, 1) };
    let (claim, spent, reserve) = (claim_id(SECOND_PLAN, 2), Spent::NONE, Cost::ZERO);
    let keep = Command::CompletePlan { round: 1, claim, result: PlanResult::KeepAnswer, spent, reserve };
    let run = drive(run, &[lost, claimed(SECOND_PLAN, 2), keep]);
    assert_eq!(*run.state(), RunState::Succeeded { round: 0, step: StepIndex::new(0) });
    assert_eq!(run.rounds()[1].abandoned, None, "the earlier answer was kept, not left standing");
    assert!(run.tasks().all(|(_, task)| task.state.is_final()));
}

#[test]
fn a_step_that_is_final_runs_while_the_plan_is_being_written() {
    let policy = policy(1, 1);
    let run = begun(&policy);
    assert_eq!(states(&run), ["ready"]);
    assert!(!run.is_final_step(0, StepIndex::new(0)), "the plan is not complete");
    let run = drive(run, &[claimed(step(0), 1), done(0)]);
    assert!(!run.is_ended());
    let run = drive(run, &[complete(plan("[[], [0]]", &policy), None, 1)]);
    assert_eq!(states(&run), ["done", "ready"], "its output is there");
    let run = drive(run, &[claimed(step(1), 1), done(1)]);
    assert_eq!((run.answer(), run.wasted_cost()), (Some("42"), Cost::ZERO));
}

#[test]
fn a_one_step_plan_whose_step_is_done_answers_at_once() {
    let policy = policy(1, 1);
    let run =
        drive(begun(&policy), &[claimed(step(0), 1), done(0), complete(plan("[[]]", &policy), None, 1)]);
    assert_eq!(*run.state(), RunState::Succeeded { round: 0, step: StepIndex::new(0) });
    let run =
        drive(begun(&policy), &[claimed(step(0), 1), failed(0), complete(plan("[[]]", &policy), None, 1)]);
    let RunState::Failed { reason } = run.state() else { panic!("{:?}", run.state()) };
    assert_eq!(reason.to_string(), "the final step 1 failed: no");
}

#[test]
fn a_head_grows_and_steps_without_inputs_run_at_once() {
    let policy = policy(1, 1);
    let run = drive(begun(&policy), &[begin(head_of("[[], [0], []]", "do it", &policy), 1)]);
    assert_eq!(states(&run), ["ready", "waiting", "ready"]);
    let shorter = begin(head_of("[[], [0]]", "do it", &policy), 1);
    assert_eq!(run.decide(&shorter, NOW), Ok(Decision::default()), "it is begun already");
    let other = begin(head_of("[[], []]", "do it", &policy), 1);
    assert_eq!(run.decide(&other, NOW), Err(Refusal::OtherSteps));
    let run = drive(run, &[claimed(step(0), 1), done(0)]);
    assert_eq!(states(&run), ["done", "ready", "ready"]);
}

#[test]
fn only_the_planning_claim_begins_steps() {
    let policy = policy(2, 1);
    let head = || head_of("[[]]", "do it", &policy);
    let run = drive(accepted(policy.clone()), &[claimed(PLAN, 1)]);
    assert_eq!(run.decide(&begin(head(), 2), NOW), Err(Refusal::ClaimLost));
    let expired = Command::ExpireLease { task: PLAN, claim: claim_id(PLAN, 1) };
    let run = drive(run, &[expired, claimed(PLAN, 2)]);
    assert_eq!(run.decide(&begin(head(), 1), NOW), Err(Refusal::ClaimLost));
    let run = drive(run, &[complete(plan("[[]]", &policy), None, 2)]);
    assert_eq!(run.decide(&begin(head(), 2), NOW), Err(Refusal::Ended));
}

#[test]
fn another_planner_that_writes_the_same_keeps_the_output() {
    let policy = policy(2, 1);
    let expired = Command::ExpireLease { task: PLAN, claim: claim_id(PLAN, 1) };
    let run = drive(begun(&policy), &[claimed(step(0), 1), done(0), expired, claimed(PLAN, 2)]);
    let run = drive(run, &[complete(plan("[[], [0]]", &policy), None, 2)]);
    assert_eq!((states(&run), run.rounds()[0].superseded), (vec!["done", "ready"], 0));
}

#[test]
fn steps_outside_the_plan_are_superseded_and_paid() {
    let policy = policy(2, 1);
    let head = head_of("[[], []]", "something else", &policy);
    let run = drive(accepted(policy.clone()), &[claimed(PLAN, 1), begin(head, 1)]);
    let run = drive(run, &[claimed(step(0), 1), done(0), claimed(step(1), 1)]);
    let decision = run.decide(&complete(plan("[[], [0]]", &policy), None, 1), NOW).unwrap();
    assert_eq!(decision.effects[0], Effect::CallOff { task: step(1) });
    let run = folded(&run, &decision.events);
    assert_eq!(states(&run), ["done", "cancelled", "ready", "waiting"]);
    assert_eq!(sees(&run, 3), [2]);
    // Later outputs were paid for.
    let run = drive(run, &[done(1), claimed(step(2), 1), done(2), claimed(step(3), 1), done(3)]);
    assert_eq!(*run.state(), RunState::Succeeded { round: 0, step: StepIndex::new(3) });
    assert_eq!((run.cost(), run.wasted_cost()), (Cost::from_nano_usd(5), Cost::from_nano_usd(2)));
}

#[test]
fn a_substitute_continues_the_steps_that_began() {
    let policy = Policy { steps_max: 2, ..policy(1, 1) };
    let substitute = || complete(plan("[[]]", &policy), Some("cut off"), 1);
    let head = |subtask| begin(head_of("[[]]", subtask, &policy), 1);
    let planning = drive(accepted(policy.clone()), &[claimed(PLAN, 1), head("something else")]);
    let run = drive(planning.clone(), &[claimed(step(0), 1), done(0), substitute()]);
    assert_eq!((states(&run), sees(&run, 1)), (vec!["done", "ready"], vec![0]));
    // It must not fail because a step has failed.
    let run = drive(planning, &[claimed(step(0), 1), failed(0), substitute()]);
    assert_eq!((states(&run), sees(&run, 1)), (vec!["failed", "ready"], vec![]));
    assert_eq!(run.rounds()[0].superseded, 1);
}

#[test]
fn a_substitute_is_not_needed_if_every_step_has_begun() {
    let policy = Policy { steps_max: 2, ..policy(1, 1) };
    let whole = begin(head_of("[[], [0]]", "something else", &policy), 1);
    let substitute = complete(plan("[[]]", &policy), Some("cut off"), 1);
    let run = drive(accepted(policy.clone()), &[claimed(PLAN, 1), whole, substitute]);
    assert_eq!((states(&run), run.rounds()[0].superseded), (vec!["ready", "waiting"], 0));
    assert!(run.is_final_step(0, StepIndex::new(1)));
}

#[test]
fn a_step_begun_without_the_format_is_not_the_answer() {
    let policy = policy(1, 1);
    let run = accepted(policy.clone());
    let plain = &run.spec().request;
    let limit = RunRequest { answer_tokens_max: Some(5), ..plain.clone() };
    let form = RunRequest { answer: AnswerForm::JsonObject, ..plain.clone() };
    let end = RunRequest { stops: Stops::new(vec!["x".to_owned()]).unwrap(), ..plain.clone() };
    for request in [limit, form, end] {
        let spec = RunSpec { request, ..run.spec().clone() };
        let shaped = SequencedEvent { sequence: 1, at: NOW, event: Run::accept(spec) };
        let run = Run::replay(run.id(), &[shaped]).unwrap();
        let run = drive(run, &[claimed(PLAN, 1), begin(head_of("[[]]", "do it", &policy), 1)]);
        let one = drive(run.clone(), &[complete(plan("[[]]", &policy), None, 1)]);
        assert_eq!((states(&one), one.rounds()[0].superseded), (vec!["cancelled", "ready"], 1));
        let two = drive(run, &[complete(plan("[[], [0]]", &policy), None, 1)]);
        assert_eq!((states(&two), two.rounds()[0].superseded), (vec!["ready", "waiting"], 0));
    }
}
