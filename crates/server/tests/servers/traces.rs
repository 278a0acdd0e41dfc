//! A run belongs to the trace of its client's header `traceparent`.

use podium_api::v1;
use podium_domain::trace::TraceParent;
use podium_ports::server::ServerLimits;
use serde_json::json;
use tonic::Request;

use crate::test_server::{COMPLETIONS, TestServer, asking, question};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

async fn trace_of_only_run(server: &TestServer) -> Option<TraceParent> {
    let id = server.only_run().await;
    server.ended(id).await.spec().request.trace
}

#[tokio::test]
async fn each_http_api_takes_the_clients_span() {
    let anthropic = json!({
        "model": "podium-ultra", "max_tokens": 10, "messages": [{"role": "user", "content": "Why?"}],
    });
    let requests = [
        (COMPLETIONS, question("Why?", false)),
        ("POST /v1/responses", json!({"model": "podium-ultra", "input": "Why?"}).to_string()),
        ("POST /v1/messages", anthropic.to_string()),
    ];
    for (method_and_path, body) in requests {
        let server = TestServer::open(ServerLimits::default()).await;
        let reply = server.send(method_and_path, &format!("traceparent: {PARENT}\r\n"), &body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("x-podium-trace-id"), Some(TRACE), "{method_and_path}");
        assert_eq!(trace_of_only_run(&server).await, Some(PARENT.parse().unwrap()), "{method_and_path}");
    }
}

#[tokio::test]
async fn an_invalid_span_counts_as_none() {
    let server = TestServer::open(ServerLimits::default()).await;
    let reply = server.send(COMPLETIONS, "traceparent: 00-abc\r\n", &question("Why?", false)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(trace_of_only_run(&server).await, None);
}

#[tokio::test]
async fn grpc_takes_the_clients_span_and_a_repeated_request_may_have_another() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    let mut create = async |parent: &'static str| {
        let message = v1::CreateRunRequest { request_id: "r-1".to_owned(), ..asking("Why?") };
        let mut request = Request::new(message);
        request.metadata_mut().insert("traceparent", parent.parse().unwrap());
        client.create_run(request).await.unwrap().into_inner()
    };
    let first = create(PARENT).await;
    let again = create("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01").await;
    assert!(!first.existing && again.existing);
    assert_eq!(trace_of_only_run(&server).await, Some(PARENT.parse().unwrap()));
}

#[tokio::test]
async fn each_answer_about_a_run_names_its_trace() {
    let server = TestServer::open(ServerLimits::default()).await;
    let asked = server.send(COMPLETIONS, "", &question("Why?", false)).await;
    let id = asked.header("x-podium-run-id").unwrap().to_owned();
    let trace = id.replace('-', "");
    let streamed =
        server.send(COMPLETIONS, &format!("traceparent: {PARENT}\r\n"), &question("Why?", true)).await;
    assert_eq!(streamed.header("x-podium-trace-id"), Some(TRACE));
    // The span of a request that reads a run says nothing about the run's trace.
    let shown = server.send(&format!("GET /v1/runs/{id}"), &format!("traceparent: {PARENT}\r\n"), "").await;
    assert_eq!(shown.header("x-podium-trace-id"), Some(trace.as_str()));
    assert_eq!(shown.json()["trace_id"], trace.as_str());
    let events = server.send(&format!("GET /v1/runs/{id}/events"), "", "").await;
    assert_eq!(events.header("x-podium-trace-id"), Some(trace.as_str()));
    let mut client = server.client().await;
    let watch = v1::WatchRunRequest { run_id: id.clone(), after_sequence: 0 };
    let watched = client.watch_run(watch).await.unwrap();
    assert_eq!(watched.metadata().get("x-podium-trace-id").unwrap().to_str().unwrap(), trace);
    let response = client.get_run(v1::GetRunRequest { run_id: id }).await.unwrap();
    assert_eq!(response.metadata().get("x-podium-trace-id").unwrap().to_str().unwrap(), trace);
    assert_eq!(response.into_inner().run.unwrap().trace_id, trace);
}
