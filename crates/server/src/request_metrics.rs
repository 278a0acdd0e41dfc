//! Metrics of clients' requests over both APIs. `docs/metrics.md` describes each, and a test compares the two.
//!
//! A request is measured until its response is sent or given up. Attributes have few values whatever clients send: routes, methods
//! and statuses that the servers know, and `_OTHER`.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use opentelemetry::metrics::{Histogram, UpDownCounter};
use opentelemetry::{KeyValue, global};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tokio::time::Instant;
use tonic::{Code, Status};

const SCOPE: &str = "podium.server";
const OTHER: &str = "_OTHER";
/// From cheap reads to runs of minutes.
const BOUNDS_S: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 180.0, 600.0];
const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::DELETE, Method::PUT, Method::PATCH, Method::HEAD, Method::OPTIONS];
/// The methods of gRPC's own services, which have no descriptors here.
const HEALTH_CHECK: &str = "grpc.health.v1.Health/Check";
const HEALTH_WATCH: &str = "grpc.health.v1.Health/Watch";

/// The instruments of both servers. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct RequestMetrics {
    http: Histogram<f64>,
    rpc: Histogram<f64>,
    active: UpDownCounter<i64>,
    rpc_methods: Arc<BTreeSet<String>>,
}

impl RequestMetrics {
    /// Creates the instruments. The process' meter must be set before.
    pub(crate) fn new() -> Self {
        let meter = global::meter(SCOPE);
        let seconds = |name, what| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(what);
            histogram.with_boundaries(BOUNDS_S.to_vec()).build()
        };
        Self {
            http: seconds(
                "http.server.request.duration",
                "Time from an HTTP request to the end of its response",
            ),
            rpc: seconds("rpc.server.call.duration", "Time from a gRPC call to the end of its response"),
            active: meter
                .i64_up_down_counter("http.server.active_requests")
                .with_unit("{request}")
                .with_description("HTTP requests whose response is not complete")
                .build(),
            rpc_methods: Arc::new(rpc_methods()),
        }
    }
}

/// The methods of our services, as `package.Service/Method`.
fn rpc_methods() -> BTreeSet<String> {
    let set = FileDescriptorSet::decode(podium_api::FILE_DESCRIPTORS).unwrap_or_default();
    let mut methods = BTreeSet::from([HEALTH_CHECK.to_owned(), HEALTH_WATCH.to_owned()]);
    for file in &set.file {
        for service in &file.service {
            let names = service
                .method
                .iter()
                .map(|method| format!("{}.{}/{}", file.package(), service.name(), method.name()));
            methods.extend(names);
        }
    }
    methods
}

/// Measures a request of the HTTP API.
pub(crate) async fn measure_http(
    State(metrics): State<RequestMetrics>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or(OTHER, MatchedPath::as_str).to_owned();
    let method = if METHODS.contains(request.method()) { request.method().as_str() } else { OTHER };
    let method = KeyValue::new("http.request.method", method.to_owned());
    let active = Active::begin(metrics.active, method.clone());
    let begun = Instant::now();
    let response = next.run(request).await;
    let status = i64::from(response.status().as_u16());
    let attributes =
        vec![method, KeyValue::new("http.route", route), KeyValue::new("http.response.status_code", status)];
    let measured = Measured { histogram: metrics.http, begun, attributes, rpc: None, _active: Some(active) };
    response.map(|body| Body::new(MeasuredBody { body, measured }))
}

/// Measures a call of the gRPC API.
pub(crate) async fn measure_rpc(
    State(metrics): State<RequestMetrics>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().trim_start_matches('/');
    let method = if metrics.rpc_methods.contains(path) { path } else { OTHER };
    let method = KeyValue::new("rpc.method", method.to_owned());
    let begun = Instant::now();
    let response = next.run(request).await;
    // A call that fails at once has its status in the head of the response. A client that gives up leaves none.
    let code = code_of(response.headers()).unwrap_or(Code::Cancelled);
    let attributes = vec![KeyValue::new("rpc.system.name", "grpc"), method];
    let measured = Measured { histogram: metrics.rpc, begun, attributes, rpc: Some(code), _active: None };
    response.map(|body| Body::new(MeasuredBody { body, measured }))
}

fn code_of(headers: &HeaderMap) -> Option<Code> {
    Status::from_header_map(headers).map(|status| status.code())
}

/// The name of a status in gRPC's documents.
const fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Counts a request as active until it is dropped.
struct Active {
    counter: UpDownCounter<i64>,
    method: KeyValue,
}

impl Active {
    fn begin(counter: UpDownCounter<i64>, method: KeyValue) -> Self {
        counter.add(1, std::slice::from_ref(&method));
        Self { counter, method }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.counter.add(-1, std::slice::from_ref(&self.method));
    }
}

/// Records the duration when it is dropped.
struct Measured {
    histogram: Histogram<f64>,
    begun: Instant,
    attributes: Vec<KeyValue>,
    /// The status of a gRPC call so far.
    rpc: Option<Code>,
    _active: Option<Active>,
}

impl Drop for Measured {
    fn drop(&mut self) {
        let code = self.rpc.map(|code| KeyValue::new("rpc.response.status_code", name_of(code)));
        self.attributes.extend(code);
        self.histogram.record(self.begun.elapsed().as_secs_f64(), &self.attributes);
    }
}

struct MeasuredBody {
    body: Body,
    measured: Measured,
}

impl http_body::Body for MeasuredBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if self.measured.rpc.is_some()
            && let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(code) = frame.trailers_ref().and_then(code_of)
        {
            self.measured.rpc = Some(code);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_methods_are_those_of_our_services_and_health() {
        let methods = rpc_methods();
        assert!(methods.contains("podium.v1.PodiumService/CreateRun"), "{methods:?}");
        assert!(methods.contains(HEALTH_CHECK));
    }
}
