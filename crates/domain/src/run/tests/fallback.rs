//! Steps that go on with another worker because nobody is let through to their own.

use super::*;

fn id(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn instead(from: &str, worker: &str) -> Command {
    let (from, worker, message) = (id(from), id(worker), "broken".to_owned());
    Command::FallBack { round: 0, step: StepIndex::new(0), from, worker, message }
}

fn worker(run: &Run) -> &str {
    run.worker_of(step(0)).unwrap().as_str()
}

#[test]
fn every_reachable_state_with_others_who_stand_in_keeps_its_promises() {
    for (access, attempts_max) in [("[[]]", 2), ("[[], [0]]", 1)] {
        let policy = policy(attempts_max, 1);
        let plan = plan(access, &policy);
        let written = Written { others: vec![id("x")], ..Written::from(plan) };
        let (states, events) = walk(planned(access, policy), &written);
        assert!(states.iter().any(|run| run.fallbacks() > 0 && run.answer().is_some()));
        assert!(events.iter().any(|event| event.name() == "fell_back"));
    }
}

#[test]
fn a_step_that_nobody_holds_goes_on_with_another_at_once() {
    let run = planned("[[]]", policy(1, 1));
    let decision = run.decide(&instead("w", "x"), NOW).unwrap();
    assert_eq!(decision.effects, [Effect::Dispatch { task: step(0), not_before: NOW }]);
    let run = drive(run, &[instead("w", "x"), claimed(step(0), 1), done(0)]);
    assert_eq!((run.answer(), run.fallbacks(), run.cost()), (Some("42"), 1, Cost::from_nano_usd(1)));
    assert_eq!(run.task(step(0)).unwrap().attempts[0].worker, Some(id("x")));
}

#[test]
fn whoever_has_a_step_in_hand_keeps_it() {
    let run = drive(planned("[[], [0]]", policy(2, 1)), &[claimed(step(0), 1)]);
    assert_eq!(run.decide(&instead("w", "x"), NOW), Err(Refusal::Held));
    let waiting = Command::FallBack {
        round: 0,
        step: StepIndex::new(1),
        from: id("w"),
        worker: id("x"),
        message: String::new(),
    };
    assert_eq!(run.decide(&waiting, NOW), Err(Refusal::Waiting));
    let later = NOW.after(Duration::from_secs(9));
    let fail = Command::FailAttempt { task: step(0), claim: claim_id(step(0), 1), error: error(Some(later)) };
    let run = drive(run, &[fail]);
    assert_eq!(run.decide(&instead("w", "x"), NOW), Err(Refusal::NotBefore(later)));
    assert!(run.decide(&instead("w", "x"), later).is_ok());
}

#[test]
fn a_change_by_who_knows_no_better_is_refused() {
    let run = drive(planned("[[]]", policy(2, 1)), &[instead("w", "x")]);
    assert_eq!(run.decide(&instead("w", "y"), NOW), Err(Refusal::NoFallback), "it is with `x` by now");
    assert_eq!(run.decide(&instead("x", "w"), run.spec().deadline_at), Err(Refusal::NoFallback));
    let run = drive(run, &[claimed(step(0), 1), failed_with(1, Some(NOW), None)]);
    let run = drive(run, &[instead("x", "w"), instead("w", "y")]);
    assert_eq!((worker(&run), run.fallbacks()), ("y", 3));
    assert_eq!(run.decide(&instead("y", "x"), NOW), Err(Refusal::NoFallback), "it was tried");
    assert_eq!(run.decide(&instead("y", "w"), NOW), Err(Refusal::NoFallback), "three are the most");
    let strict = planned("[[]]", Policy { fallback: Fallback::None, ..policy(2, 1) });
    assert_eq!(strict.decide(&instead("w", "x"), NOW), Err(Refusal::NoFallback));
}
