//! Requests that are rejected before their body is read.

use podium_ports::server::ServerLimits;
use tokio::io::AsyncWriteExt as _;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use crate::test_server::{COMPLETIONS, Reply, TestServer, question, request, within};

const JSON: &str = "content-type: application/json\r\n";

#[tokio::test]
async fn a_request_without_a_key_is_rejected_before_its_body() {
    let server = TestServer::locked(ServerLimits::default()).await;
    for (authorization, code) in
        [("", "missing_api_key"), ("authorization: Bearer pdm_x\r\n", "invalid_api_key")]
    {
        let mut connection = server.connect().await;
        let announced = format!("connection: close\r\n{authorization}{JSON}content-length: 2000000\r\n");
        connection.write_all(request(COMPLETIONS, &announced, "").as_bytes()).await.unwrap();
        let reply = Reply::read(&mut connection).await;
        assert_eq!((reply.status, reply.code().as_str()), (401, code));
    }
    let authorization = format!("authorization: Bearer {}\r\n", server.key("acme", 1).await);
    let reply = server.send(COMPLETIONS, &authorization, &question("why?", false)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[tokio::test]
async fn a_call_without_a_key_is_rejected_before_decoding() {
    let server = TestServer::locked(ServerLimits::default()).await;
    let channel = tonic::transport::Endpoint::new(format!("http://{}", server.grpc)).unwrap();
    let mut grpc = tonic::client::Grpc::new(channel.connect().await.unwrap());
    // No caller could send this: the field of messages holds a run of another one's bytes.
    let wrong = podium_api::v1::GetRunRequest { run_id: "\u{1}".repeat(100) };
    let codec = || ProstCodec::<podium_api::v1::GetRunRequest, podium_api::v1::Run>::default();
    let path = http::uri::PathAndQuery::from_static("/podium.v1.PodiumService/EstimateRun");
    grpc.ready().await.unwrap();
    let status = within(grpc.unary(Request::new(wrong.clone()), path.clone(), codec())).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let key = server.key("acme", 1).await;
    let mut request = Request::new(wrong);
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    grpc.ready().await.unwrap();
    let status = within(grpc.unary(request, path, codec())).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
}

#[tokio::test]
async fn a_web_page_cannot_create_a_run() {
    let server = TestServer::open(ServerLimits::default()).await;
    let body = question("why?", false);
    for (headers, status, code) in [
        ("content-type: text/plain\r\n", 415, "unsupported_media_type"),
        ("origin: https://evil.example\r\ncontent-type: application/json\r\n", 403, "foreign_origin"),
        ("content-encoding: br\r\n", 415, "unsupported_media_type"),
        ("transfer-encoding: gzip, chunked\r\n", 501, "unsupported_transfer_coding"),
    ] {
        let reply = server.send(COMPLETIONS, headers, &body).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{headers}");
    }
    let mut connection = server.connect().await;
    let rebound = request(COMPLETIONS, "connection: close\r\n", &body).replace("localhost", "evil.example");
    connection.write_all(rebound.as_bytes()).await.unwrap();
    assert_eq!(Reply::read(&mut connection).await.status, 403);
    assert!(server.vendor.calls().is_empty());
    let page = format!("origin: http://localhost:3000\r\n{JSON}");
    assert_eq!(server.send(COMPLETIONS, &page, &body).await.status, 200);
}

#[tokio::test]
async fn a_client_gets_the_error_after_a_body_that_is_too_long() {
    let server = TestServer::open(ServerLimits::default()).await;
    let body = " ".repeat(8 << 20);
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for sent in [
        request(COMPLETIONS, "connection: close\r\n", &body),
        request(COMPLETIONS, "connection: close\r\ntransfer-encoding: chunked\r\n", "") + &chunked,
    ] {
        let mut connection = server.connect().await;
        // The whole body is sent before the response is read, as most clients do.
        within(connection.write_all(sent.as_bytes())).await.unwrap();
        let reply = Reply::read(&mut connection).await;
        assert_eq!((reply.status, reply.code().as_str()), (413, "request_too_large"));
    }
}

#[tokio::test]
async fn a_key_makes_a_foreign_origin_harmless() {
    let server = TestServer::locked(ServerLimits::default()).await;
    let key = server.key("acme", 1).await;
    let headers = format!("origin: https://app.example\r\nauthorization: Bearer {key}\r\n");
    assert_eq!(server.send("GET /v1/models", &headers, "").await.status, 200);
}

#[tokio::test]
async fn unknown_paths_get_an_error_in_openais_format() {
    let server = TestServer::open(ServerLimits::default()).await;
    for path in ["/v1/models/%ff", "/v1/runs/%ff", "/v1/nothing"] {
        let reply = server.send(&format!("GET {path}"), "", "").await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "unknown_url"), "{path}");
    }
    assert_eq!(server.send("GET /v1/models/", "", "").await.status, 200);
    let method = "M".repeat(5_000);
    let reply = server.send(&format!("{method} /v1/models"), "", "").await;
    assert_eq!(reply.status, 405);
    assert!(reply.body.len() < 500, "{}", reply.body);
    let reply =
        server.send(COMPLETIONS, "", &question("why?", false).replace("\"stream\"", "\"podium\"")).await;
    assert_eq!(reply.json()["error"]["param"], "podium");
}
