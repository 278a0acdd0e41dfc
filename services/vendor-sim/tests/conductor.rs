//! The remote conductor against the simulator over real HTTP, in each wire format: for every fault the outcome is a plan or
//! a clear failure.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use podium_conductor::{RemoteConductor, RemoteOptions};
use podium_domain::ids::RunId;
use podium_domain::plan::{PlanDraft, PlanStream};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::pool::Pool;
use podium_domain::run::{PlanResult, Planned};
use podium_domain::time::Timestamp;
use podium_domain::usage::Usage;
use podium_ports::conductor::{Asker, Conductor, ConductorError, PlanOutcome, PlanRequest};
use podium_ports::vendor::Vendors;
use podium_testkit::OpenLimiter;
use podium_vendor_sim::{Behaviour, Fault, Options, Running, ScriptedFault, VendorSim};
use podium_vendors::HttpVendors;
use secrecy::SecretString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const MODEL: &str = "sim-conductor";
const FORMATS: [(&str, &str); 4] =
    [("openai-chat", "/v1"), ("openai-responses", "/v1"), ("anthropic", "/v1"), ("gemini", "/v1beta")];
const QUESTION: &str = "Take the number of days between 3 March 2024 and 17 May 2025, multiply it by 12, and write the result in words.";
/// Longer than any of these tests may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// A planning model in each wire format, all with short limits.
fn models(root: &str) -> Pool {
    let mut toml = "schema = 1\nname = \"conductors\"\nversion = \"1\"\n".to_owned();
    for (format, path) in FORMATS {
        write!(
            toml,
            r#"
            [[vendors]]
            id = "{format}"
            api = "{format}"
            base_url = "{root}{path}"
            [[workers]]
            id = "{format}"
            vendor = "{format}"
            model = "{MODEL}"
            description = "plans"
            context_tokens = 65536
            output_tokens_max = 16384
            usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
            limits = {{ in_flight_max = 2, first_byte_ms_max = 3000, idle_ms_max = 3000, call_ms_max = 30000 }}
            "#
        )
        .unwrap();
    }
    Pool::parse(&toml).unwrap()
}

fn demo() -> Arc<Pool> {
    Arc::new(Pool::parse(include_str!("../../../pools/demo.toml")).unwrap())
}

fn conductor(models: &Pool, format: &str) -> RemoteConductor {
    let no_keys: BTreeMap<String, SecretString> = BTreeMap::new();
    let vendors: Arc<dyn Vendors> = Arc::new(HttpVendors::new(models, &no_keys).unwrap());
    let model = models.workers().iter().find(|worker| worker.id.as_str() == format).unwrap();
    RemoteConductor::new(
        vendors,
        Arc::new(OpenLimiter::default()),
        model.clone(),
        demo(),
        RemoteOptions::default(),
    )
}

async fn simulator(faults: Vec<ScriptedFault>) -> Running {
    let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
    sim.set_behaviour(MODEL, Behaviour { faults, ..Behaviour::default() }).unwrap();
    sim
}

fn request() -> PlanRequest {
    PlanRequest {
        asker: Asker::nobody(RunId::least_at(Timestamp::default())),
        question: QUESTION.to_owned(),
        policy: Policy::new(Tier::Ultra, Effort::Medium),
        earlier: None,
        seed: 5,
        asked_at: Timestamp::default(),
        time_max: PATIENCE,
    }
}

/// The outcome of planning, and the streamed text.
async fn planned(conductor: &RemoteConductor) -> (Result<PlanOutcome, ConductorError>, String) {
    let streamed = Mutex::new(String::new());
    let sink = |text: &str| streamed.lock().unwrap().push_str(text);
    let (request, stop) = (request(), CancellationToken::new());
    let planning = conductor.plan(&request, &sink, &stop);
    let result = tokio::time::timeout(PATIENCE, planning).await.expect("planning ends");
    (result, streamed.into_inner().unwrap())
}

fn workers(outcome: &PlanOutcome) -> Vec<&str> {
    match &outcome.result {
        PlanResult::Plan(Planned { plan, .. }) => {
            plan.steps().iter().map(|step| step.worker.as_str()).collect()
        }
        PlanResult::KeepAnswer => panic!("there was no answer to keep"),
    }
}

#[tokio::test]
async fn a_plan_is_made_in_each_format_despite_a_first_fault() {
    for (format, _) in FORMATS {
        let mut first = None;
        for fault in [
            None,
            Some(Fault::RateLimit { retry_after_s: 1 }),
            Some(Fault::RateLimitBare),
            Some(Fault::ServerError),
            Some(Fault::Overloaded),
            Some(Fault::WebPage),
            Some(Fault::GarbledJson),
            Some(Fault::Garbage),
            Some(Fault::CutStream { after_chunks: 9 }),
            Some(Fault::Reset { after_chunks: 9 }),
            Some(Fault::Truncate { after_chunks: 9 }),
        ] {
            let faults = fault.into_iter().map(|fault| ScriptedFault::next_calls(fault, 1)).collect();
            let sim = simulator(faults).await;
            let conductor = conductor(&models(&format!("http://{}", sim.addr())), format);
            let (result, streamed) = planned(&conductor).await;
            let outcome = result.unwrap_or_else(|error| panic!("{format}, {fault:?}: {error}"));
            let workers = workers(&outcome);
            if fault == Some(Fault::Garbage) {
                // The retry names the problem, and the simulator reads the last turn only.
                assert_eq!(workers.len(), 1, "{format}");
            } else {
                assert_eq!(workers, ["sim-dates", "sim-arithmetic", "sim-words"], "{format}, {fault:?}");
            }
            assert_eq!(sim.calls().len(), 1 + usize::from(fault.is_some()), "{format}, {fault:?}");
            // A text that broke off is charged.
            let broke_off =
                matches!(fault, Some(Fault::CutStream { .. } | Fault::Reset { .. } | Fault::Truncate { .. }));
            let whole = *first.get_or_insert(outcome.usage);
            if fault != Some(Fault::Garbage) {
                assert_eq!(outcome.usage != whole, broke_off, "{format}, {fault:?}: {:?}", outcome.usage);
            }
            // The streamed text is the plan, from which steps start early.
            let mut stream = PlanStream::new();
            stream.push(&streamed);
            let draft: PlanDraft = stream.finish().unwrap();
            let read = draft.check(&demo(), &request().policy).unwrap();
            assert_eq!(read.len(), workers.len(), "{format}, {fault:?}");
            sim.stop().await;
        }
    }
}

#[tokio::test]
async fn an_endpoint_without_plans_is_a_clear_failure() {
    for (fault, is_retryable, calls, is_paid) in [
        // Retried after pauses.
        (Fault::RateLimitBare, true, 4, false),
        (Fault::ServerError, true, 4, false),
        // Not repeated after a timed-out wait. Text received before it is charged.
        (Fault::Hang, true, 1, false),
        (Fault::HangAfter { after_chunks: 9 }, true, 1, true),
        // Each of these is a text without a plan.
        (Fault::Garbage, false, 3, true),
        (Fault::Huge { bytes: 1_000_000 }, false, 3, true),
        // The question is rejected.
        (Fault::Status { status: 400 }, false, 1, false),
        // The key is rejected.
        (Fault::Status { status: 401 }, true, 1, false),
    ] {
        let sim = simulator(vec![ScriptedFault::next_calls(fault, 100)]).await;
        let conductor = conductor(&models(&format!("http://{}", sim.addr())), "openai-chat");
        let (result, streamed) = planned(&conductor).await;
        let error = result.unwrap_err();
        assert_eq!(error.is_retryable(), is_retryable, "{fault:?}: {error}");
        assert_eq!(sim.calls().len(), calls, "{fault:?}");
        assert_eq!(error.consumed().0 != Usage::default(), is_paid, "{fault:?}: {:?}", error.consumed());
        assert!(streamed.len() <= 3 * (512 << 10), "{fault:?}: {} bytes were read", streamed.len());
        sim.stop().await;
    }
}

#[tokio::test]
async fn plans_run_concurrently_within_the_models_limit() {
    let sim = simulator(Vec::new()).await;
    let conductor = conductor(&models(&format!("http://{}", sim.addr())), "openai-chat");
    let plans = futures::future::join_all((0..12).map(|_| planned(&conductor))).await;
    assert!(plans.iter().all(|(result, _)| result.as_ref().is_ok_and(|outcome| workers(outcome).len() == 3)));
    assert_eq!(sim.calls().len(), 12);
}

/// A server that answers each request with these bytes.
async fn answering(body: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut connections = tokio::task::JoinSet::new();
    connections.spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            // The request's body is one JSON object.
            let mut request = Vec::new();
            while !request.ends_with(b"}") && connection.read_buf(&mut request).await.unwrap() > 0 {}
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            let _ = connection.write_all(&[head.as_bytes(), body].concat()).await;
            let _ = connection.shutdown().await;
        }
    });
    connections.detach_all();
    format!("http://{address}")
}

#[tokio::test]
async fn invalid_utf_8_is_not_a_plan() {
    const INVALID: &[u8] =
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"model_id = [0]\xff\xfe\"}}]}\n\n\
        data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let models = models(&answering(INVALID).await);
    let (result, _) = planned(&conductor(&models, "openai-chat")).await;
    let error = result.unwrap_err();
    assert!(matches!(error.cause(), ConductorError::Unavailable(_)), "{error:?}");
}
