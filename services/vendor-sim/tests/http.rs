//! The simulator over HTTP: wire format, streaming, errors, faults, the log of calls. Every test has its own simulator.

use std::sync::Arc;
use std::time::Duration;

use podium_vendor_sim::{
    Behaviour, BehaviourError, Exposure, Fault, Options, Outcome, Recorded, Running, ScriptedFault,
    StartError, VendorSim,
};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

/// Timeout of every wait; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

async fn started() -> Running {
    VendorSim::start(Options::loopback(7)).await.expect("a free loopback port")
}

fn client() -> Client {
    // Only the first test of a process installs it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().timeout(PATIENCE).build().expect("a plain client")
}

async fn chat(running: &Running, body: &Value) -> Response {
    client()
        .post(format!("{}/chat/completions", running.base_url()))
        .json(body)
        .send()
        .await
        .expect("an answer")
}

fn ask(model: &str, text: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": text }] })
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

async fn json_of(response: Response) -> Value {
    response.json().await.expect("a JSON body")
}

/// The data of each event of a stream.
async fn events(response: Response) -> Vec<String> {
    let text = response.text().await.expect("a whole stream");
    text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).map(str::to_owned).collect()
}

fn faulty(fault: Fault, calls: u32) -> Behaviour {
    Behaviour { faults: vec![ScriptedFault::next_calls(fault, calls)], ..Behaviour::default() }
}

#[tokio::test]
async fn a_question_gets_an_answer_with_usage() {
    let running = started().await;
    let response = chat(&running, &ask("sim-arithmetic", "What is 17 * (4 + 3)?")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.headers().contains_key("x-request-id"));
    assert!(response.headers().contains_key("x-ratelimit-remaining-requests"));
    let answer = json_of(response).await;
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "sim-arithmetic");
    assert_eq!(
        answer["choices"][0]["message"],
        json!({ "role": "assistant", "content": "119", "refusal": null })
    );
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"]["prompt_tokens"], 6);
    assert_eq!(answer["usage"]["completion_tokens"], 1);
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert!(answer["id"].as_str().is_some_and(|id| id.starts_with("chatcmpl-")));
    running.stop().await;
}

#[tokio::test]
async fn a_stream_carries_role_pieces_reason_and_usage() {
    let running = started().await;
    let body = with(ask("sim-words", "write 5280 in words"), "stream", json!(true));
    let response = chat(&running, &with(body, "stream_options", json!({ "include_usage": true }))).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let events = events(response).await;
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|data| serde_json::from_str(data).expect("JSON")).collect();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "five thousand two hundred and eighty");
    let (end, usage) = (&chunks[chunks.len() - 2], &chunks[chunks.len() - 1]);
    assert_eq!(end["choices"][0]["finish_reason"], "stop");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 9);
    assert!(chunks[..chunks.len() - 1].iter().all(|chunk| chunk["usage"].is_null()));
    running.stop().await;
}

#[tokio::test]
async fn a_workers_message_is_answered_by_its_subtask() {
    let running = started().await;
    let message = "The whole task, for context:\n<question>\nlong\n</question>\n\nEarlier results you may use:\n\
        <step number=\"1\">\n<subtask>\nx\n</subtask>\n<output>\n440\n</output>\n</step>\n\n\
        Your subtask:\n<subtask>\nmultiply the result by 12\n</subtask>\n\nAnswer your subtask only.";
    let parts = json!([{ "type": "text", "text": message }]);
    let body = json!({ "model": "sim-arithmetic", "messages": [
        { "role": "system", "content": "Be brief." }, { "role": "user", "content": parts },
    ] });
    assert_eq!(json_of(chat(&running, &body).await).await["choices"][0]["message"]["content"], "5280");
    let call = &running.calls()[0];
    assert_eq!(
        (call.subtask.as_str(), call.outcome, call.finished),
        ("multiply the result by 12", Outcome::Answered, true)
    );
    running.stop().await;
}

#[tokio::test]
async fn limits_and_stop_sequences_are_honoured() {
    let running = started().await;
    for name in ["max_tokens", "max_completion_tokens"] {
        let answer = json_of(chat(&running, &with(ask("sim-echo", "abcdefgh"), name, json!(1))).await).await;
        assert_eq!(answer["choices"][0]["message"]["content"], "abcd");
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
    }
    let answer = json_of(chat(&running, &with(ask("sim-echo", "abcdefgh"), "stop", json!("ef"))).await).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "abcd");
    running.stop().await;
}

#[tokio::test]
async fn stamped_answers_say_which_call_they_are_of() {
    let running = started().await;
    let stamped = Behaviour { stamp_words: 2, ..Behaviour::default() };
    running.set_behaviour("sim-echo", stamped).expect("within the limits");
    for expected in ["x call-1 call-1", "x call-2 call-2"] {
        let answer = json_of(chat(&running, &ask("sim-echo", "x")).await).await;
        assert_eq!(answer["choices"][0]["message"]["content"], expected);
    }
    running.stop().await;
}

#[tokio::test]
async fn calls_on_a_tick_end_at_the_same_instant() {
    const TICK_MS: u64 = 500;
    let running = started().await;
    let on_a_tick = Behaviour { first_token_tick_ms: TICK_MS, ..Behaviour::default() };
    running.set_behaviour("sim-echo", on_a_tick).expect("within the limits");
    let ask = ask("sim-echo", "x");
    let streamed = with(ask.clone(), "stream", json!(true));
    let later = async {
        running.wait_for(|calls| !calls.is_empty()).await;
        events(chat(&running, &streamed).await).await
    };
    let _ = tokio::join!(chat(&running, &ask), later);
    for call in running.calls() {
        let past_tick_ms = call.ended_at_ms.expect("it ended") % TICK_MS;
        assert!(call.ended_at_ms > Some(call.at_ms) && past_tick_ms < TICK_MS / 2, "{call:?}");
    }
    running.stop().await;
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_the_parameter() {
    let running = started().await;
    let good = ask("sim-echo", "x");
    for (body, param) in [
        (with(good.clone(), "messages", json!([])), "messages"),
        (with(good.clone(), "messages", json!("x")), "messages"),
        (with(good.clone(), "messages", json!([{ "role": "robot", "content": "x" }])), "messages[0].role"),
        (
            with(good.clone(), "messages", json!([{ "role": "user", "content": [{ "type": "video_url" }] }])),
            "messages[0].content",
        ),
        (with(good.clone(), "temperature", json!(3)), "temperature"),
        (with(good.clone(), "max_tokens", json!(0)), "max_tokens"),
        (with(good.clone(), "n", json!(2)), "n"),
        (with(good.clone(), "reasoning_effort", json!("huge")), "reasoning_effort"),
        (with(good.clone(), "stream_options", json!({ "include_usage": true })), "stream_options"),
    ] {
        let response = chat(&running, &body).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{param}");
        let error = json_of(response).await;
        assert_eq!(error["error"]["type"], "invalid_request_error");
        assert_eq!(error["error"]["param"], param);
    }
    assert_eq!(chat(&running, &with(good, "temprature", json!(1))).await.status(), StatusCode::BAD_REQUEST);
    assert!(running.calls().is_empty());
    running.stop().await;
}

#[tokio::test]
async fn unknown_models_routes_and_methods_have_openai_errors() {
    let running = started().await;
    let response = chat(&running, &ask("gpt-5", "x")).await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert_eq!(json_of(response).await["error"]["code"], "model_not_found");
    let base = running.base_url();
    let response = client().get(format!("{base}/completions")).send().await.expect("an answer");
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let response = client().get(format!("{base}/chat/completions")).send().await.expect("an answer");
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(json_of(response).await["error"]["message"].is_string());
    running.stop().await;
}

/// The text of a whole answer.
async fn answer(running: &Running, body: &Value) -> String {
    let body = json_of(chat(running, body).await).await;
    body["choices"][0]["message"]["content"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn the_seed_of_a_request_decides_its_errors() {
    let running = started().await;
    let asked = |seed: u32, text: &str| with(ask("sim-arithmetic@0.8", text), "seed", json!(seed));
    let mut right = 0;
    for seed in 0..100 {
        let first = answer(&running, &asked(seed, "What is 3 + 4?")).await;
        assert_eq!(first, answer(&running, &asked(seed, "Add 3 and 4.")).await);
        right += i32::from(first == "7");
    }
    assert!((65..95).contains(&right), "{right} of 100");
    assert_eq!(answer(&running, &ask("sim-arithmetic", "What is 3 + 4?")).await, "7");
    for model in ["sim-arithmetic@2", "sim-arithmetic@", "sim-nothing@0.5"] {
        assert_eq!(chat(&running, &ask(model, "x")).await.status(), StatusCode::NOT_FOUND, "{model}");
    }
    running.stop().await;
}

#[tokio::test]
async fn recorded_answers_of_a_model_are_replayed() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let line = r#"{"model":"gpt-4","question":"Why is the sky blue?","answer":"Rayleigh.","prompt_tokens":9,"completion_tokens":120}"#;
    std::fs::write(file.path(), format!("{line}\n\n")).expect("it is writable");
    let mut recorded = Recorded::default();
    recorded.read(file.path()).expect("a valid file");
    let options = Options { recorded: Arc::new(recorded), ..Options::loopback(7) };
    let running = VendorSim::start(options).await.expect("a free loopback port");
    let body = json_of(chat(&running, &ask("recorded/gpt-4", "Why is the sky blue?")).await).await;
    assert_eq!(body["choices"][0]["message"]["content"], "Rayleigh.");
    assert_eq!(
        (&body["usage"]["prompt_tokens"], &body["usage"]["completion_tokens"]),
        (&json!(9), &json!(120))
    );
    // A worker in a workflow gets the question as its subtask.
    let step = "<question>\nOther\n</question>\n<subtask>\nWhy is the sky blue?\n</subtask>";
    assert_eq!(answer(&running, &ask("recorded/gpt-4", step)).await, "Rayleigh.");
    let other = json_of(chat(&running, &ask("recorded/gpt-4", "Why?")).await).await;
    assert!(other["choices"][0]["message"]["refusal"].is_string(), "{other:#}");
    for model in ["recorded/gpt-5", "recorded", "recorded/"] {
        assert_eq!(chat(&running, &ask(model, "x")).await.status(), StatusCode::NOT_FOUND, "{model}");
    }
    let models = client().get(format!("{}/models", running.base_url())).send().await.expect("an answer");
    assert!(json_of(models).await.to_string().contains("recorded/gpt-4"));
    std::fs::write(file.path(), format!("{line}\n{line}\n")).expect("it is writable");
    let twice = Recorded::default().read(file.path()).expect_err("a second answer").to_string();
    assert!(twice.contains("line 2") && twice.contains("second answer"), "{twice}");
    running.stop().await;
}

#[tokio::test]
async fn models_are_listed() {
    let running = started().await;
    let list =
        json_of(client().get(format!("{}/models", running.base_url())).send().await.expect("an answer"))
            .await;
    let ids: Vec<&str> =
        list["data"].as_array().into_iter().flatten().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!(ids.len(), 12);
    assert!(ids.contains(&"sim-generalist") && ids.contains(&"sim-conductor"));
    running.stop().await;
}

#[tokio::test]
async fn a_configured_key_is_required() {
    let options = Options { api_key: Some("sim-key".to_owned()), ..Options::loopback(7) };
    let running = VendorSim::start(options).await.expect("a free loopback port");
    let url = format!("{}/chat/completions", running.base_url());
    let send = |key: Option<&'static str>| {
        let request = client().post(&url).json(&ask("sim-echo", "x"));
        let request = if let Some(key) = key { request.bearer_auth(key) } else { request };
        async move { request.send().await.expect("an answer") }
    };
    assert_eq!(send(None).await.status(), StatusCode::UNAUTHORIZED);
    let wrong = send(Some("other")).await;
    assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(json_of(wrong).await["error"]["code"], "invalid_api_key");
    assert_eq!(send(Some("sim-key")).await.status(), StatusCode::OK);
    running.stop().await;
}

#[tokio::test]
async fn scripted_errors_occur_as_often_as_scripted() {
    let running = started().await;
    for (fault, status, name) in [
        (Fault::RateLimit { retry_after_s: 3 }, StatusCode::TOO_MANY_REQUESTS, "rate_limit"),
        (Fault::ServerError, StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
        (Fault::Overloaded, StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
    ] {
        running.reset();
        running.set_behaviour("sim-echo", faulty(fault, 2)).expect("valid");
        for _ in 0..2 {
            let response = chat(&running, &ask("sim-echo", "x")).await;
            assert_eq!(response.status(), status);
            if status == StatusCode::TOO_MANY_REQUESTS {
                assert_eq!(response.headers()["retry-after"], "3");
                assert_eq!(response.headers()["x-ratelimit-remaining-requests"], "0");
                assert_eq!(json_of(response).await["error"]["code"], "rate_limit_exceeded");
            }
        }
        assert_eq!(chat(&running, &ask("sim-echo", "x")).await.status(), StatusCode::OK);
        assert_eq!(chat(&running, &ask("sim-lists", "x")).await.status(), StatusCode::OK);
        let calls = running.calls();
        let faults: Vec<_> = calls.iter().map(|call| call.fault.as_deref()).collect();
        assert_eq!(faults, [Some(name), Some(name), None, None]);
    }
    running.stop().await;
}

#[tokio::test]
async fn a_cut_stream_breaks_off_after_its_chunks() {
    let running = started().await;
    running.set_behaviour("sim-echo", faulty(Fault::CutStream { after_chunks: 3 }, 2)).expect("valid");
    let body = with(ask("sim-echo", "abcdefghijklmnop"), "stream", json!(true));
    let mut response = chat(&running, &body).await;
    let mut received = String::new();
    let broken = loop {
        match response.chunk().await {
            Ok(Some(bytes)) => received.push_str(&String::from_utf8_lossy(&bytes)),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broken, "the stream ended as if it were whole: {received}");
    assert_eq!(received.matches("data: ").count(), 3);
    assert!(!received.contains("[DONE]"));
    assert!(chat(&running, &ask("sim-echo", "abcdefgh")).await.text().await.is_err());
    let outcomes: Vec<_> = running.calls().iter().map(|call| (call.outcome, call.finished)).collect();
    assert_eq!(outcomes, [(Outcome::Cut, false), (Outcome::Cut, false)]);
    running.stop().await;
}

#[tokio::test]
async fn a_hanging_call_is_logged_and_ends_with_its_caller() {
    let running = started().await;
    running.set_behaviour("sim-echo", faulty(Fault::Hang, 1)).expect("valid");
    let body = ask("sim-echo", "x");
    tokio::select! {
        _ = chat(&running, &body) => panic!("a hanging call was answered"),
        calls = running.wait_for(|calls| calls.first().is_some_and(|call| call.fault.is_some())) => {
            assert_eq!(calls[0].outcome, Outcome::Running);
        }
    }
    let wait = running.wait_for(|calls| calls.iter().all(|call| call.outcome == Outcome::Abandoned));
    tokio::time::timeout(PATIENCE, wait).await.expect("the caller went away");
    running.stop().await;
}

#[tokio::test]
async fn stopping_aborts_hanging_calls() {
    let running = started().await;
    running.set_behaviour("sim-echo", faulty(Fault::Hang, 1)).expect("valid");
    let request =
        client().post(format!("{}/chat/completions", running.base_url())).json(&ask("sim-echo", "x"));
    let mut calling = tokio::task::JoinSet::new();
    calling.spawn(request.send());
    running.wait_for(|calls| !calls.is_empty()).await;
    tokio::time::timeout(PATIENCE, running.stop()).await.expect("a prompt stop");
    let answer = calling.join_next().await.expect("one call").expect("no panic");
    assert!(answer.is_err(), "a stopped simulator answered");
}

#[tokio::test]
async fn latency_is_at_least_what_was_asked_for() {
    let running = started().await;
    let behaviour = json!({ "first_token_ms": { "min": 40, "max": 60 }, "token_ms": 5,
        "faults": [{ "fault": { "kind": "slow_first_token", "delay_ms": 100 }, "next_calls": 1 }] });
    let url = format!("http://{}/control/behaviour/sim-echo", running.addr());
    let response = client().put(&url).json(&behaviour).send().await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    for _ in 0..2 {
        chat(&running, &ask("sim-echo", "abcdefgh")).await;
    }
    let took: Vec<u64> =
        running.calls().iter().map(|call| call.ended_at_ms.unwrap_or(0) - call.at_ms).collect();
    assert!(took[0] >= 145 && took[1] >= 44, "{took:?}");
    let left = json_of(client().get(&url).send().await.expect("an answer")).await;
    assert_eq!(left["faults"][0]["next_calls"], 0);
    running.stop().await;
}

#[tokio::test]
async fn control_routes_reject_unknown_models_and_fields() {
    let running = started().await;
    let put = |model: &str, body: Value| {
        client().put(format!("http://{}/control/behaviour/{model}", running.addr())).json(&body).send()
    };
    assert_eq!(put("sim-none", json!({})).await.expect("an answer").status(), StatusCode::NOT_FOUND);
    assert_eq!(
        put("sim-echo", json!({ "speed": 1 })).await.expect("an answer").status(),
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        put("sim-echo", json!({ "token_ms": 600_001 })).await.expect("an answer").status(),
        StatusCode::BAD_REQUEST
    );
    assert_eq!(running.behaviour("none"), Err(BehaviourError::UnknownModel("none".to_owned())));
    running.stop().await;
}

#[tokio::test]
async fn the_log_is_read_and_reset_over_http() {
    let running = started().await;
    chat(&running, &ask("sim-echo", "hello")).await;
    let log = json_of(
        client().get(format!("http://{}/control/calls", running.addr())).send().await.expect("an answer"),
    )
    .await;
    assert_eq!(log["received"], 1);
    assert_eq!(log["calls"][0]["subtask"], "hello");
    assert_eq!(log["calls"][0]["outcome"], "answered");
    let reset =
        client().post(format!("http://{}/control/reset", running.addr())).send().await.expect("an answer");
    assert_eq!(reset.status(), StatusCode::OK);
    assert!(running.calls().is_empty());
    let health = client().get(format!("http://{}/healthz", running.addr())).send().await.expect("an answer");
    assert_eq!(health.status(), StatusCode::OK);
    running.stop().await;
}

#[tokio::test]
async fn the_conductor_plans_after_scripted_garbage() {
    let running = started().await;
    running.set_behaviour("sim-conductor", faulty(Fault::Garbage, 1)).expect("valid");
    let body = ask("sim-conductor", "Reverse the letters of the capital of France.");
    let first = json_of(chat(&running, &body).await).await;
    let garbage = first["choices"][0]["message"]["content"].as_str().expect("a text").to_owned();
    assert!(!garbage.contains("model_id = [5, 1]"), "{garbage}");
    let second = json_of(chat(&running, &body).await).await;
    assert_eq!(
        second["choices"][0]["message"]["content"],
        "Parts: facts 5, words 1.\nmodel_id = [5, 1]\nsubtasks = [\"the capital of France\", \
         \"reverse the letters of the result\"]\naccess_list = [[], [0]]"
    );
    running.stop().await;
}

#[tokio::test]
async fn the_same_seed_gives_the_same_errors() {
    let answers = async |seed: u64| {
        let running = VendorSim::start(Options::loopback(seed)).await.expect("a free loopback port");
        let mut answers = Vec::new();
        for number in 0..12 {
            let answer =
                json_of(chat(&running, &ask("sim-generalist", &format!("What is {number} + 1?"))).await)
                    .await;
            answers.push(answer["choices"][0]["message"]["content"].clone());
        }
        running.stop().await;
        answers
    };
    let first = answers(7).await;
    assert_eq!(first, answers(7).await);
    assert_ne!(first, answers(8).await);
    assert!(first.iter().enumerate().any(|(number, answer)| *answer != json!((number + 1).to_string())));
}

#[tokio::test]
async fn a_remote_address_needs_permission() {
    let listen = "0.0.0.0:0".parse().expect("an address");
    let refused = VendorSim::start(Options { listen, ..Options::loopback(7) }).await;
    assert!(matches!(refused, Err(StartError::NotLoopback(_))));
    let allowed =
        VendorSim::start(Options { listen, exposure: Exposure::Anywhere, ..Options::loopback(7) }).await;
    allowed.expect("allowed").stop().await;
}
