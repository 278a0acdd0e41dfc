//! Converts a Responses request into a request for a run.

use std::collections::{BTreeMap, HashMap};

use podium_domain::answer::AnswerForm;
use podium_domain::content::{Part, ToolCall};
use podium_domain::conversation::{
    Answerable, CONVERSATION_BYTES_MAX, Conversation, ConversationError, MESSAGES_MAX, Message, Role,
    answerable,
};
use podium_domain::ids::{RunId, TenantId};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::request::RunRequest;
use podium_domain::run::{Run, RunState};
use podium_domain::sampling::{Sampling, TEMPERATURE_MAX, TOP_P_MAX};
use podium_domain::tools::ToolUse;
use serde_json::{Map, Value};

use super::body::{Asked, Body, Moment};
use super::compaction;
use super::conversation::{ConversationItems, PREFIX};
use super::id::ResponseId;
use super::input::{InputItem, input, messages_of, unknown_item};
use super::items::known_items;
use super::parameters::{SERVICE_TIERS, include, rule};
use super::record::Record;
use super::sealed::{self, Turn, TurnKey};
use super::tools::read_tools;
use crate::field::{Field, missing, unknown};
use crate::json;
use crate::model::model_name;
use crate::openai::request::{effort, schema_form};
use crate::openai::tools::{RequestTools, ToolPlace, ToolsDraft};
use crate::podium_object::bound;
use crate::{ApiError, ErrorCode, ModelName, NewRun};

/// Most entries of `metadata`, and most characters of their names and values, as in OpenAI's API.
const METADATA_ENTRIES_MAX: usize = 16;
const METADATA_NAME_CHARS_MAX: usize = 64;
const METADATA_VALUE_CHARS_MAX: usize = 512;
/// Most responses whose items one input refers to: each of their runs is loaded.
const REFERENCED_MAX: usize = 256;
/// The parameters of a request for a compaction.
pub(crate) const COMPACTION_PARAMETERS: [&str; 7] = [
    "model",
    "input",
    "instructions",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_retention",
    "podium",
];
/// The parameters of a request to count tokens.
pub(crate) const COUNT_PARAMETERS: [&str; 11] = [
    "model",
    "input",
    "instructions",
    "previous_response_id",
    "conversation",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "truncation",
];
/// Most bytes of the client's names for its users and caches.
const NOTE_BYTES_MAX: usize = 512;

/// A request for a response.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseRequest {
    model: ModelName,
    instructions: Option<String>,
    input: Vec<InputItem>,
    policy: Policy,
    answer_tokens_max: Option<u32>,
    sampling: Sampling,
    answer: AnswerForm,
    tools: Option<ToolUse>,
    record: Record,
    /// The contents of reasoning items.
    sealed: Vec<String>,
    turns: Vec<Turn>,
    /// Whether the response is streamed.
    pub stream: bool,
}

impl ResponseRequest {
    /// Parses the body of a request. Reports the first problem only, as OpenAI does.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        Self::of(&json::parse_object(body)?)
    }

    pub(super) fn of(body: &Map<String, Value>) -> Result<Self, ApiError> {
        let mut draft = Draft::new();
        for (name, value) in body {
            let rule = rule(name).ok_or_else(|| unknown(name))?;
            let field = Field::new(name, value);
            if !value.is_null() && rule.is_read(&field)? {
                draft.read(&field)?;
            }
        }
        draft.finish()
    }

    /// Parses the body of a request for a compaction: its run summarizes the conversation, with one worker.
    pub fn parse_compaction(body: &[u8]) -> Result<Self, ApiError> {
        let mut draft = Draft::of(body, &COMPACTION_PARAMETERS)?;
        draft.store = Some(false);
        let mut request = draft.finish()?;
        request.policy.tier = Tier::Mini;
        request.input.push(InputItem::Message(compaction::task()));
        Ok(request)
    }

    /// Parses the body of a request to count the tokens of a response's input. No run is made of it.
    pub fn parse_count(body: &[u8]) -> Result<Self, ApiError> {
        Draft::of(body, &COUNT_PARAMETERS)?.finish()
    }

    /// The model.
    pub(super) const fn model(&self) -> &ModelName {
        &self.model
    }

    /// The response to the request if its input is only registered. `model` is the name of its model.
    pub(super) fn registered<'a>(
        &'a self,
        id: ResponseId,
        created_at: u64,
        moment: Moment,
        model: &'a str,
    ) -> Body<'a> {
        let asked = Asked {
            model,
            effort: self.policy.effort,
            answer_tokens_max: self.answer_tokens_max,
            sampling: self.sampling,
            answer: &self.answer,
            tools: self.tools.as_ref(),
        };
        Body::of_registered(id, created_at, moment, self.instructions.as_deref(), &self.record, asked)
    }

    /// Whether the run goes on without its client, which asks for the response later.
    pub fn is_background(&self) -> bool {
        self.record.background
    }

    /// The response that this one continues.
    pub fn previous(&self) -> Option<ResponseId> {
        self.record.previous()
    }

    /// The conversation that it continues.
    pub fn conversation(&self) -> Option<&str> {
        self.record.conversation.as_deref()
    }

    /// Whether it has or wants contents of reasoning items, which need a [`TurnKey`].
    pub fn needs_key(&self) -> bool {
        self.record.seals || !self.sealed.is_empty()
    }

    /// Opens the contents of the tenant's reasoning items.
    pub fn open(&mut self, key: &TurnKey, tenant: &TenantId) {
        self.turns = self.sealed.iter().filter_map(|content| key.open(tenant, content)).collect();
    }

    /// The runs whose items the input refers to, at most [`REFERENCED_MAX`].
    pub fn referenced_runs(&self) -> Result<Vec<RunId>, ApiError> {
        let mut runs: Vec<_> = self.input.iter().filter_map(InputItem::run).collect();
        runs.sort_unstable();
        runs.dedup();
        if runs.len() > REFERENCED_MAX {
            let count = runs.len();
            let message =
                format!("`input` refers to items of {count} responses, the limit is {REFERENCED_MAX}");
            return Err(ApiError::on_field(ErrorCode::InvalidValue, "input", message));
        }
        Ok(runs)
    }

    /// Puts the items of `run` in the place of the references to them. Fails as soon as the input is longer than a conversation may
    /// be, because a short request may refer to a long item many times.
    pub fn resolve(&mut self, run: &Run) -> Result<(), ApiError> {
        let mut bytes: usize = self.input.iter().map(InputItem::bytes).sum();
        let known: HashMap<_, _> = known_items(run).into_iter().map(|item| (item.id, item.item)).collect();
        for item in &mut self.input {
            if let InputItem::Reference { id, run: wanted, path } = item
                && *wanted == run.id()
            {
                let found = known.get(id.as_str()).ok_or_else(|| unknown_item(path, id))?;
                bytes = bytes.saturating_add(found.bytes());
                if bytes > CONVERSATION_BYTES_MAX {
                    return Err(of_conversation(&ConversationError::TooLong { bytes }));
                }
                *item = found.clone();
            }
        }
        Ok(())
    }

    /// The run to make. `previous` is the run of [`Self::previous`], and `items` are those of [`Self::conversation`]; all references are
    /// resolved.
    pub fn into_new_run(
        self,
        previous: Option<&Run>,
        items: Option<ConversationItems>,
    ) -> Result<NewRun, ApiError> {
        let Self { mut record, model, policy, answer_tokens_max, sampling, answer, tools, .. } = self;
        let mut earlier =
            previous.map(|previous| history(previous, &self.input)).transpose()?.unwrap_or_default();
        earlier.extend(messages_of(items.map(|items| items.before(&self.input)).unwrap_or_default())?);
        (record.has_instructions, record.earlier_messages) = (self.instructions.is_some(), earlier.len());
        let mut messages = Vec::new();
        messages.extend(self.instructions.map(|text| Message::new(Role::System, text)));
        messages.extend(earlier);
        messages.extend(messages_of(self.input)?);
        let messages = sealed::restored(messages, &self.turns);
        let Answerable { messages, has_added_turn } = answerable(messages);
        record.is_continued = has_added_turn;
        let conversation = Conversation::new(messages).map_err(|e| of_conversation(&e))?;
        let api_record = serde_json::to_value(&record).ok();
        let plain = RunRequest::new(conversation, policy);
        let shows_reasoning = record.summary.is_some();
        let request =
            RunRequest { answer_tokens_max, sampling, answer, tools, shows_reasoning, api_record, ..plain };
        Ok(NewRun { request_id: None, model, request })
    }
}

fn of_conversation(error: &ConversationError) -> ApiError {
    let message = match error {
        ConversationError::Empty | ConversationError::NoQuestion => {
            "`input` must end with a message of role `user` that has text, images or files, or with outputs of functions"
                .to_owned()
        }
        ConversationError::TooMany { count } => {
            format!(
                "the conversation has {count} messages with those of earlier responses, the limit is {MESSAGES_MAX}"
            )
        }
        other => other.to_string(),
    };
    ApiError::on_field(ErrorCode::InvalidValue, "input", message)
}

/// The conversation of an earlier response, with its answer and without its instructions, which apply to one response only. If its
/// run was cancelled while it waited for results, only an `input` with results of its calls may continue it.
fn history(run: &Run, input: &[InputItem]) -> Result<Vec<Message>, ApiError> {
    let id = ResponseId::of(run);
    let refuse = |problem: &str| {
        let message = format!("response `{id}` {problem}, so it cannot be continued");
        Err(ApiError::on_field(ErrorCode::InvalidValue, "previous_response_id", message))
    };
    match run.state() {
        RunState::Succeeded { .. } | RunState::Suspended => {}
        RunState::Active => return refuse("is not complete"),
        RunState::Failed { .. } => return refuse("failed"),
        RunState::Cancelled if answers_calls(run, input) => {}
        RunState::Cancelled => return refuse("was cancelled"),
    }
    let answered = |text: &str, calls: Vec<ToolCall>| {
        Message::new(Role::Assistant, text).with(calls.into_iter().map(Part::ToolCall))
    };
    let instructions = Record::of(run).has_instructions;
    let sent = run.spec().request.conversation.messages().iter().skip(usize::from(instructions));
    let mut messages: Vec<_> = sent.map(as_clients_send_it).collect();
    for reply in run.replies_with_calls() {
        messages.push(as_clients_send_it(&answered(&reply.text, reply.calls)));
        messages.extend(reply.results);
    }
    messages.extend(run.answer().map(|answer| as_clients_send_it(&answered(answer, run.tool_calls()))));
    Ok(messages)
}

/// Whether `input` has results of the calls that a cancelled run waited for.
fn answers_calls(run: &Run, input: &[InputItem]) -> bool {
    let replies = run.replies_with_calls();
    let Some(last) = replies.last().filter(|_| run.is_cancelled_with_calls()) else { return false };
    let is_result = |item: &InputItem| match item {
        InputItem::Output(result) => last.calls.iter().any(|call| call.id == result.call_id),
        _ => false,
    };
    input.iter().any(is_result)
}

/// The message without the workers' reasoning and seals. The engine adds them again, as for messages that a client sends.
fn as_clients_send_it(message: &Message) -> Message {
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Reasoning(_) => None,
        Part::ToolCall(call) => Some(Part::ToolCall(ToolCall::new(&*call.id, &*call.name, &*call.arguments))),
        part => Some(part.clone()),
    });
    Message::new(message.role, &*message.text).with(parts)
}

/// Renames the fields of an error, as the Responses API names them.
#[must_use]
pub fn with_response_names(mut error: ApiError) -> ApiError {
    for problem in &mut error.fields {
        let name = problem.field.as_str();
        if name == "messages" {
            problem.field = String::from("input");
        } else if let Some(rest) = name.strip_prefix("response_format") {
            problem.field = format!("text.format{}", rest.strip_prefix(".json_schema").unwrap_or(rest));
        }
    }
    error
}

#[derive(Default)]
struct Draft {
    model: Option<ModelName>,
    instructions: Option<String>,
    input: Option<Vec<InputItem>>,
    effort: Effort,
    answer_tokens_max: Option<u32>,
    sampling: Sampling,
    answer: AnswerForm,
    tools: ToolsDraft,
    sealed: Vec<String>,
    store: Option<bool>,
    stream: bool,
    record: Record,
    /// The object `podium`.
    podium: Option<Value>,
}

impl Draft {
    fn new() -> Self {
        Self { tools: ToolsDraft::flat(), ..Self::default() }
    }

    /// Reads a body that may have these parameters. Its conversation may consist of earlier items alone.
    fn of(body: &[u8], parameters: &[&str]) -> Result<Self, ApiError> {
        let body = json::parse_object(body)?;
        let mut draft = Self::new();
        for (name, value) in &body {
            if !parameters.contains(&name.as_str()) {
                return Err(unknown(name));
            }
            if !value.is_null() {
                draft.read(&Field::new(name, value))?;
            }
        }
        if draft.record.previous().is_some() || draft.record.conversation.is_some() {
            draft.input.get_or_insert_default();
        }
        Ok(draft)
    }

    fn read(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        let note = || field.string_within(NOTE_BYTES_MAX).map(|note| Some(note.to_owned()));
        let record = &mut self.record;
        match field.path.as_str() {
            "model" => self.model = Some(model_name(field)?),
            "input" => self.input = Some(input(field, &mut self.tools, &mut self.sealed)?),
            "instructions" => self.instructions = Some(field.string()?.to_owned()),
            "max_output_tokens" => self.answer_tokens_max = Some(field.integer(1, u32::MAX)?),
            "reasoning" => self.reasoning(field)?,
            "text" => self.text(field)?,
            "temperature" => self.sampling.temperature = Some(field.fraction(TEMPERATURE_MAX)?),
            "top_p" => self.sampling.top_p = Some(field.fraction(TOP_P_MAX)?),
            "metadata" => record.metadata = metadata(field)?,
            "user" => record.user = note()?,
            "safety_identifier" => record.safety_identifier = note()?,
            "prompt_cache_key" => record.prompt_cache_key = note()?,
            "prompt_cache_retention" => {
                record.prompt_cache_retention = Some(field.one_of(&["in_memory", "24h"])?.to_owned());
            }
            "service_tier" => {
                let tier = field.one_of(SERVICE_TIERS)?;
                record.service_tier = (tier != "auto").then(|| tier.to_owned());
            }
            "store" => self.store = Some(field.boolean()?),
            "truncation" => record.truncation = Some(field.one_of(&["auto", "disabled"])?.to_owned()),
            "tools" => read_tools(&mut self.tools, ToolPlace::Parameter, field)?,
            "tool_choice" => self.tools.choice(field)?,
            "parallel_tool_calls" => {
                record.parallel_tool_calls = Some(field.boolean()?);
                self.tools.parallel(field)?;
            }
            "max_tool_calls" => record.max_tool_calls = Some(field.integer(1, u32::MAX)?),
            "previous_response_id" => record.continues(previous(field)?),
            "conversation" => record.conversation = Some(conversation(field)?),
            "include" => record.seals = include(field)?,
            "background" => record.background = field.boolean()?,
            "stream" => self.stream = field.boolean()?,
            "stream_options" => stream_options(field)?,
            // It changes the bounds of the tier, so it is parsed once the tier is known.
            "podium" => self.podium = Some(field.value.clone()),
            other => return Err(unknown(other)),
        }
        Ok(())
    }

    fn reasoning(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        let reasoning = field.object()?;
        field.only(reasoning, &["effort", "summary", "generate_summary"])?;
        if let Some(level) = field.member(reasoning, "effort") {
            self.effort = effort(&level)?;
        }
        for name in ["generate_summary", "summary"] {
            if let Some(summary) = field.member(reasoning, name) {
                self.record.summary = Some(summary.one_of(&["auto", "concise", "detailed"])?.to_owned());
            }
        }
        Ok(())
    }

    fn text(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        let text = field.object()?;
        field.only(text, &["format", "verbosity"])?;
        if let Some(verbosity) = field.member(text, "verbosity") {
            self.record.verbosity = Some(verbosity.one_of(&["low", "medium", "high"])?.to_owned());
        }
        if let Some(format) = field.member(text, "format") {
            self.answer = text_format(&format)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<ResponseRequest, ApiError> {
        let model = self.model.ok_or_else(|| missing("model"))?;
        let input = self.input.ok_or_else(|| missing("input"))?;
        let invalid =
            |field: &str, message: &str| Err(ApiError::on_field(ErrorCode::InvalidValue, field, message));
        let is_stored = self.store.unwrap_or(true);
        if self.record.background && !is_stored {
            return invalid(
                "background",
                "a response in the background is read later, so `store` must be true",
            );
        }
        if self.record.conversation.is_some() && self.record.previous().is_some() {
            return invalid(
                "previous_response_id",
                "`previous_response_id` and `conversation` are mutually exclusive: a conversation has its earlier responses",
            );
        }
        if self.record.conversation.is_some() && !is_stored {
            return invalid("conversation", "a conversation needs stored responses, so `store` must be true");
        }
        let RequestTools { tools, forms } = self.tools.finish()?;
        let mut policy = Policy::new(model.tier(), self.effort);
        if let Some(podium) = &self.podium {
            bound(&Field::new("podium", podium), &mut policy)?;
        }
        Ok(ResponseRequest {
            model,
            instructions: self.instructions.filter(|text| !text.is_empty()),
            input,
            policy,
            answer_tokens_max: self.answer_tokens_max,
            sampling: self.sampling,
            answer: self.answer,
            tools,
            sealed: self.sealed,
            turns: Vec::new(),
            record: Record { is_stored, tool_forms: forms, ..self.record },
            stream: self.stream,
        })
    }
}

/// The parsers of options, which tests compare with the document.
#[cfg(test)]
pub(super) mod reading {
    use super::{ApiError, Draft, Field};

    pub(in crate::openai) fn reasoning(field: &Field<'_>) -> Result<(), ApiError> {
        Draft::new().reasoning(field)
    }

    pub(in crate::openai) fn text(field: &Field<'_>) -> Result<(), ApiError> {
        Draft::new().text(field)
    }
}

/// The id of a conversation: a string, or an object with it.
fn conversation(field: &Field<'_>) -> Result<String, ApiError> {
    if field.value.is_string() {
        return conversation_id(field);
    }
    let object =
        field.object().map_err(|_| field.must_be("the id of a conversation, or an object with `id`"))?;
    field.only(object, &["id"])?;
    conversation_id(&field.required(object, "id")?)
}

fn conversation_id(field: &Field<'_>) -> Result<String, ApiError> {
    let id = field.string()?;
    if !id.starts_with(PREFIX) {
        return Err(field.must_be(&format!("the id of a conversation, which begins with `{PREFIX}`")));
    }
    Ok(id.to_owned())
}

/// The id of an earlier response.
fn previous(field: &Field<'_>) -> Result<ResponseId, ApiError> {
    let id = field.string()?;
    ResponseId::parse(id).ok_or_else(|| {
        let shown: String = id.chars().take(100).collect();
        let message = format!("response `{shown}` does not exist");
        ApiError::on_field(ErrorCode::PreviousResponseNotFound, &*field.path, message)
    })
}

/// Options of a stream. They change nothing, so they may accompany a request that is not streamed.
fn stream_options(field: &Field<'_>) -> Result<(), ApiError> {
    let options = field.object()?;
    // Nothing is added to hide the length of texts.
    field.only(options, &["include_obfuscation"])?;
    field.member(options, "include_obfuscation").map_or(Ok(()), |flag| flag.boolean().map(drop))
}

fn text_format(field: &Field<'_>) -> Result<AnswerForm, ApiError> {
    let format = field.object()?;
    let kind = field.required(format, "type")?;
    match kind.one_of(&["text", "json_object", "json_schema"])? {
        "json_schema" => {
            field.only(format, &["type", "name", "description", "schema", "strict"])?;
            schema_form(field, format)
        }
        kind => {
            field.only(format, &["type"])?;
            Ok(if kind == "text" { AnswerForm::Text } else { AnswerForm::JsonObject })
        }
    }
}

pub(super) fn metadata(field: &Field<'_>) -> Result<BTreeMap<String, String>, ApiError> {
    let entries = field.object()?;
    let wrong = |message: String| ApiError::on_field(ErrorCode::InvalidValue, &*field.path, message);
    let count = entries.len();
    if count > METADATA_ENTRIES_MAX {
        return Err(wrong(format!(
            "`{}` has {count} entries, the limit is {METADATA_ENTRIES_MAX}",
            field.path
        )));
    }
    let mut read = BTreeMap::new();
    for (name, value) in entries {
        if !(1..=METADATA_NAME_CHARS_MAX).contains(&name.chars().count()) {
            let message =
                format!("a key of `{}` must have 1 to {METADATA_NAME_CHARS_MAX} characters", field.path);
            return Err(wrong(message));
        }
        let value = Field::new(format!("{}.{name}", field.path), value);
        let text = value.string()?;
        if text.chars().count() > METADATA_VALUE_CHARS_MAX {
            return Err(value.must_be(&format!("a string of at most {METADATA_VALUE_CHARS_MAX} characters")));
        }
        read.insert(name.clone(), text.to_owned());
    }
    Ok(read)
}

#[cfg(test)]
mod tests;
