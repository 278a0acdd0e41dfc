//! A process must end with any of its loops: otherwise it would look healthy and do nothing.

use std::convert::Infallible;
use std::time::Duration;

use podium_domain::policy::{Effort, Policy, Tier};
use podium_engine::{LoopEnded, Options};
use podium_ports::clock::Clock as _;
use podium_testkit::Answer;
use tokio_util::sync::CancellationToken;

use crate::duties::{Scene, a_scene};
use crate::house::{Roles, request, within};

/// The store's call that panics, the loop that makes it, and the roles of the process.
const CALLS: [(&str, &str, Roles); 7] = [
    ("due", "sweep", Roles::NONE),
    ("commit", "command", Roles::ALL),
    ("create", "creation", Roles::NONE),
    // No commands, because they load runs too.
    ("load", "load", Roles::NONE),
    ("held", "heartbeat", Roles::ALL),
    ("unsettled", "settlement", Roles::NONE),
    ("remove_ended", "removal", Roles::NONE),
];

/// Submits a run and reads it repeatedly.
async fn use_it(Scene { house, clock, .. }: &Scene) -> Infallible {
    if let Ok(submitted) = house.engine.submit(request(Policy::new(Tier::Ultra, Effort::Medium))).await {
        while house.engine.run(submitted.run_id()).await.is_ok() {
            clock.sleep(Duration::from_millis(100)).await;
        }
    }
    std::future::pending().await
}

#[tokio::test]
async fn a_loop_that_panics_ends_the_work_with_its_name() {
    for (call, name, roles) in CALLS {
        let scene = a_scene(Options::default()).await;
        scene.house.vendor.otherwise(Answer::hang());
        *scene.faults.panics_in.lock().unwrap() = Some(call);
        let work = within(scene.house.engine.work(scene.house.parts.work(roles), CancellationToken::new()));
        let worked = tokio::select! {
            worked = work => worked,
            never = use_it(&scene) => match never {},
        };
        let message = "injected by the test".to_owned();
        assert_eq!(worked, Err(LoopEnded::Panicked { name, message }), "{call}");
        // Time is paused for one engine at a time.
        tokio::time::resume();
    }
}
