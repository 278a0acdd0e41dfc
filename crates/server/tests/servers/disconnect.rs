//! Clients that disconnect before they have their answer.

use podium_domain::run::RunState;
use podium_ports::server::ServerLimits;
use podium_testkit::{Answer, Gate};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::test_server::{COMPLETIONS, TestServer, asking, question, request, until, within};

/// Sends a request whose worker writes one word and waits.
async fn asked(server: &TestServer, headers: &str, stream: bool) -> (tokio::net::TcpStream, Gate) {
    let gate = Gate::closed();
    server.vendor.script("checker", [Answer::text("first ").wait(&gate).say("second")]);
    let mut connection = server.connect().await;
    connection.write_all(request(COMPLETIONS, headers, &question("why?", stream)).as_bytes()).await.unwrap();
    if stream {
        until(&mut connection, "first ").await;
    }
    (connection, gate)
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_run() {
    for stream in [false, true] {
        let server = TestServer::open(ServerLimits::default()).await;
        let (connection, _gate) = asked(&server, "", stream).await;
        let id = server.only_run().await;
        drop(connection);
        assert_eq!(*server.ended(id).await.state(), RunState::Cancelled, "stream: {stream}");
    }
}

#[tokio::test]
async fn a_client_of_responses_or_messages_that_disconnects_cancels_its_run() {
    let input = json!({"model": "podium-ultra", "input": "why?"});
    let messages = [json!({"role": "user", "content": "why?"})];
    let messages = json!({"model": "podium-ultra", "max_tokens": 100, "messages": messages});
    for (target, body) in [("POST /v1/responses", input), ("POST /v1/messages", messages)] {
        for stream in [false, true] {
            let server = TestServer::open(ServerLimits::default()).await;
            let gate = Gate::closed();
            server.vendor.script("checker", [Answer::text("first ").wait(&gate).say("second")]);
            let mut body = body.clone();
            body["stream"] = stream.into();
            let mut connection = server.connect().await;
            connection.write_all(request(target, "", &body.to_string()).as_bytes()).await.unwrap();
            let id = server.only_run().await;
            drop(connection);
            assert_eq!(*server.ended(id).await.state(), RunState::Cancelled, "{target}, stream: {stream}");
        }
    }
}

#[tokio::test]
async fn a_background_response_outlives_its_client() {
    let server = TestServer::open(ServerLimits::default()).await;
    let gate = Gate::closed();
    server.vendor.script("checker", [Answer::text("first ").wait(&gate).say("second")]);
    let body = json!({"model": "podium-ultra", "input": "why?", "background": true, "stream": true});
    let mut connection = server.connect().await;
    connection.write_all(request("POST /v1/responses", "", &body.to_string()).as_bytes()).await.unwrap();
    until(&mut connection, "first ").await;
    let id = server.only_run().await;
    drop(connection);
    gate.open();
    assert_eq!(server.ended(id).await.answer(), Some("first second"));
}

#[tokio::test]
async fn a_run_with_an_idempotency_key_outlives_its_client() {
    for stream in [false, true] {
        let server = TestServer::open(ServerLimits::default()).await;
        let named = "idempotency-key: once\r\n";
        let (connection, gate) = asked(&server, named, stream).await;
        let id = server.only_run().await;
        drop(connection);
        gate.open();
        assert_eq!(server.ended(id).await.answer(), Some("first second"), "stream: {stream}");
        let reply = server.send(COMPLETIONS, named, &question("why?", false)).await;
        assert_eq!(reply.header("x-podium-run-id"), Some(id.to_string().as_str()));
        assert_eq!(reply.json()["choices"][0]["message"]["content"], "first second");
    }
}

#[tokio::test]
async fn a_run_over_grpc_outlives_its_client() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    let run = within(client.create_run(asking("why?"))).await.unwrap().into_inner().run.unwrap();
    drop(client);
    let run = server.ended(run.run_id.parse().unwrap()).await;
    assert_eq!(run.answer(), Some("blue light scatters"));
}

#[tokio::test]
async fn a_client_with_its_answer_cancels_nothing() {
    let server = TestServer::open(ServerLimits::default()).await;
    for stream in [false, true] {
        let reply = server.send(COMPLETIONS, "", &question("why?", stream)).await;
        assert!(reply.body.contains("blue light scatters"), "{reply:?}");
        let id = reply.header("x-podium-run-id").unwrap().parse().unwrap();
        assert!(matches!(server.ended(id).await.state(), RunState::Succeeded { .. }));
    }
}
