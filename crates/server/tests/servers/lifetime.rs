//! The age of connections, and the end of a server.

use std::net::SocketAddr;
use std::time::Duration;

use podium_api::v1;
use podium_ports::server::ServerLimits;
use podium_testkit::{Answer, Gate};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::test_server::{COMPLETIONS, TestServer, asking, is_closed, question, request, until, within};

const AGE: Duration = Duration::from_millis(50);

fn aging(grace: Option<Duration>) -> ServerLimits {
    ServerLimits { age: Some(AGE), age_grace: grace, ..ServerLimits::default() }
}

/// Asks for a page over HTTP/2 and waits until the server says that it takes no further requests on this connection.
async fn told_to_leave(address: SocketAddr) {
    let mut connection = TcpStream::connect(address).await.unwrap();
    // No settings, then the request `GET /healthz` for the host `localhost` as stream 1.
    let head = [&b"\x82\x86\x44\x08/healthz\x41\x09localhost"[..]].concat();
    let frame = [&[0, 0, u8::try_from(head.len()).unwrap(), 1, 5, 0, 0, 0, 1], &head[..]].concat();
    let sent = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..], &frame].concat();
    connection.write_all(&sent).await.unwrap();
    within(async {
        loop {
            let mut head = [0; 9];
            connection.read_exact(&mut head).await.unwrap();
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            connection.read_exact(&mut payload).await.unwrap();
            // The number of GOAWAY in RFC 9113.
            if head[3] == 7 {
                return;
            }
        }
    })
    .await;
}

async fn a_watched_run(server: &TestServer, gate: &Gate) -> tonic::Streaming<v1::WatchRunResponse> {
    server.vendor.script("checker", [Answer::text("first ").wait(gate).say("second")]);
    let mut client = server.client().await;
    let run_id = within(client.create_run(asking("why?"))).await.unwrap().into_inner().run.unwrap().run_id;
    let watch = client.watch_run(v1::WatchRunRequest { run_id, after_sequence: 0 });
    let mut updates = within(watch).await.unwrap().into_inner();
    assert!(within(updates.message()).await.unwrap().is_some());
    updates
}

#[tokio::test]
async fn an_old_http2_connection_ends_with_its_open_requests() {
    let server = TestServer::open(aging(None)).await;
    let gate = Gate::closed();
    let mut updates = a_watched_run(&server, &gate).await;
    let mut client = server.client().await;
    // These connections are younger than that of the stream.
    told_to_leave(server.http).await;
    told_to_leave(server.grpc).await;
    // The client connects again.
    within(client.create_run(asking("how?"))).await.unwrap();
    gate.open();
    while within(updates.message()).await.unwrap().is_some() {}
}

#[tokio::test]
async fn open_requests_of_an_old_connection_are_cut_after_the_grace() {
    let server = TestServer::open(aging(Some(Duration::ZERO))).await;
    let gate = Gate::closed();
    let mut updates = a_watched_run(&server, &gate).await;
    let error = loop {
        match within(updates.message()).await {
            Ok(update) => assert!(update.is_some()),
            Err(error) => break error,
        }
    };
    assert!([Code::Unavailable, Code::Unknown, Code::Internal].contains(&error.code()), "{error:?}");
}

#[tokio::test]
async fn an_old_http1_connection_ends_with_a_response_that_says_so() {
    let server = TestServer::open(aging(None)).await;
    let mut connection = server.connect().await;
    loop {
        connection.write_all(request("GET /healthz", "", "").as_bytes()).await.unwrap();
        if until(&mut connection, "ok\n").await.contains("connection: close") {
            break;
        }
    }
    is_closed(connection).await;
}

#[tokio::test]
async fn a_leaving_server_is_not_ready_but_serves() {
    let mut server = TestServer::open(ServerLimits::default()).await;
    let ready = async |address| TestServer::send_to(address, "GET /readyz", "", "").await;
    for address in [server.http, server.health] {
        assert_eq!(ready(address).await.status, 200);
    }
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap();
    let mut health = HealthClient::new(channel.connect().await.unwrap());
    // Dropped at the end of the test.
    let mut closing = JoinSet::new();
    closing.spawn(server.close(Duration::from_hours(1)));
    for address in [server.http, server.health] {
        within(async { while ready(address).await.status == 200 {} }).await;
        assert_eq!(ready(address).await.body, "stopping\n");
    }
    within(async {
        loop {
            let status = health.check(HealthCheckRequest::default()).await.unwrap().into_inner().status();
            if status == ServingStatus::NotServing {
                break;
            }
        }
    })
    .await;
    assert_eq!(server.send(COMPLETIONS, "", &question("why?", false)).await.status, 200);
    within(server.client().await.create_run(asking("why?"))).await.unwrap();
}

#[tokio::test]
async fn a_closed_server_answers_no_probe() {
    let mut server = TestServer::open(ServerLimits::default()).await;
    within(server.close(Duration::ZERO)).await;
    within(async { while TcpStream::connect(server.health).await.is_ok() {} }).await;
    assert!(TcpStream::connect(server.http).await.is_err());
}
