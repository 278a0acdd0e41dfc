//! A remote model as conductor: its output becomes a plan, or the model gets the error.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use podium_conductor::{RemoteConductor, RemoteOptions};
use podium_domain::conversation::Role;
use podium_domain::ids::WorkerId;
use podium_domain::policy::WorkersAllowed;
use podium_domain::pool::{Pool, Worker};
use podium_domain::prompt::Earlier;
use podium_domain::run::{PlanResult, Planned};
use podium_domain::usage::Usage;
use podium_memory::MemoryLimiter;
use podium_ports::conductor::{Conductor, ConductorError, PlanOutcome, PlanRequest};
use podium_ports::vendor::{ChatRequest, FinishReason};
use podium_testkit::{Answer, Fault, Gate, OpenLimiter, ScriptedVendor, TestClock, a_pool};
use tokio_util::sync::CancellationToken;

use crate::{planned, request};

const PLAN: &str = "One drafts, one checks.\n```python\nmodel_id = [0, 2]\nsubtasks = [\"Draft.\", \"Check.\"]\n\
                    access_list = [[], [0]]\n```\n";
const EMPTY: &str = "It is right.\nmodel_id = []\nsubtasks = []\naccess_list = []";

/// A model with its own prices; it need not be in the pool.
fn model() -> Worker {
    let pool = Pool::parse(
        r#"
        schema = 1
        name = "conductors"
        version = "1"
        vendors = [{ id = "north", api = "openai-chat", base_url = "http://127.0.0.1:1/v1" }]
        [[workers]]
        id = "planner"
        vendor = "north"
        model = "planner-1"
        description = "plans"
        context_tokens = 8192
        limits = { in_flight_max = 2 }
        usd_per_million_tokens = { input = 1.0, output = 10.0 }
        "#,
    );
    pool.unwrap().workers()[0].clone()
}

/// The outcome of planning with a model that returns these answers in turn.
struct Tried {
    result: Result<PlanOutcome, ConductorError>,
    calls: Vec<ChatRequest>,
    streamed: String,
}

async fn plan_with(answers: impl IntoIterator<Item = Answer>, request: &PlanRequest) -> Tried {
    let vendor = ScriptedVendor::new();
    vendor.script("planner", answers);
    let conductor = conductor(&vendor);
    let streamed = Mutex::new(String::new());
    let sink = |text: &str| streamed.lock().unwrap().push_str(text);
    let result = conductor.plan(request, &sink, &CancellationToken::new()).await;
    Tried { result, calls: vendor.calls_of("planner"), streamed: streamed.into_inner().unwrap() }
}

fn conductor(vendor: &ScriptedVendor) -> RemoteConductor {
    RemoteConductor::new(
        Arc::new(vendor.clone()),
        Arc::new(OpenLimiter::default()),
        model(),
        Arc::new(a_pool()),
        RemoteOptions::default(),
    )
}

#[tokio::test]
async fn a_plan_is_parsed_while_it_streams_and_is_charged() {
    let Tried { result, calls, streamed } =
        plan_with([Answer::parts([&PLAN[..10], &PLAN[10..60], &PLAN[60..]])], &request()).await;
    let outcome = result.unwrap();
    let Planned { plan, reasoning, fallback } = planned(&outcome);
    assert_eq!((reasoning.as_str(), fallback), ("One drafts, one checks.", &None));
    let workers: Vec<_> = plan.steps().iter().map(|step| step.worker.as_str()).collect();
    assert_eq!(workers, ["quick", "checker"]);
    assert_eq!(streamed, PLAN);
    // 100 tokens at a dollar and 10 at ten dollars a million.
    assert_eq!((outcome.usage, outcome.cost.nano_usd()), (Answer::USAGE, 200_000));
    let [call] = calls.as_slice() else { panic!("{calls:?}") };
    let [turn] = call.messages.as_slice() else { panic!("{call:?}") };
    assert!(turn.text.contains("Why is the sky blue?") && turn.text.contains("Model id 2: finds mistakes"));
    assert_eq!(call.temperature, Some(0.1));
    assert!(call.seed.is_some());
}

#[tokio::test]
async fn impossible_usage_of_a_plan_is_corrected() {
    let absurd = Usage {
        prompt_tokens: 1_000_000_000_000_000,
        completion_tokens: 1_000_000_000_000_000,
        cached_tokens: u64::MAX,
        ..Usage::NONE
    };
    let uncounted = Usage { prompt_tokens: 0, completion_tokens: 10, ..Usage::NONE };
    let usage_of = async |reported: Usage| {
        let tried = plan_with([Answer::text(PLAN).usage(Some(reported))], &request()).await;
        let call = tried.calls[0].clone();
        (tried.result.unwrap().usage, call)
    };
    let (usage, call) = usage_of(absurd).await;
    assert!(usage.prompt_tokens < 20_000 && usage.cached_tokens <= usage.prompt_tokens, "{usage:?}");
    assert_eq!(usage.completion_tokens, u64::from(call.output_tokens_max) * 2 + 4096);
    let (usage, call) = usage_of(uncounted).await;
    let prompt_bytes: usize = call.messages.iter().map(|turn| turn.text.len()).sum();
    assert_eq!(usage.prompt_tokens, (prompt_bytes as u64).div_ceil(4));
    assert_eq!(usage.completion_tokens, 10);
}

#[tokio::test]
async fn a_model_is_shown_its_problem_and_tries_again() {
    let forward = "model_id = [0, 1]\nsubtasks = [\"a\", \"b\"]\naccess_list = [[1], []]";
    let Tried { result, calls, streamed } = plan_with(
        [Answer::text("I would ask a friend."), Answer::text(forward), Answer::text(PLAN)],
        &request(),
    )
    .await;
    let outcome = result.unwrap();
    assert_eq!(planned(&outcome).plan.len(), 2);
    assert_eq!((outcome.usage.total_tokens(), outcome.cost.nano_usd()), (330, 600_000));
    assert_eq!(streamed, format!("I would ask a friend.\n{forward}\n{PLAN}"));

    let seeds: BTreeSet<_> = calls.iter().map(|call| call.seed.unwrap()).collect();
    assert_eq!(seeds.len(), 3, "each try has a different seed: {seeds:?}");
    let temperatures: Vec<_> = calls.iter().map(|call| call.temperature.unwrap()).collect();
    assert!(temperatures.is_sorted() && temperatures[0] < temperatures[2], "{temperatures:?}");
    let turns = |call: &ChatRequest| call.messages.iter().map(|turn| turn.role).collect::<Vec<_>>();
    assert_eq!(turns(&calls[1]), [Role::User, Role::Assistant, Role::User]);
    // Only the last failure is shown: the prompt does not grow with the tries.
    assert_eq!(turns(&calls[2]), [Role::User, Role::Assistant, Role::User]);
    assert_eq!(calls[1].messages[1].text, "I would ask a friend.");
    assert!(calls[1].messages[2].text.contains("model_id has no list"), "{}", calls[1].messages[2].text);
    assert_eq!(calls[2].messages[1].text, forward);
    assert!(calls[2].messages[2].text.contains("access_list of step 1"), "{}", calls[2].messages[2].text);
}

#[tokio::test]
async fn tries_are_bounded_and_the_error_has_their_total_usage() {
    let blank = Answer::text(" ").usage(None);
    let cut = Answer::text("model_id = [0").finish(FinishReason::Length);
    let Tried { result, calls, .. } = plan_with([blank, cut.clone(), cut], &request()).await;
    let error = result.unwrap_err();
    assert!(!error.is_retryable());
    let ConductorError::NoPlan { tries, message, usage, cost } = error else { panic!("{error}") };
    assert_eq!((tries, calls.len()), (3, 3));
    assert!(message.contains("cut off after 4096 tokens"), "{message}");
    // The blank try reported no usage, so it is estimated.
    assert!(usage.prompt_tokens > 200 && usage.completion_tokens == 21, "{usage:?}");
    assert!(cost.nano_usd() > 400_000);
    // A blank output is not shown again.
    assert_eq!(calls[1].messages.len(), 2);
}

#[tokio::test]
async fn an_earlier_answer_can_be_kept_but_only_if_there_is_one() {
    let mut again = request();
    again.earlier = Some(Earlier { text: "<step number=\"1\">...</step>".to_owned(), gave_answer: true });
    let Tried { result, calls, .. } = plan_with([Answer::text(EMPTY)], &again).await;
    assert_eq!(result.unwrap().result, PlanResult::KeepAnswer);
    assert!(calls[0].messages[0].text.contains("<step number=\"1\">"));

    let mut correcting = request();
    correcting.earlier =
        Some(Earlier { text: "<step number=\"1\">...</step>".to_owned(), gave_answer: false });
    let Tried { result, .. } = plan_with([Answer::text(EMPTY), Answer::text(PLAN)], &correcting).await;
    assert!(
        matches!(result.unwrap().result, PlanResult::Plan(_)),
        "a round that failed has no answer to keep"
    );

    let Tried { result, calls, .. } = plan_with([Answer::text(EMPTY), Answer::text(PLAN)], &request()).await;
    assert!(matches!(result.unwrap().result, PlanResult::Plan(_)));
    assert!(calls[1].messages[2].text.contains("plan has no steps"));
}

#[tokio::test]
async fn a_plan_obeys_the_policy() {
    let mut narrow = request();
    narrow.policy.workers_allowed = WorkersAllowed::Only(BTreeSet::from([WorkerId::new("quick").unwrap()]));
    let Tried { result, calls, .. } =
        plan_with([Answer::text(PLAN), Answer::text(PLAN), Answer::text(PLAN)], &narrow).await;
    assert!(result.unwrap_err().to_string().contains("`checker`"));
    assert!(!calls[0].messages[0].text.contains("Model id 2:"));
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_costs_a_try_and_is_repeated_unchanged() {
    let broken = Answer::text("One dra").fail(Fault::Garbled);
    let Tried { result, calls, .. } =
        plan_with([broken, Answer::refuse(Fault::Failed), Answer::text(PLAN)], &request()).await;
    let outcome = result.unwrap();
    assert!(outcome.usage.prompt_tokens > Answer::USAGE.prompt_tokens, "{:?}", outcome.usage);
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.messages == calls[0].messages));
    // The call without output is retried and is not a try.
    assert_eq!(calls[1].temperature, calls[2].temperature);
    assert_ne!(calls[0].temperature, calls[1].temperature);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_output_is_retried_within_the_limits() {
    for (fault, calls_made) in [
        (Fault::Throttled { retry_after: None }, 4),
        (Fault::Failed, 4),
        (Fault::Unreachable, 4),
        // A timed-out wait is not repeated, and a pause cannot supply a missing key.
        (Fault::Timeout, 1),
        (Fault::Misconfigured, 1),
    ] {
        let answers = vec![Answer::refuse(fault.clone()); 6];
        let Tried { result, calls, .. } = plan_with(answers, &request()).await;
        let error = result.unwrap_err();
        assert!(
            matches!(error, ConductorError::Unavailable(_)) && error.is_retryable(),
            "{fault:?}: {error}"
        );
        assert_eq!(calls.len(), calls_made, "{fault:?}");
        assert_eq!(error.consumed().0, Usage::default(), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_respects_retry_after_and_the_plans_deadline() {
    let slow_down = |seconds| {
        let retry_after = Some(Duration::from_secs(seconds));
        Answer::refuse(Fault::Throttled { retry_after })
    };
    let began = tokio::time::Instant::now();
    let Tried { result, .. } = plan_with([slow_down(20), Answer::text(PLAN)], &request()).await;
    result.unwrap();
    assert_eq!(began.elapsed().as_secs(), 20);

    let began = tokio::time::Instant::now();
    let Tried { result, calls, .. } = plan_with([slow_down(90), Answer::text(PLAN)], &request()).await;
    let error = result.unwrap_err();
    assert_eq!((calls.len(), began.elapsed()), (1, Duration::ZERO), "less than 90 seconds are left");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(90)));
}

#[tokio::test(start_paused = true)]
async fn retries_add_little_load_to_a_failing_endpoint() {
    let vendor = ScriptedVendor::new();
    vendor.otherwise(Answer::refuse(Fault::Throttled { retry_after: None }));
    let conductor = conductor(&vendor);
    let hurried = PlanRequest { time_max: Duration::from_secs(1), ..request() };
    for seed in 0..100 {
        let asked = PlanRequest { seed, ..hurried.clone() };
        conductor.plan(&asked, &|_| {}, &CancellationToken::new()).await.unwrap_err();
    }
    let calls = vendor.calls().len();
    assert!((110..220).contains(&calls), "{calls} calls for 100 plans");
}

#[tokio::test(start_paused = true)]
async fn every_error_reports_the_usage() {
    let Tried { result, .. } = plan_with([Answer::refuse(Fault::Rejected)], &request()).await;
    assert!(matches!(result, Err(ConductorError::NoPlan { tries: 1, .. })), "this question is rejected");

    let throttled = Answer::refuse(Fault::Throttled { retry_after: Some(Duration::from_hours(1)) });
    let Tried { result, .. } = plan_with([Answer::text("No."), throttled], &request()).await;
    let error = result.unwrap_err();
    assert!(matches!(error.cause(), ConductorError::Unavailable(_)) && error.is_retryable(), "{error}");
    assert_eq!(error.consumed().0, Answer::USAGE);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_plan_reports_its_usage() {
    for is_stopped in [true, false] {
        let vendor = ScriptedVendor::new();
        let begun = Answer::text("One drafts, ").wait(&Gate::closed());
        vendor.script("planner", [Answer::text("No."), begun]);
        let (conductor, stop) = (conductor(&vendor), CancellationToken::new());
        let asked = request();
        let streamed = Mutex::new(String::new());
        let sink = |text: &str| {
            let mut streamed = streamed.lock().unwrap();
            streamed.push_str(text);
            if is_stopped && streamed.ends_with("drafts, ") {
                stop.cancel();
            }
        };
        let error = conductor.plan(&asked, &sink, &stop).await.unwrap_err();
        let expected_cause = match error.cause() {
            ConductorError::Stopped => is_stopped,
            ConductorError::Timeout { limit } => !is_stopped && *limit == Duration::from_mins(1),
            _ => false,
        };
        assert!(expected_cause, "{error:?}");
        let (usage, cost) = error.consumed();
        // The first try as the vendor reports; of the second one the prompt and twelve letters of output.
        assert_eq!(usage.completion_tokens, Answer::USAGE.completion_tokens + 3, "{usage:?}");
        assert!(usage.prompt_tokens > Answer::USAGE.prompt_tokens + 200, "{usage:?}");
        assert!(cost.nano_usd() > 230_000 + 200_000, "{cost:?}");
    }
}

#[tokio::test]
async fn concurrent_calls_and_waiting_plans_are_bounded() {
    let (vendor, gate) = (ScriptedVendor::new(), Gate::closed());
    vendor.otherwise(Answer::blank().wait(&gate).say(PLAN));
    let options = RemoteOptions { waiting_max: 1, ..RemoteOptions::default() };
    let limiter = Arc::new(MemoryLimiter::new(Arc::new(TestClock::new())));
    let conductor =
        RemoteConductor::new(Arc::new(vendor.clone()), limiter, model(), Arc::new(a_pool()), options);
    let (asked, stop) = (request(), CancellationToken::new());
    let ignore = |_: &str| {};
    let plan = || conductor.plan(&asked, &ignore, &stop);
    let planning = futures::future::join3(plan(), plan(), plan());
    let watching = async {
        vendor.until_called(2).await;
        let refused = plan().await.unwrap_err();
        assert!(matches!(refused, ConductorError::Overloaded { waiting_max: 1 }), "{refused}");
        assert!(refused.is_retryable());
        assert_eq!(vendor.in_flight(), 2);
        gate.open();
    };
    let ((a, b, c), ()) = futures::join!(planning, watching);
    assert!([a, b, c].iter().all(Result::is_ok));
    assert_eq!(vendor.calls().len(), 3);
    plan().await.unwrap();
}

#[tokio::test]
async fn a_question_without_space_for_a_plan_is_not_sent() {
    let mut long = request();
    long.question = "why? ".repeat(20_000);
    let Tried { result, calls, .. } = plan_with([Answer::text(PLAN)], &long).await;
    let error = result.unwrap_err();
    assert!(matches!(error, ConductorError::QuestionTooLong { tokens_max: 4096, .. }), "{error}");
    assert!(calls.is_empty());
}

#[tokio::test]
async fn the_token_limit_respects_the_models_output_and_context() {
    for (context_tokens, output_tokens_max, expected) in
        [(4096, 192, 192), (4096, 4096, 2048), (65_536, 65_536, 4096)]
    {
        let vendor = ScriptedVendor::new();
        vendor.otherwise(Answer::text("model_id = [0").finish(FinishReason::Length));
        let (vendors, limiter) = (Arc::new(vendor.clone()), Arc::new(OpenLimiter::default()));
        let model = Worker { context_tokens, output_tokens_max, ..model() };
        let conductor =
            RemoteConductor::new(vendors, limiter, model, Arc::new(a_pool()), RemoteOptions::default());
        let error = conductor.plan(&request(), &|_| {}, &CancellationToken::new()).await.unwrap_err();
        assert!(error.to_string().contains(&format!("cut off after {expected} tokens")), "{error}");
        let calls = vendor.calls_of("planner");
        assert!(calls.len() == 3 && calls.iter().all(|call| call.output_tokens_max == expected), "{calls:?}");
    }
}

#[tokio::test]
async fn an_endless_output_is_stopped() {
    let endless = Answer::parts(vec!["x".repeat(64 << 10); 6]);
    let vendor = ScriptedVendor::new();
    vendor.script("planner", [endless, Answer::text(PLAN)]);
    let outcome = conductor(&vendor).plan(&request(), &|_| {}, &CancellationToken::new()).await.unwrap();
    assert_eq!(planned(&outcome).plan.len(), 2);
    assert_eq!(vendor.aborted(), 1);
    assert!(vendor.calls_of("planner")[1].messages[1].text.len() <= 8 << 10);
}

#[tokio::test]
async fn stopped_planning_drops_the_call() {
    let vendor = ScriptedVendor::new();
    vendor.script("planner", [Answer::hang()]);
    let (conductor, stop) = (conductor(&vendor), CancellationToken::new());
    let asked = request();
    let planning = conductor.plan(&asked, &|_| {}, &stop);
    let stopping = async {
        vendor.until_called(1).await;
        stop.cancel();
    };
    let (result, ()) = futures::join!(planning, stopping);
    assert!(matches!(result, Err(ConductorError::Stopped)));
    vendor.until_aborted(1).await;
}

#[tokio::test(start_paused = true)]
async fn all_tries_together_have_one_time_limit() {
    let Tried { result, .. } = plan_with([Answer::text("No."), Answer::hang()], &request()).await;
    let error = result.unwrap_err();
    assert!(error.is_retryable());
    let limit = Duration::from_mins(1);
    assert!(matches!(error.cause(), ConductorError::Timeout { limit: of } if *of == limit), "{error}");
    assert_eq!(error.consumed().0, Answer::USAGE);
}
