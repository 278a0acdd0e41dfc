//! `podium-max` in all APIs.

use podium_api::v1;
use podium_ports::server::ServerLimits;
use podium_testkit::Answer;
use serde_json::{Value, json};
use tonic::Code;

use crate::test_server::{COMPLETIONS, TestServer, asking, question, within};

const RESPONSES: &str = "POST /v1/responses";
const MESSAGES: &str = "POST /v1/messages";

fn completion(stream: bool) -> String {
    let mut body: Value = serde_json::from_str(&question("why?", stream)).unwrap();
    body["model"] = json!("podium-max");
    body["max_tokens"] = json!(50);
    body.to_string()
}

#[tokio::test]
async fn every_api_answers_with_the_workflow_that_the_head_chose() {
    let server = TestServer::with_max().await;
    server.vendor.otherwise(Answer::text("blue light scatters"));
    let chat = server.send(COMPLETIONS, "", &completion(false)).await;
    let body = chat.json();
    assert_eq!((chat.status, &body["model"]), (200, &json!("podium-max")), "{body}");
    assert_eq!(body["choices"][0]["message"]["content"], "blue light scatters");
    let run = server
        .send(&format!("GET /v1/runs/{}", chat.header("x-podium-run-id").unwrap()), "", "")
        .await
        .json();
    let state = |step: usize| run["steps"][step]["state"].as_str().unwrap().to_owned();
    assert_eq!([0, 1, 2].map(state), ["done", "done", "skipped"], "{run}");
    assert_eq!(
        (&run["podium"]["conductor"], &run["steps"][2]["attempts"]),
        (&json!("max-1"), &json!(0)),
        "{run}"
    );

    let stream = server.send(COMPLETIONS, "", &completion(true)).await;
    let data = stream.body.lines().filter_map(|line| line.trim().strip_prefix("data: "));
    let events =
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str::<Value>(data).unwrap());
    let text: String = events
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(text, "blue light scatters", "{stream:?}");

    let response = json!({"model": "podium-max", "input": "why?"}).to_string();
    let response = server.send(RESPONSES, "", &response).await.json();
    assert_eq!(response["output"][0]["content"][0]["text"], "blue light scatters", "{response}");

    let message = json!({"model": "podium-max@max-1", "max_tokens": 9, "messages": [{"role": "user", "content": "why?"}]});
    let message =
        server.send(MESSAGES, "anthropic-version: 2023-06-01\r\n", &message.to_string()).await.json();
    assert_eq!(message["content"][0]["text"], "blue light scatters", "{message}");

    let mut client = server.client().await;
    let request = v1::CreateRunRequest { model: "podium-max".to_owned(), ..asking("why?") };
    let created = within(client.create_run(request)).await.unwrap().into_inner();
    let id = created.run.unwrap().run_id;
    let mut watched =
        within(client.watch_run(v1::WatchRunRequest { run_id: id.clone(), ..Default::default() }))
            .await
            .unwrap()
            .into_inner();
    let mut skipped = None;
    while let Some(update) = within(watched.message()).await.unwrap() {
        if let Some(v1::watch_run_response::Update::Event(event)) = update.update
            && let Some(v1::run_event::Kind::StepSkipped(step)) = event.kind
        {
            skipped = Some((step.step, step.same_as));
        }
    }
    assert_eq!(skipped, Some((2, 0)));
    let got =
        within(client.get_run(v1::GetRunRequest { run_id: id })).await.unwrap().into_inner().run.unwrap();
    let step = &got.rounds[0].steps[2];
    assert_eq!((step.state(), step.same_as), (v1::TaskState::Skipped, Some(0)));
    assert_eq!(step.planned.as_ref().unwrap().unless_agree, [0, 1]);
}

#[tokio::test]
async fn podium_max_is_listed_only_where_it_is_offered() {
    let server = TestServer::with_max().await;
    let models = server.send("GET /v1/models", "", "").await.json();
    let ids: Vec<_> =
        models["data"].as_array().unwrap().iter().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!(
        ids,
        [
            "podium-mini",
            "podium-ultra",
            "podium-max",
            "podium-mini@scripted-1",
            "podium-ultra@scripted-1",
            "podium-max@max-1"
        ]
    );
    for (path, status) in [("podium-max", 200), ("podium-max@max-1", 200), ("podium-ultra@max-1", 404)] {
        assert_eq!(server.send(&format!("GET /v1/models/{path}"), "", "").await.status, status, "{path}");
    }

    let without = TestServer::open(ServerLimits::default()).await;
    let models = without.send("GET /v1/models", "", "").await.body;
    assert!(!models.contains("podium-max"), "{models}");
    let refused = without.send(COMPLETIONS, "", &completion(false)).await;
    assert_eq!((refused.status, refused.code().as_str()), (404, "model_not_found"), "{refused:?}");
    assert!(refused.body.contains("setting `conductor_max`"), "{refused:?}");
    let mut client = without.client().await;
    let request = v1::CreateRunRequest { model: "podium-max".to_owned(), ..asking("why?") };
    assert_eq!(within(client.create_run(request)).await.unwrap_err().code(), Code::NotFound);
}
