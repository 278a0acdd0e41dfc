//! Steps that fail for good, with each value of the policy, and workers that decline.

use super::*;
use crate::policy::FailedStep;

fn policy_on(failed_step: FailedStep) -> Policy {
    Policy { failed_step, ..policy(1, 1) }
}

fn declined(task: TaskRef) -> Command {
    let TaskRef::Step { round, step } = task else { panic!("{task} is no step") };
    let result = StepResult {
        output: "I cannot do that.".to_owned(),
        finish: FinishReason::ContentFilter,
        ..result()
    };
    Command::CompleteStep { round, step, claim: claim_id(task, 1), result }
}

fn in_round_1(index: u16) -> TaskRef {
    TaskRef::Step { round: 1, step: StepIndex::new(index) }
}

fn states(run: &Run) -> Vec<&'static str> {
    run.rounds()[0].steps.iter().map(|step| step.task.state.as_str()).collect()
}

fn failure(run: &Run) -> &FailReason {
    let RunState::Failed { reason } = run.state() else { panic!("{:?}", run.state()) };
    reason
}

/// Two steps and one that sees both. The first one failed, the second one is running.
fn with_a_failed_step(failed_step: FailedStep) -> Run {
    let run = planned("[[], [], [0, 1]]", policy_on(failed_step));
    drive(run, &[claimed(step(0), 1), claimed(step(1), 1), failed(0)])
}

#[test]
fn every_reachable_state_with_replans_keeps_the_invariants() {
    for (access, rounds_max) in [("[[]]", 1), ("[[], [0]]", 1), ("[[]]", 2)] {
        let policy = Policy { rounds_max, ..policy_on(FailedStep::Replan) };
        let written = Written { declines: true, ..Written::from(plan(access, &policy)) };
        let (states, events) = walk(planned(access, policy), &written);
        eprintln!("{access}, {rounds_max}: {} states", states.len());
        assert!(states.iter().all(|run| run.rounds().len() <= usize::from(rounds_max) + 1));
        let corrected = |run: &&Run| run.rounds().iter().any(|round| round.corrects.is_some());
        assert!(states.iter().filter(corrected).any(|run| run.answer().is_some()));
        assert!(states.iter().filter(corrected).any(|run| matches!(run.state(), RunState::Failed { .. })));
        assert!(states.iter().all(|run| !run.is_degraded()), "no step continues without its inputs");
        assert!(states.iter().any(|run| run.refusal().is_some()));
        assert!(events.iter().any(|event| matches!(event, RunEvent::RoundOpened { failed: Some(_), .. })));
    }
}

#[test]
fn an_answer_is_degraded_exactly_if_it_lacks_a_needed_step() {
    let policy = policy_on(FailedStep::Continue);
    let access = "[[], [], [0, 1]]";
    let written = Written { declines: true, ..Written::from(plan(access, &policy)) };
    let (states, _) = walk(planned(access, policy), &written);
    let answered: Vec<_> = states.iter().filter(|run| run.answer().is_some()).collect();
    assert!(answered.iter().any(|run| run.is_degraded()) && answered.iter().any(|run| !run.is_degraded()));
    for run in answered {
        let lacks = run.rounds()[0].steps[..2].iter().any(|s| s.output.is_none() || s.is_declined());
        assert_eq!((run.is_degraded(), !run.failed_steps().is_empty()), (lacks, lacks), "{}", key(run));
    }
}

#[test]
fn a_failed_needed_step_fails_the_run_with_its_name_and_worker() {
    let run = with_a_failed_step(FailedStep::Fail);
    assert_eq!(states(&run), ["failed", "cancelled", "failed"]);
    let reason = failure(&run);
    assert_eq!(reason.code(), "step_failed");
    assert_eq!(reason.to_string(), "step 1 (worker `w`) failed, and the answer needs it: no");
}

#[test]
fn a_replan_waits_for_running_steps_and_begins_no_others() {
    let run = planned("[[], [], [0, 1], [1], [2, 3]]", policy_on(FailedStep::Replan));
    let run = drive(run, &[claimed(step(0), 1), claimed(step(1), 1), failed(0)]);
    assert_eq!(states(&run), ["failed", "running", "failed", "waiting", "failed"]);
    assert_eq!(run.current_round(), 0);
    let run = drive(run, &[done(1)]);
    assert_eq!(states(&run), ["failed", "done", "failed", "cancelled", "failed"]);
    assert_eq!(run.rounds()[1].corrects.as_ref().map(FailReason::code), Some("step_failed"));
    assert!(matches!(run.rounds()[1].planning.state, TaskState::Ready { .. }));
    let earlier = crate::prompt::Earlier::before(&run, 1, None).unwrap();
    assert!(!earlier.gave_answer);
    assert!(earlier.text.contains("(failed: no)") && earlier.text.contains("\n42\n"), "{}", earlier.text);
}

#[test]
fn a_successful_replan_still_lists_the_failed_steps() {
    let policy = policy_on(FailedStep::Replan);
    let run = drive(with_a_failed_step(FailedStep::Replan), &[done(1)]);
    let run = drive(run, &second_plan("[[]]", &policy));
    let task = in_round_1(0);
    let claim = claim_id(task, 1);
    let complete = Command::CompleteStep { round: 1, step: StepIndex::new(0), claim, result: result() };
    let run = drive(run, &[claimed(task, 1), complete]);
    assert_eq!((run.answer(), run.is_degraded()), (Some("42"), false));
    let failed = run.failed_steps();
    assert_eq!((failed[0].step.get(), failed[0].worker.as_str(), failed[0].reason.as_str()), (0, "w", "no"));
}

#[test]
fn a_replan_that_ends_in_a_refusal_still_names_the_first_failure() {
    let policy = policy_on(FailedStep::Replan);
    let run = drive(with_a_failed_step(FailedStep::Replan), &[done(1)]);
    let run = drive(run, &second_plan("[[]]", &policy));
    let task = in_round_1(0);
    let run = drive(run, &[claimed(task, 1), declined(task)]);
    assert_eq!(run.refusal(), Some("I cannot do that."));
    let because = run.replanned_because().unwrap().to_string();
    assert_eq!(because, "step 1 (worker `w`) failed, and the answer needs it: no");
    assert_eq!(run.failed_steps()[0].reason, "no");
    let first =
        drive(planned("[[]]", policy_on(FailedStep::Replan)), &[claimed(step(0), 1), declined(step(0))]);
    assert_eq!((first.refusal().is_some(), first.replanned_because()), (true, None));
}

#[test]
fn a_replan_that_fails_ends_the_run_with_the_first_failure() {
    let policy = policy_on(FailedStep::Replan);
    let begin = drive(with_a_failed_step(FailedStep::Replan), &[done(1)]);
    let no_plan =
        Command::FailAttempt { task: SECOND_PLAN, claim: claim_id(SECOND_PLAN, 1), error: error(None) };
    let unplanned = drive(begin.clone(), &[claimed(SECOND_PLAN, 1), no_plan]);
    let run = drive(begin.clone(), &second_plan("[[]]", &policy));
    let task = in_round_1(0);
    let fail = Command::FailAttempt { task, claim: claim_id(task, 1), error: error(None) };
    let failed_again = drive(run, &[claimed(task, 1), fail]);
    let late = begin.decide(&Command::CheckDeadline, begin.spec().deadline_at).unwrap();
    let late = folded(&begin, &late.events);
    for (run, why) in
        [(unplanned, "planning_failed"), (failed_again, "final_step_failed"), (late, "deadline_exceeded")]
    {
        assert_eq!(failure(&run).code(), "step_failed");
        assert_eq!(run.rounds()[1].abandoned.as_ref().map(FailReason::code), Some(why));
        assert_eq!(run.rounds().len(), 2, "one corrective plan a run");
    }
}

#[test]
fn a_replan_cannot_keep_a_missing_answer() {
    let run = drive(with_a_failed_step(FailedStep::Replan), &[done(1), claimed(SECOND_PLAN, 1)]);
    let (spent, reserve) = (Spent::NONE, Cost::ZERO);
    let (claim, result) = (claim_id(SECOND_PLAN, 1), PlanResult::KeepAnswer);
    let keep = Command::CompletePlan { round: 1, claim, result, spent, reserve };
    assert_eq!(run.decide(&keep, NOW), Err(Refusal::NoAnswerToKeep));
}

#[test]
fn no_plan_is_asked_for_after_the_deadline_or_in_mini() {
    let run = planned("[[]]", policy_on(FailedStep::Replan));
    let run = drive(run, &[claimed(step(0), 1)]);
    let late = run.decide(&failed(0), run.spec().deadline_at).unwrap();
    assert_eq!(failure(&folded(&run, &late.events)).code(), "final_step_failed");
    let mini = Policy { tier: Tier::Mini, ..policy_on(FailedStep::Replan) };
    let run = drive(planned("[[]]", mini), &[claimed(step(0), 1), failed(0)]);
    assert_eq!(failure(&run).code(), "final_step_failed");
}

#[test]
fn a_declined_step_has_no_output_for_the_steps_that_see_it() {
    let run = planned("[[], [0]]", policy_on(FailedStep::Fail));
    let run = drive(run, &[claimed(step(0), 1), declined(step(0))]);
    assert_eq!(
        failure(&run).to_string(),
        "step 1 (worker `w`) failed, and the answer needs it: the worker declined to answer: I cannot do that."
    );
    assert_eq!(run.failed_steps()[0].reason, "the worker declined to answer: I cannot do that.");

    let run = planned("[[], [], [0, 1]]", policy_on(FailedStep::Continue));
    let run = drive(run, &[claimed(step(0), 1), claimed(step(1), 1), declined(step(0)), done(1)]);
    let prompt = crate::prompt::for_worker(&run, 0, StepIndex::new(2)).unwrap();
    let text = &prompt[1].text;
    assert!(text.contains("<output missing=\"true\">") && !text.contains("I cannot"), "{text}");
}

#[test]
fn a_declined_final_step_is_the_runs_refusal() {
    for failed_step in FailedStep::ALL {
        let run = planned("[[]]", policy_on(failed_step));
        let run = drive(run, &[claimed(step(0), 1), declined(step(0))]);
        assert_eq!(run.refusal(), Some("I cannot do that."));
        assert_eq!((run.failed_steps().len(), run.is_degraded(), run.rounds().len()), (0, false, 1));
    }
}

#[test]
fn a_worker_may_decline_with_an_empty_output() {
    let run = drive(planned("[[]]", policy_on(FailedStep::Fail)), &[claimed(step(0), 1)]);
    let Command::CompleteStep { round, step, claim, result } = declined(step(0)) else { unreachable!() };
    let result = StepResult { output: String::new(), ..result };
    let run = drive(run, &[Command::CompleteStep { round, step, claim, result }]);
    assert_eq!(run.refusal(), Some(""));
}

#[test]
fn a_failure_stored_without_a_worker_is_read_unchanged() {
    let stored = r#"{"kind":"final_step_failed","step":1,"message":"no"}"#;
    let reason: FailReason = serde_json::from_str(stored).unwrap();
    assert_eq!(
        (reason.code(), reason.to_string().as_str()),
        ("final_step_failed", "the final step 2 failed: no")
    );
    assert_eq!(serde_json::to_string(&reason).unwrap(), stored);
    let stored = r#"{"kind":"round_opened","round":1}"#;
    let opened: RunEvent = serde_json::from_str(stored).unwrap();
    assert_eq!(serde_json::to_string(&opened).unwrap(), stored);
}
