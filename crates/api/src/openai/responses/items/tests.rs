//! Tests of the items of a response.

use podium_domain::conversation::Conversation;
use podium_domain::ids::TenantId;
use podium_domain::money::Cost;
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::request::RunRequest;
use podium_domain::run::{RunSpec, SequencedEvent};
use podium_domain::time::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::image::of_url;
use crate::openai::responses::ResponseRequest;

fn run_of(messages: Vec<Message>) -> Run {
    let request = RunRequest::new(Conversation::new(messages).unwrap(), Policy::new(Tier::Mini, Effort::Low));
    let spec = RunSpec {
        tenant: TenantId::new("acme").unwrap(),
        key: None,
        budgets: Vec::new(),
        hold: Cost::ZERO,
        request_id: None,
        request_digest: None,
        model: "podium-mini".to_owned(),
        request,
        pool: "p-1".to_owned(),
        conductor: "c-1".to_owned(),
        accepted_at: Timestamp::default(),
        deadline_at: Timestamp::default(),
    };
    let events = [SequencedEvent { sequence: 1, at: Timestamp::default(), event: Run::accept(spec) }];
    Run::replay("01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(), &events).unwrap()
}

fn item_of(run: &Run, id: &str) -> Option<InputItem> {
    known_items(run).into_iter().find(|item| item.id == id).map(|item| item.item)
}

fn page_of(run: &Run) -> Value {
    let page = ItemPage { order: ItemOrder::Ascending, after: None, limit: 9 };
    serde_json::from_str(&page.of_input(run).unwrap()).unwrap()
}

#[test]
fn an_input_shows_the_parts_that_were_sent() {
    let png = "data:image/png;base64,iVBORw0KGgo=";
    let pdf = |name, source| Part::Pdf(Pdf { name, source });
    let parts = [
        Part::Image(of_url(png).unwrap()),
        Part::Text("or this?".to_owned()),
        pdf(Some("a.pdf".to_owned()), PdfSource::Data("JVBERi0=".to_owned())),
        pdf(None, PdfSource::Url("https://x.org/a.pdf".to_owned())),
    ];
    let said = Message::new(Role::Assistant, "neither");
    let run = run_of(vec![said, Message::new(Role::User, "this").with(parts)]);
    let page = page_of(&run);
    assert_eq!(page["data"][0]["content"][0]["type"], "output_text");
    let expected = json!([
        {"type": "input_text", "text": "this"},
        {"type": "input_image", "image_url": png, "detail": "auto"},
        {"type": "input_text", "text": "or this?"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        {"type": "input_file", "file_url": "https://x.org/a.pdf"},
    ]);
    assert_eq!(page["data"][1]["content"], expected);
}

#[test]
fn an_item_is_found_by_its_id() {
    let run = run_of(vec![Message::new(Role::Assistant, "b"), Message::new(Role::User, "c")]);
    let (expected, id) = (InputItem::Message(Message::new(Role::User, "c")), ResponseId::of(&run));
    assert_eq!(item_of(&run, &input_message_id(id, 1)), Some(expected));
    for unknown in [
        input_message_id(id, 2),
        input_message_id(ResponseId::new(run.id(), 1), 1),
        output_message_id(id),
        output_call_id(id, &ToolKind::Function, 0),
    ] {
        assert_eq!(item_of(&run, &unknown), None, "{unknown}");
    }
}

#[test]
fn references_to_a_long_item_stop_at_the_limit_of_a_conversation() {
    let run = run_of(vec![Message::new(Role::User, "x".repeat(300 << 10))]);
    let reference = json!({"type": "item_reference", "id": input_message_id(ResponseId::of(&run), 0)});
    let resolved = |count: usize| {
        let body = json!({"model": "podium-mini", "input": vec![reference.clone(); count]});
        let mut request = ResponseRequest::parse(body.to_string().as_bytes()).unwrap();
        request.resolve(&run)
    };
    assert_eq!(resolved(3), Ok(()));
    let error = resolved(1_000).unwrap_err();
    assert_eq!(error.param(), Some("input"));
    assert!(
        error.message.contains(&(1200 << 10).to_string()),
        "the fourth one exceeds it: {}",
        error.message
    );
}

#[test]
fn calls_and_their_outputs_are_items() {
    let call = ToolCall::new("c1", "look", "{}");
    let output = ToolResult {
        images: vec![of_url("https://x.org/a.png").unwrap()],
        ..ToolResult::new("c1", "look", "blue")
    };
    let run = run_of(vec![
        Message::new(Role::User, "look"),
        Message::new(Role::Assistant, "I look.").with([Part::ToolCall(call.clone())]),
        Message::new(Role::User, "").with([Part::ToolResult(output.clone())]),
    ]);
    let page = page_of(&run);
    let kinds: Vec<_> = page["data"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "message", "function_call", "function_call_output"]);
    let image = json!({"type": "input_image", "image_url": "https://x.org/a.png", "detail": "auto"});
    let parts = json!([{"type": "input_text", "text": "blue"}, image]);
    assert_eq!((&page["data"][3]["call_id"], &page["data"][3]["output"]), (&json!("c1"), &parts));
    for (item, expected) in [
        (&page["data"][1], InputItem::Message(Message::new(Role::Assistant, "I look."))),
        (&page["data"][2], InputItem::Call(call)),
        (&page["data"][3], InputItem::Output(output)),
    ] {
        assert_eq!(item_of(&run, item["id"].as_str().unwrap()), Some(expected));
    }
}
