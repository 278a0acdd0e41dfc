//! A suspended run continues at another gateway after the death of every process that worked on it.

use std::net::SocketAddr;
use std::time::Duration;

use podium_local_cluster::{Cluster, Shape};
use podium_vendor_sim::Options;
use serde_json::{Value, json};

use crate::http::post;
use crate::workflow::{BRANCHES, STEPS, TOOL, TOOL_RESULT, calling, diamond, with_tools, wrong};

const PATIENCE: Duration = Duration::from_mins(1);
const NUMBER: u64 = 7;

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_run_outlives_the_processes_that_began_it() {
    let (conductor, _workflow) = diamond();
    let usual = Shape::new(2, 1, 1, conductor);
    let shape = Shape {
        workers: Options { generalist_accuracy: 1.0, ..Options::loopback(NUMBER) },
        pool: with_tools(&usual.pool),
        ..usual
    };
    let mut cluster = crate::start(&shape).await;
    cluster.workers.set_behaviour(BRANCHES, calling()).unwrap();

    let question = json!({"role": "user", "content": NUMBER.to_string()});
    let first = completion(cluster.gateways[0].address(0), &json!([question])).await;
    let message = first["choices"][0]["message"].clone();
    let calls = message["tool_calls"].as_array().unwrap_or_else(|| panic!("{first}")).clone();
    assert_eq!(calls.len(), 2, "both branches wait: {first}");

    kill_all_but_the_second_gateway(&mut cluster).await;
    let mut messages = vec![question, message];
    messages.extend(
        calls.iter().map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": TOOL_RESULT})),
    );
    let second = completion(cluster.gateways[1].address(0), &json!(messages)).await;
    let answer = second["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{second}"));
    assert_eq!(wrong(NUMBER, answer), None);
    assert_eq!(second["id"], format!("{}_1", first["id"].as_str().unwrap()), "it is the same run");
    assert_eq!(cluster.workers.calls().len(), STEPS + calls.len(), "no call was repeated");
    cluster.gateways[0].start_again().await.unwrap();
    cluster.stop().await.unwrap();
}

async fn kill_all_but_the_second_gateway(cluster: &mut Cluster) {
    cluster.gateways[0].kill().await.unwrap();
    for service in cluster.planners.iter_mut().chain(&mut cluster.executors) {
        service.kill().await.unwrap();
        service.start_again().await.unwrap();
    }
}

/// Asks `podium-ultra` with the tool.
async fn completion(gateway: SocketAddr, messages: &Value) -> Value {
    let function = json!({"name": TOOL, "parameters": {"type": "object", "properties": {}}});
    let tools = json!([{"type": "function", "function": function}]);
    let body = json!({"model": "podium-ultra", "messages": messages, "tools": tools});
    let (status, text) = post(gateway, "/v1/chat/completions", &body.to_string(), PATIENCE).await.unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}
