//! Attempts that make a second call because the first is silent.

use super::*;
use crate::policy::PoolRule;

fn mini() -> Policy {
    Policy { attempts_max: 2, ..Policy::new(Tier::Mini, Effort::Medium) }
}

fn hedge(winner: Winner) -> Hedge {
    let usage = Usage { prompt_tokens: 7, ..Usage::default() };
    Hedge { worker: WorkerId::new("x").unwrap(), winner, usage, cost: Cost::from_nano_usd(30) }
}

/// Claims a step for a call that costs 100 at most and a hedge that costs 40.
fn hedgeable(number: u32) -> Command {
    let (id, executor, lease_until) = (claim_id(step(0), number), "e".to_owned(), NOW);
    let (reserve, hedge) = (Cost::from_nano_usd(100), Cost::from_nano_usd(40));
    Command::Claim { task: step(0), claim: Claim { id, executor, lease_until, reserve, hedge } }
}

fn done_with(number: u32, hedge: Option<Hedge>) -> Command {
    let (round, step, claim) = (0, StepIndex::new(0), claim_id(step(0), number));
    Command::CompleteStep { round, step, claim, result: StepResult { hedge, ..result() } }
}

fn failed_with_hedge(number: u32, hedge: Hedge) -> Command {
    let error = AttemptError { hedge: Some(hedge), ..error(Some(NOW)) };
    Command::FailAttempt { task: step(0), claim: claim_id(step(0), number), error }
}

fn reserved(run: &Run) -> Vec<u64> {
    run.task(step(0)).unwrap().attempts.iter().map(|attempt| attempt.reserved.nano_usd()).collect()
}

fn nano(cost: Cost) -> u64 {
    cost.nano_usd()
}

#[test]
fn every_reachable_state_with_hedges_keeps_its_promises() {
    let plan = plan("[[]]", &mini());
    let hedges = vec![hedge(Winner::Second), hedge(Winner::Neither)];
    let written = Written { hedges, ..Written::from(plan) };
    let (states, events) = walk(planned("[[]]", mini()), &written);
    assert!(states.iter().any(|run| run.hedges() > 1 && run.answer().is_some()));
    for event in events {
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<RunEvent>(&json).unwrap(), event, "{json}");
    }
}

#[test]
fn the_first_claim_of_a_mini_run_reserves_both_calls() {
    let run = drive(planned("[[]]", mini()), &[hedgeable(1)]);
    assert_eq!(reserved(&run), [140]);
    let run = drive(run, &[failed_with(1, Some(NOW), None), hedgeable(2)]);
    assert_eq!(reserved(&run), [140, 100], "only the first attempt may be hedged");
    for policy in [Policy { hedging: PoolRule::None, ..mini() }, Policy { tier: Tier::Ultra, ..mini() }] {
        assert_eq!(reserved(&drive(planned("[[]]", policy), &[hedgeable(1)])), [100]);
    }
}

#[test]
fn a_cap_that_has_room_for_one_call_forbids_the_hedge_and_not_the_call() {
    let capped = |nano| Policy { cost_max: Some(Cost::from_nano_usd(nano)), ..mini() };
    assert_eq!(reserved(&drive(planned("[[]]", capped(139)), &[hedgeable(1)])), [100]);
    assert_eq!(reserved(&drive(planned("[[]]", capped(140)), &[hedgeable(1)])), [140]);
    assert!(drive(planned("[[]]", capped(99)), &[hedgeable(1)]).is_ended());
}

#[test]
fn what_the_slower_call_cost_is_of_the_run_and_wasted() {
    for winner in [Winner::First, Winner::Second] {
        let run = drive(planned("[[]]", mini()), &[hedgeable(1)]);
        let decision = run.decide(&done_with(1, Some(hedge(winner))), NOW).unwrap();
        let names: Vec<_> = decision.events.iter().map(RunEvent::name).collect();
        assert_eq!(names, ["hedged", "step_done", "succeeded"]);
        let run = folded(&run, &decision.events);
        assert_eq!((nano(run.cost()), nano(run.wasted_cost()), run.hedges()), (31, 30, 1));
        assert_eq!((run.usage().prompt_tokens, run.wasted_usage().prompt_tokens), (8, 7));
        assert_eq!(run.task(step(0)).unwrap().attempts[0].cost, Cost::from_nano_usd(1));
    }
}

#[test]
fn of_an_attempt_that_fails_both_calls_are_wasted() {
    let run = drive(planned("[[]]", mini()), &[hedgeable(1), failed_with_hedge(1, hedge(Winner::Neither))]);
    assert_eq!((nano(run.cost()), nano(run.wasted_cost())), (31, 31));
    let run = drive(run, &[hedgeable(2), done_with(2, None)]);
    assert_eq!((nano(run.cost()), nano(run.wasted_cost()), run.hedges()), (32, 31, 1));
}

#[test]
fn a_step_does_not_go_on_with_whoever_was_asked_beside_and_broke_off() {
    let id = |name: &str| WorkerId::new(name).unwrap();
    for (winner, goes_on) in [(Winner::Second, false), (Winner::First, true)] {
        let failed = |number, hedge, worker: &str| {
            let fall_back_to = Some(id(worker));
            let error = AttemptError { fall_back_to, hedge, ..error(None) };
            Command::FailAttempt { task: step(0), claim: claim_id(step(0), number), error }
        };
        let run = drive(planned("[[]]", mini()), &[hedgeable(1)]);
        let at_once = drive(run.clone(), &[failed(1, Some(hedge(winner)), "x")]);
        assert_eq!(!at_once.is_ended(), goes_on, "{:?}", at_once.state());
        let run = drive(run, &[failed_with_hedge(1, hedge(winner)), hedgeable(2)]);
        let later = drive(run.clone(), &[failed(2, None, "x")]);
        assert_eq!(!later.is_ended(), goes_on, "{:?}", later.state());
        assert!(!drive(run, &[failed(2, None, "y")]).is_ended());
    }
}

#[test]
fn what_comes_too_late_is_counted_whole_and_once() {
    let expire = Command::ExpireLease { task: step(0), claim: claim_id(step(0), 1) };
    let run = drive(planned("[[]]", mini()), &[hedgeable(1), expire, hedgeable(2)]);
    let run = drive(run, &[done_with(2, None)]);
    let claim = claim_id(step(0), 1);
    let (usage, cost) = (Usage::default(), Cost::from_nano_usd(2));
    let hand_back =
        Command::HandBack { task: step(0), claim, usage, cost, hedge: Some(hedge(Winner::Neither)) };
    for late in [done_with(1, Some(hedge(Winner::Second))), hand_back] {
        let decision = run.decide(&late, NOW).unwrap();
        let [RunEvent::ResultUnused { usage, cost, .. }] = decision.events.as_slice() else {
            panic!("{:?}", decision.events)
        };
        assert!(nano(*cost) > 30 && usage.prompt_tokens >= 7, "{cost:?}");
        let after = folded(&run, &decision.events);
        assert_eq!(after.wasted_cost(), *cost);
        check_is_idempotent(&after, &late, NOW);
    }
}
