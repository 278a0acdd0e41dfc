//! Steps that take over the output of an earlier step if answers agree.

use super::*;
use crate::tools::{CallsAtOnce, Tool, ToolChoice, ToolUse};

/// Two steps, and one that is skipped if they agree.
const CASCADE: &str = "[[], [], []]";

fn cascade(policy: &Policy) -> Plan {
    plan(CASCADE, policy).with_conditions(&[vec![], vec![], vec![0, 1]]).unwrap()
}

/// The run `begin` with this plan.
fn with_plan(begin: Run, plan: Plan) -> Run {
    let task = TaskRef::Plan { round: 0 };
    let result = PlanResult::Plan(Planned { plan, reasoning: String::new(), fallback: None });
    let (claim, spent, reserve) = (claim_id(task, 1), Spent::NONE, Cost::ZERO);
    let complete = Command::CompletePlan { round: 0, claim, result, spent, reserve };
    drive(begin, &[claimed(task, 1), complete])
}

fn says(index: u16, output: &str) -> Command {
    let result = StepResult { output: output.to_owned(), ..result() };
    let claim = claim_id(step(index), 1);
    Command::CompleteStep { round: 0, step: StepIndex::new(index), claim, result }
}

fn states(run: &Run) -> Vec<&'static str> {
    run.rounds()[0].steps.iter().map(|step| step.task.state.as_str()).collect()
}

/// The cascade with both of its first steps running.
fn begun(policy: Policy) -> Run {
    let plan = cascade(&policy);
    let run = with_plan(accepted(policy), plan);
    assert_eq!(states(&run), ["ready", "ready", "waiting"]);
    drive(run, &[claimed(step(0), 1), claimed(step(1), 1)])
}

#[test]
fn every_reachable_state_with_a_condition_keeps_the_invariants() {
    for failed_step in FailedStep::ALL {
        let policy = Policy { failed_step, ..policy(1, 1) };
        let plan = cascade(&policy);
        let written = Written { differs: true, ..Written::from(plan) };
        let (states, events) = walk(begun(policy), &written);
        eprintln!("{failed_step:?}: {} states", states.len());
        let skipped =
            |run: &&Run| run.rounds().iter().flat_map(|round| &round.steps).any(|s| s.same_as.is_some());
        assert!(
            states.iter().filter(skipped).all(|run| run.answer().is_some()),
            "a skipped final step answers"
        );
        assert!(events.iter().any(|event| matches!(event, RunEvent::StepSkipped { .. })));
        let third = |run: &&Run| run.task(step(2)).is_some_and(|task| task.state == TaskState::Done);
        assert!(states.iter().any(|run| third(&run)), "the third step is called where they differ");
        assert!(states.iter().all(|run| !run.is_degraded()), "a condition is no input of a step");
    }
}

#[test]
fn a_step_is_skipped_if_the_answers_agree() {
    let run = drive(begun(policy(1, 1)), &[says(0, "It is 42.\n\nThe answer is 42."), says(1, "42")]);
    assert_eq!(states(&run), ["done", "done", "skipped"]);
    assert_eq!(run.answer(), Some("It is 42.\n\nThe answer is 42."), "the first one's output is taken");
    assert_eq!(run.rounds()[0].steps[2].same_as, Some(StepIndex::new(0)));
    assert_eq!((run.cost().nano_usd(), run.wasted_cost().nano_usd()), (2, 0));
    let late = run.decide(&claimed(step(2), 1), NOW);
    assert_eq!(late, Err(Refusal::Ended));
}

#[test]
fn a_step_is_called_if_the_answers_differ() {
    let run = drive(begun(policy(1, 1)), &[says(1, "43"), says(0, "42")]);
    assert_eq!(states(&run), ["done", "done", "ready"]);
    let run = drive(run, &[claimed(step(2), 1), says(2, "44")]);
    assert_eq!(run.answer(), Some("44"));
}

#[test]
fn a_failed_or_cut_off_answer_agrees_with_nothing() {
    for failed_step in [FailedStep::Fail, FailedStep::Continue] {
        let run = begun(Policy { failed_step, ..policy(1, 1) });
        let run = drive(run, &[says(1, "42"), failed(0)]);
        assert_eq!(states(&run), ["failed", "done", "ready"]);
        let run = drive(run, &[claimed(step(2), 1), says(2, "44")]);
        assert_eq!((run.answer(), run.is_degraded()), (Some("44"), false));
    }
    let cut = StepResult { finish: FinishReason::Length, ..result() };
    let cut =
        Command::CompleteStep { round: 0, step: StepIndex::new(0), claim: claim_id(step(0), 1), result: cut };
    assert_eq!(states(&drive(begun(policy(1, 1)), &[done(1), cut])), ["done", "done", "ready"]);
}

#[test]
fn a_skipped_step_serves_the_steps_that_see_or_name_it() {
    let policy = policy(1, 1);
    let plan = plan("[[], [], [], [2], []]", &policy);
    let plan = plan.with_conditions(&[vec![], vec![], vec![0, 1], vec![], vec![2, 3]]).unwrap();
    let run = with_plan(accepted(policy), plan);
    let run = drive(run, &[claimed(step(0), 1), claimed(step(1), 1), done(0), done(1)]);
    assert_eq!(states(&run), ["done", "done", "skipped", "ready", "waiting"]);
    let run = drive(run, &[claimed(step(3), 1), done(3)]);
    assert_eq!(states(&run), ["done", "done", "skipped", "done", "skipped"]);
    assert_eq!(run.rounds()[0].steps[4].same_as, Some(StepIndex::new(2)));
    assert_eq!(run.answer(), Some("42"));
}

#[test]
fn steps_that_may_be_the_answer_get_its_token_limit() {
    let policy = policy(1, 1);
    let plan = plan("[[], [], [], [2], []]", &policy);
    let plan = plan.with_conditions(&[vec![], vec![], vec![0, 1], vec![], vec![2, 3]]).unwrap();
    let mut run = with_plan(accepted(policy), plan);
    Arc::make_mut(&mut run.spec).request.answer_tokens_max = Some(7);
    let limits =
        (0..5).map(|index| run.answer_tokens_max_of(StepRef { round: 0, step: StepIndex::new(index) }));
    assert_eq!(limits.collect::<Vec<_>>(), [Some(7); 5]);
    let mut run = planned("[[], [0]]", self::policy(1, 1));
    Arc::make_mut(&mut run.spec).request.answer_tokens_max = Some(7);
    let of = |index| run.answer_tokens_max_of(StepRef { round: 0, step: StepIndex::new(index) });
    assert_eq!((of(0), of(1)), (None, Some(7)));
}

#[test]
fn a_final_step_that_alone_may_call_tools_is_not_skipped() {
    let schema = serde_json::json!({"type": "object"});
    let look = Tool { name: "look".to_owned(), description: String::new(), schema, strict: None };
    let tools = ToolUse { tools: vec![look], choice: ToolChoice::Auto, at_once: CallsAtOnce::Several };
    for (tools_of, state) in [(StepTools::Last, "ready"), (StepTools::All, "skipped")] {
        let policy = Policy { tools: tools_of, ..policy(1, 1) };
        let mut begin = accepted(policy.clone());
        Arc::make_mut(&mut begin.spec).request.tools = Some(tools.clone());
        let run = with_plan(begin, cascade(&policy));
        let run = drive(run, &[claimed(step(0), 1), claimed(step(1), 1), done(0), done(1)]);
        assert_eq!(states(&run), ["done", "done", state]);
    }
}

#[test]
fn a_condition_names_earlier_steps_only() {
    let policy = policy(1, 1);
    for (condition, value) in [(vec![0, 1, 2], 2), (vec![-1, 0], -1)] {
        let refused = plan(CASCADE, &policy).with_conditions(&[vec![], vec![], condition]);
        assert_eq!(refused, Err(PlanError::ConditionNotEarlier { step: StepIndex::new(2), value }));
    }
    let stored = serde_json::to_string(&cascade(&policy)).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&stored).unwrap(), cascade(&policy));
    let later = stored.replace("\"unless_agree\":[0,1]", "\"unless_agree\":[0,2]");
    assert!(later != stored && serde_json::from_str::<Plan>(&later).is_err());
}

#[test]
fn nothing_takes_over_a_step_that_began_before_the_answer_had_its_form() {
    for (answer_tokens_max, state) in [(Some(7), "ready"), (None, "skipped")] {
        let policy = policy(1, 1);
        let mut begin = accepted(policy.clone());
        Arc::make_mut(&mut begin.spec).request.answer_tokens_max = answer_tokens_max;
        let task = TaskRef::Plan { round: 0 };
        let claim = claim_id(task, 1);
        let head = head_of("[[], []]", "do it", &policy);
        let early = drive(begin, &[claimed(task, 1), Command::BeginSteps { round: 0, claim, head }]);
        let early = drive(early, &[claimed(step(0), 1), claimed(step(1), 1)]);
        let result =
            PlanResult::Plan(Planned { plan: cascade(&policy), reasoning: String::new(), fallback: None });
        let (spent, reserve) = (Spent::NONE, Cost::ZERO);
        let complete = Command::CompletePlan { round: 0, claim, result, spent, reserve };
        let run = drive(early, &[complete, done(0), done(1)]);
        assert_eq!(states(&run), ["done", "done", state]);
    }
}
