//! Counts the calls for answers without text, prompts that do not fit, and implausible usage.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::conversation::Conversation;
use podium_domain::ids::WorkerId;
use podium_domain::policy::{Effort, Policy, PoolRule, Tier};
use podium_domain::run::{Run, RunState};
use podium_domain::usage::Usage;
use podium_engine::{Submit, SubmitError};
use podium_ports::vendor::FinishReason;
use podium_testkit::{Answer, Fault, a_pool, plan_of};

use crate::house::{House, quick, request, with};

fn ultra() -> Policy {
    Policy::new(Tier::Ultra, Effort::Medium)
}

fn failure(run: &Run) -> String {
    let RunState::Failed { reason } = run.state() else { panic!("{:?}", run.state()) };
    reason.to_string()
}

fn called(house: &House) -> Vec<WorkerId> {
    house.vendor.calls().into_iter().map(|(worker, _)| worker).collect()
}

async fn a_house() -> House {
    House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await
}

#[tokio::test]
async fn a_refusal_without_text_is_one_call() {
    let house = a_house().await;
    house.vendor.otherwise(Answer::blank().finish(FinishReason::ContentFilter));
    let run = house.ended(house.ask().await).await;
    assert_eq!(called(&house).len(), 1);
    assert_eq!(run.refusal(), Some(""));
}

#[tokio::test]
async fn a_limit_used_up_by_reasoning_leads_to_one_other_worker() {
    let house = a_house().await;
    let spent = || Answer::blank().think("hm").finish(FinishReason::Length);
    house.vendor.script("quick", [spent()]);
    house.vendor.otherwise(Answer::text("fine"));
    assert_eq!(house.ended(house.ask().await).await.answer(), Some("fine"));
    assert_eq!(called(&house).len(), 2, "one call of the worker and one of another");
    house.vendor.otherwise(spent());
    let run = house.ended(house.ask().await).await;
    assert_eq!(called(&house).len(), 4, "one call of the worker and one of another");
    assert!(failure(&run).contains("used up its output limit"), "{}", failure(&run));
    let alone = Policy { fallback: PoolRule::None, ..ultra() };
    house.ended(house.ask_under(alone).await).await;
    assert_eq!(called(&house).len(), 5, "one call of the worker");
}

#[tokio::test]
async fn a_client_limit_used_up_by_reasoning_gives_an_empty_answer() {
    let house = a_house().await;
    let spent = || Answer::blank().think("hm").finish(FinishReason::Length);
    let limited = |policy| with(request(policy), |request| request.answer_tokens_max = Some(16));
    let ask = async |policy| {
        let id = house.engine.submit(limited(policy)).await.unwrap().run_id();
        house.ended(id).await
    };
    house.vendor.script("quick", [spent()]);
    house.vendor.otherwise(Answer::text("fine"));
    assert_eq!(ask(ultra()).await.answer(), Some("fine"), "another worker may reason less");
    house.vendor.otherwise(spent());
    let run = ask(ultra()).await;
    assert_eq!(
        (run.answer(), called(&house).len()),
        (Some(""), 4),
        "one call of the worker and one of another"
    );
    assert_eq!(run.rounds()[0].steps[0].finish, Some(FinishReason::Length));
    let run = ask(Policy { fallback: PoolRule::None, ..ultra() }).await;
    assert_eq!((run.answer(), called(&house).len()), (Some(""), 5), "one call of the worker");
}

/// The test pool, in which these workers have a context of 1,000 tokens.
async fn a_house_with_small(small: &[&str]) -> House {
    let house = House::idle(quick(), |store| store).await;
    let mut workers = a_pool().workers().to_vec();
    for worker in workers.iter_mut().filter(|worker| small.contains(&worker.id.as_str())) {
        worker.context_tokens = 1_000;
    }
    let pool = a_pool().with_workers(workers);
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.vendor.otherwise(Answer::text("fine"));
    house.beside(quick(), 8, |parts| parts.pool = Arc::new(pool)).at_work()
}

fn long_question() -> Submit {
    let conversation = Conversation::question_only("why? ".repeat(2_000)).unwrap();
    with(request(ultra()), |request| request.conversation = conversation)
}

#[tokio::test]
async fn a_prompt_that_fits_no_worker_is_rejected() {
    let all: Vec<_> = a_pool().workers().iter().map(|worker| worker.id.to_string()).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let house = a_house_with_small(&all).await;
    let refused = house.engine.submit(long_question()).await.unwrap_err();
    assert!(matches!(refused, SubmitError::ContextExceeded { .. }), "{refused}");
    assert!(called(&house).is_empty());
}

#[tokio::test]
async fn a_prompt_that_does_not_fit_goes_to_a_worker_with_more_context() {
    let house = a_house_with_small(&["quick"]).await;
    let run = house.ended(house.engine.submit(long_question()).await.unwrap().run_id()).await;
    assert_eq!(run.answer(), Some("fine"));
    assert!(called(&house).iter().all(|worker| worker.as_str() != "quick"));
    let alone = Policy { fallback: PoolRule::None, ..ultra() };
    let id =
        house.engine.submit(with(long_question(), |request| request.policy = alone)).await.unwrap().run_id();
    let run = house.ended(id).await;
    assert!(failure(&run).contains("context_length_exceeded"), "{}", failure(&run));
    assert_eq!(called(&house).len(), 1);
}

#[tokio::test]
async fn implausible_usage_is_bounded_before_it_is_booked() {
    let house = a_house().await;
    let absurd = Usage {
        prompt_tokens: 1_000_000_000_000_000,
        completion_tokens: 1_000_000_000_000_000,
        cached_tokens: u64::MAX,
        ..Usage::NONE
    };
    house.vendor.otherwise(Answer::text("fine").usage(Some(absurd)));
    let run = house.ended(house.ask().await).await;
    let attempt = &run.rounds()[0].steps[0].task.attempts[0];
    let (_, asked) = &house.vendor.calls()[0];
    let completion_max = u64::from(asked.output_tokens_max) * 2 + 4096;
    assert_eq!(attempt.usage.completion_tokens, completion_max);
    assert!(attempt.usage.prompt_tokens < 20_000, "{:?}", attempt.usage);
    assert!(attempt.usage.cached_tokens <= attempt.usage.prompt_tokens);
    assert!(attempt.cost < podium_domain::money::Cost::from_nano_usd(1_000_000_000), "{:?}", attempt.cost);
}

#[tokio::test]
async fn a_prompt_that_the_vendor_did_not_count_is_estimated() {
    let house = a_house().await;
    let reported = Usage { completion_tokens: 7, ..Usage::NONE };
    house.vendor.otherwise(Answer::text("fine").usage(Some(reported)));
    let run = house.ended(house.ask().await).await;
    let usage = run.rounds()[0].steps[0].task.attempts[0].usage;
    let (_, asked) = &house.vendor.calls()[0];
    let prompt_bytes: usize =
        asked.messages.iter().map(podium_domain::conversation::Message::text_bytes).sum();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), ((prompt_bytes as u64).div_ceil(4), 7));
}

#[tokio::test]
async fn a_vendor_that_asks_to_slow_down_takes_no_attempt() {
    let house = a_house().await;
    let limited = || Answer::refuse(Fault::Throttled { retry_after: Some(Duration::from_millis(5)) });
    house
        .vendor
        .script("quick", [limited(), limited(), limited(), limited(), limited(), Answer::text("fine")]);
    let alone = Policy { fallback: PoolRule::None, attempts_max: 1, ..ultra() };
    let run = house.ended(house.ask_under(alone).await).await;
    assert_eq!(run.answer(), Some("fine"));
    assert_eq!(called(&house).len(), 6);
}

#[tokio::test]
async fn a_run_that_a_rate_limit_ends_has_that_reason() {
    let house = a_house().await;
    let day = Some(Duration::from_hours(24));
    house.vendor.otherwise(Answer::refuse(Fault::Throttled { retry_after: day }));
    let alone = Policy { fallback: PoolRule::None, ..ultra() };
    let run = house.ended(house.ask_under(alone).await).await;
    let RunState::Failed { reason } = run.state() else { panic!("{:?}", run.state()) };
    assert_eq!(reason.cause(), Some(podium_domain::run::RATE_LIMITED), "{reason}");
    assert_eq!(called(&house).len(), 1);
}
