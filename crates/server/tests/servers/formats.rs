//! The format of refusals, missing steps, lists of runs, and errors of gRPC's transport.

use podium_domain::usage::Usage;
use podium_ports::server::ServerLimits;
use podium_ports::vendor::FinishReason;
use podium_testkit::{Answer, Fault, Planning, plan_of};
use serde_json::{Value, json};
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;

use crate::test_server::{COMPLETIONS, TestServer, question, within};

/// The JSON of a stream's events.
fn events(body: &str) -> Vec<Value> {
    let data = body.lines().filter_map(|line| line.trim().strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn a_worker_that_declines_gives_a_refusal() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::text("I cannot help with that.").finish(FinishReason::ContentFilter));
    let whole = server.send(COMPLETIONS, "", &question("why?", false)).await;
    let body = whole.json();
    let message = &body["choices"][0]["message"];
    assert_eq!((whole.status, &message["content"]), (200, &Value::Null), "{body}");
    assert_eq!(message["refusal"], "I cannot help with that.");
    assert_eq!(body["podium"]["refused"], true);
    let stream = server.send(COMPLETIONS, "", &question("why?", true)).await;
    let events = events(&stream.body);
    let refusals: Vec<_> =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["refusal"].as_str()).collect();
    assert_eq!(refusals, ["I cannot help with that."], "{stream:?}");
    let last = events.last().unwrap();
    assert!(last["choices"][0]["finish_reason"].is_string(), "{last}");
    assert_eq!(last["podium"]["refused"], true);
    assert!(stream.body.contains("data: [DONE]"));
}

#[tokio::test]
async fn a_completion_lists_the_steps_without_an_output() {
    let server = TestServer::open(ServerLimits::default()).await;
    let steps =
        [("quick", "draft it", &[][..]), ("careful", "list facts", &[]), ("checker", "join", &[0, 1])];
    server.conductor.otherwise(plan_of(&steps));
    server.vendor.script("quick", [Answer::refuse(Fault::Rejected), Answer::refuse(Fault::Rejected)]);
    let body = |stream| {
        let mut body: Value = serde_json::from_str(&question("why?", stream)).unwrap();
        body["podium"] = json!({"failed_step": "continue", "fallback": "none"});
        body.to_string()
    };
    let whole = server.send(COMPLETIONS, "", &body(false)).await;
    let podium = &whole.json()["podium"];
    assert_eq!((whole.status, &podium["degraded"]), (200, &json!(true)), "{whole:?}");
    let failed = podium["failed_steps"].as_array().unwrap();
    assert_eq!(failed.len(), 1, "{podium}");
    assert_eq!((&failed[0]["step"], &failed[0]["worker"]), (&json!(0), &json!("quick")));
    assert!(failed[0]["reason"].as_str().unwrap().contains("rejected"), "{podium}");
    let stream = server.send(COMPLETIONS, "", &body(true)).await;
    let events = events(&stream.body);
    // The steps took other times.
    let without_times = |podium: &Value| {
        let mut podium = podium.clone();
        for step in podium["steps"].as_array_mut().unwrap() {
            step["latency_ms"] = Value::Null;
        }
        podium
    };
    assert_eq!(without_times(&events.last().unwrap()["podium"]), without_times(podium), "{stream:?}");
}

#[tokio::test]
async fn a_refusal_after_a_new_plan_says_what_failed_first() {
    let server = TestServer::that_replans().await;
    let first = plan_of(&[("quick", "draft it", &[]), ("careful", "check it", &[0])]);
    for stream in [false, true] {
        server.conductor.script([Planning::gives(first.clone())]);
        server.vendor.script("quick", [Answer::refuse(Fault::Rejected)]);
        server
            .vendor
            .script("checker", [Answer::text("I only do dates.").finish(FinishReason::ContentFilter)]);
        let reply = server.send(COMPLETIONS, "", &question("why?", stream)).await;
        let podium = if stream {
            events(&reply.body).last().unwrap()["podium"].clone()
        } else {
            reply.json()["podium"].clone()
        };
        assert_eq!(
            (&podium["refused"], &podium["failed_steps"][0]["worker"]),
            (&json!(true), &json!("quick"))
        );
        let because = &podium["replanned_because"];
        assert_eq!(because["code"], "step_failed");
        assert!(
            because["message"].as_str().unwrap().starts_with("step 1 (worker `quick`) failed"),
            "{podium}"
        );
    }
}

#[tokio::test]
async fn a_tenant_lists_its_own_runs_in_pages() {
    let server = TestServer::locked(ServerLimits::default()).await;
    let acme = format!("authorization: Bearer {}\r\n", server.key("acme", 1).await);
    let other = format!("authorization: Bearer {}\r\n", server.key("other", 2).await);
    let mut made = Vec::new();
    for number in 0..3 {
        let reply = server.send(COMPLETIONS, &acme, &question(&format!("why {number}?"), false)).await;
        made.push(reply.header("x-podium-run-id").unwrap().to_owned());
    }
    made.reverse();
    let list =
        async |query: &str, key: &str| server.send(&format!("GET /v1/runs{query}"), key, "").await.json();
    let ids = |list: &Value| -> Vec<String> {
        list["data"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
    };
    let first = list("?limit=2", &acme).await;
    assert_eq!((ids(&first), &first["has_more"]), (made[..2].to_vec(), &json!(true)));
    assert_eq!(
        (&first["data"][0]["question"], &first["data"][0]["state"]),
        (&json!("why 2?"), &json!("succeeded"))
    );
    let rest = list(&format!("?after={}&limit=2", first["last_id"].as_str().unwrap()), &acme).await;
    assert_eq!((ids(&rest), &rest["has_more"]), (made[2..].to_vec(), &json!(false)));
    let none = list("", &other).await;
    assert_eq!((ids(&none), &none["first_id"]), (Vec::new(), &Value::Null));
    for (query, param) in
        [("?limit=0", "limit"), ("?limit=201", "limit"), ("?after=x", "after"), ("?page=2", "page")]
    {
        let refused = list(query, &acme).await;
        assert_eq!(refused["error"]["param"], param, "{refused}");
    }
}

#[tokio::test]
async fn tokens_that_vendors_wrote_to_their_caches_are_in_each_usage() {
    let server = TestServer::open(ServerLimits::default()).await;
    let usage = Usage {
        prompt_tokens: 100,
        cached_tokens: 20,
        cache_write_tokens: 30,
        completion_tokens: 5,
        reasoning_tokens: 0,
    };
    server.vendor.otherwise(Answer::text("blue").usage(Some(usage)));
    let chat = server.send(COMPLETIONS, "", &question("why?", false)).await.json();
    let details = &chat["usage"]["prompt_tokens_details"];
    assert_eq!(
        (&details["cached_tokens"], &details["cache_write_tokens"]),
        (&json!(20), &json!(30)),
        "{chat}"
    );
    let body = json!({"model": "podium-ultra", "input": "why?"});
    let response = server.send("POST /v1/responses", "", &body.to_string()).await.json();
    let details = &response["usage"]["input_tokens_details"];
    assert_eq!(
        (&details["cached_tokens"], &details["cache_write_tokens"]),
        (&json!(20), &json!(30)),
        "{response}"
    );
    let messages = json!([{"role": "user", "content": "why?"}]);
    let body = json!({"model": "podium-ultra", "max_tokens": 9, "messages": messages});
    let message = server.send("POST /v1/messages", "", &body.to_string()).await.json();
    let usage = &message["usage"];
    assert_eq!(
        (&usage["cache_read_input_tokens"], &usage["cache_creation_input_tokens"]),
        (&json!(20), &json!(30)),
        "{message}"
    );
}

#[tokio::test]
async fn a_list_of_runs_is_filtered() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut made = Vec::new();
    for model in ["podium-mini", "podium-ultra"] {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "why?"}]});
        let reply = server.send(COMPLETIONS, "", &body.to_string()).await;
        made.push(reply.header("x-podium-run-id").unwrap().to_owned());
    }
    let list = async |query: &str| server.send(&format!("GET /v1/runs?{query}"), "", "").await.json();
    let all = list("").await;
    let created = all["data"][1]["created"].as_u64().unwrap();
    for (query, shown) in [
        ("tier=mini".to_owned(), &made[..1]),
        ("model=podium-ultra".to_owned(), &made[1..]),
        ("model=podium%2Dultra&state=succeeded&state=active".to_owned(), &made[1..]),
        ("model=podium-ultra%40demo".to_owned(), &made[..0]),
        ("state=failed".to_owned(), &made[..0]),
        (format!("tier=mini&created_after={created}"), &made[..1]),
        (format!("created_before={created}"), &made[..0]),
        (format!("tier=mini&after={}", made[0]), &made[..0]),
    ] {
        let list = list(&query).await;
        let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|run| &run["id"]).collect();
        assert_eq!(ids, shown.iter().collect::<Vec<_>>(), "{query}: {list}");
    }
    assert_eq!(list("state=done").await["error"]["param"], "state");
}

#[tokio::test]
async fn a_call_of_an_unknown_method_gets_details() {
    let server = TestServer::open(ServerLimits::default()).await;
    let channel = Endpoint::new(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
    let call = async |path: &'static str, sent: podium_api::v1::GetRunRequest| -> Status {
        let codec = ProstCodec::<podium_api::v1::GetRunRequest, podium_api::v1::Run>::default();
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static(path);
        within(grpc.unary(Request::new(sent), path, codec)).await.unwrap_err()
    };
    let reason = |status: &Status| status.get_error_details().error_info().map(|info| info.reason.clone());
    let unknown = call("/podium.v1.PodiumService/Nothing", podium_api::v1::GetRunRequest::default()).await;
    assert_eq!((unknown.code(), reason(&unknown).as_deref()), (Code::Unimplemented, Some("ROUTE_NOT_FOUND")));
    assert_eq!(unknown.message(), "unknown method /podium.v1.PodiumService/Nothing");
    // The bytes of this string are not a message of the method's type.
    let undecodable = podium_api::v1::GetRunRequest { run_id: "\u{1}".repeat(100) };
    let status = call("/podium.v1.PodiumService/EstimateRun", undecodable).await;
    assert_eq!((status.code(), reason(&status).as_deref()), (Code::InvalidArgument, Some("INVALID_VALUE")));
}

#[tokio::test]
async fn a_tenant_does_not_see_the_vendors_own_words() {
    let ask = async |server: &TestServer, headers: &str| {
        let message = "organization org-acme-42 has no access".to_owned();
        server.vendor.otherwise(Answer::refuse(Fault::Refused { message }));
        let reply = server.send(COMPLETIONS, headers, &question("why?", false)).await;
        let run = reply.header("x-podium-run-id").unwrap().to_owned();
        let run = server.send(&format!("GET /v1/runs/{run}"), headers, "").await;
        [reply.json()["error"]["message"].to_string(), run.json()["error"]["message"].to_string()]
    };
    let server = TestServer::locked(ServerLimits::default()).await;
    let key = format!("authorization: Bearer {}\r\n", server.key("acme", 1).await);
    for said in ask(&server, &key).await {
        assert!(
            said.contains("rejected the request with status 400") && !said.contains("org-acme"),
            "{said}"
        );
    }
    // Without keys, the user of the server is its operator.
    for said in ask(&TestServer::open(ServerLimits::default()).await, "").await {
        assert!(said.contains("org-acme-42 has no access"), "{said}");
    }
}
