//! Conversations of the Responses API: items that a client stores, followed by the items of its responses.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use podium_domain::content::{Part, ToolCall};
use podium_domain::conversation::{Message, Role};
use podium_domain::ids::RunId;
use podium_domain::run::Run;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::input::{InputItem, item_of, messages_of};
use super::items::{Item, ItemPage, NamedItem, items_of, items_of_cancelled};
use super::record::Record;
use super::request::metadata;
use crate::field::{Field, missing, unknown};
use crate::json::{self, text_of};
use crate::openai::tool_forms::ToolForms;
use crate::openai::tools::ToolsDraft;
use crate::{ApiError, ErrorCode};

/// Most items of one request, as in OpenAI's API.
const ITEMS_MAX: usize = 20;
/// Most items and responses of a conversation. Each response is loaded for the next one.
const ENTRIES_MAX: usize = 512;
/// Most bytes of the items that a client stores in a conversation.
const BYTES_MAX: usize = 1 << 20;
pub(super) const PREFIX: &str = "conv_";
/// The digits of an id after its prefix.
const DIGITS: usize = 32;

/// A conversation, in its stored form. Processes of other versions read it, so a new field needs a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientConversation {
    /// In seconds since the Unix epoch.
    created_at: u64,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    /// The number of the next item that the client stores.
    #[serde(default)]
    next: u64,
    #[serde(default)]
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    /// An item that the client stored, as it was sent.
    Item { id: String, item: Value },
    /// The input and output of a response, without the items that the client removed.
    Response {
        run: RunId,
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        removed: BTreeSet<String>,
    },
}

/// The items of a conversation.
#[derive(Clone, Debug, Default)]
pub struct ConversationItems {
    items: Vec<NamedItem>,
    forms: ToolForms,
    /// The items of cancelled runs whose calls have no results yet, in the order of the conversation.
    cancelled: Vec<CancelledItems>,
}

/// The items of a run that was cancelled while it waited for results.
#[derive(Clone, Debug)]
struct CancelledItems {
    /// The number of items of the conversation before them.
    at: usize,
    items: Vec<NamedItem>,
}

/// The id of a conversation. `digits` are 32 hexadecimal digits.
pub fn conversation_id(digits: &str) -> String {
    format!("{PREFIX}{digits}")
}

/// Whether an id is one of a conversation.
pub fn is_conversation_id(id: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    id.strip_prefix(PREFIX).is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit))
}

/// The error for a conversation that does not exist.
pub fn unknown_conversation(param: &str, id: &str) -> ApiError {
    let shown: String = id.chars().take(100).collect();
    let message = format!("conversation `{shown}` does not exist");
    ApiError::on_field(ErrorCode::ConversationNotFound, param, message)
}

impl ClientConversation {
    /// The conversation of a request. `id` is its id.
    pub fn create(body: &[u8], id: &str, created_at: u64) -> Result<Self, ApiError> {
        let body = if body.is_empty() { Map::new() } else { json::parse_object(body)? };
        let mut made = Self { created_at, ..Self::default() };
        for (name, value) in body.iter().filter(|(_, value)| !value.is_null()) {
            let field = Field::new(name, value);
            match name.as_str() {
                "metadata" => made.metadata = metadata(&field)?,
                "items" => {
                    made.add(id, &field)?;
                }
                other => return Err(unknown(other)),
            }
        }
        Ok(made)
    }

    /// A conversation of messages that another API has read. `id` is its id.
    pub fn of_messages(
        messages: &[Message],
        metadata_sent: &BTreeMap<String, String>,
        id: &str,
        created_at: u64,
    ) -> Result<Self, ApiError> {
        let sent = json!(metadata_sent);
        let mut made =
            Self { created_at, metadata: metadata(&Field::new("metadata", &sent))?, ..Self::default() };
        let forms = ToolForms::default();
        let items = messages.iter().flat_map(items_of_message);
        let items = items.map(|item| item_to_store(&NamedItem { id: String::new(), item }.body(&forms)));
        let items = Value::Array(items.collect());
        made.add(id, &Field::new("messages", &items))?;
        Ok(made)
    }

    /// Its metadata.
    pub const fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// When it was made, in seconds since the Unix epoch.
    pub const fn created_at(&self) -> u64 {
        self.created_at
    }

    /// Parses the stored form.
    pub fn from_json(stored: &str) -> Option<Self> {
        serde_json::from_str(stored).ok()
    }

    /// The stored form.
    pub fn to_json(&self) -> String {
        text_of(self)
    }

    /// The conversation as its client sees it.
    pub fn body(&self, id: &str) -> String {
        let Self { created_at, metadata, .. } = self;
        let body =
            json!({"id": id, "object": "conversation", "created_at": created_at, "metadata": metadata});
        body.to_string()
    }

    /// The body that confirms a removal.
    pub fn removed(id: &str) -> String {
        json!({"id": id, "object": "conversation.deleted", "deleted": true}).to_string()
    }

    /// Replaces the metadata, as the body of a request says.
    pub fn change(&mut self, body: &[u8]) -> Result<(), ApiError> {
        let body = json::parse_object(body)?;
        if let Some(name) = body.keys().find(|name| *name != "metadata") {
            return Err(unknown(name));
        }
        let value = body.get("metadata").ok_or_else(|| missing("metadata"))?;
        self.metadata =
            if value.is_null() { BTreeMap::new() } else { metadata(&Field::new("metadata", value))? };
        Ok(())
    }

    /// Adds the items of a request for this. Returns their positions among the entries.
    pub fn add_items(&mut self, id: &str, body: &[u8]) -> Result<Range<usize>, ApiError> {
        let body = json::parse_object(body)?;
        if let Some(name) = body.keys().find(|name| *name != "items") {
            return Err(unknown(name));
        }
        let items = body.get("items").ok_or_else(|| missing("items"))?;
        self.add(id, &Field::new("items", items))
    }

    fn add(&mut self, id: &str, field: &Field<'_>) -> Result<Range<usize>, ApiError> {
        let digits = id.strip_prefix(PREFIX).unwrap_or_default().to_owned();
        let first = self.entries.len();
        for sent in field.array_of(ITEMS_MAX)? {
            if read(&sent)?.is_none() {
                let kind = sent.required(sent.object()?, "type")?;
                return Err(kind.unsupported("a conversation stores messages, calls and their outputs"));
            }
            self.entries
                .push(Entry::Item { id: format!("ci_{digits}_{}", self.next), item: sent.value.clone() });
            self.next += 1;
        }
        let bytes: usize = self.entries.iter().map(Entry::bytes).sum();
        if self.entries.len() > ENTRIES_MAX || bytes > BYTES_MAX {
            return Err(full(&field.path));
        }
        Ok(first..self.entries.len())
    }

    /// Adds a response that has begun.
    pub fn add_response(&mut self, run: RunId) -> Result<(), ApiError> {
        if self.entries.len() >= ENTRIES_MAX {
            return Err(full("conversation"));
        }
        self.entries.push(Entry::Response { run, removed: BTreeSet::new() });
        Ok(())
    }

    /// The runs of its responses.
    pub fn runs(&self) -> impl Iterator<Item = RunId> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Response { run, .. } => Some(*run),
            Entry::Item { .. } => None,
        })
    }

    /// Fails if one of its responses is under way.
    pub fn is_free(&self, runs: &[Run]) -> Result<(), ApiError> {
        runs.iter().find(|run| !run.has_replied(run.reply())).map_or(Ok(()), |run| Err(locked(run)))
    }

    /// The items that stand before the run `before`. `runs` are the runs of its responses that exist.
    pub fn items_before(&self, before: RunId, runs: &[Run]) -> ConversationItems {
        let is_it = |entry: &Entry| matches!(entry, Entry::Response { run, .. } if *run == before);
        let end = self.entries.iter().position(is_it).unwrap_or(self.entries.len());
        self.items_at(0..end, runs)
    }

    /// Its items. `runs` are the runs of its responses that exist; a response without an answer adds nothing.
    pub fn items(&self, runs: &[Run]) -> ConversationItems {
        self.items_at(0..self.entries.len(), runs)
    }

    /// The items of these entries.
    pub fn items_at(&self, range: Range<usize>, runs: &[Run]) -> ConversationItems {
        let mut all = ConversationItems::default();
        for entry in self.entries.get(range).unwrap_or_default() {
            match entry {
                Entry::Item { id, item } => {
                    // It was checked when it was stored.
                    let Some(Parsed { item, forms }) = read(&Field::new("items", item)).ok().flatten() else {
                        continue;
                    };
                    all.forms.add_missing(forms, |_| true);
                    all.items.push(NamedItem { id: id.clone(), item });
                }
                Entry::Response { run, removed } => {
                    let Some(run) = runs.iter().find(|loaded| loaded.id() == *run) else { continue };
                    let is_kept = |item: &NamedItem| !removed.contains(&item.id);
                    all.items.extend(items_of(run).into_iter().filter(is_kept));
                    let items: Vec<_> = items_of_cancelled(run).into_iter().filter(is_kept).collect();
                    if !items.is_empty() {
                        all.cancelled.push(CancelledItems { at: all.items.len(), items });
                    }
                    all.forms.add_missing(Record::of(run).tool_forms, |_| true);
                }
            }
        }
        all.add_answered(&[]);
        all.name_outputs();
        all
    }

    /// Removes an item. `items` are all of its items. Returns whether there was one.
    pub fn remove_item(&mut self, item_id: &str, items: &ConversationItems) -> bool {
        if !items.items.iter().any(|item| item.id == item_id) {
            return false;
        }
        let before = self.entries.len();
        self.entries.retain(|entry| !matches!(entry, Entry::Item { id, .. } if id == item_id));
        if self.entries.len() < before {
            return true;
        }
        let digits = super::id::run_of_item(item_id);
        for entry in &mut self.entries {
            if let Entry::Response { run, removed } = entry
                && Some(*run) == digits
            {
                removed.insert(item_id.to_owned());
            }
        }
        true
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        match self {
            Self::Item { item, .. } => item.to_string().len(),
            Self::Response { .. } => 0,
        }
    }
}

/// An item as a message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationItem {
    /// Its id.
    pub id: String,
    /// A text of one author with its images and files, one tool call, or the result of one.
    pub message: Message,
}

impl ConversationItems {
    /// All of them as messages, in order.
    pub fn into_messages(self) -> Vec<ConversationItem> {
        let messages = self.items.into_iter().filter_map(|NamedItem { id, item }| {
            let message = match item {
                InputItem::Message(message) => message,
                InputItem::Call(call) => Message::new(Role::Assistant, "").with([Part::ToolCall(call)]),
                InputItem::Output(result) => Message::new(Role::User, "").with([Part::ToolResult(result)]),
                InputItem::Reference { .. } => return None,
            };
            Some(ConversationItem { id, message })
        });
        messages.collect()
    }

    /// The messages that stand before the `messages` of a request.
    pub fn messages_before(self, messages: &[Message]) -> Result<Vec<Message>, ApiError> {
        let input: Vec<_> = messages.iter().flat_map(items_of_message).collect();
        messages_of(self.before(&input))
    }

    /// A page of them as JSON; see [`ItemPage`].
    pub fn page(self, page: &ItemPage) -> Option<String> {
        page.of(self.items, &self.forms)
    }

    /// One of them as JSON.
    pub fn one(&self, id: &str) -> Option<String> {
        let item = self.items.iter().find(|item| item.id == id)?;
        Some(text_of(&item.body(&self.forms)))
    }

    /// Gives each output without a name the name of its call, which says of which kind it is.
    fn name_outputs(&mut self) {
        let mut names = HashMap::new();
        for named in &mut self.items {
            match &mut named.item {
                InputItem::Call(call) => {
                    names.insert(call.id.clone(), call.name.clone());
                }
                InputItem::Output(result) if result.name.is_empty() => {
                    result.name = names.get(&result.call_id).cloned().unwrap_or_default();
                }
                InputItem::Output(_) | InputItem::Message(_) | InputItem::Reference { .. } => {}
            }
        }
    }

    /// Adds the items of cancelled runs for whose calls there are results, among its items or in the `input` after them.
    fn add_answered(&mut self, input: &[InputItem]) {
        let outputs = self.items.iter().map(|named| &named.item).chain(input).filter_map(|item| match item {
            InputItem::Output(result) => Some(result.call_id.clone()),
            _ => None,
        });
        let outputs: HashSet<_> = outputs.collect();
        let is_answered = |named: &NamedItem| match &named.item {
            InputItem::Call(call) => outputs.contains(&call.id),
            _ => false,
        };
        let (mut left, mut added) = (Vec::new(), 0);
        for CancelledItems { at, items } in std::mem::take(&mut self.cancelled) {
            let at = at + added;
            if items.iter().any(is_answered) {
                added += items.len();
                drop(self.items.splice(at..at, items));
            } else {
                left.push(CancelledItems { at, items });
            }
        }
        self.cancelled = left;
    }

    /// Its items before the `input` of a request.
    pub(super) fn before(mut self, input: &[InputItem]) -> Vec<InputItem> {
        self.add_answered(input);
        self.items.into_iter().map(|named| named.item).collect()
    }
}

/// The items of a message: its text, images and files, and then its calls and results.
fn items_of_message(message: &Message) -> Vec<InputItem> {
    let mut shown = Message::new(message.role, &*message.text);
    let mut others = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(_) | Part::Image(_) | Part::Pdf(_) => shown.parts.push(part.clone()),
            Part::ToolCall(call) => {
                others.push(InputItem::Call(ToolCall::new(&*call.id, &*call.name, &*call.arguments)));
            }
            Part::ToolResult(result) => others.push(InputItem::Output(result.clone())),
            Part::Reasoning(_) => {}
        }
    }
    let has_content = !shown.text.is_empty() || !shown.parts.is_empty() || others.is_empty();
    has_content.then_some(InputItem::Message(shown)).into_iter().chain(others).collect()
}

/// An item as a client would send it: the conversation gives it an id.
fn item_to_store(item: &Item<'_>) -> Value {
    let mut item = json!(item);
    if let Some(item) = item.as_object_mut() {
        item.remove("id");
        item.remove("status");
    }
    item
}

struct Parsed {
    item: InputItem,
    forms: ToolForms,
}

/// Reads an item; none if its type cannot be stored.
fn read(field: &Field<'_>) -> Result<Option<Parsed>, ApiError> {
    let mut tools = ToolsDraft::flat();
    let item = item_of(field, &mut tools)?.filter(|item| item.run().is_none());
    Ok(item.map(|item| Parsed { item, forms: tools.into_called() }))
}

fn full(path: &str) -> ApiError {
    let message = format!(
        "`{path}`: a conversation holds at most {ENTRIES_MAX} items and responses, and {BYTES_MAX} bytes of stored items; start another one"
    );
    ApiError::on_field(ErrorCode::InvalidValue, path, message)
}

fn locked(run: &Run) -> ApiError {
    let id = super::id::ResponseId::of(run);
    let message = format!("response `{id}` of the conversation is under way; wait for its end");
    ApiError::on_field(ErrorCode::ConversationLocked, "conversation", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(body: &Value) -> Result<ClientConversation, ApiError> {
        ClientConversation::create(body.to_string().as_bytes(), &id(), 7)
    }

    fn id() -> String {
        conversation_id(&"a1".repeat(16))
    }

    #[test]
    fn a_conversation_keeps_its_stored_form() {
        let body = json!({"metadata": {"a": "b"}, "items": [{"role": "user", "content": "hi"}]});
        let mut made = conversation(&body).unwrap();
        let run: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        made.add_response(run).unwrap();
        let item = format!("ci_{}_0", "a1".repeat(16));
        let stored = json!({
            "created_at": 7, "metadata": {"a": "b"}, "next": 1,
            "entries": [
                {"item": {"id": item, "item": {"role": "user", "content": "hi"}}},
                {"response": {"run": run}},
            ],
        });
        assert_eq!(serde_json::from_str::<Value>(&made.to_json()).unwrap(), stored);
        assert_eq!(ClientConversation::from_json(&made.to_json()), Some(made.clone()));
        assert_eq!(made.runs().collect::<Vec<_>>(), [run]);
        let items = made.items(&[]);
        assert!(made.remove_item(&item, &items) && !made.remove_item("ci_x", &items));
        assert!(made.items(&[]).one(&item).is_none());
    }

    #[test]
    fn invalid_conversations_are_rejected_by_name() {
        let message = json!({"role": "user", "content": "x".repeat(60_000)});
        for (body, param) in [
            (json!({"colour": 1}), "colour"),
            (json!({"metadata": 1}), "metadata"),
            (json!({"items": [{"type": "reasoning", "summary": []}]}), "items[0].type"),
            (json!({"items": [{"role": "king", "content": "a"}]}), "items[0].role"),
            (json!({"items": vec![json!({"role": "user", "content": "a"}); 21]}), "items"),
            (json!({"items": vec![message; 20]}), "items"),
        ] {
            let error = conversation(&body).unwrap_err();
            assert_eq!(error.param(), Some(param), "{error}");
        }
        assert!(is_conversation_id(&id()));
        for other in ["conv_", "conv_A1", "resp_01890a5dac96774bbcceb302099a8057"] {
            assert!(!is_conversation_id(other), "{other}");
        }
    }
}
