//! Function calls of responses, and their outputs.

use podium_domain::content::ToolCall;
use podium_domain::conversation::Message;
use podium_ports::vendor::FinishReason;
use podium_testkit::Answer;
use serde_json::{Value, json};

use super::ask;
use super::schema::{Event, check_item, check_response, events};
use crate::test_server::TestServer;

const ARGUMENTS: &str = r#"{"at": "the sky above the harbour at noon", "days": [1, 2]}"#;

/// A server whose worker writes a text and calls a function twice.
async fn calling() -> TestServer {
    let server = TestServer::with_tools().await;
    let answer = Answer::text("I look.")
        .call(ToolCall::new("v-1", "look", ARGUMENTS))
        .call(ToolCall::new("v-2", "look", "{}"))
        .finish(FinishReason::ToolCalls);
    server.vendor.otherwise(answer);
    server
}

fn tools() -> Value {
    json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}])
}

/// The outputs of the two calls of a response.
fn outputs(response: &Value) -> Vec<Value> {
    let output = |index: usize, output: Value| {
        let call = &response["output"][index]["call_id"];
        json!({"type": "function_call_output", "call_id": call, "output": output})
    };
    vec![output(1, json!("blue")), output(2, json!([{"type": "input_text", "text": "calm"}]))]
}

#[tokio::test]
async fn function_calls_are_items_after_the_message() {
    let server = calling().await;
    let made = ask(&server, json!({"tools": tools(), "parallel_tool_calls": true})).await.json();
    check_response(&made);
    let items = made["output"].as_array().unwrap();
    let kinds: Vec<_> = items.iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "function_call", "function_call"], "{made}");
    assert_eq!((&items[1]["name"], &items[1]["arguments"]), (&json!("look"), &json!(ARGUMENTS)));
    assert_eq!(items[2]["arguments"], "{}");
    assert_eq!((&made["tools"][0]["name"], &made["tool_choice"]), (&json!("look"), &json!("auto")));
    assert_eq!(made["status"], "completed");
}

#[tokio::test]
async fn streamed_function_calls_are_the_stored_ones() {
    let server = calling().await;
    let live = events(&ask(&server, json!({"tools": tools(), "stream": true})).await.body);
    let response = &live.last().unwrap().data["response"];
    let done: Vec<_> = live.iter().filter(|event| event.name == "response.output_item.done").collect();
    let items: Vec<_> = done.iter().map(|event| event.data["item"].clone()).collect();
    assert_eq!(response["output"], json!(items));
    let deltas = live.iter().filter(|event| event.name == "response.function_call_arguments.delta");
    let first: Vec<_> = deltas.filter(|event| event.data["output_index"] == 1).collect();
    assert!(first.len() > 1, "{}", first.len());
    let text: String = first.iter().filter_map(|event| event.data["delta"].as_str()).collect();
    assert_eq!(text, ARGUMENTS);
    let path = format!("GET /v1/responses/{}?stream=true", response["id"].as_str().unwrap());
    let repeated = events(&server.send(&path, "", "").await.body);
    let data = |events: &[Event]| events.iter().map(|event| event.data.clone()).collect::<Vec<_>>();
    assert_eq!(data(&repeated), data(&live));
}

#[tokio::test]
async fn outputs_of_functions_continue_a_response() {
    let server = calling().await;
    let made = ask(&server, json!({"tools": tools()})).await.json();
    server.vendor.otherwise(Answer::text("It is blue."));
    let by_id = json!({"previous_response_id": made["id"], "input": outputs(&made), "tools": tools()});
    let mut repeated = vec![json!({"role": "user", "content": "why?"})];
    repeated.extend(made["output"].as_array().unwrap().iter().cloned());
    repeated.extend(outputs(&made));
    let by_input = json!({"input": repeated, "store": false, "tools": tools()});
    for change in [by_id.clone(), by_input] {
        let next = ask(&server, change).await.json();
        check_response(&next);
        assert_eq!(next["output"][0]["content"][0]["text"], "It is blue.", "{next}");
    }
    let next = ask(&server, by_id).await.json();
    let path = format!("GET /v1/responses/{}/input_items?order=asc", next["id"].as_str().unwrap());
    let items = server.send(&path, "", "").await.json();
    let items = items["data"].as_array().unwrap();
    items.iter().for_each(check_item);
    let given: Vec<_> = items.iter().map(|item| &item["output"]).collect();
    assert_eq!(given, ["blue", "calm"]);
}

#[tokio::test]
async fn a_call_without_output_cannot_be_continued() {
    let server = calling().await;
    let made = ask(&server, json!({"tools": tools()})).await.json();
    let reply = ask(&server, json!({"previous_response_id": made["id"]})).await;
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("input")));
}

#[tokio::test]
async fn outputs_for_a_cancelled_run_begin_a_new_run() {
    let server = calling().await;
    let made = ask(&server, json!({"tools": tools()})).await.json();
    let run = made["id"].as_str().unwrap().trim_start_matches("resp_").to_owned();
    let cancelled = server.send(&format!("POST /v1/runs/{run}/cancel"), "", "").await.json();
    assert_eq!(cancelled["state"], "cancelled");
    server.vendor.otherwise(Answer::text("It is blue."));
    let refused = ask(&server, json!({"previous_response_id": made["id"], "tools": tools()})).await;
    assert_eq!(refused.json()["error"]["param"], "previous_response_id", "{refused:?}");
    let by_id = json!({"previous_response_id": made["id"], "input": outputs(&made), "tools": tools()});
    let mut repeated = vec![json!({"role": "user", "content": "why?"})];
    repeated.extend(made["output"].as_array().unwrap().iter().cloned());
    repeated.extend(outputs(&made));
    for change in [by_id, json!({"input": repeated, "store": false, "tools": tools()})] {
        let next = ask(&server, change).await.json();
        check_response(&next);
        assert_eq!(next["output"][0]["content"][0]["text"], "It is blue.", "{next}");
        assert!(!next["id"].as_str().unwrap().contains(&run), "{next}");
        let asked = server.vendor.calls_of("checker").pop().unwrap();
        let given: Vec<_> = asked.messages.iter().flat_map(Message::results).collect();
        let given: Vec<_> = given.iter().map(|result| result.output.as_str()).collect();
        assert_eq!(given, ["blue", "calm"]);
    }
}
