//! Anthropic's Messages API: messages, streams, errors, counts of tokens, models.

use podium_domain::content::ToolCall;
use podium_ports::server::ServerLimits;
use podium_ports::vendor::FinishReason;
use podium_testkit::{Answer, Fault, Gate};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::test_server::{Reply, TestServer, request, until};

const MESSAGES: &str = "POST /v1/messages";
const COUNT: &str = "POST /v1/messages/count_tokens?beta=true";

fn asking() -> Value {
    json!({"model": "podium-ultra", "max_tokens": 100, "messages": [{"role": "user", "content": "why?"}]})
}

fn with(name: &str, value: Value) -> String {
    let mut body = asking();
    body[name] = value;
    body.to_string()
}

/// The names and the data of a stream's events.
fn events(reply: &Reply) -> Vec<(String, Value)> {
    let mut lines = reply.body.lines().map(str::trim);
    let mut events = Vec::new();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("event: ") else { continue };
        let data = lines.next().and_then(|line| line.strip_prefix("data: "));
        let data = data.unwrap_or_else(|| panic!("{name} has no data: {reply:?}"));
        events.push((name.to_owned(), serde_json::from_str(data).unwrap()));
    }
    events
}

/// The status and the type of an error, whose format is checked.
fn error(reply: &Reply) -> (u16, String) {
    let body = reply.json();
    assert_eq!(body["type"], "error", "{reply:?}");
    assert_eq!(body["request_id"].as_str(), reply.header("request-id"), "{reply:?}");
    assert!(!body["error"]["message"].as_str().unwrap().is_empty());
    (reply.status, body["error"]["type"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_question_is_answered_by_a_message() {
    let server = TestServer::open(ServerLimits::default()).await;
    let reply = server.send(MESSAGES, "anthropic-version: 2023-06-01\r\n", &asking().to_string()).await;
    let body = reply.json();
    assert_eq!((reply.status, &body["type"], &body["role"]), (200, &json!("message"), &json!("assistant")));
    assert_eq!(body["content"], json!([{"type": "text", "text": "blue light scatters", "citations": null}]));
    assert_eq!((&body["stop_reason"], &body["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    assert_eq!(body["model"], "podium-ultra");
    let run = reply.header("x-podium-run-id").unwrap().replace('-', "");
    assert_eq!(body["id"], format!("msg_{run}"));
    for field in ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"] {
        assert!(body["usage"][field].is_u64(), "{field}: {body}");
    }
    assert!(body["usage"]["output_tokens"].as_u64().unwrap() > 0);
    assert_eq!((&body["podium"]["degraded"], &body["podium"]["fallbacks"]), (&json!(false), &json!(0)));
    assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
}

#[tokio::test]
async fn every_usual_request_is_answered() {
    let server = TestServer::open(ServerLimits::default()).await;
    let turn = |role: &str, content: Value| json!({"role": role, "content": content});
    let text = |text: &str| json!({"type": "text", "text": text});
    for body in [
        with("system", json!("You are brief.")),
        with(
            "system",
            json!([{"type": "text", "text": "You are brief.", "cache_control": {"type": "ephemeral"}}]),
        ),
        with("messages", json!([turn("user", json!([text("What is"), text("the answer?")]))])),
        with(
            "messages",
            json!([
                turn("user", json!("Hi")),
                turn("assistant", json!("Hello!")),
                turn("user", json!("And you?"))
            ]),
        ),
        with("temperature", json!(0.5)),
        with("top_p", json!(0.9)),
        with("top_k", json!(40)),
        with("stop_sequences", json!(["\n", "END"])),
        with("metadata", json!({"user_id": "test_user_123"})),
        with("thinking", json!({"type": "enabled", "budget_tokens": 50})),
        with("model", json!("podium-mini[1m]")),
    ] {
        let reply = server.send(MESSAGES, "", &body).await;
        assert_eq!((reply.status, &reply.json()["type"]), (200, &json!("message")), "{body}: {reply:?}");
        assert!(reply.json()["content"][0]["text"].is_string());
    }
}

#[tokio::test]
async fn a_stream_has_the_events_of_the_api_in_order() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::text("blue ").say("light ").say("scatters"));
    let reply = server.send(MESSAGES, "", &with("stream", json!(true))).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let events = events(&reply);
    assert!(events.iter().all(|(name, data)| data["type"] == name.as_str()), "{events:?}");
    let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    let (deltas, others): (Vec<_>, Vec<_>) =
        names.iter().copied().partition(|name| *name == "content_block_delta");
    let order =
        ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"];
    assert_eq!(others, order);
    assert_eq!(names.iter().position(|name| *name == "content_block_delta"), Some(2));
    assert!(!deltas.is_empty());
    let data = |name: &str| &events.iter().find(|(found, _)| found == name).unwrap().1;
    let message = &data("message_start")["message"];
    assert_eq!((&message["role"], &message["content"]), (&json!("assistant"), &json!([])));
    assert!(message["usage"]["input_tokens"].as_u64().unwrap() > 0, "{message}");
    let text = events.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect::<String>();
    assert_eq!(text, "blue light scatters");
    for name in ["content_block_start", "content_block_delta", "content_block_stop"] {
        assert_eq!(data(name)["index"], 0, "{name}");
    }
    let end = data("message_delta");
    assert_eq!(end["delta"]["stop_reason"], "end_turn");
    assert!(end["usage"]["output_tokens"].as_u64().unwrap() > 0 && end["podium"].is_object(), "{end}");
    let whole = server.send(MESSAGES, "", &asking().to_string()).await.json();
    assert_eq!(end["usage"], whole["usage"]);
}

#[tokio::test]
async fn the_reason_why_an_answer_ends_has_anthropics_name() {
    let server = TestServer::open(ServerLimits::default()).await;
    let stop_reason = async |answer: Answer, stream: bool| {
        server.vendor.otherwise(answer);
        let reply = server.send(MESSAGES, "", &with("stream", json!(stream))).await;
        if !stream {
            return reply.json();
        }
        events(&reply).into_iter().find(|(name, _)| name == "message_delta").unwrap().1["delta"].clone()
    };
    for stream in [false, true] {
        let cut = stop_reason(Answer::text("one").finish(FinishReason::Length), stream).await;
        assert_eq!((&cut["stop_reason"], &cut["stop_details"]), (&json!("max_tokens"), &Value::Null));
        let refused = Answer::text("I cannot help.").finish(FinishReason::ContentFilter);
        let refused = stop_reason(refused, stream).await;
        assert_eq!(refused["stop_reason"], "refusal");
        assert_eq!(refused["stop_details"]["explanation"], "I cannot help.");
    }
}

#[tokio::test]
async fn a_message_names_the_stop_sequence_that_ended_it() {
    let server = TestServer::open(ServerLimits::default()).await;
    for (named, reason, sequence) in [
        ("END", "stop_sequence", json!("END")),
        // A sequence of the vendor's own.
        ("<|end|>", "end_turn", Value::Null),
    ] {
        server.vendor.otherwise(Answer::text("one").stopped_by(named));
        for stream in [false, true] {
            let mut body = asking();
            (body["stop_sequences"], body["stream"]) = (json!(["\n", "END"]), json!(stream));
            let reply = server.send(MESSAGES, "", &body.to_string()).await;
            let end = if stream {
                events(&reply).into_iter().find(|(name, _)| name == "message_delta").unwrap().1["delta"]
                    .clone()
            } else {
                reply.json()
            };
            assert_eq!(
                (&end["stop_reason"], &end["stop_sequence"]),
                (&json!(reason), &sequence),
                "{reply:?}"
            );
        }
    }
}

#[tokio::test]
async fn results_for_a_cancelled_run_begin_a_new_run() {
    let server = TestServer::with_tools().await;
    let call = ToolCall::new("v-1", "look", "{}");
    let calls = Answer::text("I look.").call(call).finish(FinishReason::ToolCalls);
    server.vendor.script("checker", [calls, Answer::text("It is blue.")]);
    let mut body = asking();
    body["tools"] = json!([{"name": "look", "input_schema": {"type": "object"}}]);
    let first = server.send(MESSAGES, "", &body.to_string()).await;
    let run = first.header("x-podium-run-id").unwrap().to_owned();
    let cancelled = server.send(&format!("POST /v1/runs/{run}/cancel"), "", "").await.json();
    assert_eq!(cancelled["state"], "cancelled");
    let content = first.json()["content"].clone();
    let id = content.as_array().unwrap().iter().find_map(|block| block.get("id")).unwrap().clone();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": content}));
    let result = json!({"type": "tool_result", "tool_use_id": id, "content": "blue"});
    messages.push(json!({"role": "user", "content": [result]}));
    let second = server.send(MESSAGES, "", &body.to_string()).await;
    assert_eq!(second.json()["content"][0]["text"], "It is blue.", "{second:?}");
    assert_ne!(second.header("x-podium-run-id"), Some(run.as_str()));
}

#[tokio::test]
async fn a_tool_is_called_and_its_result_is_answered() {
    let server = TestServer::with_tools().await;
    let call = ToolCall::new("v-1", "look", r#"{"at":"sky"}"#);
    server.vendor.otherwise(Answer::text("I look.").call(call).finish(FinishReason::ToolCalls));
    let mut body = asking();
    body["tools"] = json!([{"name": "look", "input_schema": {"type": "object"}}]);
    let message = server.send(MESSAGES, "", &body.to_string()).await.json();
    assert_eq!(message["stop_reason"], "tool_use", "{message}");
    assert_eq!(message["content"][0]["text"], "I look.");
    let call = &message["content"][1];
    assert_eq!((&call["type"], &call["name"]), (&json!("tool_use"), &json!("look")));
    assert_eq!(call["input"], json!({"at": "sky"}));
    body["stream"] = json!(true);
    let events = events(&server.send(MESSAGES, "", &body.to_string()).await);
    let (_, begun) = events.iter().find(|(_, data)| data["content_block"]["type"] == "tool_use").unwrap();
    assert_eq!((&begun["index"], &begun["content_block"]["input"]), (&json!(1), &json!({})));
    let input: String =
        events.iter().filter_map(|(_, data)| data["delta"]["partial_json"].as_str()).collect();
    assert_eq!(input, r#"{"at":"sky"}"#);
    server.vendor.otherwise(Answer::text("It is blue."));
    let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "blue"});
    let asked = body["messages"][0].clone();
    let called = json!({"role": "assistant", "content": message["content"]});
    body["messages"] = json!([asked, called, {"role": "user", "content": [result]}]);
    body["stream"] = json!(false);
    let answer = server.send(MESSAGES, "", &body.to_string()).await.json();
    assert_eq!(answer["stop_reason"], "end_turn", "{answer}");
    assert_eq!(answer["content"][0]["text"], "It is blue.");
}

#[tokio::test]
async fn every_error_has_anthropics_format() {
    let server = TestServer::open(ServerLimits::default()).await;
    let invalid = || "invalid_request_error".to_owned();
    let refused = async |route: &str, body: &str| error(&server.send(route, "", body).await);
    assert_eq!(refused(MESSAGES, "{").await, (400, invalid()));
    assert_eq!(refused(MESSAGES, "[]").await, (400, invalid()));
    for name in ["model", "max_tokens", "messages"] {
        assert_eq!(refused(MESSAGES, &with(name, Value::Null)).await, (400, invalid()), "{name}");
    }
    assert_eq!(refused(MESSAGES, &with("messages", json!([]))).await, (400, invalid()));
    assert_eq!(refused(MESSAGES, &with("colour", json!("red"))).await, (400, invalid()));
    assert_eq!(
        refused(MESSAGES, &with("model", json!("claude-x"))).await,
        (404, "not_found_error".to_owned())
    );
    assert_eq!(refused("GET /v1/messages", "").await, (405, invalid()));
    assert_eq!(refused("POST /v1/messages/batches", "{}").await, (404, "not_found_error".to_owned()));
    let long = server.send(MESSAGES, "content-length: 3145728\r\n", "").await;
    assert_eq!(error(&long), (413, "request_too_large".to_owned()));
    let reply = server.send(MESSAGES, "x-request-id: mine-1\r\n", "{").await;
    assert_eq!(reply.json()["request_id"], "mine-1");
    // Requests to other routes are of OpenAI's clients, unless they say otherwise.
    assert_eq!(server.send("GET /v1/nothing", "", "").await.code(), "unknown_url");
    let reply = server.send("GET /v1/nothing", "anthropic-version: 2023-06-01\r\n", "").await;
    assert_eq!(error(&reply), (404, "not_found_error".to_owned()));
}

#[tokio::test]
async fn a_failed_run_is_an_error_in_the_response_and_in_the_stream() {
    let server = TestServer::open(ServerLimits::default()).await;
    let bounds = json!({"attempts_max": 1, "fallback": "none", "failed_step": "fail"});
    let mut body: Value = asking();
    body["podium"] = bounds;
    server.vendor.otherwise(Answer::refuse(Fault::Rejected));
    let reply = server.send(MESSAGES, "", &body.to_string()).await;
    assert_eq!(error(&reply), (500, "api_error".to_owned()));
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    body["stream"] = json!(true);
    let reply = server.send(MESSAGES, "", &body.to_string()).await;
    let events = events(&reply);
    let (name, data) = events.last().unwrap();
    assert_eq!((reply.status, events[0].0.as_str(), name.as_str()), (200, "message_start", "error"));
    assert_eq!((&data["type"], &data["error"]["type"]), (&json!("error"), &json!("api_error")));
    assert_eq!(data["request_id"].as_str(), reply.header("request-id"));
}

#[tokio::test]
async fn a_key_may_be_sent_in_anthropics_header() {
    let server = TestServer::locked(ServerLimits::default()).await;
    let key = server.key("acme", 1).await;
    let body = asking().to_string();
    let status = async |headers: &str| server.send(MESSAGES, headers, &body).await;
    assert_eq!(status(&format!("x-api-key: {key}\r\n")).await.status, 200);
    assert_eq!(status(&format!("authorization: Bearer {key}\r\n")).await.status, 200);
    for headers in ["", "x-api-key: pdm_wrong\r\n", "x-api-key: \r\n"] {
        assert_eq!(error(&status(headers).await), (401, "authentication_error".to_owned()), "{headers}");
    }
    // The key names the tenant, by whichever header it came.
    let runs = server.send("GET /v1/runs", &format!("x-api-key: {key}\r\n"), "").await.json();
    assert_eq!(runs["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_client_learns_when_to_repeat_a_request() {
    let server = TestServer::open(ServerLimits { tenant_streams_max: 1, ..ServerLimits::default() }).await;
    server.vendor.otherwise(Answer::text("first ").wait(&Gate::closed()));
    let streamed = with("stream", json!(true));
    let mut open = server.connect().await;
    open.write_all(request(MESSAGES, "", &streamed).as_bytes()).await.unwrap();
    until(&mut open, "first ").await;
    let reply = server.send(MESSAGES, "", &streamed).await;
    assert_eq!(error(&reply), (429, "rate_limit_error".to_owned()));
    assert_eq!((reply.header("retry-after"), reply.header("x-should-retry")), (Some("1"), Some("true")));
}

#[tokio::test]
async fn tokens_are_counted_without_a_run() {
    let server = TestServer::open(ServerLimits::default()).await;
    let messages = json!([{"role": "user", "content": "Hello world"}]);
    let body = json!({"model": "podium-ultra", "messages": messages});
    let plain = server.send(COUNT, "anthropic-beta: token-counting-2024-11-01\r\n", &body.to_string()).await;
    let counted = plain.json()["input_tokens"].as_u64().unwrap();
    assert_eq!((plain.status, plain.json()), (200, json!({"input_tokens": counted})));
    let mut longer = body.clone();
    longer["system"] = json!("You are a helpful assistant.");
    assert!(
        server.send(COUNT, "", &longer.to_string()).await.json()["input_tokens"].as_u64().unwrap() > counted
    );
    let mut foreign = body;
    foreign["model"] = json!("podium-ultra@other");
    assert_eq!(
        error(&server.send(COUNT, "", &foreign.to_string()).await),
        (404, "not_found_error".to_owned())
    );
    assert_eq!(server.send("GET /v1/runs", "", "").await.json()["data"], json!([]));
}

#[tokio::test]
async fn models_are_listed_in_the_format_of_the_client() {
    let server = TestServer::open(ServerLimits::default()).await;
    let version = "anthropic-version: 2023-06-01\r\n";
    let theirs = server.send("GET /v1/models", "", "").await.json();
    assert_eq!((&theirs["object"], &theirs["models"]), (&json!("list"), &json!([])));
    let page = server.send("GET /v1/models?limit=1000", version, "").await.json();
    let ids = |list: &Value| -> Vec<Value> {
        list["data"].as_array().unwrap().iter().map(|m| m["id"].clone()).collect()
    };
    assert_eq!(ids(&page), ids(&theirs));
    assert_eq!((&page["has_more"], &page["first_id"]), (&json!(false), &json!("podium-mini")));
    let expected = json!({
        "type": "model",
        "id": "podium-mini",
        "display_name": "podium-mini",
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
    });
    assert_eq!(page["data"][0], expected);
    assert_eq!(server.send("GET /v1/models/podium-mini", version, "").await.json(), expected);
    let unknown = server.send("GET /v1/models/claude-x", version, "").await;
    assert_eq!(error(&unknown), (404, "not_found_error".to_owned()));
}

#[tokio::test]
async fn a_client_finds_out_whether_the_server_is_reachable_without_a_key() {
    let server = TestServer::locked(ServerLimits::default()).await;
    let reply = server.send("HEAD /api/hello", "", "").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
}
