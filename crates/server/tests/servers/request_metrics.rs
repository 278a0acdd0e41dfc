//! Requests over both APIs are measured as the page of metrics says. Each test is a separate process.

use std::collections::BTreeMap;

use podium_api::v1;
use podium_ports::server::ServerLimits;
use podium_testkit::metrics::{Measured, Meters, assert_described};
use podium_testkit::{Answer, Gate};

use crate::test_server::{COMPLETIONS, TestServer, asking, question, within};

const PAGE: &str = include_str!("../../../../docs/metrics.md");

/// The number of requests by attributes.
fn counts(measured: &Measured) -> BTreeMap<&str, u64> {
    measured.points.iter().map(|(attributes, point)| (attributes.as_str(), point.count)).collect()
}

/// The metrics of requests, once all responses are complete.
async fn complete(meters: &Meters, requests: u64) -> BTreeMap<String, Measured> {
    within(async {
        loop {
            let mut measured = meters.read();
            measured.retain(|name, _| name.starts_with("http.") || name.starts_with("rpc."));
            let of = |name: &str| measured.get(name).map_or(0, |found| counts(found).values().sum());
            if of("http.server.request.duration") + of("rpc.server.call.duration") >= requests {
                return measured;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn requests_are_measured_by_route_method_and_status() {
    let meters = Meters::start();
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::text("because"));
    assert_eq!(server.send(COMPLETIONS, "", &question("why?", false)).await.status, 200);
    assert_eq!(server.send(COMPLETIONS, "", &question("why?", true)).await.status, 200);
    assert_eq!(server.send(COMPLETIONS, "", "no JSON").await.status, 400);
    assert_eq!(server.send("GET /v1/runs/0190a7b4-0000-7000-8000-000000000000", "", "").await.status, 404);
    assert_eq!(server.send("GET /v1/whatever/a-client-sends", "", "").await.status, 404);
    let mut client = server.client().await;
    client.create_run(asking("why?")).await.unwrap();
    client.get_run(v1::GetRunRequest { run_id: "no id".to_owned() }).await.unwrap_err();

    let measured = complete(&meters, 7).await;
    assert_eq!(
        counts(&measured["http.server.request.duration"]),
        BTreeMap::from([
            ("http.request.method=GET,http.response.status_code=404,http.route=/v1/runs/{id}", 1),
            ("http.request.method=GET,http.response.status_code=404,http.route=_OTHER", 1),
            ("http.request.method=POST,http.response.status_code=200,http.route=/v1/chat/completions", 2),
            ("http.request.method=POST,http.response.status_code=400,http.route=/v1/chat/completions", 1),
        ])
    );
    assert_eq!(
        counts(&measured["rpc.server.call.duration"]),
        BTreeMap::from([
            (
                "rpc.method=podium.v1.PodiumService/CreateRun,rpc.response.status_code=OK,rpc.system.name=grpc",
                1
            ),
            (
                "rpc.method=podium.v1.PodiumService/GetRun,rpc.response.status_code=INVALID_ARGUMENT,rpc.system.name=grpc",
                1
            ),
        ])
    );
    assert_described(PAGE, "Requests of clients", &measured);
}

#[tokio::test]
async fn a_stream_is_active_until_its_client_leaves() {
    let meters = Meters::start();
    let server = TestServer::open(ServerLimits::default()).await;
    let gate = Gate::closed();
    server.vendor.script("checker", [Answer::text("first ").wait(&gate).say("second")]);
    let mut client = server.client().await;
    let run = client.create_run(asking("why?")).await.unwrap().into_inner().run.unwrap();
    let watch = v1::WatchRunRequest { run_id: run.run_id.clone(), after_sequence: 0 };
    let mut updates = client.watch_run(watch).await.unwrap().into_inner();
    assert!(updates.message().await.unwrap().is_some());
    let path = format!("GET /v1/runs/{}/events", run.run_id);
    let mut stream = server.connect().await;
    tokio::io::AsyncWriteExt::write_all(&mut stream, crate::test_server::request(&path, "", "").as_bytes())
        .await
        .unwrap();
    crate::test_server::until(&mut stream, "data:").await;
    assert_eq!(meters.read()["http.server.active_requests"].value("http.request.method=GET"), 1);

    drop((updates, client, stream));
    let measured = complete(&meters, 3).await;
    let watches = counts(&measured["rpc.server.call.duration"]);
    let left =
        "rpc.method=podium.v1.PodiumService/WatchRun,rpc.response.status_code=CANCELLED,rpc.system.name=grpc";
    assert_eq!(watches.get(left), Some(&1), "{watches:?}");
    assert_eq!(measured["http.server.active_requests"].value("http.request.method=GET"), 0);
}
