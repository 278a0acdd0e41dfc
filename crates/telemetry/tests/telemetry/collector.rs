//! Metrics reach a collector, and an unreachable or hanging one blocks nothing. Each test runs in its own process.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use opentelemetry::{KeyValue, global};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use podium_telemetry::{MetricsPage, Process, Telemetry, TelemetrySettings, start};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

pub(crate) const PROCESS: Process<'static> =
    Process { name: "podium-test", version: "1.2.3", instance: "here-1" };
/// Longer than the limit of the last delivery.
const END_MAX: Duration = Duration::from_secs(5);

/// A collector that forwards what it receives.
struct Collector(mpsc::Sender<ExportMetricsServiceRequest>);

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.0.send(request.into_inner()).await.map_err(|_| Status::unavailable("the receiver is closed"))?;
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

fn collect(listener: TcpListener, tasks: &mut JoinSet<()>) -> mpsc::Receiver<ExportMetricsServiceRequest> {
    let (sender, received) = mpsc::channel(8);
    let server = Server::builder().add_service(MetricsServiceServer::new(Collector(sender)));
    tasks.spawn(async move { server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap() });
    received
}

pub(crate) async fn a_listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn delivering_to(address: SocketAddr, every: Option<Duration>) -> Telemetry {
    let settings = TelemetrySettings {
        otlp_endpoint: Some(format!("http://{address}")),
        every,
        ..TelemetrySettings::default()
    };
    start(&settings, &PROCESS, MetricsPage::ByCaller).unwrap()
}

fn count(value: u64) {
    global::meter("test").u64_counter("things").build().add(value, &[KeyValue::new("kind", "small")]);
}

/// The value of the counter `things` in a request.
fn things(request: &ExportMetricsServiceRequest) -> i64 {
    let metrics = request.resource_metrics.iter().flat_map(|of| &of.scope_metrics).flat_map(|of| &of.metrics);
    let mut things = metrics.filter(|metric| metric.name == "things");
    let Some(metric::Data::Sum(sum)) = &things.next().unwrap().data else { panic!("{request:?}") };
    let Some(number_data_point::Value::AsInt(value)) = sum.data_points[0].value else { panic!("{sum:?}") };
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_metrics_are_delivered_with_their_resource() {
    let mut tasks = JoinSet::new();
    let (listener, address) = a_listener().await;
    let mut received = collect(listener, &mut tasks);
    let telemetry = delivering_to(address, None);
    count(3);
    count(4);
    let page = telemetry.page().unwrap().text().unwrap();
    assert!(page.contains("things_total{kind=\"small\"} 7"), "{page}");
    assert!(page.contains("podium_build_info{podium_version=\"1.2.3\"} 1"), "{page}");
    telemetry.shut_down().await;
    let request = received.try_recv().unwrap();
    assert_eq!(things(&request), 7);
    let resource = request.resource_metrics[0].resource.as_ref().unwrap();
    let attribute = |key: &str| {
        let value = resource.attributes.iter().find(|attribute| attribute.key == key);
        format!("{:?}", value.and_then(|attribute| attribute.value.clone()))
    };
    assert!(attribute("service.name").contains("podium-test"), "{resource:?}");
    assert!(
        attribute("service.version").contains("1.2.3") && attribute("service.instance.id").contains("here-1")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_collector_receives_all_counts() {
    let mut tasks = JoinSet::new();
    let (listener, address) = a_listener().await;
    drop(listener);
    let telemetry = delivering_to(address, Some(Duration::from_millis(50)));
    count(1);
    let listener = TcpListener::bind(address).await.unwrap();
    let mut received = collect(listener, &mut tasks);
    assert_eq!(things(&received.recv().await.unwrap()), 1);
    count(1);
    while things(&received.recv().await.unwrap()) != 2 {}
    telemetry.shut_down().await;
}

#[tokio::test]
async fn a_hanging_collector_delays_neither_work_nor_shutdown() {
    // The system accepts the connection, but nothing answers.
    let (_listener, address) = a_listener().await;
    let telemetry = delivering_to(address, Some(Duration::from_millis(20)));
    let began = Instant::now();
    for _ in 0..1000 {
        count(1);
        tokio::task::yield_now().await;
    }
    assert!(began.elapsed() < END_MAX);
    tokio::time::timeout(END_MAX, telemetry.shut_down()).await.unwrap();
}

#[tokio::test]
async fn nothing_is_recorded_without_an_export() {
    let telemetry = start(&TelemetrySettings::default(), &PROCESS, MetricsPage::Disabled).unwrap();
    count(1);
    assert!(telemetry.page().is_none());
    telemetry.shut_down().await;
}
