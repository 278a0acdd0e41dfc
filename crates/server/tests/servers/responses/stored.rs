//! Responses that are read, streamed, continued and cancelled after the request that made them.

use podium_ports::server::ServerLimits;
use podium_testkit::{Answer, Fault, Gate};
use serde_json::{Value, json};

use super::schema::{check_item, check_response, events};
use super::{RESPONSES, ask, asking};
use crate::test_server::TestServer;

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap_or_else(|| panic!("no id: {response}"))
}

async fn get(server: &TestServer, id: &str, rest: &str) -> Value {
    server.send(&format!("GET /v1/responses/{id}{rest}"), "", "").await.json()
}

#[tokio::test]
async fn a_stored_response_is_the_one_that_was_returned() {
    let server = TestServer::open(ServerLimits::default()).await;
    let made = ask(&server, json!({"metadata": {"a": "b"}, "temperature": 0.5, "user": "u"})).await.json();
    assert_eq!(get(&server, id(&made), "").await, made);
}

#[tokio::test]
async fn a_stream_is_repeated_from_any_event() {
    let server = TestServer::open(ServerLimits::default()).await;
    let long = (0..300).map(|n| format!("word{n} ")).collect::<Vec<_>>().concat();
    server.vendor.otherwise(Answer::text(&long));
    let live = ask(&server, json!({"stream": true})).await;
    let live = events(&live.body);
    assert!(live.len() > 30, "{}", live.len());
    let response = id(&live[0].data["response"]).to_owned();
    for after in [None, Some(0), Some(5), Some(live.len() - 2)] {
        let query = after.map(|after| format!("&starting_after={after}")).unwrap_or_default();
        let reply = server.send(&format!("GET /v1/responses/{response}?stream=true{query}"), "", "").await;
        let repeated = events(&reply.body);
        let first = after.map_or(0, |after| after + 1);
        let data =
            |events: &[super::Event]| -> Vec<_> { events.iter().map(|event| event.data.clone()).collect() };
        assert_eq!(data(&repeated), data(&live[first..]));
    }
}

#[tokio::test]
async fn a_response_in_the_background_is_queued_and_completes() {
    let server = TestServer::open(ServerLimits::default()).await;
    let gate = Gate::closed();
    server.vendor.otherwise(Answer::text("blue").wait(&gate));
    let made = ask(&server, json!({"background": true})).await;
    let made = (made.status, made.json());
    check_response(&made.1);
    assert_eq!((made.0, &made.1["status"], &made.1["background"]), (200, &json!("queued"), &json!(true)));
    let run = server.only_run().await;
    let stream = format!("GET /v1/responses/{}?stream=true", id(&made.1));
    let (streamed, ()) = tokio::join!(server.send(&stream, "", ""), async {
        while get(&server, id(&made.1), "").await["status"] != "in_progress" {
            tokio::task::yield_now().await;
        }
        gate.open();
    });
    server.ended(run).await;
    let streamed = events(&streamed.body);
    assert_eq!(streamed[0].data["response"]["status"], "queued");
    let ended = get(&server, id(&made.1), "").await;
    check_response(&ended);
    assert_eq!(
        (&ended["status"], &ended["output"][0]["content"][0]["text"]),
        (&json!("completed"), &json!("blue"))
    );
    assert_eq!(streamed.last().unwrap().data["response"], ended);
}

#[tokio::test]
async fn a_response_is_cancelled_twice() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::blank().wait(&Gate::closed()));
    let made = ask(&server, json!({"background": true})).await.json();
    let path = format!("POST /v1/responses/{}/cancel", id(&made));
    for _ in 0..2 {
        let reply = server.send(&path, "", "").await;
        check_response(&reply.json());
        assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("cancelled")));
    }
    server.vendor.otherwise(Answer::text("blue"));
    let whole = ask(&server, json!({})).await.json();
    let reply = server.send(&format!("POST /v1/responses/{}/cancel", id(&whole)), "", "").await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "run_ended"));
}

#[tokio::test]
async fn a_response_continues_an_earlier_one_without_its_instructions() {
    let server = TestServer::open(ServerLimits::default()).await;
    let first = ask(&server, json!({"instructions": "rhyme", "input": "one?"})).await.json();
    let second = json!({"previous_response_id": id(&first), "input": "two?"});
    let second = ask(&server, second).await.json();
    assert_eq!((&second["previous_response_id"], &second["instructions"]), (&first["id"], &Value::Null));
    let third =
        ask(&server, json!({"previous_response_id": id(&second), "input": "three?", "instructions": "sing"}));
    let third = third.await.json();
    let run = id(&third).strip_prefix("resp_").unwrap().parse().unwrap();
    let run = server.ended(run).await;
    let texts: Vec<_> =
        run.spec().request.conversation.messages().iter().map(|message| message.text.as_str()).collect();
    let answer = "blue light scatters";
    assert_eq!(texts, ["sing", "one?", answer, "two?", answer, "three?"]);
    let items = get(&server, id(&third), "/input_items").await;
    assert_eq!(items["data"].as_array().unwrap().len(), 1, "{items}");
    assert_eq!(items["data"][0]["content"][0]["text"], "three?");
}

#[tokio::test]
async fn an_incomplete_or_failed_response_cannot_be_continued() {
    let server = TestServer::open(ServerLimits::default()).await;
    server.vendor.otherwise(Answer::blank().wait(&Gate::closed()));
    let active = ask(&server, json!({"background": true})).await.json();
    let refuse = async |response: &Value| {
        let reply = ask(&server, json!({"previous_response_id": id(response)})).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("previous_response_id")));
        reply.json()["error"]["message"].to_string()
    };
    assert!(refuse(&active).await.contains("is not complete"));
    server.vendor.otherwise(Answer::refuse(Fault::Rejected));
    let failing = json!({"background": true, "podium": {"fallback": "none"}});
    let failed = ask(&server, failing).await.json();
    server.ended(id(&failed).strip_prefix("resp_").unwrap().parse().unwrap()).await;
    assert_eq!(get(&server, id(&failed), "").await["status"], "failed");
    assert!(refuse(&failed).await.contains("failed"));
}

#[tokio::test]
async fn a_response_that_is_not_stored_cannot_be_read_or_continued() {
    let server = TestServer::open(ServerLimits::default()).await;
    let made = ask(&server, json!({"store": false})).await.json();
    assert_eq!(made["store"], false);
    let path = format!("/v1/responses/{}", id(&made));
    for request in [format!("GET {path}"), format!("POST {path}/cancel"), format!("GET {path}/input_items")] {
        let reply = server.send(&request, "", "").await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "response_not_found"), "{request}");
    }
    let reply = ask(&server, json!({"previous_response_id": id(&made)})).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "previous_response_not_found"));
}

#[tokio::test]
async fn another_tenants_response_does_not_exist() {
    let server = TestServer::locked(ServerLimits::default()).await;
    let [own, other] = [server.key("acme", 1).await, server.key("other", 2).await]
        .map(|key| format!("authorization: Bearer {key}\r\n"));
    let made = server.send(RESPONSES, &own, &asking(json!({}))).await.json();
    let path = format!("GET /v1/responses/{}", id(&made));
    assert_eq!(server.send(&path, &own, "").await.status, 200);
    assert_eq!(server.send(&path, &other, "").await.code(), "response_not_found");
    let item = json!({"type": "item_reference", "id": made["output"][0]["id"]});
    let input = json!([item, {"role": "user", "content": "and?"}]);
    for (change, param) in [
        (json!({"previous_response_id": id(&made)}), "previous_response_id"),
        (json!({"input": input}), "input[0].id"),
    ] {
        assert_eq!(server.send(RESPONSES, &own, &asking(change.clone())).await.status, 200);
        let refused = server.send(RESPONSES, &other, &asking(change)).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)));
    }
}

#[tokio::test]
async fn the_items_of_an_input_come_in_pages() {
    let server = TestServer::open(ServerLimits::default()).await;
    let parts = json!([{"type": "input_text", "text": "see"}, {"type": "input_text", "text": "this"}]);
    let input = json!([
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "second"},
        {"role": "user", "content": parts},
    ]);
    let made = ask(&server, json!({"instructions": "be brief", "input": input})).await.json();
    let list = async |query: &str| get(&server, id(&made), &format!("/input_items{query}")).await;
    let all = list("?order=asc").await;
    let items = all["data"].as_array().unwrap();
    items.iter().for_each(check_item);
    let roles: Vec<_> = items.iter().map(|item| item["role"].as_str().unwrap()).collect();
    assert_eq!((roles, &all["has_more"]), (vec!["user", "assistant", "user"], &json!(false)));
    assert_eq!(items[2]["content"], json!([{"type": "input_text", "text": "see\nthis"}]));
    let page = list("?limit=2").await;
    assert_eq!((&page["first_id"], &page["last_id"]), (&items[2]["id"], &items[1]["id"]));
    assert_eq!(page["has_more"], true);
    let rest = list(&format!("?after={}", page["last_id"].as_str().unwrap())).await;
    assert_eq!((&rest["data"], &rest["has_more"]), (&json!([items[0]]), &json!(false)));
    assert_eq!(list("?after=msg_none").await["error"]["param"], "after");
}

#[tokio::test]
async fn a_repeated_request_finds_its_response() {
    let server = TestServer::open(ServerLimits::default()).await;
    let named = "idempotency-key: once\r\n";
    let first = server.send(RESPONSES, named, &asking(json!({}))).await.json();
    let again = server.send(RESPONSES, named, &asking(json!({}))).await.json();
    assert_eq!(first, again);
    let other = server.send(RESPONSES, named, &asking(json!({"metadata": {"a": "b"}}))).await;
    assert_eq!((other.status, other.code().as_str()), (409, "idempotency_mismatch"));
    let chat = crate::test_server::question("why?", false);
    let chat = server.send(crate::test_server::COMPLETIONS, named, &chat).await;
    assert_eq!((chat.status, chat.code().as_str()), (409, "idempotency_mismatch"));
}
