//! The items of a response: those of its input and those of its output.

use podium_domain::content::{Attachment, Image, Part, Pdf, PdfSource, ToolCall, ToolResult};
use podium_domain::conversation::{Message, Role};
use podium_domain::run::{FinishReason, Run};
use serde::Serialize;
use serde_json::{Value, json};

use super::custom_input;
use super::id::{
    ResponseId, input_call_id, input_message_id, input_output_id, output_call_id, output_message_id,
    summary_id,
};
use super::input::InputItem;
use super::record::Record;
use crate::finish::{finish_of, refusal_text};
use crate::json::text_of;
use crate::openai::tool_forms::{ToolForm, ToolForms, ToolKind};

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
        phase: Option<Phase>,
    },
    /// Reasoning: what the worker thought, or the seals that it expects back.
    Reasoning {
        id: String,
        summary: Vec<Summary<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_content: Option<String>,
    },
    /// A function call.
    FunctionCall {
        id: String,
        status: ItemStatus,
        call_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        name: String,
        /// The arguments, as the worker wrote them. Models write invalid JSON too.
        arguments: String,
    },
    /// The output of a function.
    FunctionCallOutput { id: String, status: ItemStatus, call_id: String, output: Output<'a> },
    /// A call of a custom tool.
    CustomToolCall {
        id: String,
        status: ItemStatus,
        call_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        name: String,
        input: String,
    },
    /// The output of a custom tool.
    CustomToolCallOutput { id: String, status: ItemStatus, call_id: String, output: Output<'a> },
    /// A call of the client's search for tools.
    ToolSearchCall {
        id: String,
        status: ItemStatus,
        call_id: String,
        execution: &'static str,
        arguments: Value,
    },
    /// The result of a search for tools. The tools that it found are part of the request.
    ToolSearchOutput {
        id: String,
        status: ItemStatus,
        call_id: String,
        execution: &'static str,
        tools: [(); 0],
    },
}

/// A part of the summary of a reasoning item.
#[derive(Clone, Copy, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Summary<'a> {
    SummaryText { text: &'a str },
}

/// The output of a function: a text, or parts if it has images or files.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Output<'a> {
    Text(&'a str),
    Parts(Vec<Content<'a>>),
}

impl<'a> Item<'a> {
    /// The reasoning before an answer.
    pub(super) fn summary(response: ResponseId, summary: Vec<Summary<'a>>) -> Self {
        Self::Reasoning { id: summary_id(response), summary, encrypted_content: None }
    }

    /// The item of a call, of whose arguments or text the client sees `written`.
    pub(super) fn of_call(id: String, status: ItemStatus, call: CallNames, written: String) -> Self {
        let CallNames { call_id, offered, form } = call;
        let Some(ToolForm { name, namespace, kind }) = form else {
            return Self::FunctionCall {
                id,
                status,
                call_id,
                namespace: None,
                name: offered,
                arguments: written,
            };
        };
        match kind {
            ToolKind::Function => {
                Self::FunctionCall { id, status, call_id, namespace, name, arguments: written }
            }
            ToolKind::Custom { .. } => {
                Self::CustomToolCall { id, status, call_id, namespace, name, input: written }
            }
            ToolKind::Search => {
                // Clients expect an object.
                let arguments = serde_json::from_str(&written).ok().filter(Value::is_object);
                let arguments = arguments.unwrap_or_else(|| json!({}));
                Self::ToolSearchCall { id, status, call_id, execution: "client", arguments }
            }
        }
    }
}

/// The names of a call.
#[derive(Clone, Debug)]
pub(super) struct CallNames {
    pub(super) call_id: String,
    /// The name by which workers know the tool.
    pub(super) offered: String,
    /// How the client knows it; `None` for a plain function.
    pub(super) form: Option<ToolForm>,
}

impl CallNames {
    pub(super) fn of(call_id: &str, offered: &str, forms: &ToolForms) -> Self {
        Self { call_id: call_id.to_owned(), offered: offered.to_owned(), form: forms.of(offered).cloned() }
    }

    pub(super) fn kind(&self) -> &ToolKind {
        self.form.as_ref().map_or(&ToolKind::Function, |form| &form.kind)
    }
}

/// The item of a call that is complete.
fn whole_call<'a>(id: String, status: ItemStatus, names: CallNames, arguments: &str) -> Item<'a> {
    let written = match names.kind() {
        ToolKind::Custom { .. } => custom_input::text_of(arguments),
        ToolKind::Function | ToolKind::Search => arguments.to_owned(),
    };
    Item::of_call(id, status, names, written)
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
    /// A PDF of a client.
    InputFile {
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_data: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_url: Option<&'a str>,
    },
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
            None => Self::output(run.reply_text().unwrap_or_default()),
        }
    }
}

/// Whether a message of the assistant is its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// It accompanies calls.
    Commentary,
    FinalAnswer,
}

/// A message of an answer. Its phase is known at its end.
pub(super) fn message(
    id: String,
    status: ItemStatus,
    phase: Option<Phase>,
    content: Vec<Content<'_>>,
) -> Item<'_> {
    Item::Message { id, status, role: "assistant", content, phase }
}

/// The output of a run so far: reasoning, a message, and the calls after it. An answer is part of it once it is complete.
pub(super) fn output<'a>(run: &'a Run, forms: &ToolForms) -> Vec<Item<'a>> {
    let Some(answer) = run.reply_text() else { return Vec::new() };
    let (id, calls) = (ResponseId::of(run), run.tool_calls());
    let last = calls.len().checked_sub(1);
    // Only the last item can be cut off.
    let status_of = |is_last: bool| if is_last { answer_status(run) } else { ItemStatus::Completed };
    let reasoning = Some(run.reply_reasoning()).filter(|text| !text.is_empty());
    let reasoning = reasoning.map(|text| Item::summary(id, vec![Summary::SummaryText { text }]));
    let mut items: Vec<_> = reasoning.into_iter().collect();
    if calls.is_empty() || !answer.is_empty() {
        let content = vec![Content::of_answer(run)];
        let phase = if calls.is_empty() { Phase::FinalAnswer } else { Phase::Commentary };
        items.push(message(output_message_id(id), status_of(last.is_none()), Some(phase), content));
    }
    items.extend(calls.into_iter().enumerate().map(|(index, call)| {
        let names = CallNames::of(&call.id, &call.name, forms);
        let id = output_call_id(id, names.kind(), index);
        whole_call(id, status_of(last == Some(index)), names, &call.arguments)
    }));
    items
}

/// The status of an answer.
pub(super) fn answer_status(run: &Run) -> ItemStatus {
    match finish_of(run) {
        FinishReason::Length => ItemStatus::Incomplete,
        FinishReason::Stop | FinishReason::ContentFilter | FinishReason::ToolCalls => ItemStatus::Completed,
    }
}

/// The order of a list of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOrder {
    /// The first one first.
    Ascending,
    /// The last one first.
    Descending,
}

/// A page of a list of items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemPage {
    /// The order of the list.
    pub order: ItemOrder,
    /// The last item of the previous page.
    pub after: Option<String>,
    /// Most items of the page.
    pub limit: usize,
}

/// A page as clients see it.
#[derive(Serialize)]
struct PageBody<'a> {
    object: &'static str,
    data: Vec<Item<'a>>,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
    has_more: bool,
}

impl ItemPage {
    /// The page as JSON. None if no item has the id `after`.
    pub(super) fn of(&self, mut items: Vec<NamedItem>, forms: &ToolForms) -> Option<String> {
        if self.order == ItemOrder::Descending {
            items.reverse();
        }
        if let Some(after) = &self.after {
            let at = items.iter().position(|item| item.id == *after)?;
            items.drain(..=at);
        }
        let has_more = items.len() > self.limit;
        items.truncate(self.limit);
        Some(text_of(&PageBody {
            object: "list",
            data: items.iter().map(|item| item.body(forms)).collect(),
            first_id: items.first().map(|item| item.id.as_str()),
            last_id: items.last().map(|item| item.id.as_str()),
            has_more,
        }))
    }

    /// The page of the items of a response's input as JSON. None if the input has no item `after`.
    pub fn of_input(&self, run: &Run) -> Option<String> {
        let record = Record::of(run);
        self.of(input_items(run, &record, run.reply()), &record.tool_forms)
    }
}

/// An item with its id.
#[derive(Clone, Debug)]
pub(super) struct NamedItem {
    pub(super) id: String,
    pub(super) item: InputItem,
}

impl NamedItem {
    /// The item as clients see it.
    pub(super) fn body(&self, forms: &ToolForms) -> Item<'_> {
        let (id, status) = (self.id.clone(), ItemStatus::Completed);
        match &self.item {
            InputItem::Message(message) => {
                let (role, content) = (message.role.as_str(), contents(message));
                Item::Message { id, status, role, content, phase: None }
            }
            InputItem::Call(call) => {
                let names = CallNames::of(&call.id, &call.name, forms);
                whole_call(id, status, names, &call.arguments)
            }
            InputItem::Output(result) => input_output(id, kind_of(&result.name, forms), result),
            InputItem::Reference { id: named, .. } => {
                Item::Message { id: named.clone(), status, role: "user", content: Vec::new(), phase: None }
            }
        }
    }
}

/// The items of a run's responses in a conversation. A run that failed, or was cancelled, adds nothing: its calls would need results
/// for ever. One whose results did not come in time keeps its calls, because its response was complete.
pub(super) fn items_of(run: &Run) -> Vec<NamedItem> {
    let is_complete = run.answer().is_some() || run.is_suspended() || run.is_expired();
    if is_complete { items_with_calls(run) } else { Vec::new() }
}

/// The items of a run that was cancelled while it waited for results: a conversation has them once it has a result for one of its
/// calls. Empty for other runs.
pub(super) fn items_of_cancelled(run: &Run) -> Vec<NamedItem> {
    if run.is_cancelled_with_calls() { items_with_calls(run) } else { Vec::new() }
}

/// The items of all replies that are complete.
fn items_with_calls(run: &Run) -> Vec<NamedItem> {
    let record = Record::of(run);
    let mut outputs: Vec<_> = run
        .replies_with_calls()
        .into_iter()
        .map(|reply| {
            Message::new(Role::Assistant, reply.text).with(reply.calls.into_iter().map(Part::ToolCall))
        })
        .collect();
    outputs.extend(run.answer().map(|answer| {
        Message::new(Role::Assistant, answer).with(run.tool_calls().into_iter().map(Part::ToolCall))
    }));
    let mut items = Vec::new();
    for (reply, output) in (0u16..).zip(outputs) {
        items.extend(input_items(run, &record, reply));
        items.extend(output_items(ResponseId::new(run.id(), reply), output, &record.tool_forms));
    }
    items
}

/// The items of a run that a request may refer to: also those of an input without an answer.
pub(super) fn known_items(run: &Run) -> Vec<NamedItem> {
    let mut items = items_with_calls(run);
    let is_open = run.is_suspended() || run.is_expired() || run.is_cancelled_with_calls();
    if run.answer().is_none() && !is_open {
        items.extend(input_items(run, &Record::of(run), run.reply()));
    }
    items
}

fn output_items(response: ResponseId, answer: Message, forms: &ToolForms) -> Vec<NamedItem> {
    let mut items = Vec::new();
    if answer.parts.is_empty() || !answer.text.is_empty() {
        let item = InputItem::Message(Message::new(Role::Assistant, answer.text));
        items.push(NamedItem { id: output_message_id(response), item });
    }
    let calls = answer.parts.into_iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some(call),
        _ => None,
    });
    items.extend(calls.enumerate().map(|(index, call)| {
        let id = output_call_id(response, kind_of(&call.name, forms), index);
        NamedItem { id, item: InputItem::Call(ToolCall::new(call.id, call.name, call.arguments)) }
    }));
    items
}

fn kind_of<'f>(offered: &str, forms: &'f ToolForms) -> &'f ToolKind {
    forms.of(offered).map_or(&ToolKind::Function, |form| &form.kind)
}

/// The items of the input of a run's response: those of its request, or the results of the calls before it.
fn input_items(run: &Run, record: &Record, reply: u16) -> Vec<NamedItem> {
    let response = ResponseId::new(run.id(), reply);
    let items = |index: usize, message: &Message| message_items(response, &record.tool_forms, index, message);
    if let Some(before) = response.before() {
        let replies = run.replies_with_calls();
        let given = replies.get(usize::from(before.reply())).map(|reply| reply.results.as_slice());
        let given = given.unwrap_or_default().iter().enumerate();
        return given.flat_map(|(index, message)| items(index, message)).collect();
    }
    let messages = run.spec().request.conversation.messages();
    let sent = messages.len() - usize::from(record.is_continued);
    let messages = messages[..sent].iter().enumerate().skip(record.first_input());
    messages.flat_map(|(index, message)| items(index, message)).collect()
}

/// The items of a message: its text, images and files, and then its calls or their outputs.
fn message_items(response: ResponseId, forms: &ToolForms, index: usize, message: &Message) -> Vec<NamedItem> {
    let mut shown = Message::new(message.role, &*message.text);
    let mut others = Vec::new();
    for (part_index, part) in message.parts.iter().enumerate() {
        match part {
            Part::Text(_) | Part::Image(_) | Part::Pdf(_) => shown.parts.push(part.clone()),
            Part::ToolCall(call) => {
                let id = input_call_id(response, kind_of(&call.name, forms), index, part_index);
                let call = ToolCall::new(&*call.id, &*call.name, &*call.arguments);
                others.push(NamedItem { id, item: InputItem::Call(call) });
            }
            Part::ToolResult(result) => {
                let id = input_output_id(response, kind_of(&result.name, forms), index, part_index);
                others.push(NamedItem { id, item: InputItem::Output(result.clone()) });
            }
            Part::Reasoning(_) => {}
        }
    }
    let has_content = !shown.text.is_empty() || !shown.parts.is_empty();
    let message = (has_content || others.is_empty())
        .then(|| NamedItem { id: input_message_id(response, index), item: InputItem::Message(shown) });
    message.into_iter().chain(others).collect()
}

/// The messages of users, without results of tools.
pub(super) fn messages_of_users(response: ResponseId, messages: &[Message]) -> Vec<Item<'_>> {
    let users = messages.iter().enumerate().filter(|(_, message)| message.role == Role::User);
    let items = users.map(|(index, message)| Item::Message {
        id: input_message_id(response, index),
        status: ItemStatus::Completed,
        role: message.role.as_str(),
        content: contents(message),
        phase: None,
    });
    items.filter(|item| matches!(item, Item::Message { content, .. } if !content.is_empty())).collect()
}

/// The text, the images and the files of a message.
fn contents(message: &Message) -> Vec<Content<'_>> {
    let text = |text| match message.role {
        Role::Assistant => Content::output(text),
        Role::User | Role::System => Content::InputText { text },
    };
    let first = (!message.text.is_empty() || message.parts.is_empty()).then(|| text(message.text.as_str()));
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text(more) => Some(text(more)),
        Part::Image(image) => Some(attachment(Attachment::Image(image))),
        Part::Pdf(pdf) => Some(attachment(Attachment::Pdf(pdf))),
        Part::ToolCall(_) | Part::ToolResult(_) | Part::Reasoning(_) => None,
    });
    first.into_iter().chain(parts).collect()
}

fn attachment(attachment: Attachment<'_>) -> Content<'_> {
    let pdf = match attachment {
        Attachment::Image(image) => return Content::InputImage { image_url: url_of(image), detail: "auto" },
        Attachment::Pdf(pdf) => pdf,
    };
    let (file_data, file_url) = match &pdf.source {
        PdfSource::Url(url) => (None, Some(url.as_str())),
        PdfSource::Data(base64) => (Some(format!("data:{};base64,{base64}", Pdf::MEDIA_TYPE)), None),
    };
    Content::InputFile { filename: pdf.name.as_deref(), file_data, file_url }
}

fn input_output<'a>(id: String, kind: &ToolKind, result: &'a ToolResult) -> Item<'a> {
    let text = result.output.as_str();
    let output = if result.is_text_only() {
        Output::Text(text)
    } else {
        let first = (!text.is_empty()).then_some(Content::InputText { text });
        Output::Parts(first.into_iter().chain(result.attachments().map(attachment)).collect())
    };
    let (status, call_id) = (ItemStatus::Completed, result.call_id.clone());
    match kind {
        ToolKind::Function => Item::FunctionCallOutput { id, status, call_id, output },
        ToolKind::Custom { .. } => Item::CustomToolCallOutput { id, status, call_id, output },
        ToolKind::Search => Item::ToolSearchOutput { id, status, call_id, execution: "client", tools: [] },
    }
}

fn url_of(image: &Image) -> String {
    match image {
        Image::Url(url) => url.clone(),
        Image::Data { media_type, base64 } => format!("data:{};base64,{base64}", media_type.as_str()),
    }
}

#[cfg(test)]
mod tests;
