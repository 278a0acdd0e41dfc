//! The charges of runs: lost attempts, late reports, implausible costs.

use super::*;
use crate::budget::{Budget, Charge, Payer, Period};

fn nano(nano: u64) -> Cost {
    Cost::from_nano_usd(nano)
}

/// A run of one step that is charged to a budget.
fn charged(policy: &Policy) -> Run {
    let mut spec = accepted(policy.clone()).spec().clone();
    let payer = Payer::Tenant(spec.tenant.clone());
    let budget = Budget { payer, tenant: spec.tenant.clone(), period: Period::Day, cap: None };
    spec.budgets = vec![budget.at(NOW)];
    let event = SequencedEvent { sequence: 1, at: NOW, event: Run::accept(spec) };
    let run = Run::replay(accepted(policy.clone()).id(), &[event]).unwrap();
    let task = TaskRef::Plan { round: 0 };
    let planned = Planned { plan: plan("[[]]", policy), reasoning: String::new(), fallback: None };
    let complete = Command::CompletePlan {
        round: 0,
        claim: claim_id(task, 1),
        result: PlanResult::Plan(planned),
        spent: Spent::NONE,
        reserve: nano(5),
    };
    drive(run, &[claimed(task, 1), complete])
}

fn done_for(cost: u64) -> Command {
    let (round, step, claim) = (0, StepIndex::new(0), claim_id(step(0), 1));
    let spent = Spent { cost: nano(cost), ..result().spent };
    Command::CompleteStep { round, step, claim, result: StepResult { spent, ..result() } }
}

#[test]
fn a_lost_attempt_counts_for_the_cost_cap() {
    let expired = Command::ExpireLease { task: step(0), claim: claim_id(step(0), 1) };
    for (cost_max, is_taken_over) in [(9, false), (10, true)] {
        let capped = Policy { cost_max: Some(nano(cost_max)), ..policy(2, 1) };
        let run = planned("[[]]", capped);
        let run = drive(run, &[claimed(step(0), 1), expired.clone(), claimed(step(0), 2)]);
        let is_held = run.task(step(0)).unwrap().is_held_by(claim_id(step(0), 2));
        assert_eq!(is_held, is_taken_over, "{cost_max}: {:?}", run.state());
    }
}

#[test]
fn a_lost_attempt_is_released_after_the_end_of_its_run() {
    let run = drive(charged(&policy(2, 1)), &[claimed(step(0), 1)]);
    assert_eq!(run.decide(&Command::ReleaseLost, NOW), Err(Refusal::Active));
    let run = drive(run, &[Command::Cancel]);
    assert!(run.is_unsettled());
    assert_eq!(run.booked(), Charge { spent: Cost::ZERO, reserved: nano(5) });
    let run = drive(run, &[Command::ReleaseLost]);
    assert!(!run.is_unsettled());
    assert_eq!(run.booked(), Charge::default());
    // A repeated release changes nothing, and neither does a report that no call was made.
    let nothing = AttemptError { spent: Spent::NONE, ..error(None) };
    let nothing = Command::FailAttempt { task: step(0), claim: claim_id(step(0), 1), error: nothing };
    assert_eq!(run.decide(&Command::ReleaseLost, NOW).unwrap().events, []);
    assert_eq!(run.decide(&nothing, NOW), Err(Refusal::ClaimLost));
}

#[test]
fn a_report_after_the_release_is_booked_once() {
    let lost = drive(charged(&policy(2, 1)), &[claimed(step(0), 1), Command::Cancel, Command::ReleaseLost]);
    let late = [
        done_for(3),
        Command::FailAttempt {
            task: step(0),
            claim: claim_id(step(0), 1),
            error: AttemptError { spent: Spent { cost: nano(3), ..Spent::NONE }, ..error(None) },
        },
    ];
    for report in late {
        let run = drive(lost.clone(), std::slice::from_ref(&report));
        assert_eq!(run.booked(), Charge { spent: nano(3), reserved: Cost::ZERO });
        check_is_idempotent(&run, &report, NOW);
    }
}

#[test]
fn an_absurd_cost_is_booked_with_a_bound() {
    let ten_dollars = 10_000_000_000;
    for (said, booked) in [(6, 6), (ten_dollars, ten_dollars), (u64::MAX, ten_dollars)] {
        let run = drive(charged(&policy(2, 1)), &[claimed(step(0), 1), done_for(said)]);
        assert_eq!(run.cost(), nano(booked), "{said}");
        assert_eq!(run.booked().spent, nano(booked), "{said}");
    }
    // Ten times the worst case, if that is more.
    let Command::Claim { task, claim } = claimed(step(0), 1) else { unreachable!() };
    let expensive = Command::Claim { task, claim: Claim { reserve: nano(2 * ten_dollars), ..claim } };
    let run = drive(charged(&policy(2, 1)), &[expensive, done_for(u64::MAX)]);
    assert_eq!(run.cost(), nano(20 * ten_dollars));
}
