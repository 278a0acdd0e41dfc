//! The models over gRPC.

use podium_api::v1;
use podium_ports::server::ServerLimits;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::test_server::{TestServer, within};

fn named(name: &str) -> v1::GetModelRequest {
    v1::GetModelRequest { name: name.to_owned() }
}

#[tokio::test]
async fn both_apis_list_the_same_models() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    let listed = within(client.list_models(v1::ListModelsRequest {})).await.unwrap().into_inner().models;
    let http = server.send("GET /v1/models", "", "").await.json();
    let ids: Vec<_> = http["data"].as_array().unwrap().iter().map(|model| model["id"].as_str()).collect();
    assert_eq!(listed.iter().map(|model| Some(model.name.as_str())).collect::<Vec<_>>(), ids);
    for model in listed {
        let got = within(client.get_model(named(&model.name))).await.unwrap().into_inner();
        assert_eq!(got.model.as_ref(), Some(&model));
        let (tier, pin) = model.name.split_once('@').unwrap_or((&model.name, ""));
        assert_eq!((model.tier() == v1::Tier::Mini, model.pin.as_str()), (tier == "podium-mini", pin));
    }
}

#[tokio::test]
async fn a_model_that_is_not_served_is_not_found() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    for name in ["", "gpt-5", "podium-ultra@other"] {
        let status = within(client.get_model(named(name))).await.unwrap_err();
        let details = status.get_error_details();
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(details.error_info().unwrap().reason, "MODEL_NOT_FOUND");
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, "name");
    }
}

#[tokio::test]
async fn models_need_a_key_where_requests_do() {
    let server = TestServer::locked(ServerLimits::default()).await;
    let mut client = server.client().await;
    let status = within(client.list_models(v1::ListModelsRequest {})).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
}
