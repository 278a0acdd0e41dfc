//! Requests that a gateway forwards to another cell over TLS.

use podium_harness::{Authority, Identity};
use podium_ports::server::{ServerLimits, TlsFiles, TlsVersion};
use podium_server::{CellIdentity, CellTls};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::test_server::{COMPLETIONS, TestServer, asking, question, until, within};

/// An authority, and a gateway of another cell that has a certificate of it.
async fn other(asks_for_certificates: bool) -> (Authority, TestServer) {
    let authority = Authority::new().unwrap();
    let Identity { certificate, key } = authority.issue("server", &["localhost"]).unwrap();
    let files = TlsFiles {
        certificate,
        key,
        client_authorities: asks_for_certificates.then(|| authority.root()),
        oldest: TlsVersion::V1_2,
        reload_every: std::time::Duration::from_mins(1),
    };
    let server = TestServer::encrypted(ServerLimits::default(), files).await;
    (authority, server)
}

fn trusting(authority: &Authority) -> CellTls {
    CellTls { root_certificates: Some(authority.root()), identity: None }
}

async fn status(front: &TestServer) -> u16 {
    front.send(COMPLETIONS, "", &question("why?", false)).await.status
}

#[tokio::test]
async fn a_request_is_forwarded_over_tls() {
    let (authority, other) = other(false).await;
    let front = TestServer::in_front_of(&other, &trusting(&authority)).await;
    assert_eq!(status(&front).await, 200);
    let created = within(front.client().await.create_run(asking("why?"))).await.unwrap().into_inner();
    other.ended(created.run.unwrap().run_id.parse().unwrap()).await;
    assert!(front.vendor.calls().is_empty() && other.vendor.calls().len() >= 2);
}

#[tokio::test]
async fn a_websocket_is_relayed_over_tls() {
    let (authority, other) = other(false).await;
    let front = TestServer::in_front_of(&other, &trusting(&authority)).await;
    let (mut socket, _) = within(tokio_tungstenite::client_async(
        format!("ws://localhost:{}/v1/responses", front.http.port()),
        front.connect().await,
    ))
    .await
    .unwrap();
    let request = json!({"type": "response.create", "model": "podium-ultra", "input": "why?"});
    let message = tokio_tungstenite::tungstenite::Message::text(request.to_string());
    futures::SinkExt::send(&mut socket, message).await.unwrap();
    loop {
        let message = within(futures::StreamExt::next(&mut socket)).await.unwrap().unwrap();
        if message.to_text().unwrap().contains("\"response.completed\"") {
            break;
        }
    }
    assert!(front.vendor.calls().is_empty());
}

#[tokio::test]
async fn a_gateway_without_trust_or_certificate_is_refused() {
    let (authority, other) = other(true).await;
    let stranger = Authority::new().unwrap();
    let identity = |authority: &Authority| {
        let Identity { certificate, key } = authority.issue("gateway", &[]).unwrap();
        Some(CellIdentity { certificate, key })
    };
    for (tls, expected) in [
        (CellTls { identity: identity(&authority), ..trusting(&authority) }, 200),
        (trusting(&authority), 503),
        (CellTls { identity: identity(&stranger), ..trusting(&authority) }, 503),
        (CellTls { identity: identity(&authority), ..trusting(&stranger) }, 503),
    ] {
        let front = TestServer::in_front_of(&other, &tls).await;
        assert_eq!(status(&front).await, expected, "{tls:?}");
    }
}

#[tokio::test]
async fn a_stream_of_another_cell_arrives_while_it_is_written() {
    let (authority, other) = other(false).await;
    let front = TestServer::in_front_of(&other, &trusting(&authority)).await;
    let gate = podium_testkit::Gate::closed();
    other.vendor.script("checker", [podium_testkit::Answer::text("first ").wait(&gate).say("second")]);
    let mut streamed = front.connect().await;
    let request = crate::test_server::request(COMPLETIONS, "", &question("why?", true));
    streamed.write_all(request.as_bytes()).await.unwrap();
    until(&mut streamed, "first ").await;
    gate.open();
    until(&mut streamed, "[DONE]").await;
}
