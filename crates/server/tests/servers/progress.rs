//! Silent streams and responses name the steps of a run.

use podium_ports::server::ServerLimits;
use podium_testkit::{Answer, Gate};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::test_server::{COMPLETIONS, Reply, TestServer, request, until};

/// A request of each streaming API, with these options.
fn streamed(podium: &Value) -> [(&'static str, String); 3] {
    let messages = json!([{"role": "user", "content": "why?"}]);
    let with = |mut body: Value| {
        (body["model"], body["stream"], body["podium"]) =
            (json!("podium-ultra"), json!(true), podium.clone());
        body.to_string()
    };
    [
        (COMPLETIONS, with(json!({"messages": messages}))),
        ("POST /v1/responses", with(json!({"input": "why?"}))),
        ("POST /v1/messages", with(json!({"messages": messages, "max_tokens": 100}))),
    ]
}

/// The bytes of a stream until `text`.
async fn heard(server: &TestServer, method_and_path: &str, body: &str, text: &str) -> String {
    let mut connection = server.connect().await;
    connection.write_all(request(method_and_path, "", body).as_bytes()).await.unwrap();
    until(&mut connection, text).await
}

#[tokio::test]
async fn a_silent_stream_says_what_the_run_is_doing() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::blank().wait(&Gate::closed()));
    let [chat, responses, messages] = streamed(&Value::Null);
    let words = "step 1 of 1 by checker";
    let comment = format!("\n: {words}\n");
    let ping = format!("event: ping\ndata: {{\"type\":\"ping\",\"podium\":{{\"progress\":\"{words}\"}}}}\n");
    tokio::join!(
        heard(&server, chat.0, &chat.1, &comment),
        heard(&server, responses.0, &responses.1, &comment),
        heard(&server, messages.0, &messages.1, &ping),
    );
}

#[tokio::test]
async fn a_silent_stream_says_nothing_of_hidden_steps() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::blank().wait(&Gate::closed()));
    let [chat, responses, messages] = streamed(&json!({"show_steps": false}));
    let comment = "\n: keep-alive\n";
    let ping = "event: ping\ndata: {\"type\":\"ping\"}\n";
    let (chat, responses, messages) = tokio::join!(
        heard(&server, chat.0, &chat.1, comment),
        heard(&server, responses.0, &responses.1, comment),
        heard(&server, messages.0, &messages.1, ping),
    );
    for heard in [chat, responses, messages] {
        assert!(!heard.contains("checker"), "{heard}");
    }
}

#[tokio::test]
async fn a_response_lists_its_steps_if_the_policy_shows_them() {
    let server = TestServer::open(ServerLimits::default()).await;
    for shows in [true, false] {
        let mut body = json!({"model": "podium-ultra", "messages": [{"role": "user", "content": "why?"}]});
        body["podium"] = json!({"show_steps": shows});
        let reply: Reply = server.send(COMPLETIONS, "", &body.to_string()).await;
        let podium = &reply.json()["podium"];
        if !shows {
            assert_eq!(podium.get("steps"), None, "{podium}");
            continue;
        }
        let [step] = podium["steps"].as_array().unwrap().as_slice() else { panic!("{podium}") };
        assert_eq!((&step["round"], &step["step"], &step["attempts"]), (&json!(0), &json!(0), &json!(1)));
        assert_eq!((&step["worker"], &step["state"]), (&json!("checker"), &json!("done")));
        assert_eq!(step["cost_nano_usd"], podium["cost_nano_usd"]);
        for count in ["prompt_tokens", "completion_tokens", "latency_ms"] {
            assert!(step[count].is_u64(), "{count}: {step}");
        }
    }
}
