//! Traces of ended runs reach a collector: one tree for each run that is kept. Each test runs in its own process.

use std::collections::BTreeMap;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use podium_domain::ids::{RunId, StepIndex, TenantId};
use podium_domain::run::{Run, TaskRef};
use podium_domain::share::Share;
use podium_domain::trace::SpanId;
use podium_ports::clock::Ids as _;
use podium_telemetry::{ContentCapture, ContentOf, MetricsPage, Sampling, TelemetrySettings, start};
use podium_testkit::{Driven, SeededIds, a_pool_with_tools, a_spec, a_spec_with_tools, plan_of};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::collector::{PROCESS, a_listener};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A collector that forwards what it receives.
struct Collector(mpsc::UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).map_err(|_| Status::unavailable("the receiver is closed"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn collect(
    listener: TcpListener,
    tasks: &mut JoinSet<()>,
) -> mpsc::UnboundedReceiver<ExportTraceServiceRequest> {
    let (sender, received) = mpsc::unbounded_channel();
    let server = Server::builder().add_service(TraceServiceServer::new(Collector(sender)));
    tasks.spawn(async move { server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap() });
    received
}

/// The spans that a collector has received after these runs ended.
async fn delivered(runs: &[Run], share: f64, slow: Duration) -> Vec<Span> {
    delivered_with(runs, share, slow, None).await
}

/// The same with the content of some tenants.
async fn delivered_with(
    runs: &[Run],
    share: f64,
    slow: Duration,
    content: Option<ContentCapture>,
) -> Vec<Span> {
    let mut tasks = JoinSet::new();
    let (listener, address) = a_listener().await;
    let mut received = collect(listener, &mut tasks);
    let settings = TelemetrySettings {
        otlp_endpoint: Some(format!("http://{address}")),
        every: None,
        sampling: Some(Sampling { share: Share::new(share).unwrap(), slow }),
        content,
    };
    let telemetry = start(&settings, &PROCESS, MetricsPage::Disabled).unwrap();
    let (traces, pool) = (telemetry.traces().unwrap(), a_pool_with_tools());
    for run in runs {
        traces.ended(run, &pool);
    }
    telemetry.shut_down().await;
    let mut spans = Vec::new();
    while let Ok(request) = received.try_recv() {
        for of in request.resource_spans {
            let resource = format!("{:?}", of.resource);
            assert!(resource.contains("podium-test") && resource.contains("here-1"), "{resource}");
            spans.extend(of.scope_spans.into_iter().flat_map(|of| of.spans));
        }
    }
    spans
}

/// A run with two steps. The first calls a tool and then fails once; the second sees it.
fn a_run_with_everything() -> Run {
    let ids = SeededIds::new(1);
    let mut spec = a_spec_with_tools();
    spec.request.trace = Some(PARENT.parse().unwrap());
    let mut driven = Driven::accept(ids.run_id(spec.accepted_at), spec);
    let wait = |driven: &mut Driven, ms| driven.now = driven.now.after(Duration::from_millis(ms));
    let first = TaskRef::Step { round: 0, step: StepIndex::new(0) };
    wait(&mut driven, 100);
    let plan = driven.claim(TaskRef::Plan { round: 0 }, &ids);
    wait(&mut driven, 500);
    driven.planned(plan_of(&[("quick", "Look.", &[]), ("checker", "Decide.", &[0])]), plan);
    wait(&mut driven, 50);
    driven.claim(first, &ids);
    wait(&mut driven, 200);
    driven.call(0, "look");
    wait(&mut driven, 3_000);
    driven.give_results("blue");
    let failed = driven.claim(first, &ids);
    wait(&mut driven, 10);
    let now = driven.now;
    driven.fail(first, failed, Some(now));
    let again = driven.claim(first, &ids);
    wait(&mut driven, 20);
    driven.step_under(0, "It is blue.", again);
    wait(&mut driven, 70);
    let last = driven.claim(TaskRef::Step { round: 0, step: StepIndex::new(1) }, &ids);
    wait(&mut driven, 30);
    driven.step_under(1, "Blue.", last);
    assert!(driven.run.is_ended());
    driven.run
}

fn text(span: &Span, key: &str) -> String {
    let value = span.attributes.iter().find(|attribute| attribute.key == key);
    match value.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// Milliseconds of a span's begin and end after the run was accepted.
fn times(span: &Span) -> (u64, u64) {
    let accepted = a_spec().accepted_at.unix_ms();
    (span.start_time_unix_nano / 1_000_000 - accepted, span.end_time_unix_nano / 1_000_000 - accepted)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_one_tree_of_spans_below_the_clients() {
    let run = a_run_with_everything();
    let spans = delivered(std::slice::from_ref(&run), 0.0, Duration::MAX).await;
    let by_id: BTreeMap<_, _> = spans.iter().map(|span| (span.span_id.clone(), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "each span has its own id");
    assert!(spans.iter().all(|span| hex(&span.trace_id) == "4bf92f3577b34da6a3ce929d0e0e4736"));
    let parent =
        |span: &Span| by_id.get(&span.parent_span_id).map_or("client", |parent| parent.name.as_str());
    let tree: Vec<_> = spans.iter().map(|span| (span.name.as_str(), parent(span), times(span))).collect();
    let whole = "invoke_workflow podium-ultra";
    assert_eq!(
        tree,
        [
            (whole, "client", (0, 3_980)),
            ("plan scripted-1", whole, (100, 600)),
            ("invoke_agent quick", whole, (600, 3_880)),
            ("chat quick-1", "invoke_agent quick", (650, 850)),
            ("chat quick-1", "invoke_agent quick", (3_850, 3_860)),
            ("chat quick-1", "invoke_agent quick", (3_860, 3_880)),
            ("execute_tool look", "invoke_agent quick", (850, 3_850)),
            ("invoke_agent checker", whole, (3_880, 3_980)),
            ("chat checker-1", "invoke_agent checker", (3_950, 3_980)),
        ]
    );
    let root = &spans[0];
    assert_eq!(hex(&root.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(
        (text(root, "openinference.span.kind"), text(root, "podium.run.id")),
        ("CHAIN".to_owned(), run.id().to_string())
    );
    let call = &spans[3];
    let claim = run.rounds()[0].steps[0].task.attempts[0].claim;
    assert_eq!(hex(&call.span_id), SpanId::from(claim).to_string(), "calls carry this id to vendors");
    assert_eq!(
        ["gen_ai.request.model", "gen_ai.provider.name", "gen_ai.usage.input_tokens", "podium.attempt"]
            .map(|key| text(call, key)),
        ["quick-1", "north", "100", "1"]
    );
    let failed = &spans[4];
    assert_eq!(
        (text(failed, "error.type"), failed.status.as_ref().unwrap().message.as_str()),
        ("failed".to_owned(), "scripted")
    );
    let said = format!("{spans:?}");
    for content in ["It is blue.", "Decide.", "Look.", "\"blue\"", "Two drafts"] {
        assert!(!said.contains(content), "`{content}` is content");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_has_content_if_the_settings_name_its_tenant() {
    let run = a_run_with_everything();
    let content = |tenant: &str| {
        let of = ContentOf::Tenants([TenantId::new(tenant).unwrap()].into());
        Some(ContentCapture { of, text_bytes_max: 5 })
    };
    let other = delivered_with(std::slice::from_ref(&run), 1.0, Duration::MAX, content("another")).await;
    assert!(!format!("{other:?}").contains("blue"), "{other:?}");
    let spans = delivered_with(std::slice::from_ref(&run), 1.0, Duration::MAX, content("acme")).await;
    let question = run.spec().request.conversation.question();
    let (root, plan, step, call, failed, tool) =
        (&spans[0], &spans[1], &spans[2], &spans[3], &spans[4], &spans[6]);
    let cut = format!("{}… ({} bytes left out)", &question[..5], question.len() - 5);
    assert_eq!((text(root, "input.value"), text(root, "output.value")), (cut, "Blue.".to_owned()));
    assert!(text(plan, "output.value").contains(r#""subtask":"Look.""#), "{plan:?}");
    assert_eq!(text(step, "input.value"), "Look.");
    assert_eq!(text(step, "output.value"), "It is… (6 bytes left out)");
    let asked = text(call, "gen_ai.input.messages");
    assert!(asked.contains(r#""content":"Look.""#) && asked.contains(r#""role":"user""#), "{asked}");
    let called = text(call, "gen_ai.output.messages");
    assert!(
        called.contains(r#""name":"look""#) && called.contains(r#""finish_reason":"tool_call""#),
        "{called}"
    );
    assert_eq!(text(failed, "gen_ai.output.messages"), "None", "it gave nothing");
    assert_eq!(
        (text(tool, "gen_ai.tool.call.arguments"), text(tool, "gen_ai.tool.call.result")),
        ("{}".to_owned(), "blue".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_and_slow_runs_are_kept_and_others_by_their_client_or_by_chance() {
    let (share, slow) = (0.0, Duration::from_secs(1));
    let ids = SeededIds::new(2);
    let ended = |number: u128, parent: Option<&str>, takes_ms: u64, fails: bool| {
        let mut spec = a_spec();
        spec.request.trace = parent.map(|parent| parent.parse().unwrap());
        let mut driven = Driven::accept(RunId::new(Uuid::from_u128(number)), spec);
        driven.plan(plan_of(&[("quick", "Answer.", &[])]), &ids);
        driven.now = driven.now.after(Duration::from_millis(takes_ms));
        let step = TaskRef::Step { round: 0, step: StepIndex::new(0) };
        let claim = driven.claim(step, &ids);
        if fails {
            while !driven.run.is_ended() {
                driven.fail(step, claim, None);
                if !driven.run.is_ended() {
                    let round = driven.run.current_round();
                    driven.plan(plan_of(&[("quick", "Answer.", &[])]), &ids);
                    let step = TaskRef::Step { round, step: StepIndex::new(0) };
                    let claim = driven.claim(step, &ids);
                    driven.fail(step, claim, None);
                }
            }
        } else {
            driven.step_under(0, "Blue.", claim);
        }
        driven.run
    };
    let unsampled = PARENT.replace("-01", "-00");
    let runs = [
        ended(1, None, 10, false),
        ended(2, None, 2_000, false),
        ended(3, None, 10, true),
        ended(4, Some(PARENT), 10, false),
        ended(5, Some(&unsampled), 10, false),
        ended(6, Some(&unsampled), 2_000, false),
    ];
    let kept = |spans: &[Span]| {
        let ids: std::collections::BTreeSet<_> = spans
            .iter()
            .filter(|span| span.name.starts_with("invoke_workflow"))
            .map(|span| text(span, "podium.run.id").parse::<RunId>().unwrap().as_uuid().as_u128())
            .collect();
        ids.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(kept(&delivered(&runs, share, slow).await), [2, 3, 4, 6]);
    let spans = delivered(&runs[..1], 1.0, slow).await;
    assert_eq!(kept(&spans), [1]);
    let root = &spans[0];
    assert_eq!(hex(&root.trace_id), format!("{:032x}", 1), "the trace has the id of the run");
    assert!(root.parent_span_id.is_empty(), "it is a root: {root:?}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
