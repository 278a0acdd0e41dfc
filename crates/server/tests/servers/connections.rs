//! Silent connections, too many connections, and unread answers.

use podium_ports::server::ServerLimits;
use podium_testkit::Answer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::test_server::{
    COMPLETIONS, Reply, TestServer, asking, is_closed, question, request, short, until, within,
};

#[tokio::test]
async fn silent_connections_are_closed() {
    let server = TestServer::open(short()).await;
    is_closed(server.connect().await).await;
    is_closed(TcpStream::connect(server.grpc).await.unwrap()).await;
    let mut half_a_head = server.connect().await;
    half_a_head.write_all(b"POST /v1/chat/comp").await.unwrap();
    is_closed(half_a_head).await;
    let mut answered = server.connect().await;
    answered.write_all(request("GET /healthz", "", "").as_bytes()).await.unwrap();
    until(&mut answered, "ok\n").await;
    is_closed(answered).await;
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_answered_with_408() {
    let server = TestServer::open(short()).await;
    let mut connection = server.connect().await;
    let all = request(COMPLETIONS, "connection: close\r\n", &question("why?", false));
    connection.write_all(&all.as_bytes()[..all.len() - 1]).await.unwrap();
    let reply = Reply::read(&mut connection).await;
    assert_eq!((reply.status, reply.code().as_str()), (408, "request_timeout"));
}

#[tokio::test]
async fn an_answer_may_take_longer_than_the_idle_limit() {
    let server = TestServer::open(short()).await;
    let gate = podium_testkit::Gate::closed();
    server.vendor.script("checker", [Answer::text("first ").wait(&gate).say("second")]);
    let mut connection = server.connect().await;
    connection.write_all(request(COMPLETIONS, "", &question("why?", true)).as_bytes()).await.unwrap();
    until(&mut connection, "first ").await;
    // Another connection reaches the idle limit, and so does this one.
    is_closed(server.connect().await).await;
    gate.open();
    until(&mut connection, "[DONE]").await;
}

#[tokio::test]
async fn silent_connections_beyond_the_limit_lock_nobody_out() {
    let limits = ServerLimits { connections_max: Some(8), ..ServerLimits::default() };
    let server = TestServer::open(limits).await;
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(server.connect().await);
        silent.push(TcpStream::connect(server.grpc).await.unwrap());
    }
    let reply = server.send(COMPLETIONS, "", &question("why?", false)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let created = within(server.client().await.create_run(asking("why?"))).await.unwrap();
    assert!(!created.into_inner().existing);
}

#[tokio::test]
async fn two_hundred_slow_clients_do_not_disturb_others() {
    let limits = ServerLimits { connections_max: Some(256), ..ServerLimits::default() };
    let server = TestServer::open(limits).await;
    let body = request(COMPLETIONS, "", &question("why?", false));
    let mut slow = Vec::new();
    for number in 0..200 {
        let mut connection = server.connect().await;
        // Half of them never end their heads, the others never end their bodies.
        let sent = if number % 2 == 0 { "POST /v1/chat/comp" } else { &body[..body.len() - 1] };
        connection.write_all(sent.as_bytes()).await.unwrap();
        slow.push(connection);
    }
    for _ in 0..20 {
        assert_eq!(server.send(COMPLETIONS, "", &question("why?", false)).await.status, 200);
    }
    for connection in &mut slow {
        connection.write_all(b" ").await.unwrap();
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let server =
        TestServer::open(ServerLimits { header_bytes_max: 8 << 10, ..ServerLimits::default() }).await;
    let headers = |bytes| format!("x-long: {}\r\n", "x".repeat(bytes));
    assert_eq!(server.send("GET /v1/models", &headers(7 << 10), "").await.status, 200);
    assert_eq!(server.send("GET /v1/models", &headers(9 << 10), "").await.status, 431);
    // The connection's buffer rejects a long head only if it arrives in pieces.
    assert_eq!(server.send("GET /v1/models", &headers(8 << 10), "").await.status, 431);
    // A longer body is no problem.
    assert_eq!(server.send(COMPLETIONS, "", &question(&"why? ".repeat(4000), false)).await.status, 200);
}

#[tokio::test]
async fn an_http2_connection_learns_its_limits() {
    let limits =
        ServerLimits { connection_streams_max: 7, header_bytes_max: 9000, ..ServerLimits::default() };
    let server = TestServer::open(limits).await;
    for address in [server.http, server.grpc] {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut head = [0; 9];
        within(connection.read_exact(&mut head)).await.unwrap();
        assert_eq!(head[3], 4, "the first frame has the settings");
        let mut settings = vec![0; usize::from(head[2])];
        within(connection.read_exact(&mut settings)).await.unwrap();
        let pairs =
            settings.chunks(6).map(|pair| (pair[1], u32::from_be_bytes(pair[2..].try_into().unwrap())));
        let pairs: Vec<_> = pairs.collect();
        // The concurrent streams and the size of a header list, by the numbers of RFC 9113.
        assert!(pairs.contains(&(3, 7)) && pairs.contains(&(6, 9000)), "{pairs:?}");
    }
}

#[tokio::test]
async fn a_tenant_has_a_limited_number_of_streams() {
    let server = TestServer::locked(ServerLimits { tenant_streams_max: 1, ..ServerLimits::default() }).await;
    let [acme, other] = [server.key("acme", 1).await, server.key("other", 2).await]
        .map(|key| format!("authorization: Bearer {key}\r\n"));
    let gate = podium_testkit::Gate::closed();
    server.vendor.script("checker", [Answer::text("first ").wait(&gate).say("second")]);
    let mut first = server.connect().await;
    first.write_all(request(COMPLETIONS, &acme, &question("why?", true)).as_bytes()).await.unwrap();
    let head = until(&mut first, "first ").await;
    let run = head.lines().find_map(|line| line.strip_prefix("x-podium-run-id: ")).unwrap().trim().to_owned();
    let refused = server.send(COMPLETIONS, &acme, &question("why?", true)).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_many_streams"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let watch = format!("GET /v1/runs/{run}/events");
    assert_eq!(server.send(&watch, &acme, "").await.code(), "too_many_streams");
    assert_eq!(server.send(COMPLETIONS, &other, &question("why?", true)).await.status, 200);
    assert_eq!(server.send(COMPLETIONS, &acme, &question("why?", false)).await.status, 200);
    gate.open();
    until(&mut first, "[DONE]").await;
    drop(first);
    // The place is free once the server has noticed the end of the stream.
    within(async { while server.send(&watch, &acme, "").await.status != 200 {} }).await;
}

#[tokio::test]
async fn a_request_that_is_being_answered_is_not_closed_for_another() {
    let limits = ServerLimits { connections_max: Some(2), ..ServerLimits::default() };
    let server = TestServer::open(limits).await;
    let gate = podium_testkit::Gate::closed();
    server.vendor.script("checker", [Answer::text("first ").wait(&gate).say("second")]);
    let mut answered = server.connect().await;
    answered.write_all(request(COMPLETIONS, "", &question("why?", true)).as_bytes()).await.unwrap();
    until(&mut answered, "first ").await;
    for _ in 0..8 {
        server.connect().await;
    }
    assert_eq!(server.send("GET /healthz", "", "").await.status, 200);
    gate.open();
    until(&mut answered, "[DONE]").await;
}

#[tokio::test]
async fn an_unread_answer_is_dropped() {
    let server = TestServer::open(short()).await;
    let long = "x".repeat(3 << 20);
    server.vendor.otherwise(Answer::text(long.as_str()));
    let named = "idempotency-key: long\r\n";
    let body = question("why?", false).replacen('{', "{\"podium\":{\"output_bytes_max\":4000000},", 1);
    let reply = server.send(COMPLETIONS, named, &body).await;
    assert!(reply.body.contains(&long));
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut connection = socket.connect(server.http).await.unwrap();
    let repeated = request(COMPLETIONS, &format!("connection: close\r\n{named}"), &body);
    connection.write_all(repeated.as_bytes()).await.unwrap();
    connection.readable().await.unwrap();
    // The server closes the connection while nothing is read, and another silent one later.
    for _ in 0..4 {
        is_closed(server.connect().await).await;
    }
    let reply = Reply::read(&mut connection).await;
    assert!(reply.body.len() < long.len(), "{} bytes came", reply.body.len());
}
