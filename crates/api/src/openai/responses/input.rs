//! Reads the input of a request: a text, or items.

use podium_domain::content::{Image, Part, ToolCall, ToolResult};
use podium_domain::conversation::{MESSAGES_MAX, Message, PARTS_MAX, Role};
use podium_domain::ids::RunId;
use serde_json::{Map, Value};

use super::id::run_of_item;
use super::sealed::is_ours;
use super::tools::{TOOL_SEARCH, read_tools};
use super::{compaction, custom_input};
use crate::field::Field;
use crate::image::of_url;
use crate::openai::file;
use crate::openai::tool_forms::ToolKind;
use crate::openai::tools::{self, ToolPlace, ToolsDraft};
use crate::parts::{call_id, message_of, tool_result};
use crate::{ApiError, ErrorCode, pdf};

/// Items of tools that a service ran. Workers do not get them: the answers after them say what was found.
pub(crate) const HOSTED_ITEMS: [&str; 5] = [
    "code_interpreter_call",
    "file_search_call",
    "image_generation_call",
    "mcp_list_tools",
    "web_search_call",
];

/// An item of the input.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum InputItem {
    /// A message.
    Message(Message),
    /// A function call of an earlier answer.
    Call(ToolCall),
    /// The output of a function.
    Output(ToolResult),
    /// An item of an earlier response, by its id.
    Reference {
        /// The id of the item.
        id: String,
        /// The run of the response.
        run: RunId,
        /// Where the reference stands in the request.
        path: String,
    },
}

impl InputItem {
    /// The run that it refers to.
    pub(super) const fn run(&self) -> Option<RunId> {
        match self {
            Self::Message(_) | Self::Call(_) | Self::Output(_) => None,
            Self::Reference { run, .. } => Some(*run),
        }
    }

    /// Its share of the bytes of a conversation; none for a reference.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Message(message) => message.bytes(),
            Self::Call(call) => call.bytes(),
            Self::Output(result) => result.bytes(),
            Self::Reference { .. } => 0,
        }
    }
}

/// The messages of these items; all references are resolved. Function calls belong to the answer before them, and outputs that
/// follow each other become one message of the user, as vendors need them.
pub(super) fn messages_of(items: Vec<InputItem>) -> Result<Vec<Message>, ApiError> {
    let mut messages: Vec<Message> = Vec::new();
    for item in items {
        match (item, messages.last_mut()) {
            (InputItem::Call(call), Some(last)) if last.role == Role::Assistant => {
                last.parts.push(Part::ToolCall(call));
            }
            (InputItem::Call(call), _) => {
                messages.push(Message::new(Role::Assistant, "").with([Part::ToolCall(call)]));
            }
            (InputItem::Output(result), Some(last)) if last.is_results_only() => {
                last.parts.push(Part::ToolResult(result));
            }
            (InputItem::Output(result), _) => {
                messages.push(Message::new(Role::User, "").with([Part::ToolResult(result)]));
            }
            // A worker may write text after its calls.
            (InputItem::Message(Message { role: Role::Assistant, text, parts }), Some(last))
                if last.role == Role::Assistant && last.calls().next().is_some() =>
            {
                last.parts.push(Part::Text(text));
                last.parts.extend(parts);
            }
            (InputItem::Message(message), _) => messages.push(message),
            (InputItem::Reference { id, path, .. }, _) => return Err(unknown_item(&path, &id)),
        }
    }
    Ok(messages)
}

/// The items of the parameter `input`. Their tools are added to `tools`, and the contents of our reasoning items to `sealed`.
pub(super) fn input(
    field: &Field<'_>,
    tools: &mut ToolsDraft,
    sealed: &mut Vec<String>,
) -> Result<Vec<InputItem>, ApiError> {
    match field.value {
        Value::String(text) => Ok(vec![InputItem::Message(Message::new(Role::User, text.as_str()))]),
        Value::Array(_) => {
            let items = field.array_of(MESSAGES_MAX)?;
            let items = items.map(|item| {
                sealed.extend(sealed_content(&item));
                item_of(&item, tools)
            });
            items.filter_map(Result::transpose).collect()
        }
        _ => Err(field.must_be("a string or an array of items")),
    }
}

/// An item; none for one that no worker needs.
pub(super) fn item_of(field: &Field<'_>, tools: &mut ToolsDraft) -> Result<Option<InputItem>, ApiError> {
    let item = field.object()?;
    let Some(kind) = field.member(item, "type") else { return message(field, item).map(Some) };
    match kind.string()? {
        "message" => message(field, item).map(Some),
        "reasoning" => reasoning(field, item).map(|()| None),
        "item_reference" => reference(field, item),
        "compaction" => {
            field.only(item, &["type", "id", "encrypted_content", "created_by"])?;
            let content = field.required(item, "encrypted_content")?;
            compaction::message_of(&content).map(|message| Some(InputItem::Message(message)))
        }
        "function_call" => call(field, tools).map(|call| Some(InputItem::Call(call))),
        "custom_tool_call" => custom_call(field, tools).map(|call| Some(InputItem::Call(call))),
        "tool_search_call" => search_call(field, tools),
        "function_call_output" | "custom_tool_call_output" => {
            output(field, item).map(|result| Some(InputItem::Output(result)))
        }
        "tool_search_output" => search_output(field, tools),
        "additional_tools" => {
            field.only(item, &["type", "id", "role", "tools"])?;
            read_tools(tools, ToolPlace::Input, &field.required(item, "tools")?).map(|()| None)
        }
        hosted if HOSTED_ITEMS.contains(&hosted) => Ok(None),
        _ => Err(kind.unsupported(
            "it must be `message`, `function_call`, `function_call_output`, `custom_tool_call`, \
             `custom_tool_call_output`, `reasoning`, `item_reference` or `compaction`",
        )),
    }
}

/// The type, id and status of an item, its creator, and how it was called. They belong to an earlier response.
const OF_A_CALL: [&str; 7] = ["type", "id", "call_id", "status", "created_by", "caller", "async"];

/// Checks the members of a call or its output.
fn only_call(field: &Field<'_>, members: &[&str]) -> Result<(), ApiError> {
    let known: Vec<_> = OF_A_CALL.iter().chain(members).copied().collect();
    field.only(field.object()?, &known)
}

/// A function call of an earlier answer. Its arguments are a model's text and need not be JSON.
fn call(field: &Field<'_>, tools: &mut ToolsDraft) -> Result<ToolCall, ApiError> {
    only_call(field, &["name", "namespace", "arguments"])?;
    let arguments = field.required(field.object()?, "arguments")?;
    called(field, tools, ToolKind::Function, arguments.string()?)
}

/// A call of a custom tool.
fn custom_call(field: &Field<'_>, tools: &mut ToolsDraft) -> Result<ToolCall, ApiError> {
    only_call(field, &["name", "namespace", "input"])?;
    let text = field.required(field.object()?, "input")?;
    let arguments = custom_input::arguments_of(text.string()?);
    called(field, tools, ToolKind::Custom { format: None }, &arguments)
}

/// A call as workers know it.
fn called(
    field: &Field<'_>,
    tools: &mut ToolsDraft,
    kind: ToolKind,
    arguments: &str,
) -> Result<ToolCall, ApiError> {
    let item = field.object()?;
    let id = call_id(&field.required(item, "call_id")?)?;
    let name = tools::name(&field.required(item, "name")?)?;
    let namespace = field.member(item, "namespace").map(|namespace| tools::name(&namespace)).transpose()?;
    Ok(ToolCall::new(id, tools.called(namespace.as_deref(), &name, kind), arguments))
}

/// A call of the client's search for tools; none for one that OpenAI's service ran.
fn search_call(field: &Field<'_>, tools: &mut ToolsDraft) -> Result<Option<InputItem>, ApiError> {
    only_call(field, &["execution", "arguments"])?;
    let item = field.object()?;
    let arguments = field.required(item, "arguments")?;
    let Some(id) = field.member(item, "call_id") else { return Ok(None) };
    let name = tools.called(None, TOOL_SEARCH, ToolKind::Search);
    Ok(Some(InputItem::Call(ToolCall::new(call_id(&id)?, name, arguments.value.to_string()))))
}

/// The result of a search for tools: tools that are offered from now on.
fn search_output(field: &Field<'_>, tools: &mut ToolsDraft) -> Result<Option<InputItem>, ApiError> {
    only_call(field, &["execution", "tools"])?;
    let item = field.object()?;
    let found = field.required(item, "tools")?;
    read_tools(tools, ToolPlace::Input, &found)?;
    let Some(id) = field.member(item, "call_id") else { return Ok(None) };
    let names = found.array()?.filter_map(|tool| Some(tool.value.get("name")?.as_str()?.to_owned()));
    let names = names.collect::<Vec<_>>().join(", ");
    let output =
        if names.is_empty() { "No tools found.".to_owned() } else { format!("Tools found: {names}") };
    Ok(Some(InputItem::Output(ToolResult::new(call_id(&id)?, "", output))))
}

/// The output of a function: a text, or parts. The name of the function comes from its call.
fn output(field: &Field<'_>, item: &Map<String, Value>) -> Result<ToolResult, ApiError> {
    only_call(field, &["output"])?;
    let id = call_id(&field.required(item, "call_id")?)?;
    let output = content(Role::User, &field.required(item, "output")?)?;
    Ok(tool_result(id, output))
}

/// The content of a reasoning item that we made.
fn sealed_content(field: &Field<'_>) -> Option<String> {
    let item = field.value.as_object()?;
    let content = item.get("encrypted_content")?.as_str().filter(|content| is_ours(content))?;
    (item.get("type")? == "reasoning").then(|| content.to_owned())
}

/// Reasoning of an earlier response, which is dropped: it is of use only to the worker that wrote it.
fn reasoning(field: &Field<'_>, item: &Map<String, Value>) -> Result<(), ApiError> {
    field.only(item, &["type", "id", "summary", "content", "encrypted_content", "status"])?;
    for name in ["summary", "content"] {
        if let Some(parts) = field.member(item, name) {
            parts.array_of(PARTS_MAX)?.try_for_each(|part| part.object().map(drop))?;
        }
    }
    field.member(item, "encrypted_content").map_or(Ok(()), |content| content.string().map(drop))
}

fn reference(field: &Field<'_>, item: &Map<String, Value>) -> Result<Option<InputItem>, ApiError> {
    field.only(item, &["type", "id"])?;
    let id = field.required(item, "id")?;
    let text = id.string()?;
    let run = run_of_item(text).ok_or_else(|| unknown_item(&id.path, text))?;
    // As in an item of reasoning, there is nothing to refer to.
    if text.starts_with("rs_") {
        return Ok(None);
    }
    Ok(Some(InputItem::Reference { id: text.to_owned(), run, path: id.path }))
}

/// The error for a reference to an item that does not exist, or may not be read.
pub(super) fn unknown_item(path: &str, id: &str) -> ApiError {
    let shown: String = id.chars().take(100).collect();
    ApiError::on_field(ErrorCode::InvalidValue, path, format!("`{path}`: item `{shown}` does not exist"))
}

fn message(field: &Field<'_>, item: &Map<String, Value>) -> Result<InputItem, ApiError> {
    // The id and the status belong to an earlier response. The phase tells its comments from its answer, which change no text.
    field.only(item, &["type", "id", "status", "role", "content", "phase"])?;
    if let Some(phase) = field.member(item, "phase") {
        phase.one_of(&["commentary", "final_answer"])?;
    }
    let role = match field.required(item, "role")?.one_of(&["user", "assistant", "system", "developer"])? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => Role::System,
    };
    content(role, &field.required(item, "content")?).map(InputItem::Message)
}

/// A text, or parts.
fn content(role: Role, field: &Field<'_>) -> Result<Message, ApiError> {
    match field.value {
        Value::String(text) => Ok(Message::new(role, text.as_str())),
        Value::Array(_) => message_of(role, field.array_of(PARTS_MAX)?.map(|sent| part(role, &sent))),
        _ => Err(field.must_be("a string or an array of parts")),
    }
}

fn part(role: Role, field: &Field<'_>) -> Result<Part, ApiError> {
    let part = field.object()?;
    let kind = field.required(part, "type")?;
    let text = |name: &str, others: &[&str]| {
        let known: Vec<_> = ["type", name].iter().chain(others).copied().collect();
        field.only(part, &known)?;
        field.required(part, name)?.string().map(|text| Part::Text(text.to_owned()))
    };
    match (kind.string()?, role) {
        ("input_text" | "text", _) => text("text", &["prompt_cache_breakpoint"]),
        // Annotations and log probabilities belong to an earlier answer and do not change the text.
        ("output_text", Role::Assistant) => text("text", &["annotations", "logprobs"]),
        ("refusal", Role::Assistant) => text("refusal", &[]),
        ("input_image", Role::User) => image(field, part).map(Part::Image),
        ("input_image", _) => {
            Err(kind.unsupported("only user messages may have images, so it must be a text"))
        }
        ("input_file", Role::User) => file(field, part),
        ("input_file", _) => Err(kind.unsupported("only user messages may have files, so it must be a text")),
        ("input_audio", _) => Err(kind.unsupported("audio is not supported; send `input_text`")),
        ("output_text" | "refusal", _) => {
            Err(kind.unsupported("only assistant messages may have it; it must be `input_text`"))
        }
        _ => Err(kind.unsupported("it must be `input_text`, `input_image`, `input_file` or `output_text`")),
    }
}

/// A file: a PDF or the text of a text file in `file_data`, or the address of a PDF, which the worker's vendor fetches.
fn file(field: &Field<'_>, part: &Map<String, Value>) -> Result<Part, ApiError> {
    field.only(
        part,
        &["type", "filename", "file_data", "file_id", "file_url", "detail", "prompt_cache_breakpoint"],
    )?;
    if let Some(id) = field.member(part, "file_id") {
        return Err(id.unsupported("Podium stores no files; send `file_data` or `file_url`"));
    }
    let name = pdf::name(field.member(part, "filename"))?;
    let (data, url) = (field.member(part, "file_data"), field.member(part, "file_url"));
    match (data, url) {
        (Some(_), Some(url)) => Err(url.unsupported("a file has either `file_data` or `file_url`")),
        (None, Some(url)) => {
            let pdf = pdf::of_address(url.string()?, name).map_err(|must_be| url.must_be(&must_be))?;
            Ok(Part::Pdf(pdf))
        }
        (Some(data), None) => file::of_data(&data, name),
        (None, None) => field.required(part, "file_data").and_then(|data| file::of_data(&data, name)),
    }
}

fn image(field: &Field<'_>, part: &Map<String, Value>) -> Result<Image, ApiError> {
    field.only(part, &["type", "image_url", "detail", "file_id", "prompt_cache_breakpoint"])?;
    if let Some(detail) = field.member(part, "detail") {
        // Checked but not used: each worker chooses its own resolution.
        detail.one_of(&["auto", "low", "high", "original"])?;
    }
    if let Some(file) = field.member(part, "file_id") {
        return Err(file.unsupported("Podium stores no files; send `image_url`"));
    }
    let url = field.required(part, "image_url")?;
    of_url(url.string()?).map_err(|must_be| url.must_be(&must_be))
}
