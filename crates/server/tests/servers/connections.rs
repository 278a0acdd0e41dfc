//! Silent connections, too many connections, and unread answers.

use podium_ports::server::ServerLimits;
use podium_testkit::Answer;
use tokio::io::AsyncWriteExt as _;
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
