//! The items of a response: those of its input and those of its output.

use podium_domain::content::{Image, Part};
use podium_domain::conversation::{Message, Role};
use podium_domain::run::{FinishReason, Run};
use serde::Serialize;

use super::id::{input_message_id, input_message_index, output_message_id};
use super::record::Record;
use crate::finish::{finish_of, refusal_text};
use crate::json::text_of;

/// An item.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Item<'a> {
    /// A message.
    Message {
        id: String,
        status: ItemStatus,
        role: &'static str,
        content: Vec<Content<'a>>,
        /// Whether an assistant's message is its answer or a comment before it.
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'static str>,
    },
}

/// How far an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ItemStatus {
    /// It is being written.
    InProgress,
    /// It is complete.
    Completed,
    /// It ends early, at the limit of tokens.
    Incomplete,
}

/// A part of a message.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Content<'a> {
    /// Text of a client.
    InputText { text: &'a str },
    /// An image of a client.
    InputImage { image_url: String, detail: &'static str },
    /// Text of an answer. Workers cite no sources, and there are no log probabilities.
    OutputText { text: &'a str, annotations: [(); 0], logprobs: [(); 0] },
    /// The words of a worker that refused.
    Refusal { refusal: &'a str },
}

impl<'a> Content<'a> {
    pub(super) const fn output(text: &'a str) -> Self {
        Self::OutputText { text, annotations: [], logprobs: [] }
    }

    /// The answer of a run, which has succeeded.
    pub(super) fn of_answer(run: &'a Run) -> Self {
        match run.refusal() {
            Some(said) => Self::Refusal { refusal: refusal_text(said) },
            None => Self::output(run.answer().unwrap_or_default()),
        }
    }
}

/// The message that a run answers with.
pub(super) fn output_message<'a>(run: &Run, status: ItemStatus, content: Vec<Content<'a>>) -> Item<'a> {
    Item::Message {
        id: output_message_id(run.id()),
        status,
        role: "assistant",
        content,
        phase: Some("final_answer"),
    }
}

/// The output of a run so far. An answer is part of it once it is complete.
pub(super) fn output(run: &Run) -> Vec<Item<'_>> {
    if run.answer().is_none() {
        return Vec::new();
    }
    vec![output_message(run, answer_status(run), vec![Content::of_answer(run)])]
}

/// The status of an answer.
pub(super) fn answer_status(run: &Run) -> ItemStatus {
    match finish_of(run) {
        FinishReason::Length => ItemStatus::Incomplete,
        FinishReason::Stop | FinishReason::ContentFilter | FinishReason::ToolCalls => ItemStatus::Completed,
    }
}

/// The message that an item's id names; none if the run does not have it.
pub(super) fn message_of_item(run: &Run, id: &str) -> Option<Message> {
    if id == output_message_id(run.id()) {
        return Some(Message::new(Role::Assistant, run.answer()?));
    }
    run.spec().request.conversation.messages().get(input_message_index(id)?).cloned()
}

/// The order of a list of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOrder {
    /// The first one first.
    Ascending,
    /// The last one first.
    Descending,
}

/// A page of the items of a response's input.
#[derive(Serialize)]
pub struct InputItems<'a> {
    object: &'static str,
    data: Vec<Item<'a>>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

impl<'a> InputItems<'a> {
    /// At most `limit` items in `order`, those behind item `after` if it is given. None if the input has no such item.
    pub fn page(run: &'a Run, order: ItemOrder, after: Option<&str>, limit: usize) -> Option<Self> {
        let messages = run.spec().request.conversation.messages();
        let first = Record::of(run).first_input();
        let mut indices: Vec<_> = (first..messages.len()).collect();
        if order == ItemOrder::Descending {
            indices.reverse();
        }
        if let Some(after) = after {
            let at = indices.iter().position(|index| input_message_id(run.id(), *index) == after)?;
            indices.drain(..=at);
        }
        let has_more = indices.len() > limit;
        indices.truncate(limit);
        let id = |index: Option<&usize>| index.map(|index| input_message_id(run.id(), *index));
        Some(Self {
            object: "list",
            first_id: id(indices.first()),
            last_id: id(indices.last()),
            data: indices.iter().map(|index| input_message(run, *index, &messages[*index])).collect(),
            has_more,
        })
    }

    /// The page as JSON.
    pub fn to_json(&self) -> String {
        text_of(self)
    }
}

fn input_message<'a>(run: &Run, index: usize, message: &'a Message) -> Item<'a> {
    let text = |text: &'a str| match message.role {
        Role::Assistant => Content::output(text),
        Role::User | Role::System => Content::InputText { text },
    };
    let first = (!message.text.is_empty() || message.parts.is_empty()).then(|| text(&message.text));
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text(more) => Some(text(more)),
        Part::Image(image) => Some(Content::InputImage { image_url: url_of(image), detail: "auto" }),
        Part::ToolCall(_) | Part::ToolResult(_) | Part::Reasoning(_) => None,
    });
    Item::Message {
        id: input_message_id(run.id(), index),
        status: ItemStatus::Completed,
        role: message.role.as_str(),
        content: first.into_iter().chain(parts).collect(),
        phase: None,
    }
}

fn url_of(image: &Image) -> String {
    match image {
        Image::Url(url) => url.clone(),
        Image::Data { media_type, base64 } => format!("data:{};base64,{base64}", media_type.as_str()),
    }
}

#[cfg(test)]
mod tests {
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

    fn run_of(messages: Vec<Message>) -> Run {
        let request =
            RunRequest::new(Conversation::new(messages).unwrap(), Policy::new(Tier::Mini, Effort::Low));
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

    #[test]
    fn an_input_shows_the_parts_that_were_sent() {
        let png = "data:image/png;base64,iVBORw0KGgo=";
        let parts = [Part::Image(of_url(png).unwrap()), Part::Text("or this?".to_owned())];
        let said = Message::new(Role::Assistant, "neither");
        let run = run_of(vec![said, Message::new(Role::User, "this").with(parts)]);
        let page = InputItems::page(&run, ItemOrder::Ascending, None, 9).unwrap();
        let page: Value = serde_json::from_str(&page.to_json()).unwrap();
        assert_eq!(page["data"][0]["content"][0]["type"], "output_text");
        let expected = json!([
            {"type": "input_text", "text": "this"},
            {"type": "input_image", "image_url": png, "detail": "auto"},
            {"type": "input_text", "text": "or this?"},
        ]);
        assert_eq!(page["data"][1]["content"], expected);
    }

    #[test]
    fn an_item_is_found_by_its_id() {
        let run = run_of(vec![Message::new(Role::Assistant, "b"), Message::new(Role::User, "c")]);
        assert_eq!(
            message_of_item(&run, &input_message_id(run.id(), 1)),
            Some(Message::new(Role::User, "c"))
        );
        assert_eq!(message_of_item(&run, &input_message_id(run.id(), 2)), None);
        assert_eq!(message_of_item(&run, &output_message_id(run.id())), None);
    }
}
