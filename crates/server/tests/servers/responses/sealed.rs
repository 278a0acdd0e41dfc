//! Reasoning items with content, which a client keeps for the worker of its calls.

use std::time::Duration;

use podium_domain::content::ToolCall;
use podium_domain::conversation::Message;
use podium_ports::vendor::FinishReason;
use podium_testkit::{Answer, TestClock};
use serde_json::{Value, json};

use super::schema::{check_response, events};
use super::{Event, ask};
use crate::test_server::TestServer;

/// A server whose worker calls a function.
async fn calling() -> TestServer {
    let server = TestServer::with_tools().await;
    let answer = Answer::text("I look.").call(ToolCall::new("v-1", "look", "{}"));
    server.vendor.otherwise(answer.finish(FinishReason::ToolCalls));
    server
}

/// A request whose run ends with its calls, so that their outputs begin another one.
fn stateless(input: &Value) -> Value {
    let tools = json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}]);
    let include = ["reasoning.encrypted_content"];
    json!({"input": input, "tools": tools, "store": false, "include": include, "podium": {"tools": "last"}})
}

/// The input that continues a response.
fn continued(response: &Value) -> Value {
    let output = response["output"].as_array().unwrap();
    let mut input = vec![json!({"role": "user", "content": "why?"})];
    input.extend(output.iter().cloned());
    input.push(json!({"type": "function_call_output", "call_id": output[1]["call_id"], "output": "blue"}));
    Value::Array(input)
}

/// The worker's own id of the call in the conversation of a response's run.
async fn own_id(server: &TestServer, response: &Value) -> Option<String> {
    let run = response["id"].as_str().unwrap().strip_prefix("resp_").unwrap().parse().unwrap();
    let run = server.ended(run).await;
    let messages = run.spec().request.conversation.messages();
    let call = messages.iter().flat_map(Message::calls).next().unwrap();
    call.own_id.as_ref().map(|id| id.mark.clone())
}

#[tokio::test]
async fn an_answer_with_calls_ends_with_a_reasoning_item() {
    let server = calling().await;
    let made = ask(&server, stateless(&json!("why?"))).await.json();
    check_response(&made);
    let kinds: Vec<_> = made["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "function_call", "reasoning"], "{made}");
    let mut stored = stateless(&json!("why?"));
    stored["stream"] = json!(true);
    stored["store"] = json!(true);
    let live = events(&ask(&server, stored).await.body);
    let response = &live.last().unwrap().data["response"];
    let done = live.iter().filter(|event| event.name == "response.output_item.done");
    let items: Vec<_> = done.map(|event| event.data["item"].clone()).collect();
    assert_eq!(response["output"], json!(items));
    let path = format!("GET /v1/responses/{}?stream=true", response["id"].as_str().unwrap());
    let repeated = events(&server.send(&path, "", "").await.body);
    let data = |events: &[Event]| events.iter().map(|event| event.data.clone()).collect::<Vec<_>>();
    assert_eq!(data(&repeated), data(&live));
}

#[tokio::test]
async fn only_clients_that_ask_get_the_content() {
    let server = calling().await;
    let mut plain = stateless(&json!("why?"));
    plain["include"] = json!([]);
    let made = ask(&server, plain).await.json();
    assert_eq!(made["output"].as_array().unwrap().len(), 2, "{made}");
    server.vendor.otherwise(Answer::text("no calls"));
    let made = ask(&server, stateless(&json!("why?"))).await.json();
    assert_eq!(made["output"].as_array().unwrap().len(), 1, "{made}");
}

#[tokio::test]
async fn a_turn_continues_although_its_run_was_removed() {
    let server = calling().await;
    let made = ask(&server, stateless(&json!("why?"))).await.json();
    server.vendor.otherwise(Answer::text("It is blue."));
    let input = continued(&made);
    server.remove_all(TestClock::START.after(Duration::from_hours(48))).await;
    let next = ask(&server, stateless(&input)).await.json();
    assert_eq!(next["output"][0]["content"][0]["text"], "It is blue.", "{next}");
    assert_eq!(own_id(&server, &next).await.as_deref(), Some("v-1"));
    assert_eq!(server.conductor.requests().len(), 1, "the first run was planned, and not this one");
    let mut bare = input;
    bare.as_array_mut().unwrap().retain(|item| item["type"] != "reasoning");
    let planned = ask(&server, stateless(&bare)).await.json();
    assert_eq!(own_id(&server, &planned).await, None);
    assert_eq!(server.conductor.requests().len(), 2);
}

#[tokio::test]
async fn foreign_content_is_ignored() {
    let server = calling().await;
    let made = ask(&server, stateless(&json!("why?"))).await.json();
    server.vendor.otherwise(Answer::text("It is blue."));
    let mut input = continued(&made);
    for content in ["gAAAAABo", "podium1.AAAA"] {
        input[3]["encrypted_content"] = json!(content);
        let next = ask(&server, stateless(&input)).await.json();
        assert_eq!(next["status"], "completed", "{next}");
    }
}
