//! The reasoning of the answer's worker, which a request may ask for, in each API.

use podium_api::v1;
use podium_domain::content::ToolCall;
use podium_ports::server::ServerLimits;
use podium_ports::vendor::ReasoningText;
use podium_testkit::{Answer, Fault, Gate};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::test_server::{COMPLETIONS, Reply, TestServer, asking, request, until, within};

const RESPONSES: &str = "POST /v1/responses";
const MESSAGES: &str = "POST /v1/messages";

fn thoughtful() -> Answer {
    Answer::blank().think("Light ").think("scatters.").say("Because ").think("More.").say("it is blue.")
}

fn with(mut body: Value, change: Value) -> Value {
    let (Value::Object(fields), Value::Object(change)) = (&mut body, change) else { panic!("no objects") };
    fields.extend(change);
    body
}

fn chat(change: Value) -> Value {
    let messages = json!([{"role": "user", "content": "why?"}]);
    with(json!({"model": "podium-ultra", "include_reasoning": true, "messages": messages}), change)
}

fn response(change: Value) -> Value {
    with(json!({"model": "podium-ultra", "reasoning": {"summary": "auto"}, "input": "why?"}), change)
}

fn message(change: Value) -> Value {
    let (thinking, messages) = (json!({"type": "adaptive"}), json!([{"role": "user", "content": "why?"}]));
    let body =
        json!({"model": "podium-ultra", "max_tokens": 100, "thinking": thinking, "messages": messages});
    with(body, change)
}

async fn send(server: &TestServer, route: &str, body: Value) -> Value {
    let reply = server.send(route, "", &body.to_string()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// The data of a stream's events, without the mark of its end.
async fn stream(server: &TestServer, route: &str, body: Value) -> Vec<Value> {
    let reply = server.send(route, "", &with(body, json!({"stream": true})).to_string()).await;
    data(&reply)
}

fn data(reply: &Reply) -> Vec<Value> {
    let lines = reply.body.lines().filter_map(|line| line.trim().strip_prefix("data: "));
    lines.filter(|line| *line != "[DONE]").map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_completion_has_the_reasoning_that_it_asks_for() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(thoughtful());
    let whole = send(&server, COMPLETIONS, chat(json!({}))).await;
    let message = &whole["choices"][0]["message"];
    assert_eq!(
        (&message["reasoning"], &message["content"]),
        (&json!("Light scatters."), &json!("Because it is blue."))
    );
    let chunks = stream(&server, COMPLETIONS, chat(json!({}))).await;
    let all = |name: &str| {
        let texts = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][name].as_str());
        texts.collect::<String>()
    };
    assert_eq!(
        (all("reasoning").as_str(), all("content").as_str()),
        ("Light scatters.", "Because it is blue.")
    );
    let asked = server.vendor.calls().into_iter().map(|(_, request)| request.reasoning);
    assert!(
        asked.clone().all(|reasoning| reasoning == ReasoningText::Shown),
        "{:?}",
        asked.collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn nobody_is_shown_reasoning_without_asking_for_it() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(thoughtful());
    for (route, body) in [
        (COMPLETIONS, chat(json!({"include_reasoning": false}))),
        (COMPLETIONS, chat(json!({"include_reasoning": null}))),
        (RESPONSES, response(json!({"reasoning": {"effort": "high"}}))),
        (MESSAGES, message(json!({"thinking": {"type": "disabled"}}))),
        (MESSAGES, message(json!({"thinking": {"type": "adaptive", "display": "omitted"}}))),
    ] {
        let whole = send(&server, route, body.clone()).await.to_string();
        let streamed = stream(&server, route, body).await;
        for text in std::iter::once(whole).chain(streamed.iter().map(Value::to_string)) {
            assert!(!text.contains("scatters"), "{route}: {text}");
        }
    }
    assert!(server.vendor.calls().iter().all(|(_, request)| request.reasoning == ReasoningText::Hidden));
}

#[tokio::test]
async fn a_message_begins_with_what_its_worker_thought() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(thoughtful());
    let whole = send(&server, MESSAGES, message(json!({}))).await;
    let thinking = json!({"type": "thinking", "thinking": "Light scatters.", "signature": "podium"});
    let text = json!({"type": "text", "text": "Because it is blue.", "citations": null});
    assert_eq!(whole["content"], json!([thinking, text]));
    let events = stream(&server, MESSAGES, message(json!({}))).await;
    let starts = events.iter().filter(|event| event["type"] == "content_block_start");
    let starts: Vec<_> = starts.map(|event| (&event["index"], &event["content_block"]["type"])).collect();
    assert_eq!(starts, [(&json!(0), &json!("thinking")), (&json!(1), &json!("text"))]);
    let thoughts = events.iter().filter_map(|event| event["delta"]["thinking"].as_str()).collect::<String>();
    assert_eq!(thoughts, "Light scatters.");
    assert!(events.iter().any(|event| event["delta"]["signature"] == "podium"));
    // The client sends the block back.
    let turns = json!([
        {"role": "user", "content": "why?"},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "Because it is blue."}]},
        {"role": "user", "content": "sure?"},
    ]);
    send(&server, MESSAGES, message(json!({"messages": turns}))).await;
}

#[tokio::test]
async fn a_response_begins_with_the_summary_of_its_reasoning() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(thoughtful());
    let whole = send(&server, RESPONSES, response(json!({}))).await;
    let types = |response: &Value| {
        let items = response["output"].as_array().unwrap().iter();
        items.map(|item| item["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(types(&whole), ["reasoning", "message"]);
    let summary = json!([{"type": "summary_text", "text": "Light scatters."}]);
    assert_eq!(whole["output"][0]["summary"], summary);
    let events = stream(&server, RESPONSES, response(json!({}))).await;
    let names: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
    ];
    assert_eq!(names[..expected.len()], expected);
    assert_eq!((&events[6]["text"], &events[8]["item"]["summary"]), (&json!("Light scatters."), &summary));
    assert_eq!((&events[8]["output_index"], &events[9]["output_index"]), (&json!(0), &json!(1)));
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let last = &events.last().unwrap()["response"];
    assert_eq!(types(last), ["reasoning", "message"]);
    // The item may be part of the next input.
    let mut input = vec![json!({"role": "user", "content": "why?"})];
    input.extend(last["output"].as_array().unwrap().iter().cloned());
    input.push(json!({"role": "user", "content": "sure?"}));
    send(&server, RESPONSES, response(json!({"input": input}))).await;
    // The same events come again.
    let id = last["id"].as_str().unwrap();
    let again = server.send(&format!("GET /v1/responses/{id}?stream=true"), "", "").await;
    assert_eq!(data(&again), events);
}

#[tokio::test]
async fn a_response_has_the_reasoning_of_its_last_attempt_only() {
    let server = TestServer::open(ServerLimits::default()).await;
    let gate = Gate::closed();
    let lost = Answer::blank().think("Wrong ").think("way.").wait(&gate).fail(Fault::Unreachable);
    server.vendor.script("checker", [lost, thoughtful()]);
    gate.open();
    let events = stream(&server, RESPONSES, response(json!({"podium": {"broken_answer": "again"}}))).await;
    let texts = events.iter().filter(|event| event["type"] == "response.reasoning_summary_text.done");
    assert_eq!(texts.map(|event| &event["text"]).collect::<Vec<_>>(), [&json!("Light scatters.")]);
    assert_eq!(events.last().unwrap()["response"]["status"], "completed");
    let id = events.last().unwrap()["response"]["id"].as_str().unwrap();
    let again = server.send(&format!("GET /v1/responses/{id}?stream=true"), "", "").await;
    assert_eq!(data(&again), events);
}

#[tokio::test]
async fn calls_follow_the_reasoning() {
    let server = TestServer::with_tools().await;
    let call = ToolCall::new("own", "look", "{}");
    let calls = Answer::blank().think("I must look.").writes_call(0, "look", &["{}"]).call(call);
    server.vendor.otherwise(calls.finish(podium_ports::vendor::FinishReason::ToolCalls));
    let look = json!({"name": "look", "parameters": {"type": "object", "properties": {}}});
    let flat = with(look.clone(), json!({"type": "function", "strict": false}));
    for model in ["podium-mini", "podium-ultra"] {
        let options = json!({"model": model, "tools": [flat]});
        let whole = send(&server, RESPONSES, response(options.clone())).await;
        let output = whole["output"].as_array().unwrap();
        let types: Vec<_> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["reasoning", "function_call"], "{model}");
        let events = stream(&server, RESPONSES, response(options)).await;
        let added = events.iter().filter(|event| event["type"] == "response.output_item.added");
        let added: Vec<_> = added.map(|event| event["item"]["type"].as_str().unwrap()).collect();
        assert_eq!(added, ["reasoning", "function_call"], "{model}");
        let tools = json!({"model": model, "tools": [{"type": "function", "function": look}]});
        let whole = send(&server, COMPLETIONS, chat(tools)).await;
        assert_eq!(whole["choices"][0]["message"]["reasoning"], "I must look.", "{model}");
        let tools = json!({"model": model, "tools": [{"name": "look", "input_schema": look["parameters"]}]});
        let whole = send(&server, MESSAGES, message(tools)).await;
        let blocks = whole["content"].as_array().unwrap();
        let types: Vec<_> = blocks.iter().map(|block| block["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["thinking", "tool_use"], "{model}");
    }
}

#[tokio::test]
async fn a_watcher_over_grpc_sees_the_reasoning_that_the_run_asks_for() {
    let server = TestServer::open(ServerLimits::default()).await;
    let gate = Gate::closed();
    server
        .vendor
        .otherwise(Answer::blank().think("Light ").wait(&gate).think("scatters.").say("It is blue."));
    let mut client = server.client().await;
    let asked = v1::CreateRunRequest { show_reasoning: true, ..asking("why?") };
    let run = client.create_run(asked).await.unwrap().into_inner().run.unwrap();
    let watch = v1::WatchRunRequest { run_id: run.run_id.clone(), after_sequence: 0 };
    let mut updates = client.watch_run(watch).await.unwrap().into_inner();
    let (mut live, mut stored) = (String::new(), None);
    while let Some(update) = within(updates.message()).await.unwrap() {
        match update.update {
            Some(v1::watch_run_response::Update::StepReasoning(text)) => {
                assert_eq!((text.attempt, text.offset), (1, live.len() as u64));
                live.push_str(&text.text);
                gate.open();
            }
            Some(v1::watch_run_response::Update::Event(v1::RunEvent {
                kind: Some(v1::run_event::Kind::StepDone(done)),
                ..
            })) => stored = Some(done.reasoning),
            _ => {}
        }
    }
    assert_eq!((live.as_str(), stored.as_deref()), ("Light scatters.", Some("Light scatters.")));
    let got = client.get_run(v1::GetRunRequest { run_id: run.run_id }).await.unwrap().into_inner();
    assert_eq!(got.run.unwrap().reasoning, "Light scatters.");
}

#[tokio::test]
async fn reasoning_is_streamed_while_the_worker_thinks() {
    let server = TestServer::open(ServerLimits::default()).await;
    let gate = Gate::closed();
    server.vendor.otherwise(Answer::blank().think("Light scatters.").wait(&gate).say("It is blue."));
    for (route, body) in
        [(COMPLETIONS, chat(json!({"stream": true}))), (MESSAGES, message(json!({"stream": true})))]
    {
        let mut connection = server.connect().await;
        connection.write_all(request(route, "", &body.to_string()).as_bytes()).await.unwrap();
        let seen = until(&mut connection, "Light scatters.").await;
        assert!(!seen.contains("It is blue."), "{seen}");
    }
}
