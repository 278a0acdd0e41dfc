//! Tools in runs of several steps: a suspended run continues with the results of its calls, over each API.

use podium_api::v1;
use podium_domain::content::ToolCall;
use podium_domain::conversation::Message;
use podium_domain::run::FinishReason;
use podium_testkit::Answer;
use serde_json::{Value, json};
use tonic::Code;

use crate::test_server::{COMPLETIONS, Reply, TestServer, asking};

/// A server whose worker calls a tool first, and then answers.
async fn calling() -> TestServer {
    let server = TestServer::with_tools().await;
    let call = ToolCall::new("v-1", "look", r#"{"at":"sky"}"#);
    let calls = Answer::text("I look.").call(call).finish(FinishReason::ToolCalls);
    server.vendor.script("checker", [calls, Answer::text("It is blue.")]);
    server
}

fn body(messages: &Value, stream: bool) -> String {
    let parameters = json!({"type": "object", "properties": {}});
    let tools = json!([{"type": "function", "function": {"name": "look", "parameters": parameters}}]);
    json!({"model": "podium-ultra", "messages": messages, "tools": tools, "stream": stream}).to_string()
}

fn run_of(reply: &Reply) -> String {
    let line = reply.head.lines().find_map(|line| line.strip_prefix("x-podium-run-id: "));
    line.unwrap_or_else(|| panic!("{reply:?}")).to_owned()
}

async fn run(server: &TestServer, id: &str) -> Value {
    server.send(&format!("GET /v1/runs/{id}"), "", "").await.json()
}

#[tokio::test]
async fn a_completion_with_results_continues_the_suspended_run() {
    let server = calling().await;
    let mut messages = json!([{"role": "user", "content": "Which colour?"}]);
    let reply = server.send(COMPLETIONS, "", &body(&messages, false)).await;
    let (id, first) = (run_of(&reply), reply.json());
    let choice = &first["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &json!("I look."))
    );
    let suspended = run(&server, &id).await;
    assert_eq!((&suspended["state"], &suspended["answer"]), (&json!("suspended"), &Value::Null));
    assert_eq!(suspended["tool_calls"], choice["message"]["tool_calls"]);
    assert!(suspended["results_due"].as_u64() > suspended["deadline"].as_u64(), "{suspended}");
    assert_eq!(suspended["steps"][0]["state"], "calling");
    let listed = server.send("GET /v1/runs", "", "").await.json();
    assert_eq!(listed["data"][0]["state"], "suspended");

    let call = choice["message"]["tool_calls"][0]["id"].clone();
    messages.as_array_mut().unwrap().push(choice["message"].clone());
    messages.as_array_mut().unwrap().push(json!({"role": "tool", "tool_call_id": call, "content": "blue"}));
    let reply = server.send(COMPLETIONS, "", &body(&messages, false)).await;
    let second = reply.json();
    assert_eq!(run_of(&reply), id, "the same run answers");
    assert_eq!(second["choices"][0]["message"]["content"], "It is blue.");
    let ids = [&first, &second].map(|response| response["id"].as_str().unwrap().to_owned());
    assert_eq!(ids[1], format!("{}_1", ids[0]), "each response has its own id");
    let ended = run(&server, &id).await;
    let tokens = |of: &Value| of["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(tokens(&first) + tokens(&second), tokens(&ended), "usage is counted once");
    assert_eq!((&ended["state"], &ended["answer"]), (&json!("succeeded"), &json!("It is blue.")));

    // The same request again gets the same reply, streamed as well.
    let streamed = server.send(COMPLETIONS, "", &body(&messages, true)).await;
    let chunks = streamed.body.lines().filter_map(|line| line.strip_prefix("data: {"));
    let chunks: Vec<Value> = chunks.map(|line| serde_json::from_str(&format!("{{{line}")).unwrap()).collect();
    let text: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!((text.as_str(), &chunks[0]["id"]), ("It is blue.", &second["id"]));
    assert_eq!(server.vendor.calls_of("checker").len(), 2, "no worker was called again");
}

#[tokio::test]
async fn results_for_a_cancelled_run_begin_a_new_run() {
    let server = calling().await;
    let mut messages = json!([{"role": "user", "content": "Which colour?"}]);
    let reply = server.send(COMPLETIONS, "", &body(&messages, false)).await;
    let id = run_of(&reply);
    let cancelled = server.send(&format!("POST /v1/runs/{id}/cancel"), "", "").await.json();
    assert_eq!(cancelled["state"], "cancelled");
    let message = reply.json()["choices"][0]["message"].clone();
    let call = message["tool_calls"][0]["id"].clone();
    messages.as_array_mut().unwrap().push(message);
    messages.as_array_mut().unwrap().push(json!({"role": "tool", "tool_call_id": call, "content": "blue"}));
    let reply = server.send(COMPLETIONS, "", &body(&messages, false)).await;
    assert_eq!((reply.status, run_of(&reply) == id), (200, false), "{reply:?}");
    assert_eq!(reply.json()["choices"][0]["message"]["content"], "It is blue.");
    let asked = server.vendor.calls_of("checker").pop().unwrap();
    let result = asked.messages.iter().flat_map(Message::results).next().unwrap();
    assert_eq!((result.call_id.as_str(), result.output.as_str()), ("v-1", "blue"));
}

#[tokio::test]
async fn submitted_results_continue_a_run_over_grpc() {
    let server = calling().await;
    let mut client = server.client().await;
    let tool = v1::Tool { name: "look".to_owned(), parameters: "{}".to_owned(), ..Default::default() };
    let request = v1::CreateRunRequest { tools: vec![tool], ..asking("Which colour?") };
    let created = client.create_run(request).await.unwrap().into_inner().run.unwrap();
    let id = created.run_id;
    let watch = v1::WatchRunRequest { run_id: id.clone(), after_sequence: 0 };
    let mut updates = client.watch_run(watch).await.unwrap().into_inner();
    let mut kinds = Vec::new();
    while !kinds.contains(&"suspended") {
        if let Some(kind) = kind_of(&updates.message().await.unwrap().unwrap()) {
            kinds.push(kind);
        }
    }
    let get = v1::GetRunRequest { run_id: id.clone() };
    let run = client.get_run(get).await.unwrap().into_inner().run.unwrap();
    assert_eq!((run.state(), run.tool_calls.len()), (v1::RunState::Suspended, 1));
    assert!(run.results_due_time.is_some() && run.rounds[0].steps[0].tool_calls == run.tool_calls);
    let call = run.tool_calls[0].id.clone();
    let results = |ids: &[&str]| {
        let result = |id: &&str| v1::ToolResult {
            call_id: (*id).to_owned(),
            output: "blue".to_owned(),
            ..Default::default()
        };
        v1::SubmitToolResultsRequest { run_id: id.clone(), results: ids.iter().map(result).collect() }
    };
    for wrong in [results(&[]), results(&["other"])] {
        let refused = client.submit_tool_results(wrong).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(&format!("missing: `{call}`")), "{}", refused.message());
    }
    let mut seen = results(&[&call]);
    let url = "https://example.org/a.png".to_owned();
    seen.results[0].images = vec![v1::Image { image: Some(v1::image::Image::Url(url)) }];
    let refused = client.submit_tool_results(seen).await.unwrap_err();
    assert!(refused.message().contains("worker `checker` does not take image"), "{}", refused.message());
    let continued = client.submit_tool_results(results(&[&call])).await.unwrap().into_inner().run.unwrap();
    assert_eq!(continued.state(), v1::RunState::Active);
    while let Some(update) = updates.message().await.unwrap() {
        kinds.extend(kind_of(&update));
    }
    assert_eq!(kinds, ["step_called", "suspended", "results_given", "step_done"]);
    let again = client.submit_tool_results(results(&[&call])).await.unwrap().into_inner().run.unwrap();
    assert_eq!((again.state(), again.answer()), (v1::RunState::Succeeded, "It is blue."));
    let asked = server.vendor.calls_of("checker").pop().unwrap();
    let result = asked.messages.last().unwrap().results().next().unwrap().clone();
    assert_eq!((result.call_id.as_str(), result.name.as_str()), ("v-1", "look"));
    let mut other = results(&[&call]);
    other.results[0].output = "red".to_owned();
    let refused = client.submit_tool_results(other).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
}

/// The kind of an event about a step's calls.
fn kind_of(update: &v1::WatchRunResponse) -> Option<&'static str> {
    use v1::run_event::Kind;
    let Some(v1::watch_run_response::Update::Event(event)) = &update.update else { return None };
    match event.kind.as_ref()? {
        Kind::StepCalled(_) => Some("step_called"),
        Kind::Suspended(_) => Some("suspended"),
        Kind::ResultsGiven(_) => Some("results_given"),
        Kind::StepDone(_) => Some("step_done"),
        _ => None,
    }
}
