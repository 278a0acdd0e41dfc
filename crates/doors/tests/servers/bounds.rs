//! Requests with too much in them.

use podium_api::v1;
use podium_ports::server::ServerLimits;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_types::StatusExt as _;

use crate::house::{COMPLETIONS, House, asking, within};

#[tokio::test]
async fn a_call_with_too_many_messages_is_refused_in_few_words() {
    let house = House::open(ServerLimits::default()).await;
    let mut client = house.client().await;
    let with =
        |count| v1::CreateRunRequest { messages: vec![v1::Message::default(); count], ..Default::default() };
    let status = within(client.create_run(with(900_000))).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "messages has 900000 entries, the limit is 1000");
    let estimate = v1::EstimateRunRequest { run: Some(with(900_000)) };
    assert_eq!(within(client.estimate_run(estimate)).await.unwrap_err().message(), status.message());
    // A thousand wrong ones are told in a status that a client accepts.
    let status = within(client.create_run(with(1000))).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.get_error_details().bad_request().unwrap().field_violations.len(), 12);
}

#[tokio::test]
async fn errors_of_the_transport_have_details_too() {
    let house = House::open(ServerLimits::default()).await;
    let mut client = house.client().await;
    let messages = vec![v1::Message::default(); 2_000_000];
    let status = within(client.create_run(v1::CreateRunRequest { messages, ..Default::default() })).await;
    let status = status.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "BODY_TOO_LARGE");
}

#[tokio::test]
async fn a_client_may_compress() {
    let house = House::open(ServerLimits::default()).await;
    let client = house.client().await;
    let mut client =
        client.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip);
    within(client.create_run(asking("why?"))).await.unwrap();
    // What is small on the wire may not be large here.
    let mut large = asking("why?");
    large.messages[0].text = " ".repeat(3 << 20);
    assert_eq!(within(client.create_run(large)).await.unwrap_err().code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_body_of_a_million_elements_is_refused() {
    let house = House::open(ServerLimits::default()).await;
    let zeros = "0,".repeat(1_000_000);
    for body in [format!("{{\"messages\":[{zeros}0]}}"), format!("{{\"stop\":[{zeros}0]}}")] {
        let reply = house.send(COMPLETIONS, "", &body).await;
        assert_eq!(reply.status, 400);
        assert!(reply.body.contains("more than 50000 JSON values"), "{}", reply.body);
    }
}

#[tokio::test]
async fn a_long_body_is_answered() {
    let house = House::open(ServerLimits::default()).await;
    let user = "x".repeat(1 << 20);
    let body = crate::house::question("why?", false).replacen('{', &format!("{{\"user\":\"{user}\","), 1);
    let reply = house.send(COMPLETIONS, "", &body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}
