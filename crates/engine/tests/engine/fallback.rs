//! A step whose worker is unavailable or fails moves to a fallback, if the policy and the pool allow it.

use std::sync::Arc;

use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::policy::{BrokenAnswer, Effort, Policy, PoolRule, Tier};
use podium_domain::retry::RetryLimits;
use podium_domain::run::{AttemptOutcome, Run, RunEvent, RunState};
use podium_engine::Options;
use podium_ports::limiter::{Limiter, RefusalReason};
use podium_ports::vendor::FinishReason;
use podium_testkit::{Answer, Fault, plan_of};

use crate::guarded::Guarded;
use crate::house::{House, quick};

fn workers(run: &Run) -> Vec<&str> {
    let attempts = &run.rounds()[0].steps[0].task.attempts;
    attempts.iter().filter_map(|attempt| attempt.worker.as_ref()).map(WorkerId::as_str).collect()
}

fn failure(run: &Run) -> String {
    let RunState::Failed { reason } = run.state() else { unreachable!("{:?}", run.state()) };
    reason.to_string()
}

/// An engine whose plans have one step, for `quick`.
async fn a_house() -> House {
    House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await
}

#[tokio::test]
async fn the_nearest_worker_of_another_vendor_replaces_a_failed_one() {
    let house = a_house().await;
    house.vendor.script("quick", vec![Answer::refuse(Fault::Failed); 3]);
    house.vendor.script("checker", [Answer::refuse(Fault::Unreachable), Answer::text("fine")]);
    let run = house.ended(house.ask().await).await;
    assert_eq!(run.answer(), Some("fine"));
    assert_eq!(workers(&run), ["quick", "quick", "quick", "checker", "checker"]);
}

#[tokio::test]
async fn a_worker_that_refuses_every_call_is_replaced_at_once() {
    let house = a_house().await;
    let refusals = [Fault::Misconfigured, Fault::Unpaid, Fault::Rejected];
    house.vendor.script("quick", refusals.map(Answer::refuse));
    house.vendor.otherwise(Answer::text("fine"));
    for said in [
        "vendor `north` cannot be called: scripted",
        "the account at vendor `north` cannot pay for the call (status 400): scripted",
    ] {
        let run = house.ended(house.ask().await).await;
        assert_eq!(workers(&run), ["quick", "checker"]);
        let first = &run.rounds()[0].steps[0].task.attempts[0];
        assert_eq!(first.outcome, AttemptOutcome::Failed(said.to_owned()));
    }
    let run = house.ended(house.ask().await).await;
    assert_eq!(workers(&run), ["quick"]);
    assert_eq!(
        failure(&run),
        "the final step 1 failed: vendor `north` rejected the request with status 400: scripted"
    );
}

#[tokio::test]
async fn a_declined_question_is_not_sent_to_any_worker_again() {
    let house = a_house().await;
    house.vendor.script("quick", [Answer::blank().finish(FinishReason::ContentFilter)]);
    house.vendor.otherwise(Answer::text("fine"));
    let run = house.ended(house.ask().await).await;
    assert_eq!(workers(&run), ["quick"]);
    assert_eq!((run.refusal(), run.rounds()[0].steps[0].task.attempts.len()), (Some(""), 1));
}

#[tokio::test]
async fn a_limit_used_up_by_reasoning_is_billed_once() {
    let house = a_house().await;
    let reasoned = Answer::blank().think("hm").finish(FinishReason::Length);
    house.vendor.script("quick", [reasoned]);
    house.vendor.otherwise(Answer::text("fine"));
    let run = house.ended(house.ask().await).await;
    assert_eq!((workers(&run), run.answer()), (vec!["quick", "checker"], Some("fine")));
    let first = &run.rounds()[0].steps[0].task.attempts[0];
    assert!(
        matches!(&first.outcome, AttemptOutcome::Failed(said) if said.contains("used up its output limit"))
    );
    assert!(first.cost > Cost::ZERO, "reasoning is billed");
}

#[tokio::test]
async fn text_of_two_workers_is_never_mixed() {
    for (broken_answer, of_quick) in [(BrokenAnswer::Elsewhere, 1), (BrokenAnswer::Again, 3)] {
        let house = a_house().await;
        let half = || Answer::text("ha").fail(Fault::Garbled);
        house.vendor.script("quick", [half(), half(), half()]);
        house.vendor.script("checker", [Answer::text("hallo")]);
        let policy = Policy { broken_answer, ..Policy::new(Tier::Ultra, Effort::Medium) };
        let (texts, run) = house.answer(house.ask_under(policy).await).await;
        assert_eq!((texts.concat().as_str(), run.answer()), ("hallo", Some("hallo")));
        assert_eq!(house.vendor.calls_of("quick").len(), of_quick);
        let attempts = &run.rounds()[0].steps[0].task.attempts;
        assert_eq!(attempts.len(), of_quick + 1);
        assert!(attempts[0].cost > Cost::ZERO, "the first attempt was billed");
        assert_eq!(run.wasted_cost(), attempts[..of_quick].iter().map(|a| a.cost).sum());
    }
}

/// Each failure of an answer after its first output, with that output.
fn broken_off() -> Vec<Answer> {
    let faults = [
        Fault::Garbled,
        Fault::Unreachable,
        Fault::Timeout,
        Fault::Failed,
        Fault::Throttled { retry_after: None },
    ];
    let text = faults.into_iter().map(|fault| Answer::text("ha").fail(fault));
    let unseen = [Answer::blank().think("hm"), Answer::blank().unread(400)];
    text.chain(unseen.map(|unseen| unseen.fail(Fault::Unreachable))).collect()
}

#[tokio::test]
async fn an_answer_that_breaks_off_moves_to_another_worker() {
    for broken in broken_off() {
        // Each case has its own limiter: a shared one would open the worker's circuit breaker.
        let house = a_house().await;
        house.vendor.script("quick", [broken]);
        house.vendor.otherwise(Answer::text("fine"));
        let run = house.ended(house.ask().await).await;
        assert_eq!((run.answer(), workers(&run)), (Some("fine"), vec!["quick", "checker"]));
        let first = &run.rounds()[0].steps[0].task.attempts[0];
        let AttemptOutcome::Failed(message) = &first.outcome else { panic!("{first:?}") };
        assert!(message.ends_with("; not tried again: its answer had begun"), "{message}");
        assert!(first.cost > Cost::ZERO && first.usage.completion_tokens > 0, "{first:?}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_without_fallback_fails() {
    let house = a_house().await;
    let alone = Policy { fallback: PoolRule::None, ..Policy::new(Tier::Ultra, Effort::Medium) };
    for broken in broken_off() {
        house.vendor.script("quick", [broken]);
        let run = house.ended(house.ask_under(alone.clone()).await).await;
        assert_eq!(workers(&run), ["quick"]);
        assert!(failure(&run).ends_with("; not tried again: its answer had begun"), "{}", failure(&run));
    }
    let again = Policy { broken_answer: BrokenAnswer::Again, ..alone };
    for broken in broken_off() {
        house.vendor.script("quick", [broken, Answer::text("fine")]);
        let run = house.ended(house.ask_under(again.clone()).await).await;
        assert_eq!((run.answer(), workers(&run)), (Some("fine"), vec!["quick", "quick"]));
    }
}

#[tokio::test]
async fn a_call_that_fails_before_its_output_is_tried_again() {
    let house = a_house().await;
    let nothing = [
        Answer::refuse(Fault::Failed),
        Answer::blank().fail(Fault::Timeout),
        Answer::blank(),
        Answer::text(" \n"),
        Answer::blank().think("hm"),
    ];
    for answer in nothing {
        house.vendor.script("quick", [answer, Answer::text("fine")]);
        let run = house.ended(house.ask().await).await;
        assert_eq!((run.answer(), workers(&run)), (Some("fine"), vec!["quick", "quick"]));
    }
}

#[tokio::test]
async fn a_policy_without_fallback_keeps_a_step_to_its_worker() {
    let house = a_house().await;
    house.vendor.script("quick", [Answer::refuse(Fault::Misconfigured)]);
    house.vendor.otherwise(Answer::text("fine"));
    let policy = Policy { fallback: PoolRule::None, ..Policy::new(Tier::Ultra, Effort::Medium) };
    let run = house.ended(house.ask_under(policy).await).await;
    assert_eq!(workers(&run), ["quick"]);
}

#[tokio::test]
async fn a_step_without_retry_budget_falls_back_or_fails_with_the_reason() {
    let retries = RetryLimits { share_max: 0.0, per_second_min: 0.0 };
    let house = House::idle(Options { retries, ..quick() }, |store| store).await;
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    let house = house.at_work();
    house.vendor.script("quick", vec![Answer::refuse(Fault::Failed); 9]);
    house.vendor.script("checker", [Answer::text("fine")]);
    let run = house.ended(house.ask().await).await;
    assert_eq!(workers(&run), ["quick", "quick", "checker"], "one retry is always allowed");
    let policy = Policy { fallback: PoolRule::None, ..Policy::new(Tier::Ultra, Effort::Medium) };
    let run = house.ended(house.ask_under(policy).await).await;
    assert_eq!(workers(&run), ["quick"]);
    assert!(
        failure(&run).ends_with("not tried again: the worker's retry budget is used up"),
        "{}",
        failure(&run)
    );
}

async fn a_guarded_house(shut: &[&'static str], why: RefusalReason) -> (House, Arc<Guarded>) {
    let mut house = House::idle(quick(), |store| store).await;
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    let guarded = Guarded::around(Arc::clone(&house.parts.limiter), shut, why);
    house.parts.limiter = Arc::clone(&guarded) as Arc<dyn Limiter>;
    let queue = Arc::clone(&house.parts.queue);
    let house = house.with_queue(queue, quick()).at_work();
    house.vendor.otherwise(Answer::text("fine"));
    (house, guarded)
}

#[tokio::test]
async fn an_open_breaker_sends_a_step_to_a_fallback_with_a_permit() {
    for (shut, expected) in [(vec!["quick"], "checker"), (vec!["quick", "checker"], "careful")] {
        let (house, _) = a_guarded_house(&shut, RefusalReason::Broken).await;
        let id = house.ask().await;
        let run = house.ended(id).await;
        assert_eq!((run.answer(), workers(&run), run.fallbacks()), (Some("fine"), vec![expected], 1));
        let events = house.parts.store.events(id, 0, 99).await.unwrap();
        let messages = events.iter().filter_map(|event| match &event.event {
            RunEvent::FellBack { message, .. } => Some(message.as_str()),
            _ => None,
        });
        let expected = ["the circuit breaker of worker `quick` is open"];
        assert_eq!(messages.collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn a_step_waits_in_line_at_the_first_fallback_only() {
    let (house, guarded) = a_guarded_house(&["quick", "checker"], RefusalReason::Broken).await;
    let id = house.ask().await;
    assert_eq!(workers(&house.ended(id).await), ["careful"]);
    let refused = guarded.refused();
    assert_eq!(refused.last().map(String::as_str), Some(""), "`checker` was only probed: {refused:?}");
}

#[tokio::test]
async fn a_step_goes_to_the_first_of_several_open_breakers_that_closes() {
    let (house, guarded) = a_guarded_house(&["quick", "checker", "careful"], RefusalReason::Broken).await;
    let id = house.ask().await;
    let before = house.until(id, |run| run.rounds()[0].planned.is_some()).await;
    guarded.until_refused(12).await;
    let waiting = house.engine.run(id).await.unwrap().unwrap();
    assert_eq!(waiting.version(), before.version(), "a waiting step commits nothing");
    guarded.open("careful");
    assert_eq!(workers(&house.ended(id).await), ["careful"]);
}

#[tokio::test]
async fn a_step_without_a_fallback_waits_for_its_own_worker() {
    let strict = Policy { fallback: PoolRule::None, ..Policy::new(Tier::Ultra, Effort::Medium) };
    let lenient = Policy::new(Tier::Ultra, Effort::Medium);
    for (policy, why) in [
        (strict, RefusalReason::Broken),
        (lenient.clone(), RefusalReason::Unreachable),
        (lenient, RefusalReason::Rate),
    ] {
        let (house, guarded) = a_guarded_house(&["quick"], why).await;
        let id = house.ask_under(policy).await;
        guarded.until_refused(5).await;
        assert!(house.vendor.calls().is_empty());
        guarded.open("quick");
        assert_eq!(workers(&house.ended(id).await), ["quick"], "{why:?}");
    }
}

#[tokio::test]
async fn a_vendor_back_off_beyond_the_deadline_is_not_waited_for() {
    let (house, guarded) = a_guarded_house(&["quick"], RefusalReason::Blocked).await;
    let id = house.ask().await;
    let run = house.ended(id).await;
    assert_eq!((run.answer(), workers(&run)), (Some("fine"), vec!["checker"]));
    let events = house.parts.store.events(id, 0, 99).await.unwrap();
    let message = events.iter().find_map(|event| match &event.event {
        RunEvent::FellBack { message, .. } => Some(message.as_str()),
        _ => None,
    });
    let expected = "the vendor of worker `quick` asked to back off beyond the deadline of the run";
    assert_eq!(message, Some(expected));

    let patient = Policy {
        deadline_ms: 3 * 3_600_000,
        fallback: PoolRule::Pool,
        ..Policy::new(Tier::Ultra, Effort::Medium)
    };
    let waits = house.ask_under(patient).await;
    house.until(waits, |run| run.rounds()[0].planned.is_some()).await;
    guarded.until_refused(2).await;
    assert_eq!(house.vendor.calls().len(), 1, "a run with enough time waits");
}
