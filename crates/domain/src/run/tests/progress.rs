//! The words for what a run is doing.

use super::*;

fn words(run: &Run) -> String {
    run.progress().to_string()
}

#[test]
fn progress_names_the_steps_and_their_workers() {
    let run = accepted(policy(1, 1));
    assert_eq!(words(&run), "planning");
    assert_eq!(words(&drive(run, &[claimed(TaskRef::Plan { round: 0 }, 1)])), "planning");
    let run = planned("[[], [], [0, 1]]", policy(1, 1));
    assert_eq!(words(&run), "waiting for a worker, 0 of 3 steps ended");
    let run = drive(run, &[claimed(step(0), 1), claimed(step(1), 1)]);
    assert_eq!(words(&run), "step 1 of 3 by w, step 2 of 3 by w");
    let run = drive(run, &[done(0)]);
    assert_eq!(words(&run), "step 2 of 3 by w");
    let run = drive(run, &[done(1)]);
    assert_eq!(words(&run), "waiting for a worker, 2 of 3 steps ended");
    assert_eq!(words(&drive(run, &[claimed(step(2), 1)])), "step 3 of 3 by w");
}

#[test]
fn progress_counts_later_rounds() {
    let run = in_its_second_round(policy(1, 2));
    assert_eq!(words(&run), "round 2: planning");
    let run = drive(run, &second_plan("[[]]", &policy(1, 2)));
    assert_eq!(words(&run), "round 2: waiting for a worker, 0 of 1 steps ended");
}
