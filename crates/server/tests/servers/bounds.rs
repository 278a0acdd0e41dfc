//! Requests and answers beyond a limit.

use std::time::Duration;

use podium_api::v1;
use podium_ports::server::ServerLimits;
use podium_testkit::{Answer, Gate};
use tokio::io::AsyncWriteExt as _;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_types::StatusExt as _;

use crate::test_server::{COMPLETIONS, TestServer, asking, question, request, until, within};

#[tokio::test]
async fn a_call_with_too_many_messages_gets_a_short_error() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    let with =
        |count| v1::CreateRunRequest { messages: vec![v1::Message::default(); count], ..Default::default() };
    let status = within(client.create_run(with(900_000))).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "messages has 900000 entries, the limit is 1000");
    let estimate = v1::EstimateRunRequest { run: Some(with(900_000)) };
    assert_eq!(within(client.estimate_run(estimate)).await.unwrap_err().message(), status.message());
    // The status of a thousand invalid messages is short enough for a client.
    let status = within(client.create_run(with(1000))).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.get_error_details().bad_request().unwrap().field_violations.len(), 12);
}

#[tokio::test]
async fn a_run_beyond_the_unread_limit_is_rejected_over_http() {
    let limits = ServerLimits { unread_bytes_max: 64 << 10, ..ServerLimits::default() };
    let server = TestServer::open(limits).await;
    for (length, status) in [(1 << 10, 200), (200 << 10, 503)] {
        server.vendor.otherwise(Answer::text("x".repeat(length)));
        let reply = server.send(COMPLETIONS, "", &question("why?", false)).await;
        assert_eq!(reply.status, status);
        let id = reply.header("x-podium-run-id").unwrap();
        let run = server.send(&format!("GET /v1/runs/{id}"), "", "").await;
        assert_eq!(run.status, status);
        assert_eq!(run.body.contains("overloaded"), status == 503, "{}", run.body);
    }
}

#[tokio::test]
async fn concurrent_answers_beyond_the_unread_limit_do_not_break_off() {
    let limits = ServerLimits { unread_bytes_max: 1 << 20, ..ServerLimits::default() };
    let server = TestServer::open(limits).await;
    server.vendor.otherwise(Answer::text("x".repeat(200 << 10)));
    let reply = server.send(COMPLETIONS, "", &question("why?", false)).await;
    let get = format!("GET /v1/runs/{}", reply.header("x-podium-run-id").unwrap());
    let replies = futures::future::join_all((0..12).map(|_| server.send(&get, "", ""))).await;
    for reply in replies {
        let length = reply.header("content-length").unwrap();
        assert_eq!(reply.body.len().to_string(), length, "status {}", reply.status);
        assert!([200, 503].contains(&reply.status));
    }
}

#[tokio::test]
async fn requests_beyond_the_limit_are_refused_until_one_has_ended() {
    let limits = ServerLimits { requests_in_flight_max: 1, ..ServerLimits::default() };
    let server = TestServer::open(limits).await;
    let gate = podium_testkit::Gate::closed();
    server.vendor.script("checker", [Answer::text("first ").wait(&gate).say("second")]);
    let mut streamed = server.connect().await;
    streamed.write_all(request(COMPLETIONS, "", &question("why?", true)).as_bytes()).await.unwrap();
    until(&mut streamed, "first ").await;

    for target in ["GET /v1/models", "GET /v1/runs"] {
        let refused = server.send(target, "", "").await;
        assert_eq!((refused.status, refused.code().as_str()), (503, "overloaded"), "{}", refused.body);
        assert!(refused.body.contains("requests_in_flight_max"), "{}", refused.body);
        assert_eq!(
            (refused.header("retry-after"), refused.header("x-should-retry")),
            (Some("1"), Some("true"))
        );
    }
    let refused = server.send("POST /v1/messages", "", "{}").await;
    assert_eq!((refused.status, refused.header("retry-after")), (529, Some("1")), "{}", refused.body);
    let status = within(server.client().await.create_run(asking("why?"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "OVERLOADED");
    // Probes are not limited.
    assert_eq!(server.send("GET /healthz", "", "").await.status, 200);
    assert_eq!(server.send("GET /readyz", "", "").await.status, 200);

    gate.open();
    until(&mut streamed, "[DONE]").await;
    drop(streamed);
    within(async { while server.send("GET /v1/models", "", "").await.status != 200 {} }).await;
    assert!(within(server.client().await.create_run(asking("why?"))).await.is_ok());
}

#[tokio::test]
async fn an_answer_beyond_the_unread_limit_gets_a_grpc_status() {
    let server =
        TestServer::open(ServerLimits { unread_bytes_max: 64 << 10, ..ServerLimits::default() }).await;
    let mut client = server.client().await;
    let mut events = async |text: &str, after_sequence| {
        server.vendor.otherwise(Answer::text(text));
        let message =
            v1::Message { role: v1::Role::User.into(), text: "why?".to_owned(), ..Default::default() };
        let request = v1::CreateRunRequest { messages: vec![message], ..Default::default() };
        let run_id = within(client.create_run(request)).await.unwrap().into_inner().run.unwrap().run_id;
        server.ended(run_id.parse().unwrap()).await;
        let watch = v1::WatchRunRequest { run_id: run_id.clone(), after_sequence };
        let mut updates = within(client.watch_run(watch)).await.unwrap().into_inner();
        let mut sequence = 0;
        let end = loop {
            match within(updates.message()).await {
                Ok(Some(update)) => {
                    let Some(v1::watch_run_response::Update::Event(event)) = update.update else { continue };
                    sequence = event.sequence;
                }
                Ok(None) => break None,
                Err(status) => break Some(status),
            }
        };
        let got = within(client.get_run(v1::GetRunRequest { run_id })).await;
        (sequence, end, got.err())
    };
    let (last, end, got) = events("short", 0).await;
    assert!(last > 4 && end.is_none() && got.is_none(), "{last} {end:?} {got:?}");
    let (before, end, got) = events(&"x".repeat(200 << 10), 0).await;
    for status in [end.unwrap(), got.unwrap()] {
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.get_error_details().error_info().unwrap().reason, "OVERLOADED");
        let words = [format!("watch again after event {before}"), "returns the answer later".to_owned()];
        assert!(words.iter().any(|words| status.message().ends_with(words)), "{}", status.message());
    }
    // Only the event with the answer was not sent. The events after it are.
    let (last, end, _) = events(&"x".repeat(200 << 10), before + 1).await;
    assert!(last > before + 1 && end.is_none(), "{last} {end:?}");
}

#[tokio::test]
async fn errors_of_the_transport_have_details() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    let messages = vec![v1::Message::default(); 2_000_000];
    let status = within(client.create_run(v1::CreateRunRequest { messages, ..Default::default() })).await;
    let status = status.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "BODY_TOO_LARGE");
}

#[tokio::test]
async fn a_client_may_compress() {
    let server = TestServer::open(ServerLimits::default()).await;
    let client = server.client().await;
    let mut client =
        client.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip);
    within(client.create_run(asking("why?"))).await.unwrap();
    // A message that is small on the wire must not be large once decompressed.
    let mut large = asking("why?");
    large.messages[0].text = " ".repeat(3 << 20);
    assert_eq!(within(client.create_run(large)).await.unwrap_err().code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_body_of_a_million_elements_is_rejected() {
    let server = TestServer::open(ServerLimits::default()).await;
    let zeros = "0,".repeat(1_000_000);
    for body in [format!("{{\"messages\":[{zeros}0]}}"), format!("{{\"stop\":[{zeros}0]}}")] {
        let reply = server.send(COMPLETIONS, "", &body).await;
        assert_eq!(reply.status, 400);
        assert!(reply.body.contains("more JSON values than the limit of 50000"), "{}", reply.body);
    }
}

#[tokio::test]
async fn a_long_body_is_answered() {
    let server = TestServer::open(ServerLimits::default()).await;
    let user = "x".repeat(1 << 20);
    let body =
        crate::test_server::question("why?", false).replacen('{', &format!("{{\"user\":\"{user}\","), 1);
    let reply = server.send(COMPLETIONS, "", &body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[tokio::test]
async fn a_watch_beyond_the_tenants_limit_says_when_to_retry() {
    let server = TestServer::open(ServerLimits { tenant_streams_max: 1, ..ServerLimits::default() }).await;
    let gate = Gate::closed();
    server.vendor.script("checker", [Answer::text("first ").wait(&gate).say("second")]);
    let mut client = server.client().await;
    let run_id = within(client.create_run(asking("why?"))).await.unwrap().into_inner().run.unwrap().run_id;
    let watch = v1::WatchRunRequest { run_id, after_sequence: 0 };
    let _open = within(client.watch_run(watch.clone())).await.unwrap();
    let status = within(client.watch_run(watch)).await.unwrap_err();
    let details = status.get_error_details();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(details.error_info().unwrap().reason, "TOO_MANY_STREAMS");
    assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
    gate.open();
}
