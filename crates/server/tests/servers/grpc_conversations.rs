//! Conversations over gRPC: stored, continued by runs, listed, removed.

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_domain::content::ToolCall;
use podium_domain::conversation::Role;
use podium_ports::server::ServerLimits;
use podium_ports::vendor::FinishReason;
use podium_testkit::Answer;
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;

use crate::test_server::{TestServer, asking, within};

type Client = PodiumServiceClient<Channel>;

fn said(role: v1::Role, text: &str) -> v1::Message {
    v1::Message { role: role.into(), text: text.to_owned(), ..Default::default() }
}

async fn made(client: &mut Client, messages: Vec<v1::Message>) -> v1::Conversation {
    let metadata = [("customer".to_owned(), "7".to_owned())].into();
    let request = v1::CreateConversationRequest { messages, metadata };
    client.create_conversation(request).await.unwrap().into_inner().conversation.unwrap()
}

/// A run that continues a conversation, at its end.
async fn ended(
    server: &TestServer,
    client: &mut Client,
    conversation: &str,
    request: v1::CreateRunRequest,
) -> v1::Run {
    let request = v1::CreateRunRequest { conversation_id: conversation.to_owned(), ..request };
    let run = within(client.create_run(request)).await.unwrap().into_inner().run.unwrap();
    server.ended(run.run_id.parse().unwrap()).await;
    let request = v1::GetRunRequest { run_id: run.run_id };
    client.get_run(request).await.unwrap().into_inner().run.unwrap()
}

async fn items(client: &mut Client, conversation: &str) -> Vec<v1::ConversationItem> {
    let request =
        v1::ListConversationItemsRequest { conversation_id: conversation.to_owned(), ..Default::default() };
    client.list_conversation_items(request).await.unwrap().into_inner().items
}

fn texts(items: &[v1::ConversationItem]) -> Vec<&str> {
    items.iter().map(|item| item.message.as_ref().unwrap().text.as_str()).collect()
}

/// The field that an error names.
fn code(status: &tonic::Status) -> (Code, String) {
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn a_run_continues_its_conversation() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    let stored = vec![said(v1::Role::System, "be brief"), said(v1::Role::User, "I am Ada.")];
    let conversation = made(&mut client, stored).await;
    let id = conversation.conversation_id.as_str();
    assert_eq!(conversation.metadata["customer"], "7");
    assert!(conversation.create_time.is_some());
    let found = v1::GetConversationRequest { conversation_id: id.to_owned() };
    let found = client.get_conversation(found).await.unwrap().into_inner().conversation.unwrap();
    assert_eq!(found, conversation);

    server.vendor.otherwise(Answer::text("You are Ada."));
    let run = ended(&server, &mut client, id, asking("Who am I?")).await;
    assert_eq!((run.conversation_id.as_str(), run.answer()), (id, "You are Ada."));
    let run = ended(&server, &mut client, id, asking("Really?")).await;
    let sent: Vec<_> = run.messages.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(sent, ["be brief", "I am Ada.", "Who am I?", "You are Ada.", "Really?"]);
    let seen = server.vendor.calls().pop().unwrap().1;
    assert!(
        seen.messages.iter().any(|message| message.role == Role::System && message.text.contains("be brief"))
    );

    let all = items(&mut client, id).await;
    let expected = ["be brief", "I am Ada.", "Who am I?", "You are Ada.", "Really?", "You are Ada."];
    assert_eq!(texts(&all), expected);
    // The Responses API has the same conversation.
    let reply = server.send(&format!("GET /v1/conversations/{id}/items?order=asc"), "", "").await;
    let ids: Vec<_> =
        reply.json()["data"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect();
    assert_eq!(ids, all.iter().map(|item| json!(item.item_id)).collect::<Vec<_>>());
    let body = json!({"model": "podium-ultra", "input": "And now?", "conversation": id});
    assert_eq!(server.send("POST /v1/responses", "", &body.to_string()).await.status, 200);
    assert_eq!(texts(&items(&mut client, id).await).len(), 8);

    let page = |token: &str| v1::ListConversationItemsRequest {
        conversation_id: id.to_owned(),
        page_size: 5,
        page_token: token.to_owned(),
    };
    let first = client.list_conversation_items(page("")).await.unwrap().into_inner();
    let second = client.list_conversation_items(page(&first.next_page_token)).await.unwrap().into_inner();
    assert_eq!((first.items.len(), second.items.len(), second.next_page_token.as_str()), (5, 3, ""));
    let foreign = client.list_conversation_items(page("ci_1")).await.unwrap_err();
    assert_eq!(foreign.code(), Code::InvalidArgument);

    let remove = || v1::DeleteConversationRequest { conversation_id: id.to_owned() };
    client.delete_conversation(remove()).await.unwrap();
    let again = client.delete_conversation(remove()).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound, "{again}");
    let late = v1::CreateRunRequest { conversation_id: id.to_owned(), ..asking("why?") };
    let (status, message) = code(&client.create_run(late).await.unwrap_err());
    assert_eq!(status, Code::NotFound, "{message}");
}

#[tokio::test]
async fn a_repeated_request_continues_no_conversation_twice() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    let id = made(&mut client, Vec::new()).await.conversation_id;
    let request = || v1::CreateRunRequest {
        request_id: "order-7".to_owned(),
        conversation_id: id.clone(),
        ..asking("why?")
    };
    let first = client.create_run(request()).await.unwrap().into_inner();
    // Also while the run is under way, and after later runs.
    let again = client.create_run(request()).await.unwrap().into_inner();
    let run_id = first.run.unwrap().run_id;
    assert_eq!((again.existing, again.run.unwrap().run_id), (true, run_id.clone()));
    server.ended(run_id.parse().unwrap()).await;
    ended(&server, &mut client, &id, asking("really?")).await;
    let later = client.create_run(request()).await.unwrap().into_inner();
    assert_eq!((later.existing, later.run.unwrap().run_id), (true, run_id));
    assert_eq!(items(&mut client, &id).await.len(), 4);
    let other = v1::CreateRunRequest { messages: asking("what?").messages, ..request() };
    let (status, message) = code(&client.create_run(other).await.unwrap_err());
    assert_eq!(status, Code::FailedPrecondition, "{message}");
}

#[tokio::test]
async fn a_conversation_has_one_run_at_a_time() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    let id = made(&mut client, Vec::new()).await.conversation_id;
    server.vendor.otherwise(Answer::hang());
    let request = |text| v1::CreateRunRequest { conversation_id: id.clone(), ..asking(text) };
    client.create_run(request("one")).await.unwrap();
    let (status, message) = code(&client.create_run(request("two")).await.unwrap_err());
    assert_eq!(status, Code::FailedPrecondition, "{message}");
    assert!(message.contains("under way"), "{message}");
}

#[tokio::test]
async fn calls_and_their_results_are_items_of_a_conversation() {
    let server = TestServer::with_tools().await;
    let mut client = server.client().await;
    let call = v1::ToolCall { id: "c1".to_owned(), name: "look".to_owned(), arguments: "{}".to_owned() };
    let part = |part| v1::Part { part: Some(part) };
    let asked = v1::Message {
        parts: vec![part(v1::part::Part::ToolCall(call.clone()))],
        ..said(v1::Role::Assistant, "I look.")
    };
    let result = v1::ToolResult { call_id: "c1".to_owned(), output: "blue".to_owned(), ..Default::default() };
    let answered =
        v1::Message { parts: vec![part(v1::part::Part::ToolResult(result))], ..said(v1::Role::User, "") };
    let stored = vec![said(v1::Role::User, "why?"), asked, answered];
    let id = made(&mut client, stored).await.conversation_id;
    let all = items(&mut client, &id).await;
    assert_eq!(texts(&all), ["why?", "I look.", "", ""]);

    // A run ends with a call, and the next one gets its result.
    let made_call = ToolCall::new("v1", "look", "{}");
    let calls = Answer::text("").call(made_call).finish(FinishReason::ToolCalls);
    server.vendor.script("checker", [calls, Answer::text("It is blue.")]);
    let tools = || vec![v1::Tool { name: "look".to_owned(), ..Default::default() }];
    let model = || "podium-mini".to_owned();
    let first = v1::CreateRunRequest { tools: tools(), model: model(), ..asking("And now?") };
    let run = ended(&server, &mut client, &id, first).await;
    let [call] = run.tool_calls.as_slice() else { panic!("{run:?}") };
    let result = v1::ToolResult { call_id: call.id.clone(), output: "blue".to_owned(), ..Default::default() };
    let results =
        v1::Message { parts: vec![part(v1::part::Part::ToolResult(result))], ..said(v1::Role::User, "") };
    let second = v1::CreateRunRequest {
        tools: tools(),
        model: model(),
        messages: vec![results],
        ..Default::default()
    };
    let run = ended(&server, &mut client, &id, second).await;
    assert_eq!(run.answer(), "It is blue.");
    assert_eq!(items(&mut client, &id).await.len(), 8);
}

#[tokio::test]
async fn an_invalid_conversation_is_rejected_by_field() {
    let server = TestServer::open(ServerLimits::default()).await;
    let mut client = server.client().await;
    let many = v1::CreateConversationRequest {
        messages: vec![said(v1::Role::User, "hi"); 21],
        ..Default::default()
    };
    let (status, message) = code(&client.create_conversation(many).await.unwrap_err());
    assert_eq!(status, Code::InvalidArgument);
    assert!(message.contains("messages"), "{message}");
    let long = v1::CreateConversationRequest {
        metadata: [("note".to_owned(), "x".repeat(513))].into(),
        ..Default::default()
    };
    let (status, message) = code(&client.create_conversation(long).await.unwrap_err());
    assert_eq!(status, Code::InvalidArgument);
    assert!(message.contains("metadata.note"), "{message}");
    for unknown in ["", "conv_1", "resp_01890a5dac96774bbcceb302099a8057"] {
        let request = v1::GetConversationRequest { conversation_id: unknown.to_owned() };
        assert_eq!(client.get_conversation(request).await.unwrap_err().code(), Code::NotFound, "{unknown}");
    }
}
