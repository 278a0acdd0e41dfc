//! Steps that continue with another worker: their own has used up its attempts, or gets no permits.

use super::*;

fn id(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn instead(from: &str, worker: &str) -> Command {
    let (from, worker, message) = (id(from), id(worker), "broken".to_owned());
    let step = StepRef { round: 0, step: StepIndex::new(0) };
    Command::FallBack { step, from, worker, message }
}

fn worker(run: &Run) -> &str {
    run.worker_of(step(0)).unwrap().as_str()
}

#[test]
fn every_reachable_state_with_fallbacks_keeps_the_invariants() {
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
fn an_unclaimed_step_falls_back_at_once() {
    let run = planned("[[]]", policy(1, 1));
    let decision = run.decide(&instead("w", "x"), NOW).unwrap();
    assert_eq!(decision.effects, [Effect::Dispatch { task: step(0), not_before: NOW }]);
    assert!(matches!(decision.events.as_slice(), [RunEvent::FellBack { claim: None, .. }]));
    let run = drive(run, &[instead("w", "x"), claimed(step(0), 1), done(0)]);
    assert_eq!((run.answer(), run.fallbacks(), run.cost()), (Some("42"), 1, Cost::from_nano_usd(1)));
    assert_eq!(run.task(step(0)).unwrap().attempts[0].worker, Some(id("x")));
}

#[test]
fn a_claimed_step_keeps_its_worker() {
    let run = drive(planned("[[], [0]]", policy(2, 1)), &[claimed(step(0), 1)]);
    assert_eq!(run.decide(&instead("w", "x"), NOW), Err(Refusal::Held));
    let waiting = Command::FallBack {
        step: StepRef { round: 0, step: StepIndex::new(1) },
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
fn an_outdated_fallback_is_refused() {
    let run = drive(planned("[[]]", policy(2, 1)), &[instead("w", "x")]);
    assert_eq!(
        run.decide(&instead("w", "y"), NOW),
        Err(Refusal::NoFallback),
        "the step has worker `x` by now"
    );
    assert_eq!(run.decide(&instead("x", "w"), run.spec().deadline_at), Err(Refusal::NoFallback));
    let run = drive(run, &[claimed(step(0), 1), failed_with(1, Some(NOW), None)]);
    let run = drive(run, &[instead("x", "w"), instead("w", "y")]);
    assert_eq!((worker(&run), run.fallbacks()), ("y", 3));
    assert_eq!(run.decide(&instead("y", "x"), NOW), Err(Refusal::NoFallback), "it was tried");
    assert_eq!(run.decide(&instead("y", "w"), NOW), Err(Refusal::NoFallback), "three are the most");
    let strict = planned("[[]]", Policy { fallback: PoolRule::None, ..policy(2, 1) });
    assert_eq!(strict.decide(&instead("w", "x"), NOW), Err(Refusal::NoFallback));
}

#[test]
fn a_fallback_has_its_own_attempts() {
    let run =
        drive(planned("[[]]", policy(2, 1)), &[claimed(step(0), 1), failed_with(1, Some(NOW), Some("x"))]);
    assert_eq!(run.worker_of(step(0)).unwrap().as_str(), "w", "it has an attempt left");
    let run = drive(run, &[claimed(step(0), 2), failed_with(2, Some(NOW), Some("x"))]);
    assert_eq!(run.worker_of(step(0)).unwrap().as_str(), "x");
    assert_eq!(run.task(step(0)).unwrap().state, TaskState::Ready { not_before: NOW });
    let run = drive(run, &[claimed(step(0), 3), failed_with(3, Some(NOW), Some("w")), claimed(step(0), 4)]);
    let workers: Vec<_> =
        run.task(step(0)).unwrap().attempts.iter().filter_map(|a| a.worker.as_ref()).collect();
    assert_eq!(workers.into_iter().map(WorkerId::as_str).collect::<Vec<_>>(), ["w", "w", "x", "x"]);
    // It does not return to an earlier worker.
    let failed = drive(run.clone(), &[failed_with(4, Some(NOW), Some("w"))]);
    assert!(matches!(failed.state(), RunState::Failed { .. }), "{:?}", failed.state());
    check_is_idempotent(&run, &failed_with(2, Some(NOW), Some("x")), NOW);
    let done = Command::CompleteStep {
        round: 0,
        step: StepIndex::new(0),
        claim: claim_id(step(0), 4),
        result: result(),
    };
    let run = drive(run, &[done]);
    assert_eq!((run.answer(), run.cost()), (Some("42"), Cost::from_nano_usd(4)));
}

#[test]
fn a_step_never_falls_back_against_the_policy() {
    let w_only = WorkersAllowed::Only([WorkerId::new("w").unwrap()].into());
    for refusing in [
        Policy { fallback: PoolRule::None, ..policy(1, 1) },
        Policy { workers_allowed: w_only, ..policy(1, 1) },
    ] {
        let run = drive(planned("[[]]", refusing), &[claimed(step(0), 1), failed_with(1, None, Some("x"))]);
        assert!(matches!(run.state(), RunState::Failed { .. }), "{:?}", run.state());
    }
    let mut run = planned("[[]]", policy(1, 1));
    for number in 1..=4 {
        let next = format!("x{number}");
        run = drive(run, &[claimed(step(0), number), failed_with(number, None, Some(&next))]);
    }
    let workers = run.task(step(0)).unwrap().attempts.len();
    assert_eq!((workers, run.is_ended()), (1 + FALLBACKS_MAX, true), "the number of them is bounded");
}

#[test]
fn a_retry_after_the_deadline_is_not_awaited() {
    let run = drive(planned("[[]]", policy(3, 1)), &[claimed(step(0), 1)]);
    let late = Some(run.spec().deadline_at);
    let ended = drive(run.clone(), &[failed_with(1, late, None)]);
    let RunState::Failed { reason } = ended.state() else { panic!("{:?}", ended.state()) };
    let expected = "the final step 1 failed: no; the next attempt would begin after the deadline";
    assert_eq!(reason.to_string(), expected);
    // A fallback can begin at once.
    let run = drive(run, &[failed_with(1, late, Some("x"))]);
    assert_eq!(run.task(step(0)).unwrap().state, TaskState::Ready { not_before: NOW });
}

#[test]
fn events_of_a_fallback_are_read_unchanged() {
    let run = drive(planned("[[]]", policy(1, 1)), &[claimed(step(0), 1)]);
    let decision = run.decide(&failed_with(1, None, Some("x")), NOW).unwrap();
    // Each event has its meaning without the other.
    let [failed, fell_back] = decision.events.as_slice() else { panic!("{:?}", decision.events) };
    assert!(matches!(failed, RunEvent::AttemptFailed { fallback: Some(next), .. } if *next == id("x")));
    let claim = claim_id(step(0), 1);
    assert!(matches!(fell_back, RunEvent::FellBack { claim: Some(failed), .. } if *failed == claim));
    for event in decision.events {
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<RunEvent>(&json).unwrap(), event, "{json}");
        let event = SequencedEvent { sequence: run.version() + 1, at: NOW, event };
        assert_eq!(run.clone().apply(&event).is_ok(), event.event.name() == "attempt_failed");
    }
}
