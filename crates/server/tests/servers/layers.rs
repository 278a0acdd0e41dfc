//! CORS, compression, and the header with the time that a request took.

use podium_ports::server::ServerLimits;
use podium_testkit::Answer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::test_server::{COMPLETIONS, TestServer, question, request, within};

const PREFLIGHT: &str =
    "access-control-request-method: POST\r\naccess-control-request-headers: authorization\r\n";

#[tokio::test]
async fn only_pages_of_listed_origins_may_use_the_api() {
    let cors_origins = vec!["https://app.example".to_owned()];
    let server = TestServer::open(ServerLimits { cors_origins, ..ServerLimits::default() }).await;
    let (mine, other) = ("origin: https://app.example\r\n", "origin: https://evil.example\r\n");
    let reply = server.send("OPTIONS /v1/chat/completions", &format!("{mine}{PREFLIGHT}"), "").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(reply.header("access-control-allow-headers"), Some("authorization"));
    let reply = server.send("OPTIONS /v1/chat/completions", &format!("{other}{PREFLIGHT}"), "").await;
    assert_eq!(reply.header("access-control-allow-origin"), None);
    let reply = server.send(COMPLETIONS, mine, &question("why?", false)).await;
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (200, Some("https://app.example"))
    );
    assert!(reply.header("access-control-expose-headers").unwrap().contains("x-podium-run-id"));
    // A page must be able to read errors, too.
    let reply = server.send("GET /v1/nothing", mine, "").await;
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (404, Some("https://app.example"))
    );
    let reply = server.send(COMPLETIONS, other, &question("why?", false)).await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (403, None));
}

#[tokio::test]
async fn without_origins_no_cors_headers_are_sent() {
    let server = TestServer::open(ServerLimits::default()).await;
    let page = format!("origin: http://localhost:3000\r\n{PREFLIGHT}");
    assert_eq!(server.send("OPTIONS /v1/chat/completions", &page, "").await.status, 405);
    let reply = server.send("GET /v1/models", &page, "").await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, None));
}

#[tokio::test]
async fn every_answer_says_how_long_it_took() {
    let server = TestServer::open(ServerLimits::default()).await;
    for (what, body) in [(COMPLETIONS, question("why?", false)), ("GET /v1/nothing", String::new())] {
        let reply = server.send(what, "", &body).await;
        assert!(reply.header("openai-processing-ms").unwrap().parse::<u64>().is_ok(), "{reply:?}");
    }
}

#[tokio::test]
async fn a_long_answer_is_compressed_for_a_client_that_accepts_it() {
    let server = TestServer::open(ServerLimits::default()).await;
    let answer = "blue light scatters ".repeat(10_000);
    server.vendor.otherwise(Answer::text(&answer));
    let plain = server.send(COMPLETIONS, "", &question("why?", false)).await;
    assert_eq!(plain.header("content-encoding"), None);
    assert_eq!(plain.json()["choices"][0]["message"]["content"], answer.as_str());
    let mut connection = server.connect().await;
    let headers = "connection: close\r\naccept-encoding: gzip\r\n";
    let sent = request(COMPLETIONS, headers, &question("why?", false));
    connection.write_all(sent.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    within(connection.read_to_end(&mut bytes)).await.unwrap();
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let compressed = &bytes[end + 4..];
    assert!(head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"), "{head}");
    assert!(head.contains(&format!("content-length: {}", compressed.len())), "{head}");
    let read: serde_json::Value = serde_json::from_reader(flate2::read::GzDecoder::new(compressed)).unwrap();
    assert_eq!(read["choices"][0]["message"]["content"], answer.as_str());
    // Events must not wait for a compressor's block.
    let stream = server.send(COMPLETIONS, "accept-encoding: gzip\r\n", &question("why?", true)).await;
    assert_eq!(stream.header("content-encoding"), None);
    assert!(stream.body.contains("[DONE]"));
}
