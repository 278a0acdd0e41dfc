//! Calls over real HTTP: what the server does, and what the caller receives.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::post;
use futures::{StreamExt, stream};
use podium_domain::conversation::{Message, Role};
use podium_domain::pool::Pool;
use podium_ports::vendor::{ChatEvent, ChatRequest, FinishReason, VendorError, Vendors, Wait};
use podium_vendors::{BuildError, EnvironmentKeys, HttpVendors, KeySource};
use secrecy::SecretString;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

const KEY: &str = "sk-secret-123";
const SOON: Duration = Duration::from_secs(10);

type Answer = Box<dyn FnOnce() -> Response<Body> + Send>;

/// A server that sends prepared answers in turn and records the last request.
struct Server {
    address: SocketAddr,
    asked: Arc<Asked>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct Asked {
    answers: Mutex<VecDeque<Answer>>,
    requests: Mutex<Vec<(HeaderMap, Bytes)>>,
}

impl Server {
    async fn answering(answer: impl FnOnce() -> Response<Body> + Send + 'static) -> Self {
        let asked = Arc::new(Asked::default());
        asked.answers.lock().unwrap().push_back(Box::new(answer));
        let router =
            Router::new().route("/v1/chat/completions", post(respond)).with_state(Arc::clone(&asked));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, asked, _serving: serving }
    }

    fn pool(&self, limits: &str) -> Pool {
        pool(&format!("http://{}/v1", self.address), limits)
    }

    fn request(&self) -> (HeaderMap, Bytes) {
        self.asked.requests.lock().unwrap().last().cloned().unwrap()
    }

    /// Adds an answer for the next call.
    fn then(self, answer: impl FnOnce() -> Response<Body> + Send + 'static) -> Self {
        self.asked.answers.lock().unwrap().push_back(Box::new(answer));
        self
    }

    /// The value of a header in each request so far.
    fn values_of(&self, header: &str) -> Vec<String> {
        let requests = self.asked.requests.lock().unwrap();
        requests.iter().map(|(headers, _)| headers[header].to_str().unwrap().to_owned()).collect()
    }

    /// The outcome of a call: its events, or the error that ended it.
    async fn call(&self, limits: &str) -> Result<Vec<ChatEvent>, VendorError> {
        let pool = self.pool(limits);
        let vendors = HttpVendors::new(&pool, &keys()).unwrap();
        let answer = vendors.chat(&pool.workers()[0], &question()).await?;
        let mut items = tokio::time::timeout(SOON, answer.collect::<Vec<_>>()).await.unwrap();
        match items.pop() {
            Some(Err(error)) => Err(error),
            last => items.into_iter().chain(last).collect(),
        }
    }
}

async fn respond(State(asked): State<Arc<Asked>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    asked.requests.lock().unwrap().push((headers, body));
    let answer = asked.answers.lock().unwrap().pop_front();
    answer.map_or_else(|| plain(StatusCode::IM_A_TEAPOT, "asked twice"), |answer| answer())
}

fn pool(base_url: &str, limits: &str) -> Pool {
    let toml = format!(
        r#"
        schema = 1
        name = "test"
        version = "1"
        vendors = [{{ id = "v", api = "openai-chat", base_url = "{base_url}", api_key_env = "TEST_KEY" }}]
        [[workers]]
        id = "w"
        vendor = "v"
        model = "the-model"
        description = "a worker"
        context_tokens = 8192
        usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
        limits = {{ {limits} }}
        "#
    );
    Pool::parse(&toml).unwrap()
}

fn keys() -> BTreeMap<String, SecretString> {
    BTreeMap::from([("TEST_KEY".to_owned(), SecretString::from(format!(" {KEY}\n")))])
}

fn question() -> ChatRequest {
    ChatRequest::new(vec![Message::new(Role::User, "why?")], 100)
}

const LONG_LIMITS: &str =
    "call_ms_max = 10_000, connect_ms_max = 10_000, first_byte_ms_max = 10_000, idle_ms_max = 10_000";

/// Long limits except one, which is 50 ms.
fn with_short(limit: &str) -> String {
    LONG_LIMITS.replace(&format!("{limit} = 10_000"), &format!("{limit} = 50"))
}

fn plain(status: StatusCode, body: &'static str) -> Response<Body> {
    Response::builder().status(status).body(Body::from(body)).unwrap()
}

fn chunk(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

/// A body that sends the given pieces and never ends.
fn endless(pieces: Vec<String>) -> Response<Body> {
    let sent = stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
    Response::new(Body::from_stream(sent.chain(stream::pending())))
}

fn started() -> ChatEvent {
    ChatEvent::Started { vendor_request_id: None }
}

fn delta(text: &str) -> ChatEvent {
    ChatEvent::Delta(text.to_owned())
}

fn stopped() -> ChatEvent {
    ChatEvent::Finished { reason: FinishReason::Stop, usage: None }
}

#[tokio::test]
async fn a_streamed_answer_arrives_with_the_vendors_request_id() {
    let server = Server::answering(|| {
        let body = format!("{}{}{END}data: [DONE]\n\n", chunk("be"), chunk("cause"));
        Response::builder()
            .header("content-type", "text/event-stream; charset=utf-8")
            .header("x-request-id", "req_7")
            .body(Body::from(body))
            .unwrap()
    })
    .await;
    let events = server.call(LONG_LIMITS).await.unwrap();
    let started = ChatEvent::Started { vendor_request_id: Some("req_7".to_owned()) };
    assert_eq!(events, [started, delta("be"), delta("cause"), stopped()]);

    let (headers, body) = server.request();
    assert_eq!(headers["authorization"], format!("Bearer {KEY}"));
    assert!(!headers.contains_key("accept-encoding"), "a compressor would delay tokens");
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert!(body.contains(r#""model":"the-model""#) && body.contains(r#""max_tokens":100"#), "{body}");
}

#[tokio::test]
async fn a_throttled_call_reports_retry_after() {
    let server = Server::answering(|| {
        Response::builder().status(429).header("retry-after", "3").body(Body::from("slow down")).unwrap()
    })
    .await;
    let error = server.call(LONG_LIMITS).await.unwrap_err();
    assert!(matches!(error, VendorError::Throttled { .. }), "{error:?}");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
}

#[tokio::test]
async fn server_errors_are_retryable_and_bad_keys_are_not() {
    let server = Server::answering(|| plain(StatusCode::INTERNAL_SERVER_ERROR, "oops")).await;
    let error = server.call(LONG_LIMITS).await.unwrap_err();
    assert!(
        matches!(&error, VendorError::Failed { status: 500, message, .. } if message == "oops"),
        "{error:?}"
    );
    assert!(error.is_retryable());

    let server = Server::answering(|| {
        plain(
            StatusCode::UNAUTHORIZED,
            r#"{"error": {"message": "Incorrect API key provided: sk-secret-123"}}"#,
        )
    })
    .await;
    let error = server.call(LONG_LIMITS).await.unwrap_err();
    assert!(!error.is_retryable());
    assert!(!format!("{error} {error:?}").contains(KEY));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let server = Server::answering(|| {
        Response::builder().status(307).header("location", "http://127.0.0.1:9/").body(Body::empty()).unwrap()
    })
    .await;
    let error = server.call(LONG_LIMITS).await.unwrap_err();
    assert!(matches!(error, VendorError::Rejected { status: 307, .. }), "{error:?}");
}

#[tokio::test]
async fn a_web_page_is_rejected() {
    let server = Server::answering(|| {
        Response::builder()
            .header("content-type", "text/html; charset=utf-8")
            .body(Body::from("<p>hi"))
            .unwrap()
    })
    .await;
    let error = server.call(LONG_LIMITS).await.unwrap_err();
    assert!(
        matches!(error, VendorError::Garbled { .. }) && error.to_string().contains("web page"),
        "{error}"
    );
}

#[tokio::test]
async fn a_cut_stream_is_retryable_and_its_text_delivered() {
    let (cut, cutting) = oneshot::channel::<()>();
    let server = Server::answering(move || {
        let error = || std::io::Error::new(std::io::ErrorKind::ConnectionReset, "cut");
        let end = stream::once(async move {
            let _received_or_dropped = cutting.await;
            Err(error())
        });
        Response::new(Body::from_stream(stream::iter([Ok(chunk("be"))]).chain(end)))
    })
    .await;
    let pool = server.pool(LONG_LIMITS);
    let vendors = HttpVendors::new(&pool, &keys()).unwrap();
    let mut answer = vendors.chat(&pool.workers()[0], &question()).await.unwrap();
    assert_eq!(answer.next().await.unwrap().unwrap(), started());
    assert_eq!(answer.next().await.unwrap().unwrap(), delta("be"));
    cut.send(()).unwrap();
    let error = tokio::time::timeout(SOON, answer.next()).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, VendorError::Unreachable { .. }) && error.is_retryable(), "{error:?}");
    assert!(answer.next().await.is_none());
}

#[tokio::test]
async fn each_wait_has_its_own_limit() {
    let timed_out = |result: Result<Vec<ChatEvent>, VendorError>| match result.unwrap_err() {
        VendorError::Timeout { wait, limit, .. } => (wait, limit),
        other => panic!("{other:?}"),
    };
    let brief = Duration::from_millis(50);
    // No program accepts the connection. The system does, so TLS cannot begin and no answer comes.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (scheme, limit, wait) in
        [("https", "connect_ms_max", Wait::Connect), ("http", "first_byte_ms_max", Wait::FirstByte)]
    {
        let silent = pool(&format!("{scheme}://{}/v1", listener.local_addr().unwrap()), &with_short(limit));
        let vendors = HttpVendors::new(&silent, &keys()).unwrap();
        let refused = vendors.chat(&silent.workers()[0], &question()).await;
        assert_eq!(timed_out(refused.map(|_| Vec::new())), (wait, brief));
    }
    let empty = "data: {\"choices\":[]}\n\n";
    for (pieces, limit, wait) in [
        (vec![], "first_byte_ms_max", Wait::FirstByte),
        (vec![": a comment is no event\n\n".to_owned()], "first_byte_ms_max", Wait::FirstByte),
        (vec![empty.to_owned()], "first_byte_ms_max", Wait::FirstByte),
        (vec![chunk("be")], "idle_ms_max", Wait::Idle),
        (vec!["{".to_owned()], "idle_ms_max", Wait::Idle),
        (vec![chunk("be")], "call_ms_max", Wait::Call),
        (vec![], "call_ms_max", Wait::Call),
    ] {
        let server = Server::answering(move || endless(pieces)).await;
        assert_eq!(timed_out(server.call(&with_short(limit)).await), (wait, brief), "{limit}");
    }
}

#[tokio::test]
async fn a_timeout_names_its_limit() {
    let server = Server::answering(|| endless(vec![chunk("be")])).await;
    let error = server.call(&with_short("idle_ms_max")).await.unwrap_err();
    assert_eq!(error.to_string(), "vendor `v` was silent beyond idle_ms_max of 50 ms");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn dropping_the_answer_aborts_the_call() {
    let (dropped, drop_seen) = oneshot::channel::<()>();
    let server = Server::answering(move || {
        // The sender lives in the body: when the server drops the body, the receiver is notified.
        let body = stream::unfold((0, dropped), |(count, dropped)| async move {
            tokio::task::yield_now().await;
            Some((Ok::<_, std::io::Error>(chunk("more")), (count + 1, dropped)))
        });
        Response::new(Body::from_stream(body))
    })
    .await;
    let pool = server.pool(LONG_LIMITS);
    let vendors = HttpVendors::new(&pool, &keys()).unwrap();
    let mut answer = vendors.chat(&pool.workers()[0], &question()).await.unwrap();
    assert_eq!(answer.next().await.unwrap().unwrap(), started());
    assert_eq!(answer.next().await.unwrap().unwrap(), delta("more"));
    drop(answer);
    assert!(tokio::time::timeout(SOON, drop_seen).await.unwrap().is_err());
}

#[tokio::test]
async fn an_unreachable_vendors_address_is_not_revealed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let pool = pool(&format!("http://user:hunter2@{address}/v1"), LONG_LIMITS);
    let vendors = HttpVendors::new(&pool, &keys()).unwrap();
    let error = vendors.chat(&pool.workers()[0], &question()).await.err().unwrap();
    assert!(matches!(error, VendorError::Unreachable { .. }) && error.is_retryable(), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_missing_key_is_reported_at_start_and_at_the_call() {
    let pool = pool("http://127.0.0.1:9/v1", LONG_LIMITS);
    for no_key in [BTreeMap::new(), BTreeMap::from([("TEST_KEY".to_owned(), SecretString::from(" \n"))])] {
        let vendors = HttpVendors::new(&pool, &no_key).unwrap();
        let missing: Vec<_> = vendors.missing_secrets().collect();
        assert_eq!(
            missing,
            ["environment variable TEST_KEY holds no key: workers of vendor `v` cannot be called"]
        );
        let error = vendors.chat(&pool.workers()[0], &question()).await.err().unwrap();
        assert!(
            matches!(error, VendorError::Misconfigured { .. }) && error.to_string().contains("TEST_KEY"),
            "{error}"
        );
    }
}

#[test]
fn a_key_is_in_no_debug_output() {
    let vendors = HttpVendors::new(&pool("http://127.0.0.1:9/v1", LONG_LIMITS), &keys()).unwrap();
    assert!(!format!("{vendors:?}").contains("secret"));
    assert_eq!(vendors.missing_secrets().count(), 0);
    assert!(EnvironmentKeys.key("PODIUM_NO_SUCH_VARIABLE").is_none());
}

#[test]
fn an_invalid_base_url_is_rejected_at_construction() {
    let error = HttpVendors::new(&pool("http://", LONG_LIMITS), &keys()).unwrap_err();
    assert!(matches!(error, BuildError::BaseUrl { .. }), "{error:?}");
}

/// The events of a call to a pool's worker, or the error that ended it.
async fn call_of(vendors: &HttpVendors, pool: &Pool) -> Result<Vec<ChatEvent>, VendorError> {
    let answer = vendors.chat(&pool.workers()[0], &question()).await?;
    let items = tokio::time::timeout(SOON, answer.collect::<Vec<_>>()).await.unwrap();
    items.into_iter().collect()
}

/// A pool whose vendor and worker entries contain these extra lines.
fn pool_with(server: &Server, vendor: &str, worker: &str) -> Pool {
    let toml = format!(
        r#"
        schema = 1
        name = "test"
        version = "1"
        [[vendors]]
        id = "v"
        api = "openai-chat"
        base_url = "http://{}/v1"
        {vendor}
        [[workers]]
        id = "w"
        vendor = "v"
        model = "the-model"
        description = "a worker"
        context_tokens = 8192
        usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
        limits = {{ {LONG_LIMITS} }}
        {worker}
        "#,
        server.address
    );
    Pool::parse(&toml).unwrap()
}

fn two_keys() -> BTreeMap<String, SecretString> {
    ["KEY_A", "KEY_B"].map(|name| (name.to_owned(), SecretString::from(name.to_lowercase()))).into()
}

fn answered() -> Response<Body> {
    plain(StatusCode::OK, r#"{"choices":[{"index":0,"message":{"content":"fine"},"finish_reason":"stop"}]}"#)
}

fn refusing(status: u16, headers: &'static [(&str, &str)], body: &'static str) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Body::from(body)).unwrap()
}

#[tokio::test]
async fn a_rejected_key_is_replaced_by_the_next_within_a_call() {
    for status in [401, 402, 403, 429] {
        let server = Server::answering(move || refusing(status, &[], "")).await.then(answered).then(answered);
        let pool = pool_with(&server, r#"api_keys_env = ["KEY_A", "KEY_B"]"#, "");
        let vendors = HttpVendors::new(&pool, &two_keys()).unwrap();
        call_of(&vendors, &pool).await.unwrap();
        assert_eq!(server.values_of("authorization"), ["Bearer key_a", "Bearer key_b"], "{status}");
        if status != 429 {
            call_of(&vendors, &pool).await.unwrap();
            assert_eq!(
                server.values_of("authorization")[2],
                "Bearer key_b",
                "{status}: the other one is paused"
            );
        }
    }
}

#[tokio::test]
async fn if_every_key_is_rejected_the_soonest_retry_counts() {
    let server = Server::answering(|| refusing(429, &[("retry-after", "30")], ""))
        .await
        .then(|| refusing(401, &[], ""));
    let pool = pool_with(&server, r#"api_keys_env = ["KEY_A", "KEY_B"]"#, "");
    let vendors = HttpVendors::new(&pool, &two_keys()).unwrap();
    let error = call_of(&vendors, &pool).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(30)), "{error}");
}

#[tokio::test]
async fn a_bad_request_is_sent_with_one_key_only() {
    let server = Server::answering(|| refusing(400, &[], "")).await.then(answered);
    let pool = pool_with(&server, r#"api_keys_env = ["KEY_A", "KEY_B"]"#, "");
    let vendors = HttpVendors::new(&pool, &two_keys()).unwrap();
    let error = call_of(&vendors, &pool).await.unwrap_err();
    assert!(matches!(error, VendorError::Rejected { status: 400, .. }), "{error}");
    assert_eq!(server.values_of("authorization").len(), 1);
}

#[tokio::test]
async fn headers_and_body_fields_of_the_pool_are_sent() {
    let server = Server::answering(|| plain(StatusCode::FORBIDDEN, "no entry for key_a")).await;
    let vendor =
        "headers = { X-Team = \"env:KEY_A\", openai-project = \"p1\" }\nbody = { service_tier = \"flex\" }";
    let worker = "headers = { openai-project = \"p2\" }\nbody = { top_k = 5 }";
    let pool = pool_with(&server, vendor, worker);
    let vendors = HttpVendors::new(&pool, &two_keys()).unwrap();
    let error = call_of(&vendors, &pool).await.unwrap_err().to_string();
    assert!(!error.contains("key_a"), "a secret in a header is in no error: {error}");
    let (headers, body) = server.request();
    assert_eq!(
        (headers["x-team"].as_bytes(), headers["openai-project"].as_bytes()),
        (&b"key_a"[..], &b"p2"[..])
    );
    assert!(!headers.contains_key("authorization"));
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert!(body.contains(r#""service_tier":"flex""#) && body.contains(r#""top_k":5"#), "{body}");
    let missing = HttpVendors::new(&pool, &BTreeMap::new()).unwrap();
    let warnings: Vec<_> = missing.missing_secrets().collect();
    assert_eq!(
        warnings,
        ["environment variable KEY_A is empty: calls to vendor `v` that need header x-team fail"]
    );
    let error = call_of(&missing, &pool).await.unwrap_err().to_string();
    assert!(error.contains("environment variable KEY_A of header x-team is empty"), "{error}");
}

#[tokio::test]
async fn the_token_limit_field_is_configured_or_learnt() {
    const REFUSAL: &str = r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens"}}"#;
    let fields = |server: &Server| {
        let requests = server.asked.requests.lock().unwrap();
        let names = |body: &Bytes| String::from_utf8_lossy(body).contains("\"max_completion_tokens\"");
        requests.iter().map(|(_, body)| names(body)).collect::<Vec<_>>()
    };
    let server = Server::answering(|| refusing(400, &[], REFUSAL)).await.then(answered).then(answered);
    let pool = pool_with(&server, "", "");
    let vendors = HttpVendors::new(&pool, &keys()).unwrap();
    call_of(&vendors, &pool).await.unwrap();
    call_of(&vendors, &pool).await.unwrap();
    assert_eq!(fields(&server), [false, true, true], "learnt once");

    let server = Server::answering(|| refusing(400, &[], REFUSAL)).await;
    let pool = pool_with(&server, r#"token_limit_field = "max_completion_tokens""#, "");
    let vendors = HttpVendors::new(&pool, &keys()).unwrap();
    let error = call_of(&vendors, &pool).await.unwrap_err();
    assert!(matches!(error, VendorError::Rejected { status: 400, .. }), "{error}");
    assert_eq!(fields(&server), [true], "a setting is not overruled");
}
