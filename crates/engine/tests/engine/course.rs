//! Runs that succeed, and runs that fail by their request or by their workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{RequestId, WorkerId};
use podium_domain::money::Cost;
use podium_domain::policy::{BrokenAnswer, Effort, FailedStep, Policy, PoolRule, Tier, WorkersAllowed};
use podium_domain::run::{FailReason, RunState};
use podium_domain::time::Timestamp;
use podium_domain::usage::Usage;
use podium_engine::{Submit, Submitted};
use podium_ports::clock::Clock;
use podium_ports::conductor::ConductorError;
use podium_testkit::{Answer, Fault, Gate, Planning, a_plan, plan_of};

use crate::house::{House, quick, request, within};

fn ultra() -> Policy {
    Policy::new(Tier::Ultra, Effort::Medium)
}

#[tokio::test]
async fn a_question_is_planned_run_and_answered() {
    let house = House::with_plan(a_plan()).await;
    house.vendor.script("quick", [Answer::text("a draft")]);
    house.vendor.script("careful", [Answer::text("a solution")]);
    house.vendor.script("checker", [Answer::parts(["Because ", "of ", "Rayleigh."])]);
    let (texts, run) = house.answer(house.ask().await).await;
    assert_eq!(texts.concat(), "Because of Rayleigh.");
    assert_eq!(run.answer(), Some("Because of Rayleigh."));
    let [asked] = &house.vendor.calls_of("checker")[..] else { panic!("the checker is called once") };
    let prompt = &asked.messages.last().unwrap().text;
    for part in ["Why is the sky blue?", "a draft", "a solution", "Decide."] {
        assert!(prompt.contains(part), "`{part}` is not in {prompt}");
    }
    let worker_calls = Usage { prompt_tokens: 300, completion_tokens: 30, ..Usage::default() };
    assert_eq!(run.usage(), worker_calls + Planning::USAGE);
}

#[tokio::test]
async fn a_repeated_request_id_returns_the_same_run() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    house.vendor.otherwise(Answer::text("once"));
    let submit = Submit { request_id: Some(RequestId::new("r-1").unwrap()), ..request(ultra()) };
    let first = house.engine.submit(submit.clone()).await.unwrap();
    let second = house.engine.submit(submit.clone()).await.unwrap();
    assert_eq!(second, Submitted::Existing(first.run_id()));
    house.ended(first.run_id()).await;
    assert_eq!(house.engine.submit(submit).await.unwrap().run_id(), first.run_id());
    assert_eq!(house.vendor.calls().len(), 1);
}

#[tokio::test]
async fn each_attempt_is_billed() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    house.vendor.script(
        "quick",
        [Answer::refuse(Fault::Failed), Answer::text("half").fail(Fault::Garbled), Answer::text("whole")],
    );
    let run =
        house.ended(house.ask_under(Policy { broken_answer: BrokenAnswer::Again, ..ultra() }).await).await;
    assert_eq!(run.answer(), Some("whole"));
    let attempts: Vec<_> = run.tasks().flat_map(|(_, task)| &task.attempts).collect();
    assert_eq!(attempts.len(), 4, "one plan, three attempts at the step");
    assert!(
        attempts[2].cost.nano_usd() > 0,
        "the second attempt failed after its first text, so it was billed"
    );
    assert_eq!(run.cost(), attempts.iter().map(|attempt| attempt.cost).sum());
}

#[tokio::test]
async fn a_failed_step_is_left_out_if_others_remain() {
    let house = House::with_plan(a_plan()).await;
    house.vendor.script("quick", [Answer::refuse(Fault::Rejected)]);
    house.vendor.otherwise(Answer::text("fine"));
    let run = house.ask_under(Policy { failed_step: FailedStep::Continue, ..ultra() }).await;
    let run = house.ended(run).await;
    assert_eq!((run.answer(), run.is_degraded(), run.failed_steps().len()), (Some("fine"), true, 1));
    let prompt = house.vendor.calls_of("checker")[0].messages.last().unwrap().text.clone();
    assert!(prompt.contains("<output missing=\"true\">"), "{prompt}");
}

#[tokio::test]
async fn a_failed_final_step_ends_the_run_with_the_reason() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    house.vendor.otherwise(Answer::text("  "));
    let run = house.ended(house.ask_under(Policy { fallback: PoolRule::None, ..ultra() }).await).await;
    let RunState::Failed { reason } = run.state() else { panic!("{:?}", run.state()) };
    assert_eq!(reason.to_string(), "the final step 1 failed: worker `quick` gave an empty answer");
    assert_eq!(house.vendor.calls().len(), 3, "as many as the policy allows");
}

#[tokio::test]
async fn the_safest_worker_gets_a_question_without_a_usable_plan() {
    let house = House::idle(quick(), |store| store).await.at_work();
    let usage = Usage { prompt_tokens: 9, ..Usage::default() };
    let cost = podium_domain::money::Cost::from_nano_usd(5);
    let message = "unequal lists".to_owned();
    house.conductor.script([Planning::fails(ConductorError::NoPlan { tries: 3, message, usage, cost })]);
    house.vendor.script("careful", [Answer::text("simply so")]);
    let run = house.ended(house.ask().await).await;
    assert_eq!(run.answer(), Some("simply so"));
    let planned = run.rounds()[0].planned.as_ref().unwrap();
    assert!(planned.fallback.as_ref().unwrap().contains("unequal lists"));
    assert_eq!(run.planning_usage(), usage, "each try was billed");
    assert_eq!(house.vendor.calls()[0].1.messages[0].text, "Why is the sky blue?");
}

#[tokio::test]
async fn planning_is_charged_whether_the_run_succeeds_or_not() {
    let usage = Usage { prompt_tokens: 9, ..Usage::default() };
    let cost = Cost::from_nano_usd(5);
    let timeout = || ConductorError::Timeout { limit: Duration::from_secs(1) };

    let mut house = House::idle(quick(), |store| store).await.at_work();
    house.conductor.script([
        Planning::fails(timeout().charged(usage, cost)),
        Planning::fails(ConductorError::Unavailable("away".into()).charged(usage, cost)),
        Planning::gives(plan_of(&[("quick", "Do it.", &[])])),
    ]);
    house.vendor.otherwise(Answer::text("fine"));
    let run = house.ended(house.ask().await).await;
    assert_eq!(run.planning_usage(), usage + usage + Planning::USAGE);
    assert_eq!(run.rounds()[0].planning.attempts.iter().map(|it| it.cost).sum::<Cost>(), cost + cost);

    // The usage of a cancelled run is recorded after its end.
    let stopped = Planning::gives(a_plan()).behind(&Gate::closed()).spending(usage, cost);
    house.conductor.script([stopped]);
    let id = house.ask().await;
    within(house.conductor.until_requested(4)).await;
    assert_eq!(*house.engine.cancel(id).await.unwrap().state(), RunState::Cancelled);
    house.stop().await;
    let run = house.engine.run(id).await.unwrap().unwrap();
    assert_eq!((run.cost(), run.planning_usage()), (cost, usage));
}

#[tokio::test]
async fn an_unreachable_conductor_is_retried_and_then_left_out() {
    let house = House::idle(quick(), |store| store).await.at_work();
    let away = || Planning::fails(ConductorError::Unavailable("away".into()));
    house.conductor.script([away(), away(), away()]);
    house.vendor.otherwise(Answer::text("simply so"));
    let run = house.ended(house.ask().await).await;
    assert_eq!(run.answer(), Some("simply so"));
    assert_eq!(house.conductor.requests().len(), 3);
    let seeds: std::collections::HashSet<_> = house.conductor.requests().iter().map(|r| r.seed).collect();
    assert_eq!(seeds.len(), 3, "each attempt has another seed");
}

#[tokio::test]
async fn a_second_round_sees_the_first_and_may_keep_its_answer() {
    let house = House::idle(quick(), |store| store).await.at_work();
    house.conductor.script([Planning::gives(plan_of(&[("quick", "Do it.", &[])])), Planning::keeps_answer()]);
    house.vendor.otherwise(Answer::text("the first answer"));
    let run = house.ended(house.ask_under(Policy::new(Tier::Ultra, Effort::XHigh)).await).await;
    assert_eq!(run.answer(), Some("the first answer"));
    let earlier = house.conductor.requests()[1].earlier.clone().unwrap().text;
    assert!(earlier.contains("Do it.") && earlier.contains("the first answer"), "{earlier}");
}

/// A clock that a test can advance.
struct PutForward {
    clock: Arc<dyn Clock>,
    by_ms: AtomicU64,
}

#[async_trait]
impl Clock for PutForward {
    fn now(&self) -> Timestamp {
        self.clock.now().after(Duration::from_millis(self.by_ms.load(Ordering::SeqCst)))
    }

    async fn sleep(&self, span: Duration) {
        self.clock.sleep(span).await;
    }
}

#[tokio::test]
async fn a_run_past_its_deadline_fails_and_its_call_is_aborted() {
    const DEADLINE_MS: u64 = 600_000;
    let house = House::idle(quick(), |store| store).await;
    let by_ms = AtomicU64::new(0);
    let clock = Arc::new(PutForward { clock: Arc::clone(&house.parts.clock), by_ms });
    let house = house.beside(quick(), 8, |parts| parts.clock = clock.clone()).at_work();
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.vendor.otherwise(Answer::hang());
    let id = house.ask_under(Policy { deadline_ms: DEADLINE_MS, ..ultra() }).await;
    within(house.vendor.until_called(1)).await;
    clock.by_ms.store(DEADLINE_MS, Ordering::SeqCst);
    let run = house.ended(id).await;
    let deadline = FailReason::DeadlineExceeded { deadline_ms: DEADLINE_MS };
    assert_eq!(*run.state(), RunState::Failed { reason: deadline });
    within(house.vendor.until_aborted(1)).await;
}

#[tokio::test]
async fn a_cancelled_run_stops_its_calls_at_once() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    house.vendor.otherwise(Answer::hang());
    let id = house.ask().await;
    within(house.vendor.until_called(1)).await;
    let run = house.engine.cancel(id).await.unwrap();
    assert_eq!(*run.state(), RunState::Cancelled);
    within(house.vendor.until_aborted(1)).await;
    assert_eq!(
        *house.engine.cancel(id).await.unwrap().state(),
        RunState::Cancelled,
        "a second cancellation changes nothing"
    );
}

#[tokio::test]
async fn an_output_beyond_its_bound_fails_with_the_bounds_name() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    house.vendor.otherwise(Answer::text("x".repeat(11)));
    let run = house.ended(house.ask_under(Policy { output_bytes_max: 10, ..ultra() }).await).await;
    let RunState::Failed { reason } = run.state() else { panic!("{:?}", run.state()) };
    assert!(reason.to_string().contains("output_bytes_max of 10"), "{reason}");
}

#[tokio::test]
async fn a_policy_out_of_bounds_or_without_workers_is_refused() {
    let house = House::idle(quick(), |store| store).await;
    let refused = house.engine.submit(request(Policy { attempts_max: 0, ..ultra() })).await.unwrap_err();
    assert_eq!(refused.to_string(), "policy attempts_max is 0, it must be 1 to 20");
    for (names, shown) in [
        (&[][..], "no name"),
        (&["nobody"], "`nobody`"),
        (&["a", "b", "c", "d", "e", "f"], "`a`, `b`, `c`, `d` and 2 more"),
    ] {
        let names = names.iter().map(|name| WorkerId::new(*name).unwrap()).collect();
        let nobody = Policy { workers_allowed: WorkersAllowed::Only(names), ..ultra() };
        let refused = house.engine.submit(request(nobody)).await.unwrap_err();
        assert_eq!(refused.to_string(), format!("workers_allowed names no worker of the pool (got {shown})"));
    }
}
