//! Follow-up rounds: what they see, and the answer that stands if they fail.

use super::*;

#[test]
fn an_answer_stands_when_follow_up_planning_fails() {
    let run = in_its_second_round(policy(1, 2));
    let claim = claim_id(SECOND_PLAN, 1);
    let fail = Command::FailAttempt { task: SECOND_PLAN, claim, error: error(None) };
    let lost = Command::ExpireLease { task: SECOND_PLAN, claim };
    for end in [fail, lost] {
        stands(&drive(run.clone(), &[claimed(SECOND_PLAN, 1), end]), "planning_failed");
    }
}

#[test]
fn an_answer_stands_when_a_follow_up_rounds_final_step_fails() {
    let policy = policy(1, 2);
    let run = drive(in_its_second_round(policy.clone()), &second_plan("[[]]", &policy));
    let task = TaskRef::Step { round: 1, step: StepIndex::new(0) };
    let fail = Command::FailAttempt { task, claim: claim_id(task, 1), error: error(None) };
    stands(&drive(run, &[claimed(task, 1), fail]), "final_step_failed");
}

#[test]
fn an_answer_stands_when_a_follow_up_round_reaches_the_cost_cap() {
    let policy = Policy { cost_max: Some(Cost::from_nano_usd(6)), ..policy(1, 2) };
    let run = drive(in_its_second_round(policy.clone()), &second_plan("[[], []]", &policy));
    let steps = [0, 1].map(|index| TaskRef::Step { round: 1, step: StepIndex::new(index) });
    let run = drive(run, &steps.map(|task| claimed(task, 1)));
    stands(&run, "cost_cap_reached");
}

#[test]
fn an_answer_stands_when_a_follow_up_round_reaches_the_deadline() {
    let run = in_its_second_round(policy(1, 2));
    let late = run.spec().deadline_at;
    for command in [Command::CheckDeadline, claimed(SECOND_PLAN, 1)] {
        let decision = run.decide(&command, late).unwrap();
        stands(&folded(&run, &decision.events), "deadline_exceeded");
    }
}

#[test]
fn all_includes_the_previous_round_only_in_a_follow_up_round() {
    let policy = policy(1, 2);
    let all = |round| {
        let text = "model_id = [0]\nsubtasks = [\"do it\"]\naccess_list = [[\"all\"]]";
        let plan = PlanDraft::parse(text).unwrap().check(&pool(), &policy).unwrap();
        let result = PlanResult::Plan(Planned { plan, reasoning: String::new(), fallback: None });
        let (task, spent, reserve) = (TaskRef::Plan { round }, Spent::NONE, Cost::ZERO);
        let claim = claim_id(task, 1);
        [claimed(task, 1), Command::CompletePlan { round, claim, result, spent, reserve }]
    };
    let first = drive(accepted(policy.clone()), &all(0));
    assert!(!first.step(0, StepIndex::new(0)).unwrap().sees_earlier_round);
    let second = drive(in_its_second_round(policy.clone()), &all(1));
    assert!(second.step(1, StepIndex::new(0)).unwrap().sees_earlier_round);
    let messages = crate::prompt::for_worker(&second, 1, StepIndex::new(0)).unwrap();
    assert!(messages[1].text.contains("<output>\n42\n</output>\n</earlier>"), "{}", messages[1].text);
    let event = RunEvent::PlanReady {
        round: 1,
        claim: claim_id(SECOND_PLAN, 1),
        planned: second.rounds()[1].planned.clone().unwrap(),
        usage: Usage::default(),
        cost: Cost::ZERO,
        reserved: Cost::ZERO,
    };
    let json = serde_json::to_string(&event).unwrap();
    assert_eq!(serde_json::from_str::<RunEvent>(&json).unwrap(), event, "{json}");
}
