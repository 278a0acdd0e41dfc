//! Conversations, and removed responses.

use podium_api::openai::ResponseWriter;
use podium_domain::content::ToolCall;
use podium_ports::server::ServerLimits;
use podium_ports::vendor::FinishReason;
use podium_testkit::{Answer, Gate};
use serde_json::{Value, json};

use super::schema::{check_item, check_response, events};
use super::{ask, asking};
use crate::test_server::{Reply, TestServer, within};

const CONVERSATIONS: &str = "POST /v1/conversations";

async fn made(server: &TestServer, body: &Value) -> Value {
    let reply = server.send(CONVERSATIONS, "", &body.to_string()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

async fn get(server: &TestServer, path: &str) -> Reply {
    server.send(&format!("GET /v1/conversations/{path}"), "", "").await
}

/// The items of a conversation, the first one first.
async fn items(server: &TestServer, id: &str) -> Vec<Value> {
    let list = get(server, &format!("{id}/items?order=asc")).await.json();
    assert_eq!(list["object"], "list", "{list}");
    let items = list["data"].as_array().unwrap().clone();
    for item in items.iter().filter(|item| !item["id"].as_str().unwrap().starts_with("ci_")) {
        check_item(item);
    }
    items
}

fn texts(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["content"][0]["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_conversation_collects_its_responses() {
    let server = TestServer::open(ServerLimits::default()).await;
    let first = json!({"role": "user", "content": "my name is Ada"});
    let conversation = made(&server, &json!({"items": [first], "metadata": {"a": "b"}})).await;
    assert_eq!(
        (&conversation["object"], &conversation["metadata"]),
        (&json!("conversation"), &json!({"a": "b"}))
    );
    let id = conversation["id"].as_str().unwrap().to_owned();
    assert_eq!(get(&server, &id).await.json(), conversation);
    let whole = ask(&server, json!({"conversation": id, "input": "who am I?"})).await.json();
    check_response(&whole);
    assert_eq!(whole["conversation"], json!({"id": id}));
    let change =
        json!({"conversation": {"id": id}, "input": "again?", "stream": true, "instructions": "be brief"});
    let streamed = events(&ask(&server, change).await.body);
    assert_eq!(streamed[0].data["response"]["conversation"], json!({"id": id}));
    let response = &streamed.last().unwrap().data["response"];
    let run = response["id"].as_str().unwrap().strip_prefix("resp_").unwrap().parse().unwrap();
    let run = server.ended(run).await;
    let heard: Vec<_> =
        run.spec().request.conversation.messages().iter().map(|message| message.text.as_str()).collect();
    let expected = ["be brief", "my name is Ada", "who am I?", "blue light scatters", "again?"];
    assert_eq!(heard, expected);
    let all = items(&server, &id).await;
    let answer = "blue light scatters";
    assert_eq!(texts(&all), ["my name is Ada", "who am I?", answer, "again?", answer]);
    assert!(ResponseWriter::of(&run).is_stored());
}

#[tokio::test]
async fn items_are_added_read_and_removed() {
    let server = TestServer::with_tools().await;
    let id = made(&server, &json!({})).await["id"].as_str().unwrap().to_owned();
    let sent = json!({"items": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"}]},
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "a \"b\""},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
    ]});
    let path = format!("POST /v1/conversations/{id}/items");
    let added = server.send(&path, "", &sent.to_string()).await.json();
    let data = added["data"].as_array().unwrap();
    assert_eq!((data.len(), &data[1]["type"]), (3, &json!("custom_tool_call")), "{added}");
    assert_eq!(data[1]["input"], "a \"b\"");
    assert_eq!(items(&server, &id).await, *data);
    let item = data[0]["id"].as_str().unwrap();
    assert_eq!(get(&server, &format!("{id}/items/{item}")).await.json(), data[0]);
    let answered = ask(&server, json!({"conversation": id, "input": "next"})).await.json();
    let mine = answered["output"][0]["id"].as_str().unwrap();
    for removed in [item, mine] {
        let path = format!("DELETE /v1/conversations/{id}/items/{removed}");
        let left = server.send(&path, "", "").await.json();
        assert_eq!(left["id"], id.as_str(), "{left}");
        assert_eq!(get(&server, &format!("{id}/items/{removed}")).await.code(), "conversation_not_found");
    }
    let kinds: Vec<_> = items(&server, &id).await.iter().map(|item| item["type"].clone()).collect();
    assert_eq!(kinds, ["custom_tool_call", "custom_tool_call_output", "message"]);
    let page = get(&server, &format!("{id}/items?limit=1")).await.json();
    assert_eq!((&page["has_more"], &page["data"][0]["content"][0]["text"]), (&json!(true), &json!("next")));
}

#[tokio::test]
async fn a_conversation_is_changed_and_removed() {
    let server = TestServer::open(ServerLimits::default()).await;
    let id = made(&server, &json!({"metadata": {"a": "b"}})).await["id"].as_str().unwrap().to_owned();
    let change = json!({"metadata": {"c": "d"}}).to_string();
    let changed = server.send(&format!("POST /v1/conversations/{id}"), "", &change).await.json();
    assert_eq!(changed["metadata"], json!({"c": "d"}));
    let removed = server.send(&format!("DELETE /v1/conversations/{id}"), "", "").await.json();
    assert_eq!(removed, json!({"id": id, "object": "conversation.deleted", "deleted": true}));
    for path in [id.clone(), format!("{id}/items"), "conv_1".to_owned()] {
        let reply = get(&server, &path).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "conversation_not_found"), "{path}");
    }
    let reply = ask(&server, json!({"conversation": id})).await;
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (404, &json!("conversation")));
}

#[tokio::test]
async fn a_conversation_has_one_response_at_a_time() {
    let server = TestServer::open(ServerLimits::default()).await;
    let id = made(&server, &json!({})).await["id"].as_str().unwrap().to_owned();
    server.vendor.otherwise(Answer::blank().wait(&Gate::closed()));
    let first = ask(&server, json!({"conversation": id, "background": true})).await.json();
    let second = ask(&server, json!({"conversation": id})).await;
    assert_eq!((second.status, second.code().as_str()), (409, "conversation_locked"));
    assert!(items(&server, &id).await.is_empty(), "the items of an answer are shown with it");
    let cancel = format!("POST /v1/responses/{}/cancel", first["id"].as_str().unwrap());
    server.send(&cancel, "", "").await;
    server.vendor.otherwise(Answer::text("fine"));
    let third = ask(&server, json!({"conversation": id})).await.json();
    assert_eq!(third["status"], "completed", "{third}");
    assert_eq!(texts(&items(&server, &id).await), ["why?", "fine"], "the cancelled response left nothing");
}

/// A response of a conversation whose worker calls `look`, and whose run is cancelled.
async fn cancelled_with_call(server: &TestServer, id: &str) -> Value {
    let call = ToolCall::new("v-1", "look", "{}");
    server.vendor.otherwise(Answer::text("").call(call).finish(FinishReason::ToolCalls));
    let made = ask(server, json!({"conversation": id, "tools": look()})).await.json();
    let run = made["id"].as_str().unwrap().trim_start_matches("resp_").to_owned();
    assert_eq!(
        server.send(&format!("POST /v1/runs/{run}/cancel"), "", "").await.json()["state"],
        "cancelled"
    );
    server.vendor.otherwise(Answer::text("It is blue."));
    made
}

fn look() -> Value {
    json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}])
}

#[tokio::test]
async fn a_conversation_continues_after_a_cancelled_call() {
    let server = TestServer::with_tools().await;
    let id = made(&server, &json!({})).await["id"].as_str().unwrap().to_owned();
    let cancelled = cancelled_with_call(&server, &id).await;
    assert!(items(&server, &id).await.is_empty());
    let output = json!([{"type": "function_call_output", "call_id": cancelled["output"][0]["call_id"], "output": "blue"}]);
    let next = ask(&server, json!({"conversation": id, "input": output, "tools": look()})).await.json();
    assert_eq!(next["output"][0]["content"][0]["text"], "It is blue.", "{next}");
    let kinds =
        async || items(&server, &id).await.iter().map(|item| item["type"].clone()).collect::<Vec<_>>();
    assert_eq!(kinds().await, ["message", "function_call", "function_call_output", "message"]);
    let last = ask(&server, json!({"conversation": id, "input": "sure?", "tools": look()})).await.json();
    assert_eq!(last["status"], "completed", "{last}");

    // A question instead of the results leaves the cancelled calls out.
    let other = made(&server, &json!({})).await["id"].as_str().unwrap().to_owned();
    cancelled_with_call(&server, &other).await;
    let asked = ask(&server, json!({"conversation": other, "input": "never mind", "tools": look()})).await;
    assert_eq!(asked.json()["status"], "completed", "{asked:?}");
    assert_eq!(texts(&items(&server, &other).await), ["never mind", "It is blue."]);
}

#[tokio::test]
async fn a_run_that_failed_after_its_results_leaves_no_calls_in_its_conversation() {
    let server = TestServer::with_tools().await;
    let id = made(&server, &json!({})).await["id"].as_str().unwrap().to_owned();
    let call = ToolCall::new("v-1", "look", "{}");
    server.vendor.otherwise(Answer::text("").call(call).finish(FinishReason::ToolCalls));
    let first = ask(&server, json!({"conversation": id, "tools": look()})).await.json();
    server.vendor.otherwise(Answer::blank().wait(&Gate::closed()));
    let output =
        json!([{"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "blue"}]);
    let change = json!({"conversation": id, "input": output, "tools": look(), "background": true});
    let second = ask(&server, change).await.json();
    let cancel = format!("POST /v1/responses/{}/cancel", second["id"].as_str().unwrap());
    assert_eq!(server.send(&cancel, "", "").await.json()["status"], "cancelled");
    server.vendor.otherwise(Answer::text("fine"));
    let third = ask(&server, json!({"conversation": id, "input": "again", "tools": look()})).await;
    assert_eq!(third.json()["status"], "completed", "{third:?}");
    assert_eq!(texts(&items(&server, &id).await), ["again", "fine"]);
}

#[tokio::test]
async fn other_tenants_have_no_such_conversation() {
    let server = TestServer::locked(ServerLimits::default()).await;
    let header = |key: String| format!("authorization: Bearer {key}\r\n");
    let (mine, theirs) = (header(server.key("acme", 1).await), header(server.key("other", 2).await));
    let id = server.send(CONVERSATIONS, &mine, "{}").await.json()["id"].as_str().unwrap().to_owned();
    for request in [format!("GET /v1/conversations/{id}"), format!("DELETE /v1/conversations/{id}")] {
        assert_eq!(server.send(&request, &theirs, "").await.code(), "conversation_not_found", "{request}");
    }
    let body = asking(json!({"conversation": id}));
    assert_eq!(server.send(super::RESPONSES, &theirs, &body).await.code(), "conversation_not_found");
    assert_eq!(server.send(&format!("GET /v1/conversations/{id}"), &mine, "").await.status, 200);
}

#[tokio::test]
async fn conflicting_parameters_are_rejected() {
    let server = TestServer::open(ServerLimits::default()).await;
    let id = made(&server, &json!({})).await["id"].as_str().unwrap().to_owned();
    let earlier = ask(&server, json!({})).await.json()["id"].clone();
    for (change, param) in [
        (json!({"conversation": id, "previous_response_id": earlier}), "previous_response_id"),
        (json!({"conversation": id, "store": false}), "conversation"),
        (json!({"conversation": 1}), "conversation"),
        (json!({"conversation": {}}), "conversation.id"),
    ] {
        let reply = ask(&server, change).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{reply:?}");
    }
}

#[tokio::test]
async fn a_removed_response_can_neither_be_read_nor_continued() {
    let server = TestServer::open(ServerLimits::default()).await;
    let id = ask(&server, json!({})).await.json()["id"].as_str().unwrap().to_owned();
    let removed = server.send(&format!("DELETE /v1/responses/{id}"), "", "").await.json();
    assert_eq!(removed, json!({"id": id, "object": "response", "deleted": true}));
    let as_conversation = server.send(&format!("DELETE /v1/conversations/{id}"), "", "").await;
    assert_eq!(as_conversation.status, 404);
    for request in [format!("GET /v1/responses/{id}"), format!("DELETE /v1/responses/{id}")] {
        let reply = server.send(&request, "", "").await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "response_not_found"), "{request}");
    }
    let next = ask(&server, json!({"previous_response_id": id})).await;
    assert_eq!(next.code(), "previous_response_not_found");
}

#[tokio::test]
async fn a_response_that_is_removed_under_way_is_cancelled() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::blank().wait(&Gate::closed()));
    let id = ask(&server, json!({"background": true})).await.json()["id"].as_str().unwrap().to_owned();
    let removed = server.send(&format!("DELETE /v1/responses/{id}"), "", "").await;
    assert_eq!(removed.status, 200, "{removed:?}");
    let run = within(server.ended(id.strip_prefix("resp_").unwrap().parse().unwrap())).await;
    assert_eq!(run.state().as_str(), "cancelled");
}
