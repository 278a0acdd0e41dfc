//! Metrics, traces and log lines reach a collector over gRPC and over HTTP. Each test runs in its own process.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Uri};
use opentelemetry::global;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use podium_domain::share::Share;
use podium_ports::clock::Ids as _;
use podium_setup::{Identity, LogFormat, start_log};
use podium_telemetry::{MetricsPage, Sampling, Telemetry, TelemetryError, TelemetrySettings, start};
use podium_testkit::{Driven, SeededIds, a_pool, a_spec, plan_of};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::collector::{PROCESS, a_listener};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Starts the log, and telemetry to `address` under these standard variables.
fn started(address: SocketAddr, variables: &[(&str, &str)]) -> Result<Telemetry, TelemetryError> {
    let identity = Identity { service: "podium-test", version: "1.2.3", instance: "here-1" };
    start_log("info", LogFormat::Text, &identity);
    let settings = TelemetrySettings {
        otlp_endpoint: Some(format!("http://{address}")),
        every: None,
        sampling: Some(Sampling { share: Share::new(1.0).unwrap(), slow: Duration::MAX }),
        content: None,
    };
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, Some(*value))).collect();
    temp_env::with_vars(variables, || start(&settings, &PROCESS, MetricsPage::Disabled))
}

/// One metric, one trace, one line of a run, and a line of a library that delivers.
fn work(telemetry: &Telemetry) {
    global::meter("test").u64_counter("things").build().add(1, &[]);
    let (ids, spec) = (SeededIds::new(1), a_spec());
    let mut driven = Driven::accept(ids.run_id(spec.accepted_at), spec);
    driven.plan(plan_of(&[("quick", "Answer.", &[])]), &ids);
    let step = podium_domain::run::TaskRef::Step { round: 0, step: podium_domain::ids::StepIndex::new(0) };
    let claim = driven.claim(step, &ids);
    driven.step_under(0, "Blue.", claim);
    telemetry.traces().unwrap().ended(&driven.run, &a_pool());
    tracing::info!(target: "podium::run", trace_id = %TRACE, steps = 1, "run ended");
    tracing::warn!(target: "hyper::client", "a line of a deliverer");
}

/// The delivered lines, except those about deliveries.
fn lines(requests: &[ExportLogsServiceRequest]) -> Vec<LogRecord> {
    let scopes = requests.iter().flat_map(|request| &request.resource_logs).flat_map(|of| &of.scope_logs);
    let records = scopes.flat_map(|scope| &scope.log_records).cloned();
    records.filter(|record| !format!("{:?}", record.body).contains("cannot be delivered")).collect()
}

fn assert_is_line_of_run(requests: &[ExportLogsServiceRequest]) {
    let lines = lines(requests);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let (body, attributes) = (format!("{:?}", line.body), format!("{:?}", line.attributes));
    assert!(body.contains("run ended") && attributes.contains("steps"), "{line:?}");
    let trace = u128::from_be_bytes(line.trace_id.clone().try_into().unwrap());
    assert_eq!(format!("{trace:032x}"), TRACE);
    let resource = format!("{:?}", requests[0].resource_logs[0].resource);
    assert!(resource.contains("podium-test") && resource.contains("here-1"), "{resource}");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_delivered_over_http_with_the_standard_headers() {
    let (listener, address) = a_listener().await;
    let (sender, mut received) = mpsc::unbounded_channel();
    let collect = move |uri: Uri, headers: HeaderMap, body: Bytes| {
        sender.send((uri.path().to_owned(), headers, body)).unwrap();
        async { [("content-type", "application/x-protobuf")] }
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, Router::new().fallback(collect)).await.unwrap() });
    let variables = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=k1"),
        ("OTEL_LOGS_EXPORTER", "otlp"),
    ];
    let telemetry = started(address, &variables).unwrap();
    work(&telemetry);
    telemetry.shut_down().await;
    let (mut metrics, mut spans, mut logs) = (0, 0, Vec::new());
    while let Ok((path, headers, body)) = received.try_recv() {
        assert_eq!(headers["x-api-key"], "k1");
        assert_eq!(headers["content-type"], "application/x-protobuf");
        match path.as_str() {
            "/v1/metrics" => {
                metrics += ExportMetricsServiceRequest::decode(body).unwrap().resource_metrics.len();
            }
            "/v1/traces" => {
                let request = ExportTraceServiceRequest::decode(body).unwrap();
                spans += request
                    .resource_spans
                    .iter()
                    .flat_map(|of| &of.scope_spans)
                    .map(|of| of.spans.len())
                    .sum::<usize>();
            }
            "/v1/logs" => logs.push(ExportLogsServiceRequest::decode(body).unwrap()),
            other => panic!("{other}"),
        }
    }
    // The run, its plan, its step and its call.
    assert_eq!((metrics, spans), (1, 4));
    assert_is_line_of_run(&logs);
}

/// A collector of log lines that forwards what it receives.
struct Collector(mpsc::UnboundedSender<ExportLogsServiceRequest>);

#[tonic::async_trait]
impl LogsService for Collector {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.0.send(request.into_inner()).map_err(|_| Status::unavailable("the receiver is closed"))?;
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_are_delivered_over_grpc_if_they_are_asked_for() {
    for (variables, is_delivered) in [(&[][..], false), (&[("OTEL_LOGS_EXPORTER", "otlp")][..], true)] {
        let (listener, address) = a_listener().await;
        let (sender, mut received) = mpsc::unbounded_channel();
        let server = Server::builder().add_service(LogsServiceServer::new(Collector(sender)));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        let telemetry = started(address, variables).unwrap();
        work(&telemetry);
        telemetry.shut_down().await;
        let requests: Vec<_> = std::iter::from_fn(|| received.try_recv().ok()).collect();
        if is_delivered {
            assert_is_line_of_run(&requests);
        } else {
            assert!(requests.is_empty(), "{requests:?}");
        }
    }
}

#[tokio::test]
async fn an_unknown_protocol_stops_the_start() {
    let (_listener, address) = a_listener().await;
    let started = started(address, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]);
    assert_eq!(
        started.unwrap_err().to_string(),
        "OTEL_EXPORTER_OTLP_PROTOCOL is `http/json`, it must be grpc or http/protobuf"
    );
}
