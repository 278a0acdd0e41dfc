//! The metrics of a remote conductor match the documentation. Each test runs in its own process.

use std::sync::Arc;
use std::time::Duration;

use podium_conductor::{RemoteConductor, RemoteOptions};
use podium_domain::limits::RefusalReason;
use podium_memory::MemoryLimiter;
use podium_ports::conductor::{Conductor, ConductorError, PlanRequest};
use podium_ports::limiter::Limiter;
use podium_testkit::metrics::{Meters, assert_described};
use podium_testkit::{Answer, Fault, ScriptedVendor, TestClock, a_pool, a_worker};
use tokio_util::sync::CancellationToken;

const PAGE: &str = include_str!("../../../../docs/metrics.md");
const PLAN: &str = "model_id = [0]\nsubtasks = [\"Do it.\"]\naccess_list = [[]]\n";

fn request(time_max: Duration) -> PlanRequest {
    PlanRequest { seed: 1, time_max, ..crate::request() }
}

#[tokio::test(start_paused = true)]
async fn permits_and_plans_are_measured_as_documented() {
    let meters = Meters::start();
    let vendor = ScriptedVendor::new();
    vendor.otherwise(Answer::text(PLAN));
    // One call every two seconds, and none at the start.
    let model = a_worker("openai-chat", "limits = { requests_per_minute = 30 }");
    let limiter: Arc<dyn Limiter> = Arc::new(MemoryLimiter::new(Arc::new(TestClock::new())));
    let vendors = Arc::new(vendor.clone());
    let conductor =
        RemoteConductor::new(vendors, limiter, model.clone(), Arc::new(a_pool()), RemoteOptions::default());
    let of = |name: &str, attributes: &str| {
        let conductor = format!("podium.conductor={}", conductor.id());
        let key = [conductor.as_str(), attributes].join(if attributes.is_empty() { "" } else { "," });
        let measured = meters.read();
        let point = measured[&format!("podium.conductor.remote.{name}")].points.get(&key).copied();
        point.unwrap_or_default()
    };
    let plan = async |time_max| {
        let request = request(time_max);
        conductor.plan(&request, &|_| {}, &CancellationToken::new()).await
    };

    for _ in 0..3 {
        plan(Duration::from_mins(1)).await.unwrap();
    }
    let (granted, waits) = (of("permits", "podium.outcome=granted").value, of("permit_wait", ""));
    assert_eq!((granted, waits.count), (3, 3));
    assert!((3..8).contains(&waits.value), "two of them waited for two seconds: {waits:?}");
    assert!(of("permits", "podium.outcome=rate").value >= 2);

    // One plan that waits for a permit until its time is up, and one that is dropped while the model writes.
    let late = plan(Duration::from_millis(1)).await.unwrap_err();
    assert!(matches!(late.cause(), ConductorError::NoCapacity { why: RefusalReason::Rate, .. }), "{late}");
    vendor.script(model.id.as_str(), [Answer::text("One").fail(Fault::Garbled), Answer::hang()]);
    let long = request(Duration::from_mins(5));
    let stop = CancellationToken::new();
    let mut planning = std::pin::pin!(conductor.plan(&long, &|_| {}, &stop));
    let calls = vendor.calls().len();
    while vendor.calls().len() < calls + 2 {
        let ended = tokio::time::timeout(Duration::from_millis(100), &mut planning).await;
        assert!(ended.is_err(), "{ended:?}");
    }
    assert_eq!(of("plans", "podium.state=calling").value, 1);
    assert_eq!(of("plans", "podium.state=waiting").value, 0);
    assert_described(PAGE, "A remote conductor", &meters.read());
    stop.cancel();
    planning.await.unwrap_err();
    assert_eq!(of("plans", "podium.state=calling").value, 0);
    assert_eq!(of("plans", "podium.state=waiting").value, 0);
}
