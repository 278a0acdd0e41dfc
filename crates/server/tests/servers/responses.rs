//! The Responses API: whole and streamed responses, and stored ones.

mod codex_tools;
mod conversations;
mod functions;
mod schema;
mod sealed;
mod socket;
mod stored;

use podium_ports::server::ServerLimits;
use podium_ports::vendor::FinishReason;
use podium_testkit::{Answer, Fault, Gate};
use serde_json::{Value, json};

use crate::test_server::{Reply, TestServer, until, within};
use schema::{Event, check_response, events};

const RESPONSES: &str = "POST /v1/responses";

/// The body of a request.
fn asking(change: Value) -> String {
    let mut body = json!({"model": "podium-ultra", "input": "why?"});
    let (Value::Object(body), Value::Object(change)) = (&mut body, change) else { panic!("no objects") };
    body.extend(change);
    serde_json::to_string(body).unwrap()
}

async fn ask(server: &TestServer, change: Value) -> Reply {
    server.send(RESPONSES, "", &asking(change)).await
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

#[tokio::test]
async fn a_response_is_whole() {
    let server = TestServer::open(ServerLimits::default()).await;
    let reply = ask(&server, json!({"instructions": "be brief", "metadata": {"a": "b"}})).await;
    let body = reply.json();
    assert_eq!(reply.status, 200, "{body}");
    check_response(&body);
    let run = reply.header("x-podium-run-id").unwrap().replace('-', "");
    assert_eq!((&body["id"], &body["status"]), (&json!(format!("resp_{run}")), &json!("completed")));
    assert_eq!((&body["instructions"], &body["metadata"]), (&json!("be brief"), &json!({"a": "b"})));
    let message = json!({
        "type": "message", "id": format!("msg_{run}"), "status": "completed", "role": "assistant",
        "phase": "final_answer",
        "content": [{"type": "output_text", "text": "blue light scatters", "annotations": [], "logprobs": []}],
    });
    assert_eq!(body["output"], json!([message]));
    let usage = &body["usage"];
    let tokens = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(tokens("total_tokens"), tokens("input_tokens") + tokens("output_tokens"));
    assert!(usage["input_tokens_details"]["orchestration_input_tokens"].is_u64());
    assert!(body["podium"]["cost_nano_usd"].is_u64());
}

#[tokio::test]
async fn a_streamed_response_has_every_event_in_order() {
    let server = TestServer::open(ServerLimits::default()).await;
    let reply = ask(&server, json!({"stream": true})).await;
    assert!(reply.header("content-type").unwrap().starts_with("text/event-stream"));
    let events = events(&reply.body);
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names(&events), expected);
    let deltas: String = events.iter().filter_map(|event| event.data["delta"].as_str()).collect();
    assert_eq!(deltas, "blue light scatters");
    assert_eq!(events[7].data["text"], "blue light scatters");
    assert_eq!(events[0].data["response"]["status"], "in_progress");
    let last = &events.last().unwrap().data["response"];
    check_response(last);
    assert_eq!(last["output"][0], events[9].data["item"]);
    let (_, rest) = reply.body.split_once("event: response.completed").unwrap();
    assert!(rest.contains("\ndata: [DONE]\n\n"), "{rest}");
}

#[tokio::test]
async fn a_response_is_created_before_its_work_begins() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::blank().wait(&Gate::closed()));
    let mut connection = server.connect().await;
    let request = crate::test_server::request(RESPONSES, "", &asking(json!({"stream": true})));
    tokio::io::AsyncWriteExt::write_all(&mut connection, request.as_bytes()).await.unwrap();
    let seen = until(&mut connection, "response.in_progress").await;
    assert!(seen.contains("event: response.created"), "{seen}");
}

#[tokio::test]
async fn a_limit_of_tokens_makes_a_response_incomplete() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::text("blue").finish(FinishReason::Length));
    let body = ask(&server, json!({"max_output_tokens": 1})).await.json();
    check_response(&body);
    assert_eq!((&body["status"], &body["completed_at"]), (&json!("incomplete"), &Value::Null));
    assert_eq!(body["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(body["output"][0]["status"], "incomplete");
    let stream = ask(&server, json!({"max_output_tokens": 1, "stream": true})).await;
    assert_eq!(events(&stream.body).last().unwrap().name, "response.incomplete");
}

#[tokio::test]
async fn a_worker_that_declines_gives_a_refusal_item() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::text("I cannot help.").finish(FinishReason::ContentFilter));
    let body = ask(&server, json!({})).await.json();
    check_response(&body);
    let refusal = json!([{"type": "refusal", "refusal": "I cannot help."}]);
    assert_eq!((&body["status"], &body["output"][0]["content"]), (&json!("completed"), &refusal));
    let stream = ask(&server, json!({"stream": true})).await;
    let events = events(&stream.body);
    let done = events.iter().find(|event| event.name == "response.refusal.done").unwrap();
    assert_eq!(done.data["refusal"], "I cannot help.");
    assert_eq!(events.last().unwrap().data["response"]["output"][0]["content"], refusal);
}

#[tokio::test]
async fn a_failed_run_is_an_error_or_a_failed_response() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::refuse(Fault::Rejected));
    let fallback = json!({"fallback": "none"});
    let whole = ask(&server, json!({"podium": fallback})).await;
    assert_eq!((whole.status, whole.code().as_str()), (500, "final_step_failed"));
    let stream = ask(&server, json!({"podium": fallback, "stream": true})).await;
    let events = events(&stream.body);
    let last = events.last().unwrap();
    assert_eq!((last.name.as_str(), &last.data["response"]["status"]), ("response.failed", &json!("failed")));
    check_response(&last.data["response"]);
    let response = &last.data["response"];
    assert_eq!(response["error"]["code"], "server_error", "OpenAI's API has this code");
    assert_eq!(response["podium"]["error_code"], "final_step_failed");
}

#[tokio::test]
async fn a_limit_used_up_by_reasoning_gives_an_incomplete_response() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::blank().think("hm").finish(FinishReason::Length));
    // Codex asks so whether a model answers at all.
    let probe = json!({"max_output_tokens": 1, "podium": {"fallback": "none"}});
    let reply = ask(&server, probe).await;
    let body = reply.json();
    assert_eq!((reply.status, &body["status"]), (200, &json!("incomplete")), "{body}");
    check_response(&body);
    assert_eq!(body["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(body["output"][0]["content"][0]["text"], "");
    let chat = json!({
        "model": "podium-ultra", "max_tokens": 1, "podium": {"fallback": "none"},
        "messages": [{"role": "user", "content": "why?"}],
    });
    let chat = server.send("POST /v1/chat/completions", "", &chat.to_string()).await.json();
    let choice = &chat["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("length"), &json!("")));
    let message = json!({
        "model": "podium-ultra", "max_tokens": 1, "podium": {"fallback": "none"},
        "messages": [{"role": "user", "content": "why?"}],
    });
    let message = server.send("POST /v1/messages", "", &message.to_string()).await.json();
    assert_eq!((&message["stop_reason"], &message["content"][0]["text"]), (&json!("max_tokens"), &json!("")));
}

#[tokio::test]
async fn a_conversation_is_compacted_and_continued() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::text("we launch on Tuesday"));
    let input = json!([{"role": "user", "content": "launch?"}, {"role": "assistant", "content": "Tuesday."}]);
    let body = json!({"model": "podium-ultra", "prompt_cache_key": "k", "input": input});
    let compacted = server.send("POST /v1/responses/compact", "", &body.to_string()).await;
    let compacted = (compacted.status, compacted.json());
    assert_eq!(
        (compacted.0, &compacted.1["object"]),
        (200, &json!("response.compaction")),
        "{}",
        compacted.1
    );
    assert!(compacted.1["created_at"].is_u64() && compacted.1["usage"]["total_tokens"].is_u64());
    let mut next = compacted.1["output"].as_array().unwrap().clone();
    let types: Vec<_> = next.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["message", "compaction"], "the answers are part of the summary");
    assert_eq!(next[0]["content"][0]["text"], "launch?");
    assert!(next[1]["encrypted_content"].is_string());
    next.push(json!({"role": "user", "content": "when?"}));
    let made = ask(&server, json!({"input": next})).await.json();
    let run = made["id"].as_str().unwrap().strip_prefix("resp_").unwrap().parse().unwrap();
    let run = server.ended(run).await;
    let [kept, summary, _] = run.spec().request.conversation.messages() else { panic!("{run:?}") };
    assert_eq!(kept.text, "launch?");
    assert!(summary.text.ends_with("we launch on Tuesday"), "{summary:?}");
    let again = json!({"model": "podium-mini", "input": next});
    let again = server.send("POST /v1/responses/compact", "", &again.to_string()).await.json();
    let types: Vec<_> = again["output"].as_array().unwrap().iter().map(|item| item["type"].clone()).collect();
    assert_eq!(types, ["message", "message", "compaction"], "an earlier summary is part of the new one");
    for (body, param) in [
        (json!({"input": "a"}), "model"),
        (json!({"model": "podium-mini"}), "input"),
        (json!({"model": "podium-mini", "input": "a", "stream": true}), "stream"),
    ] {
        let refused = server.send("POST /v1/responses/compact", "", &body.to_string()).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)));
    }
}

#[tokio::test]
async fn tokens_of_an_input_are_counted_without_a_run() {
    let server = TestServer::open(ServerLimits::default()).await;
    let count = async |change: Value| {
        let body = asking(change);
        let reply = server.send("POST /v1/responses/input_tokens", "", &body).await;
        assert_eq!(
            (reply.status, &reply.json()["object"]),
            (200, &json!("response.input_tokens")),
            "{reply:?}"
        );
        reply.json()["input_tokens"].as_u64().unwrap()
    };
    let plain = count(json!({})).await;
    assert!(plain > 0 && count(json!({"instructions": "Be brief. ".repeat(10)})).await >= plain + 20);
    let tool =
        json!({"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}});
    assert!(count(json!({"tools": [tool]})).await > plain);
    let format = json!({"type": "json_schema", "name": "s", "schema": {"type": "object"}});
    assert!(count(json!({"text": {"format": format}})).await > plain);
    assert_eq!(server.send("GET /v1/runs", "", "").await.json()["data"], json!([]));
    let first = ask(&server, json!({"input": "why? ".repeat(100)})).await.json();
    let previous = json!({"previous_response_id": first["id"]});
    assert!(count(previous).await > plain + 100, "the earlier conversation counts");
    for (change, status, param) in
        [(json!({"stream": true}), 400, "stream"), (json!({"model": "podium-ultra@other"}), 404, "model")]
    {
        let refused = server.send("POST /v1/responses/input_tokens", "", &asking(change)).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["param"]),
            (status, &json!(param)),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn errors_name_the_parameters_of_this_api() {
    let server = TestServer::open(ServerLimits::default()).await;
    let format = json!({"format": {"type": "json_schema", "name": "", "schema": {}}});
    for (change, param) in [
        (json!({"temperature": 9}), "temperature"),
        (json!({"text": format}), "text.format.name"),
        (json!({"input": "x".repeat((1 << 20) + 1)}), "input"),
        (json!({"model": "gpt-5"}), "model"),
        (json!({"colour": 1}), "colour"),
        (json!({"previous_response_id": "resp_none"}), "previous_response_id"),
    ] {
        let reply = ask(&server, change).await;
        assert_eq!(reply.json()["error"]["param"], param, "{reply:?}");
    }
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_response() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::blank().wait(&Gate::closed()));
    let mut connection = server.connect().await;
    let request = crate::test_server::request(RESPONSES, "", &asking(json!({"stream": true})));
    tokio::io::AsyncWriteExt::write_all(&mut connection, request.as_bytes()).await.unwrap();
    until(&mut connection, "response.created").await;
    let id = server.only_run().await;
    drop(connection);
    assert_eq!(within(server.ended(id)).await.state().as_str(), "cancelled");
}
