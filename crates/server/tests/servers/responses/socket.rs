//! Responses over a WebSocket, with a client that writes frames by itself.

use podium_ports::server::ServerLimits;
use podium_testkit::{Answer, Gate};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::schema::{check_event, check_response};
use crate::test_server::{TestServer, until, within};

const UPGRADE: &str = "GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;

struct Socket(TcpStream);

impl Socket {
    async fn open(server: &TestServer) -> Self {
        Self::open_with(server, "").await
    }

    /// `headers` are lines that end in `\r\n`.
    async fn open_with(server: &TestServer, headers: &str) -> Self {
        let mut connection = server.connect().await;
        let upgrade = UPGRADE.replacen("connection:", &format!("{headers}connection:"), 1);
        connection.write_all(upgrade.as_bytes()).await.unwrap();
        // Nothing follows the head before the first request.
        assert!(until(&mut connection, "\r\n\r\n").await.starts_with("HTTP/1.1 101"));
        Self(connection)
    }

    async fn ask(&mut self, change: Value) {
        let mut body = json!({"type": "response.create", "model": "podium-mini", "input": "why?"});
        let (Value::Object(fields), Value::Object(change)) = (&mut body, change) else {
            panic!("no objects")
        };
        fields.extend(change);
        self.send(&body.to_string()).await;
    }

    /// Sends a text with a mask of zeros.
    async fn send(&mut self, text: &str) {
        let length = u16::try_from(text.len()).unwrap();
        let mut frame = vec![TEXT];
        if length < 126 {
            frame.push(0x80 | u8::try_from(length).unwrap());
        } else {
            frame.push(0x80 | 0x7e);
            frame.extend(length.to_be_bytes());
        }
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.0.write_all(&frame).await.unwrap();
    }

    /// The next event.
    async fn event(&mut self) -> Value {
        let (kind, payload) = within(self.frame()).await;
        assert_eq!(kind, TEXT);
        let event: Value = serde_json::from_slice(&payload).unwrap();
        check_event(event["type"].as_str().unwrap(), &event);
        event
    }

    async fn frame(&mut self) -> (u8, Vec<u8>) {
        let kind = self.0.read_u8().await.unwrap();
        let length = match self.0.read_u8().await.unwrap() {
            126 => u64::from(self.0.read_u16().await.unwrap()),
            127 => self.0.read_u64().await.unwrap(),
            short => short.into(),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut payload).await.unwrap();
        (kind, payload)
    }

    /// The events of a response, up to the last one.
    async fn all(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.event().await;
            let kind = event["type"].as_str().unwrap().to_owned();
            events.push(event);
            if ["response.completed", "response.incomplete", "response.failed", "error"]
                .contains(&kind.as_str())
            {
                return events;
            }
        }
    }

    /// The whole response of a request.
    async fn response(&mut self, change: Value) -> Value {
        self.ask(change).await;
        let last = self.all().await.pop().unwrap();
        assert_eq!(last["type"], "response.completed", "{last}");
        check_response(&last["response"]);
        last["response"].clone()
    }

    /// The code of the error of a request.
    async fn error(&mut self, change: Value) -> Value {
        self.ask(change).await;
        self.all().await.pop().unwrap()["error"]["code"].clone()
    }
}

#[tokio::test]
async fn a_socket_answers_one_request_after_the_other() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut socket = Socket::open(&server).await;
    for question in ["one?", "two?"] {
        socket.ask(json!({"input": question})).await;
        let events = socket.all().await;
        let numbers: Vec<_> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
        assert_eq!(events[0]["type"], "response.created");
        let response = &events.last().unwrap()["response"];
        assert_eq!(response["output"][0]["content"][0]["text"], "blue light scatters");
    }
}

#[tokio::test]
async fn an_unstored_response_is_continued_on_its_own_socket_only() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut socket = Socket::open(&server).await;
    let first = socket.response(json!({"store": false})).await;
    let follow = json!({"store": false, "previous_response_id": first["id"]});
    let mut other = Socket::open(&server).await;
    assert_eq!(other.error(follow.clone()).await, "previous_response_not_found");
    let second = socket.response(follow.clone()).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    // Only the last response counts, and none after a failure.
    assert_eq!(socket.error(follow).await, "previous_response_not_found");
    let follow = json!({"store": false, "previous_response_id": second["id"]});
    assert_eq!(socket.error(follow).await, "previous_response_not_found");
    assert_eq!(other.response(json!({"store": false})).await["store"], false);
}

#[tokio::test]
async fn an_input_that_is_only_registered_is_part_of_the_next_request() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut socket = Socket::open(&server).await;
    let context = json!([{"type": "message", "role": "developer", "content": "Answer in English."}]);
    let register = json!({"generate": false, "store": false, "instructions": "be brief", "input": context});
    socket.ask(register.clone()).await;
    let events = socket.all().await;
    let names: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names, ["response.created", "response.completed"]);
    let registered = &events[1]["response"];
    check_response(registered);
    assert_eq!((&registered["output"], &registered["usage"]["total_tokens"]), (&json!([]), &json!(0)));
    assert!(server.vendor.calls().is_empty(), "no worker is called");
    assert_eq!(server.send("GET /v1/runs", "", "").await.json()["data"], json!([]));
    let id = registered["id"].as_str().unwrap();
    assert_eq!(server.send(&format!("GET /v1/responses/{id}"), "", "").await.status, 404);

    let question = json!([{"type": "message", "role": "user", "content": "why?"}]);
    let follow =
        json!({"store": false, "instructions": "be brief", "previous_response_id": id, "input": question});
    let answered = socket.response(follow.clone()).await;
    assert_eq!(answered["previous_response_id"], Value::Null);
    let run = server.ended(answered["id"].as_str().unwrap()[5..].parse().unwrap()).await;
    let heard: Vec<_> = run.spec().request.conversation.messages().iter().map(|m| m.text.as_str()).collect();
    assert_eq!(heard, ["be brief", "Answer in English.", "why?"]);
    assert_eq!(socket.error(follow).await, "previous_response_not_found", "it is continued once");

    // It may continue a response, and be continued by another input that is only registered.
    let first = socket.response(json!({"store": false})).await;
    let mut last = first["id"].clone();
    for input in [json!([]), json!("again?")] {
        let change = json!({"generate": false, "store": false, "previous_response_id": last, "input": input});
        last = socket.response(change).await["id"].clone();
    }
    let follow = json!({"store": false, "previous_response_id": last, "input": []});
    let answered = socket.response(follow).await;
    assert_eq!(answered["previous_response_id"], first["id"]);
    let run = server.ended(answered["id"].as_str().unwrap()[5..].parse().unwrap()).await;
    let heard: Vec<_> = run.spec().request.conversation.messages().iter().map(|m| m.text.as_str()).collect();
    assert_eq!(heard, ["why?", "blue light scatters", "again?"]);
}

#[tokio::test]
async fn an_invalid_registration_is_rejected_by_name() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut socket = Socket::open(&server).await;
    for (change, param) in [
        (json!({"generate": "no"}), "generate"),
        (json!({"generate": false, "input": 7}), "input"),
        (json!({"generate": false, "model": "podium-ultra@other"}), "model"),
        (json!({"generate": false, "background": true}), "background"),
    ] {
        socket.ask(change).await;
        assert_eq!(socket.event().await["error"]["param"], param);
    }
    let reply =
        server.send("POST /v1/responses", "", r#"{"model": "podium-mini", "input": "a", "generate": true}"#);
    assert_eq!(reply.await.json()["error"]["param"], "generate");
}

#[tokio::test]
async fn an_invalid_message_gets_an_error_and_ends_nothing() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut socket = Socket::open(&server).await;
    for (message, code, param) in [
        ("{", "invalid_json", Value::Null),
        ("{}", "missing_required_parameter", json!("type")),
        (r#"{"type":"response.cancel"}"#, "invalid_value", json!("type")),
        (r#"{"type":"response.create"}"#, "missing_required_parameter", json!("model")),
    ] {
        socket.send(message).await;
        let error = socket.event().await["error"].clone();
        assert_eq!((&error["code"], &error["param"]), (&json!(code), &param), "{message}");
    }
    socket.response(json!({})).await;
}

#[tokio::test]
async fn a_socket_refuses_a_second_request_meanwhile_and_cancels_at_its_end() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::blank().wait(&Gate::closed()));
    let mut socket = Socket::open(&server).await;
    socket.ask(json!({})).await;
    assert_eq!(socket.event().await["type"], "response.created");
    assert_eq!(socket.event().await["type"], "response.in_progress");
    assert_eq!(socket.error(json!({})).await, "invalid_value");
    let run = server.only_run().await;
    drop(socket);
    assert_eq!(server.ended(run).await.state().as_str(), "cancelled");
}

#[tokio::test]
async fn a_socket_needs_a_key_and_an_upgrade() {
    let server = TestServer::locked(ServerLimits::default()).await;
    let mut connection = server.connect().await;
    connection.write_all(UPGRADE.as_bytes()).await.unwrap();
    assert!(until(&mut connection, "missing_api_key").await.starts_with("HTTP/1.1 401"));
    let key = format!("authorization: Bearer {}\r\n", server.key("acme", 1).await);
    let plain = server.send("GET /v1/responses", &key, "").await;
    assert_eq!((plain.status, plain.code().as_str()), (405, "method_not_allowed"));
}

#[tokio::test]
async fn a_revoked_key_ends_a_socket() {
    let server = TestServer::locked(ServerLimits::default()).await;
    let key = server.key("acme", 1).await;
    let mut socket = Socket::open_with(&server, &format!("authorization: Bearer {key}\r\n")).await;
    socket.response(json!({})).await;
    server.revoke("acme", 1).await;
    assert_eq!(socket.error(json!({})).await, "invalid_api_key");
    assert_eq!(within(socket.frame()).await.0, CLOSE);
}

#[tokio::test]
async fn a_new_connection_takes_the_place_of_a_waiting_socket() {
    let server = TestServer::open(ServerLimits { connections_max: Some(1), ..ServerLimits::default() }).await;
    let mut socket = Socket::open(&server).await;
    socket.response(json!({})).await;
    let reply = server.send("GET /v1/models", "", "").await;
    assert_eq!(reply.status, 200);
    assert_eq!(within(socket.frame()).await.0, CLOSE);
}

#[tokio::test]
async fn sockets_beyond_the_limit_are_refused() {
    let server = TestServer::open(ServerLimits { websockets_max: 1, ..ServerLimits::default() }).await;
    let mut first = Socket::open(&server).await;
    let mut second = server.connect().await;
    second.write_all(UPGRADE.as_bytes()).await.unwrap();
    let refused = until(&mut second, "websockets_max").await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("retry-after: 1") && refused.contains("overloaded"), "{refused}");
    assert_eq!(first.response(json!({})).await["status"], "completed");
    drop(first);
    within(async {
        loop {
            let mut again = server.connect().await;
            again.write_all(UPGRADE.as_bytes()).await.unwrap();
            if until(&mut again, "\r\n\r\n").await.starts_with("HTTP/1.1 101") {
                break;
            }
        }
    })
    .await;
}
