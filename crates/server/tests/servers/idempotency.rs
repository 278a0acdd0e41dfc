//! Request ids that are used twice.

use podium_ports::server::ServerLimits;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::test_server::{COMPLETIONS, TestServer, asking, question, within};

#[tokio::test]
async fn an_idempotency_key_with_another_question_is_rejected() {
    let server = TestServer::open(ServerLimits::default()).await;
    let named = "idempotency-key: once\r\n";
    let first = server.send(COMPLETIONS, named, &question("question one", false)).await;
    assert_eq!(first.status, 200);
    for stream in [false, true] {
        let other = server.send(COMPLETIONS, named, &question("question two", stream)).await;
        assert_eq!((other.status, other.code().as_str()), (409, "idempotency_mismatch"));
        assert_eq!(other.header("x-should-retry"), Some("false"));
        let same = server.send(COMPLETIONS, named, &question("question one", stream)).await;
        assert_eq!((same.status, same.header("x-podium-run-id")), (200, first.header("x-podium-run-id")));
    }
}

#[tokio::test]
async fn a_request_id_with_another_question_is_rejected_over_grpc() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    let named = |text: &str| {
        let mut request = asking(text);
        request.request_id = "once".to_owned();
        request
    };
    within(client.create_run(named("one"))).await.unwrap();
    assert!(within(client.create_run(named("one"))).await.unwrap().into_inner().existing);
    let status = within(client.create_run(named("two"))).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "IDEMPOTENCY_MISMATCH");
}
