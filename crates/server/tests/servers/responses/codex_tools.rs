//! The kinds of tools that coding agents send: custom tools, namespaces, searches, and tools of another service.

use podium_domain::content::ToolCall;
use podium_domain::run::Run;
use podium_domain::tools::ToolChoice;
use podium_ports::vendor::FinishReason;
use podium_testkit::Answer;
use serde_json::{Value, json};

use super::ask;
use super::schema::{check_item, check_response, events};
use crate::test_server::TestServer;

const PATCH: &str =
    "*** Begin Patch\n+a \"quoted\" \\ line of a patch that is longer than one piece\n*** End Patch";

fn tools() -> Value {
    let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: /.+/"});
    let inner = json!([{
        "type": "function", "name": "close", "description": "Closes.", "parameters": {"type": "object"},
        "strict": false,
    }]);
    json!([
        {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": grammar},
        {"type": "namespace", "name": "agents", "description": "Sub-agents.", "tools": inner},
        {"type": "web_search", "external_web_access": true},
    ])
}

/// A server whose worker writes a text, a patch and a call of a tool in a namespace.
async fn patching() -> TestServer {
    let server = TestServer::with_tools().await;
    let answer = Answer::text("I patch.")
        .call(ToolCall::new("v-1", "apply_patch", json!({"input": PATCH}).to_string()))
        .call(ToolCall::new("v-2", "agents__close", "{\"id\":1}"))
        .finish(FinishReason::ToolCalls);
    server.vendor.otherwise(answer);
    server
}

async fn run_of(server: &TestServer, response: &Value) -> std::sync::Arc<Run> {
    let id = response["id"].as_str().unwrap().strip_prefix("resp_").unwrap();
    server.ended(id.parse().unwrap()).await
}

/// A request whose run ends with its calls, so that their outputs begin another one.
fn ending(input: &Value) -> Value {
    json!({"tools": tools(), "input": input, "podium": {"tools": "last"}})
}

#[tokio::test]
async fn calls_come_back_as_the_client_knows_their_tools() {
    let server = patching().await;
    let made = ask(&server, ending(&json!("why?"))).await.json();
    check_response(&made);
    let items = made["output"].as_array().unwrap();
    assert_eq!((&items[0]["type"], &items[0]["phase"]), (&json!("message"), &json!("commentary")));
    assert_eq!((&items[1]["type"], &items[1]["name"]), (&json!("custom_tool_call"), &json!("apply_patch")));
    assert_eq!(items[1]["input"], PATCH);
    assert_eq!((&items[2]["type"], &items[2]["name"]), (&json!("function_call"), &json!("close")));
    assert_eq!((&items[2]["namespace"], &items[2]["arguments"]), (&json!("agents"), &json!("{\"id\":1}")));
    let sent = tools();
    assert_eq!(made["tools"].as_array().unwrap()[..], sent.as_array().unwrap()[..2]);
    assert_eq!(made["podium"]["tools_left_out"], json!(["web_search"]));
    let run = run_of(&server, &made).await;
    let offered = &run.spec().request.tools.as_ref().unwrap().tools;
    let names: Vec<_> = offered.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["apply_patch", "agents__close"]);
}

#[tokio::test]
async fn the_text_of_a_custom_tool_is_streamed() {
    let server = patching().await;
    let live = events(&ask(&server, json!({"tools": tools(), "stream": true})).await.body);
    let response = &live.last().unwrap().data["response"];
    let done: Vec<_> = live.iter().filter(|event| event.name == "response.output_item.done").collect();
    let items: Vec<_> = done.iter().map(|event| event.data["item"].clone()).collect();
    assert_eq!(response["output"], json!(items));
    let deltas: Vec<_> =
        live.iter().filter(|event| event.name == "response.custom_tool_call_input.delta").collect();
    assert!(deltas.len() > 1, "{}", deltas.len());
    let text: String = deltas.iter().filter_map(|event| event.data["delta"].as_str()).collect();
    assert_eq!(text, PATCH);
    let whole = live.iter().find(|event| event.name == "response.custom_tool_call_input.done").unwrap();
    assert_eq!(whole.data["input"], PATCH);
    let path = format!("GET /v1/responses/{}?stream=true", response["id"].as_str().unwrap());
    let repeated = events(&server.send(&path, "", "").await.body);
    let data = |events: &[super::Event]| events.iter().map(|event| event.data.clone()).collect::<Vec<_>>();
    assert_eq!(data(&repeated), data(&live));
}

#[tokio::test]
async fn outputs_of_custom_tools_go_back_to_the_worker() {
    let server = patching().await;
    let made = ask(&server, ending(&json!("why?"))).await.json();
    server.vendor.otherwise(Answer::text("Patched."));
    let call_id = |index: usize| made["output"][index]["call_id"].clone();
    let outputs = json!([
        {"type": "custom_tool_call_output", "call_id": call_id(1), "output": "done"},
        {"type": "function_call_output", "call_id": call_id(2), "output": "closed"},
    ]);
    let mut input = vec![json!({"role": "user", "content": "why?"})];
    input.extend(made["output"].as_array().unwrap().iter().cloned());
    input.extend(outputs.as_array().unwrap().iter().cloned());
    let next = ask(&server, ending(&json!(input))).await.json();
    assert_eq!(next["output"][0]["content"][0]["text"], "Patched.", "{next}");
    let run = run_of(&server, &next).await;
    let calls: Vec<_> = run
        .spec()
        .request
        .conversation
        .messages()
        .iter()
        .flat_map(podium_domain::conversation::Message::calls)
        .collect();
    let known: Vec<_> = calls.iter().map(|call| (call.name.as_str(), call.own_id.is_some())).collect();
    assert_eq!(known, [("apply_patch", true), ("agents__close", true)], "the worker's own ids are restored");
    let path = format!("GET /v1/responses/{}/input_items?order=asc", next["id"].as_str().unwrap());
    let items = server.send(&path, "", "").await.json();
    let items = items["data"].as_array().unwrap();
    items.iter().for_each(check_item);
    let kinds: Vec<_> = items.iter().map(|item| &item["type"]).collect();
    let expected = [
        "message",
        "message",
        "custom_tool_call",
        "function_call",
        "custom_tool_call_output",
        "function_call_output",
    ];
    assert_eq!(kinds, expected);
    assert_eq!((&items[2]["input"], &items[3]["namespace"]), (&json!(PATCH), &json!("agents")));
}

#[tokio::test]
async fn items_of_the_input_may_bring_tools() {
    let server = TestServer::with_tools().await;
    let look = json!({"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}, "strict": false});
    let inner = json!({"type": "namespace", "name": "functions", "description": "", "tools": [look]});
    let found = json!({"type": "function", "name": "found", "description": "", "parameters": {"type": "object"}, "strict": false});
    let input = json!([
        {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [inner]},
        {"type": "message", "role": "user", "content": "find"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "tool_search_call", "call_id": "s1", "execution": "client", "arguments": {"query": "f"}, "status": "completed"},
        {"type": "tool_search_output", "call_id": "s1", "execution": "client", "status": "completed", "tools": [found]},
    ]);
    let search = json!([{"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": {"type": "object"}}]);
    let made = ask(&server, json!({"input": input, "tools": search})).await.json();
    check_response(&made);
    let run = run_of(&server, &made).await;
    let offered = run.spec().request.tools.clone().unwrap();
    let names: Vec<_> = offered.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["tool_search", "functions__look", "found"]);
    assert_eq!(offered.choice, ToolChoice::Auto);
    let last = run.spec().request.conversation.messages().last().unwrap().parts.clone();
    assert!(format!("{last:?}").contains("Tools found: found"), "{last:?}");
}

#[tokio::test]
async fn a_search_for_tools_is_an_item_of_its_own() {
    let server = TestServer::with_tools().await;
    let call = ToolCall::new("v-1", "tool_search", "{\"query\":\"maps\"}");
    server.vendor.otherwise(Answer::text("").call(call).finish(FinishReason::ToolCalls));
    let search = json!([{"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": {"type": "object"}}]);
    let live = ask(&server, json!({"tools": search, "stream": true})).await;
    let live: Vec<Value> = live
        .body
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    let item = live.iter().find(|event| event["type"] == "response.output_item.done").unwrap();
    let item = &item["item"];
    assert_eq!((&item["type"], &item["execution"]), (&json!("tool_search_call"), &json!("client")));
    assert_eq!(item["arguments"], json!({"query": "maps"}));
    assert!(!live.iter().any(|event| event["type"].as_str().unwrap().contains("arguments")));
}

#[tokio::test]
async fn a_choice_of_a_tool_that_podium_does_not_run_is_refused() {
    let server = TestServer::with_tools().await;
    for (tools, choice, param) in [
        (json!([{"type": "web_search"}]), json!("required"), "tool_choice"),
        (tools(), json!({"type": "image_generation"}), "tool_choice.type"),
    ] {
        let reply = ask(&server, json!({"tools": tools, "tool_choice": choice})).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)));
    }
}
