//! A remote model as conductor: what it writes becomes a plan, or it is told why not.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use podium_conductor::{RemoteConductor, RemoteOptions};
use podium_domain::conversation::Role;
use podium_domain::ids::WorkerId;
use podium_domain::policy::{Effort, Policy, Tier, WorkersAllowed};
use podium_domain::pool::{Pool, Worker};
use podium_domain::prompt::Earlier;
use podium_domain::run::{PlanResult, Planned};
use podium_domain::time::Timestamp;
use podium_domain::usage::Usage;
use podium_memory::MemoryLimiter;
use podium_ports::conductor::{Conductor, ConductorError, PlanOutcome, PlanRequest};
use podium_ports::vendor::{ChatRequest, FinishReason};
use podium_testkit::{Answer, Fault, Gate, OpenLimiter, ScriptedVendor, TestClock, a_pool, an_asker};
use tokio_util::sync::CancellationToken;

const PLAN: &str = "One drafts, one checks.\n```python\nmodel_id = [0, 2]\nsubtasks = [\"Draft.\", \"Check.\"]\n\
                    access_list = [[], [0]]\n```\n";
const EMPTY: &str = "It is right.\nmodel_id = []\nsubtasks = []\naccess_list = []";

/// A model of its own vendor price: it need not be in the pool.
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

fn request() -> PlanRequest {
    PlanRequest {
        asker: an_asker(),
        question: "Why is the sky blue?".to_owned(),
        policy: Policy::new(Tier::Ultra, Effort::Medium),
        earlier: None,
        seed: 0,
        asked_at: Timestamp::default(),
        time_max: Duration::from_mins(1),
    }
}

/// What came of planning with a model that gives these answers in turn.
struct Tried {
    result: Result<PlanOutcome, ConductorError>,
    calls: Vec<ChatRequest>,
    heard: String,
}

async fn tried(answers: impl IntoIterator<Item = Answer>, request: &PlanRequest) -> Tried {
    let vendor = ScriptedVendor::new();
    vendor.script("planner", answers);
    let conductor = conductor(&vendor);
    let heard = Mutex::new(String::new());
    let sink = |text: &str| heard.lock().unwrap().push_str(text);
    let result = conductor.plan(request, &sink, &CancellationToken::new()).await;
    Tried { result, calls: vendor.calls_of("planner"), heard: heard.into_inner().unwrap() }
}

fn conductor(vendor: &ScriptedVendor) -> RemoteConductor {
    RemoteConductor::new(
        (Arc::new(vendor.clone()), Arc::new(OpenLimiter::default())),
        model(),
        Arc::new(a_pool()),
        RemoteOptions::default(),
    )
}

fn planned(outcome: &PlanOutcome) -> &Planned {
    match &outcome.result {
        PlanResult::Plan(planned) => planned,
        PlanResult::KeepAnswer => panic!("there was no answer to keep"),
    }
}

#[tokio::test]
async fn a_plan_is_read_as_it_is_written_and_paid_for() {
    let Tried { result, calls, heard } =
        tried([Answer::parts([&PLAN[..10], &PLAN[10..60], &PLAN[60..]])], &request()).await;
    let outcome = result.unwrap();
    let Planned { plan, reasoning, fallback } = planned(&outcome);
    assert_eq!((reasoning.as_str(), fallback), ("One drafts, one checks.", &None));
    let workers: Vec<_> = plan.steps().iter().map(|step| step.worker.as_str()).collect();
    assert_eq!(workers, ["quick", "checker"]);
    assert_eq!(heard, PLAN);
    // 100 tokens at a dollar and 10 at ten dollars a million.
    assert_eq!((outcome.usage, outcome.cost.nano_usd()), (Answer::USAGE, 200_000));
    let [call] = calls.as_slice() else { panic!("{calls:?}") };
    let [turn] = call.messages.as_slice() else { panic!("{call:?}") };
    assert!(turn.text.contains("Why is the sky blue?") && turn.text.contains("Model id 2: finds mistakes"));
    assert_eq!(call.temperature, Some(0.1));
    assert!(call.seed.is_some());
}

#[tokio::test]
async fn a_model_is_told_what_was_wrong_and_tries_again() {
    let forward = "model_id = [0, 1]\nsubtasks = [\"a\", \"b\"]\naccess_list = [[1], []]";
    let Tried { result, calls, heard } =
        tried([Answer::text("I would ask a friend."), Answer::text(forward), Answer::text(PLAN)], &request())
            .await;
    let outcome = result.unwrap();
    assert_eq!(planned(&outcome).plan.len(), 2);
    assert_eq!((outcome.usage.total_tokens(), outcome.cost.nano_usd()), (330, 600_000));
    assert_eq!(heard, format!("I would ask a friend.\n{forward}\n{PLAN}"));

    let seeds: BTreeSet<_> = calls.iter().map(|call| call.seed.unwrap()).collect();
    assert_eq!(seeds.len(), 3, "each try is another throw of the dice: {seeds:?}");
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
async fn tries_are_bounded_and_their_end_accounts_for_all_of_them() {
    let blank = Answer::text(" ").usage(None);
    let cut = Answer::text("model_id = [0").finish(FinishReason::Length);
    let Tried { result, calls, .. } = tried([blank, cut.clone(), cut], &request()).await;
    let error = result.unwrap_err();
    assert!(!error.is_retryable());
    let ConductorError::NoPlan { tries, message, usage, cost } = error else { panic!("{error}") };
    assert_eq!((tries, calls.len()), (3, 3));
    assert!(message.contains("cut off after 4096 tokens"), "{message}");
    // The blank try said nothing of its usage, so it is estimated.
    assert!(usage.prompt_tokens > 200 && usage.completion_tokens == 21, "{usage:?}");
    assert!(cost.nano_usd() > 400_000);
    // Nothing to show of a blank text.
    assert_eq!(calls[1].messages.len(), 2);
}

#[tokio::test]
async fn an_earlier_answer_can_be_kept_but_only_if_there_is_one() {
    let mut again = request();
    again.earlier = Some(Earlier { text: "<step number=\"1\">...</step>".to_owned(), gave_answer: true });
    let Tried { result, calls, .. } = tried([Answer::text(EMPTY)], &again).await;
    assert_eq!(result.unwrap().result, PlanResult::KeepAnswer);
    assert!(calls[0].messages[0].text.contains("<step number=\"1\">"));

    let mut correcting = request();
    correcting.earlier =
        Some(Earlier { text: "<step number=\"1\">...</step>".to_owned(), gave_answer: false });
    let Tried { result, .. } = tried([Answer::text(EMPTY), Answer::text(PLAN)], &correcting).await;
    assert!(
        matches!(result.unwrap().result, PlanResult::Plan(_)),
        "a round that failed has no answer to keep"
    );

    let Tried { result, calls, .. } = tried([Answer::text(EMPTY), Answer::text(PLAN)], &request()).await;
    assert!(matches!(result.unwrap().result, PlanResult::Plan(_)));
    assert!(calls[1].messages[2].text.contains("plan has no steps"));
}

#[tokio::test]
async fn a_plan_obeys_the_policy() {
    let mut narrow = request();
    narrow.policy.workers_allowed = WorkersAllowed::Only(BTreeSet::from([WorkerId::new("quick").unwrap()]));
    let Tried { result, calls, .. } =
        tried([Answer::text(PLAN), Answer::text(PLAN), Answer::text(PLAN)], &narrow).await;
    assert!(result.unwrap_err().to_string().contains("`checker`"));
    assert!(!calls[0].messages[0].text.contains("Model id 2:"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_costs_a_try_and_is_asked_for_again_as_it_was() {
    let broken = Answer::text("One dra").fail(Fault::Garbled);
    let Tried { result, calls, .. } =
        tried([broken, Answer::refuse(Fault::Failed), Answer::text(PLAN)], &request()).await;
    let outcome = result.unwrap();
    assert!(outcome.usage.prompt_tokens > Answer::USAGE.prompt_tokens, "{:?}", outcome.usage);
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.messages == calls[0].messages));
    // The call that brought nothing is made again, and is no try of its own.
    assert_eq!(calls[1].temperature, calls[2].temperature);
    assert_ne!(calls[0].temperature, calls[1].temperature);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_brought_nothing_is_made_again_as_often_as_it_may_be() {
    for (fault, calls_made) in [
        (Fault::Throttled { retry_after: None }, 4),
        (Fault::Failed, 4),
        (Fault::Unreachable, 4),
        // Waited for in vain once is enough; and no wait makes a key appear.
        (Fault::Timeout, 1),
        (Fault::Misconfigured, 1),
    ] {
        let answers = vec![Answer::refuse(fault.clone()); 6];
        let Tried { result, calls, .. } = tried(answers, &request()).await;
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
async fn a_retry_comes_no_sooner_than_the_vendor_wants_it_and_not_after_the_time_is_up() {
    let slow_down = |seconds| {
        let retry_after = Some(Duration::from_secs(seconds));
        Answer::refuse(Fault::Throttled { retry_after })
    };
    let began = tokio::time::Instant::now();
    let Tried { result, .. } = tried([slow_down(20), Answer::text(PLAN)], &request()).await;
    result.unwrap();
    assert_eq!(began.elapsed().as_secs(), 20);

    let began = tokio::time::Instant::now();
    let Tried { result, calls, .. } = tried([slow_down(90), Answer::text(PLAN)], &request()).await;
    let error = result.unwrap_err();
    assert_eq!((calls.len(), began.elapsed()), (1, Duration::ZERO), "there is no minute and a half left");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(90)));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_in_trouble_is_not_asked_several_times_as_much_as_one_that_works() {
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
async fn what_was_paid_for_is_told_whatever_becomes_of_the_plan() {
    let Tried { result, .. } = tried([Answer::refuse(Fault::Rejected)], &request()).await;
    assert!(matches!(result, Err(ConductorError::NoPlan { tries: 1, .. })), "this question is refused");

    let throttled = Answer::refuse(Fault::Throttled { retry_after: Some(Duration::from_hours(1)) });
    let Tried { result, .. } = tried([Answer::text("No."), throttled], &request()).await;
    let error = result.unwrap_err();
    assert!(matches!(error.cause(), ConductorError::Unavailable(_)) && error.is_retryable(), "{error}");
    assert_eq!(error.consumed().0, Answer::USAGE);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_stopped_in_its_middle_tells_what_it_has_consumed() {
    for is_stopped in [true, false] {
        let vendor = ScriptedVendor::new();
        let begun = Answer::text("One drafts, ").wait(&Gate::closed());
        vendor.script("planner", [Answer::text("No."), begun]);
        let (conductor, stop) = (conductor(&vendor), CancellationToken::new());
        let asked = request();
        let heard = Mutex::new(String::new());
        let sink = |text: &str| {
            let mut heard = heard.lock().unwrap();
            heard.push_str(text);
            if is_stopped && heard.ends_with("drafts, ") {
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
        // The first try as the vendor says; of the second one the prompt, and the twelve letters that were heard.
        assert_eq!(usage.completion_tokens, Answer::USAGE.completion_tokens + 3, "{usage:?}");
        assert!(usage.prompt_tokens > Answer::USAGE.prompt_tokens + 200, "{usage:?}");
        assert!(cost.nano_usd() > 230_000 + 200_000, "{cost:?}");
    }
}

#[tokio::test]
async fn no_more_calls_are_made_at_once_than_the_model_takes_and_no_more_plans_wait_than_may() {
    let (vendor, gate) = (ScriptedVendor::new(), Gate::closed());
    vendor.otherwise(Answer::blank().wait(&gate).say(PLAN));
    let options = RemoteOptions { waiting_max: 1, ..RemoteOptions::default() };
    let limiter = Arc::new(MemoryLimiter::new(Arc::new(TestClock::new())));
    let conductor =
        RemoteConductor::new((Arc::new(vendor.clone()), limiter), model(), Arc::new(a_pool()), options);
    let (asked, stop) = (request(), CancellationToken::new());
    let nobody_listens = |_: &str| {};
    let plan = || conductor.plan(&asked, &nobody_listens, &stop);
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
async fn a_question_that_leaves_no_room_for_a_plan_is_not_sent() {
    let mut long = request();
    long.question = "why? ".repeat(20_000);
    let Tried { result, calls, .. } = tried([Answer::text(PLAN)], &long).await;
    let error = result.unwrap_err();
    assert!(matches!(error, ConductorError::QuestionTooLong { tokens_max: 4096, .. }), "{error}");
    assert!(calls.is_empty());
}

#[tokio::test]
async fn a_model_that_writes_or_holds_little_is_asked_for_less_and_has_room_for_a_question() {
    for (context_tokens, output_tokens_max, expected) in
        [(4096, 192, 192), (4096, 4096, 2048), (65_536, 65_536, 4096)]
    {
        let vendor = ScriptedVendor::new();
        vendor.otherwise(Answer::text("model_id = [0").finish(FinishReason::Length));
        let callees = (Arc::new(vendor.clone()) as Arc<_>, Arc::new(OpenLimiter::default()) as Arc<_>);
        let model = Worker { context_tokens, output_tokens_max, ..model() };
        let conductor = RemoteConductor::new(callees, model, Arc::new(a_pool()), RemoteOptions::default());
        let error = conductor.plan(&request(), &|_| {}, &CancellationToken::new()).await.unwrap_err();
        assert!(error.to_string().contains(&format!("cut off after {expected} tokens")), "{error}");
        let calls = vendor.calls_of("planner");
        assert!(calls.len() == 3 && calls.iter().all(|call| call.output_tokens_max == expected), "{calls:?}");
    }
}

#[tokio::test]
async fn a_model_that_goes_on_for_ever_is_stopped() {
    let endless = Answer::parts(vec!["x".repeat(64 << 10); 6]);
    let vendor = ScriptedVendor::new();
    vendor.script("planner", [endless, Answer::text(PLAN)]);
    let outcome = conductor(&vendor).plan(&request(), &|_| {}, &CancellationToken::new()).await.unwrap();
    assert_eq!(planned(&outcome).plan.len(), 2);
    assert_eq!(vendor.aborted(), 1);
    assert!(vendor.calls_of("planner")[1].messages[1].text.len() <= 8 << 10);
}

#[tokio::test]
async fn planning_stops_when_it_is_told_to_and_the_call_is_dropped() {
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
    let Tried { result, .. } = tried([Answer::text("No."), Answer::hang()], &request()).await;
    let error = result.unwrap_err();
    assert!(error.is_retryable());
    let limit = Duration::from_mins(1);
    assert!(matches!(error.cause(), ConductorError::Timeout { limit: of } if *of == limit), "{error}");
    assert_eq!(error.consumed().0, Answer::USAGE);
}
