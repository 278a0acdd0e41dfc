//! Reading and cancelling runs over HTTP.

use podium_api::v1;
use podium_ports::server::ServerLimits;
use podium_testkit::{Answer, Gate};
use serde_json::Value;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::test_server::{COMPLETIONS, TestServer, asking, question, within};

#[tokio::test]
async fn a_run_is_read_by_its_id() {
    let server = TestServer::open(ServerLimits::default()).await;
    let reply = server.send(COMPLETIONS, "", &question("why?", false)).await;
    let id = reply.header("x-podium-run-id").unwrap().to_owned();
    let run = server.send(&format!("GET /v1/runs/{id}"), "", "").await.json();
    assert_eq!((&run["object"], &run["id"]), (&"run".into(), &id.as_str().into()));
    assert_eq!((&run["state"], &run["answer"]), (&"succeeded".into(), &"blue light scatters".into()));
    assert_eq!(run["error"], serde_json::Value::Null);
    assert_eq!(run["usage"]["total_tokens"], reply.json()["usage"]["total_tokens"]);
    assert_eq!(run["podium"], reply.json()["podium"]);
    let step = &run["steps"][0];
    assert_eq!((&step["worker"], &step["state"]), (&"checker".into(), &"done".into()));
    assert_eq!((&step["subtask"], &step["attempts"]), (&"answer it".into(), &1.into()));
}

#[tokio::test]
async fn a_run_is_cancelled_over_http() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::blank().wait(&Gate::closed()));
    let mut client = server.client().await;
    let run = within(client.create_run(asking("why?"))).await.unwrap().into_inner().run.unwrap();
    let path = format!("POST /v1/runs/{}/cancel", run.run_id);
    for _ in 0..2 {
        let reply = server.send(&path, "", "").await;
        assert_eq!((reply.status, &reply.json()["state"]), (200, &"cancelled".into()));
    }
    server.vendor.otherwise(Answer::text("blue"));
    let answered = server.send(COMPLETIONS, "", &question("why?", false)).await;
    let id = answered.header("x-podium-run-id").unwrap().to_owned();
    let reply = server.send(&format!("POST /v1/runs/{id}/cancel"), "", "").await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "run_ended"));
}

/// The sequence numbers and the data of a stream's events.
fn events(body: &str) -> Vec<(u64, Value)> {
    let mut events = Vec::new();
    let mut data = Value::Null;
    for line in body.lines() {
        if let Some(text) = line.strip_prefix("data: ") {
            data = serde_json::from_str(text).unwrap();
        } else if let Some(id) = line.strip_prefix("id: ") {
            events.push((id.parse().unwrap(), data.take()));
        }
    }
    events
}

#[tokio::test]
async fn the_events_of_a_run_are_streamed_and_resumed() {
    let server = TestServer::open(ServerLimits::default()).await;
    let reply = server.send(COMPLETIONS, "", &question("why?", false)).await;
    let path = format!("GET /v1/runs/{}/events", reply.header("x-podium-run-id").unwrap());
    let whole = server.send(&path, "", "").await;
    assert_eq!((whole.status, whole.header("content-type")), (200, Some("text/event-stream")));
    let all = events(&whole.body);
    assert!(all.iter().map(|(id, _)| *id).eq(1..=all.len() as u64), "{whole:?}");
    assert_eq!(all[0].1["accepted"]["model"], "podium-ultra");
    let done = all.iter().find_map(|(_, event)| event.get("step_done")).unwrap();
    assert_eq!((&done["output"], &done["finish_reason"]), (&"blue light scatters".into(), &"stop".into()));
    assert!(all.last().unwrap().1["succeeded"].is_object());
    let resumed = server.send(&format!("{path}?after=2"), "", "").await;
    assert_eq!(events(&resumed.body), all[2..]);
    let reconnected = server.send(&path, "last-event-id: 3\r\n", "").await;
    assert_eq!(events(&reconnected.body), all[3..]);
    assert_eq!(server.send(&format!("{path}?before=2"), "", "").await.code(), "unknown_parameter");
}

#[tokio::test]
async fn another_tenants_run_does_not_exist() {
    let server = TestServer::locked(ServerLimits::default()).await;
    let [own, other] = [server.key("acme", 1).await, server.key("other", 2).await]
        .map(|key| format!("authorization: Bearer {key}\r\n"));
    let reply = server.send(COMPLETIONS, &own, &question("why?", false)).await;
    let id = reply.header("x-podium-run-id").unwrap().to_owned();
    let paths = ["GET /v1/runs/ID", "GET /v1/runs/ID/events", "POST /v1/runs/ID/cancel"];
    for route in paths.map(|path| path.replace("ID", &id)) {
        let reply = server.send(&route, &other, "").await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "run_not_found"), "{route}");
        assert_eq!(server.send(&route, "", "").await.status, 401, "{route}");
    }
    assert_eq!(server.send(&format!("GET /v1/runs/{id}"), &own, "").await.status, 200);
    assert_eq!(server.send("GET /v1/runs/none", &own, "").await.status, 400);
}

#[tokio::test]
async fn a_list_over_grpc_is_filtered() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    for model in ["podium-ultra", "podium-mini", "podium-mini"] {
        let request = v1::CreateRunRequest { model: model.to_owned(), ..asking("why?") };
        let run = within(client.create_run(request)).await.unwrap().into_inner().run.unwrap();
        server.ended(run.run_id.parse().unwrap()).await;
    }
    let mut list = async |filter: &str, page_size, page_token: &str| {
        let (filter, page_token) = (filter.to_owned(), page_token.to_owned());
        let request = v1::ListRunsRequest { page_size, page_token, filter };
        within(client.list_runs(request)).await.map(tonic::Response::into_inner)
    };
    for (filter, count) in [
        ("", 3),
        ("state = SUCCEEDED", 3),
        ("state = FAILED", 0),
        ("tier = mini AND state = RUN_STATE_SUCCEEDED", 2),
        ("model = \"podium-ultra\"", 1),
        ("create_time >= \"2000-01-01T00:00:00Z\" AND create_time < \"2200-01-01T00:00:00Z\"", 3),
        ("create_time < \"2000-01-01T00:00:00Z\"", 0),
    ] {
        assert_eq!(list(filter, 0, "").await.unwrap().runs.len(), count, "{filter}");
    }
    let first = list("tier = mini", 1, "").await.unwrap();
    let second = list("tier = mini", 1, &first.next_page_token).await.unwrap();
    assert_eq!((first.runs.len(), second.runs.len(), second.next_page_token.as_str()), (1, 1, ""));
    assert_ne!(first.runs, second.runs);
    let status = list("colour = red", 0, "").await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let violations = status.get_error_details().bad_request().unwrap().field_violations.clone();
    assert_eq!(violations[0].field, "filter");
    assert!(violations[0].description.contains("unknown field `colour`"), "{violations:?}");
}
