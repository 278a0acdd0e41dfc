//! A remote model is called within its own limits and those of its vendor's account, which workers share.

use std::sync::Arc;
use std::time::Duration;

use podium_conductor::{RemoteConductor, RemoteOptions};
use podium_domain::limits::{Outcome, RefusalReason, Settlement, TokenEstimate};
use podium_domain::policy::Tier;
use podium_domain::pool::{Pool, Worker};
use podium_domain::run::TaskRef;
use podium_memory::MemoryLimiter;
use podium_ports::conductor::{Asker, Conductor, ConductorError, PlanOutcome, PlanRequest};
use podium_ports::limiter::{CallRequest, Grant, Limiter, Patience};
use podium_testkit::{Answer, Fault, Gate, OpenLimiter, ScriptedVendor, TestClock, a_pool, an_asker};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const PLAN: &str = "One does it.\nmodel_id = [0]\nsubtasks = [\"Do it.\"]\naccess_list = [[]]\n";

/// A planner and a worker with one account.
fn models(account: &str, planner: &str) -> [Worker; 2] {
    let pool = Pool::parse(&format!(
        r#"
        schema = 1
        name = "conductors"
        version = "1"
        [[vendors]]
        id = "north"
        api = "openai-chat"
        base_url = "http://127.0.0.1:1/v1"
        limits = {{ {account} }}
        [[workers]]
        id = "planner"
        vendor = "north"
        model = "planner-1"
        description = "plans"
        context_tokens = 8192
        limits = {{ {planner} }}
        usd_per_million_tokens = {{ input = 1.0, output = 10.0 }}
        [[workers]]
        id = "worker"
        vendor = "north"
        model = "worker-1"
        description = "works"
        context_tokens = 8192
        usd_per_million_tokens = {{ input = 1.0, output = 10.0 }}
        "#
    ));
    let pool = pool.unwrap();
    [pool.workers()[0].clone(), pool.workers()[1].clone()]
}

fn request(seed: u64, time_max: Duration) -> PlanRequest {
    let asker = Asker { round: 1, ..an_asker() };
    let earlier = Some(podium_domain::prompt::Earlier { text: "It is.".to_owned(), gave_answer: true });
    PlanRequest { asker, earlier, seed, time_max, ..crate::request() }
}

struct Setup {
    vendor: ScriptedVendor,
    conductor: RemoteConductor,
}

impl Setup {
    fn new(limiter: Arc<dyn Limiter>, model: Worker) -> Self {
        let vendor = ScriptedVendor::new();
        vendor.otherwise(Answer::text(PLAN));
        let vendors = Arc::new(vendor.clone());
        let conductor =
            RemoteConductor::new(vendors, limiter, model, Arc::new(a_pool()), RemoteOptions::default());
        Self { vendor, conductor }
    }

    async fn plan(&self, seed: u64, time_max: Duration) -> Result<PlanOutcome, ConductorError> {
        self.conductor.plan(&request(seed, time_max), &|_| {}, &CancellationToken::new()).await
    }
}

const LONG: Duration = Duration::from_mins(10);

/// A planner without limits.
fn planner() -> Worker {
    let [planner, _] = models("", "");
    planner
}

#[tokio::test(start_paused = true)]
async fn plans_respect_request_and_token_rates() {
    // Twenty plans consume 2200 tokens, independent of their estimates.
    for (limits, least, most) in [
        ("requests_per_minute = 30", Duration::from_secs(36), Duration::from_secs(44)),
        ("tokens_per_minute = 6000", Duration::from_secs(21), Duration::from_mins(1)),
    ] {
        let [planner, _] = models("", limits);
        let limiter = Arc::new(MemoryLimiter::new(Arc::new(TestClock::new())));
        let (setup, began) = (Setup::new(limiter, planner), Instant::now());
        for seed in 0..20 {
            setup.plan(seed, LONG).await.unwrap();
        }
        let took = began.elapsed();
        assert!((least..most).contains(&took), "{limits}: {took:?}");
        assert_eq!(setup.vendor.calls().len(), 20);
    }
}

#[tokio::test(start_paused = true)]
async fn plans_share_the_account_limit_with_workers() {
    let [planner, worker] = models("requests_per_minute = 6", "");
    let limiter = Arc::new(MemoryLimiter::new(Arc::new(TestClock::new())));
    let setup = Setup::new(limiter.clone(), planner);
    let Asker { tenant, run, round } = an_asker();
    let request = CallRequest {
        worker: &worker,
        tenant: &tenant,
        tier: Tier::Ultra,
        run,
        task: TaskRef::Plan { round },
        estimate: TokenEstimate::default(),
        patience: Patience::Waits,
    };
    // A new account has capacity for one call, and the worker takes it.
    let permit = loop {
        match limiter.acquire(&request).await.unwrap() {
            Grant::Permit(permit) => break permit,
            Grant::AskAgain { after, .. } => tokio::time::advance(after).await,
        }
    };
    let began = Instant::now();
    setup.plan(0, LONG).await.unwrap();
    let took = began.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(13)).contains(&took), "{took:?}");
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn permits_name_the_tenant_and_are_settled_with_the_outcome() {
    let limiter = OpenLimiter::default();
    let setup = Setup::new(Arc::new(limiter.clone()), planner());
    let slow_down = Some(Duration::from_secs(3));
    setup.vendor.script(
        "planner",
        [
            Answer::refuse(Fault::Throttled { retry_after: slow_down }),
            Answer::text("One dra").fail(Fault::Garbled),
            Answer::text(PLAN),
        ],
    );
    setup.plan(0, LONG).await.unwrap();
    let asked = request(0, LONG).asker;
    let requests = limiter.requests();
    assert_eq!(requests.len(), 3, "each call requests its own permit");
    for request in requests {
        assert_eq!(
            (request.worker.as_str(), request.tenant, request.tier),
            ("planner", asked.tenant.clone(), Tier::Ultra)
        );
        assert_eq!(request.task, (asked.run, TaskRef::Plan { round: 1 }));
        assert!(
            request.estimate.input > 200 && request.estimate.output_max == 4096,
            "{:?}",
            request.estimate
        );
    }
    let settled = limiter.settlements();
    let [refused, broken, answered] = settled.as_slice() else { panic!("{settled:?}") };
    assert_eq!(*refused, Settlement::of(Outcome::Limited { retry_after: slow_down }));
    assert_eq!(broken.outcome, Outcome::Failed);
    assert!(broken.usage.is_some_and(|usage| usage.completion_tokens == 2), "{broken:?}");
    assert_eq!((answered.outcome, answered.usage), (Outcome::Answered, Some(Answer::USAGE)));
    assert_eq!(answered.first_token, Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn without_a_permit_no_call_is_made_and_the_error_has_a_delay() {
    let (soon, late) = (Duration::from_secs(2), Duration::from_secs(90));
    let limit = Duration::from_mins(1);
    for (why, after, waited) in [
        (RefusalReason::Rate, late, soon),
        (RefusalReason::Blocked, late, soon),
        (RefusalReason::Unreachable, late, soon),
        (RefusalReason::Broken, soon, soon),
    ] {
        let limiter = OpenLimiter::default();
        limiter.refuse([(RefusalReason::Busy, soon), (why, after)]);
        let setup = Setup::new(Arc::new(limiter.clone()), planner());
        let began = Instant::now();
        let error = setup.plan(0, limit).await.unwrap_err();
        assert!(matches!(error, ConductorError::NoCapacity { .. }) && error.is_retryable(), "{error}");
        assert!(error.to_string().contains(&why.to_string()), "{error}");
        assert_eq!((error.retry_after(), began.elapsed()), (Some(after), waited), "{why:?}");
        assert!(setup.vendor.calls().is_empty() && limiter.settlements().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_limiter_permits_nothing_and_is_retried() {
    let limiter = OpenLimiter::default();
    limiter.fail("no connection");
    limiter.fail("no connection");
    let setup = Setup::new(Arc::new(limiter.clone()), planner());
    let began = Instant::now();
    setup.plan(0, LONG).await.unwrap();
    assert_eq!((limiter.requests().len(), setup.vendor.calls().len()), (3, 1));
    assert_eq!(began.elapsed(), Duration::from_secs(1));
}

#[tokio::test]
async fn a_stopped_plan_returns_its_permit() {
    let limiter = OpenLimiter::default();
    let setup = Setup::new(Arc::new(limiter.clone()), planner());
    setup.vendor.script("planner", [Answer::text("One dra").wait(&Gate::closed())]);
    let stop = CancellationToken::new();
    let sink = |_: &str| stop.cancel();
    let error = setup.conductor.plan(&request(0, LONG), &sink, &stop).await.unwrap_err();
    assert!(matches!(error.cause(), ConductorError::Stopped), "{error}");
    assert_eq!(limiter.settlements(), [Settlement::of(Outcome::Unknown)]);
}
