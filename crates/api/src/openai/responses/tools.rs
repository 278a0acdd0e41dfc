//! The tools of the Responses API. Workers know all of them as functions.

use podium_domain::tools::{TOOLS_MAX, Tool, ToolChoice, ToolUse};
use serde::Serialize;
use serde_json::{Value, json};

use super::custom_input::INPUT;
use crate::ApiError;
use crate::field::Field;
use crate::openai::tool_forms::{ToolForms, ToolKind};
use crate::openai::tools::{ToolPlace, ToolsDraft, is_hosted, name};

/// The name of the function that stands for the client's search for tools.
pub(super) const TOOL_SEARCH: &str = "tool_search";

/// Reads the parameter `tools`, or the tools of an item of the input.
pub(super) fn read_tools(
    draft: &mut ToolsDraft,
    place: ToolPlace,
    field: &Field<'_>,
) -> Result<(), ApiError> {
    draft.place = place;
    for entry in field.array_of(TOOLS_MAX)? {
        tool(draft, &entry)?;
    }
    Ok(())
}

pub(super) fn tool(draft: &mut ToolsDraft, field: &Field<'_>) -> Result<(), ApiError> {
    let object = field.object()?;
    let kind = field.required(object, "type")?;
    match kind.string()? {
        "function" => draft.function(field, None),
        "custom" => custom(draft, field, None),
        "namespace" => namespace(draft, field),
        TOOL_SEARCH if field.member(object, "execution").is_some_and(|by| by.value == "client") => {
            search(draft, field)
        }
        hosted if is_hosted(hosted) => {
            draft.forms().leave_out(hosted);
            Ok(())
        }
        _ => Err(kind.unsupported("it must be `function`, `custom` or `namespace`")),
    }
}

fn namespace(draft: &mut ToolsDraft, field: &Field<'_>) -> Result<(), ApiError> {
    let object = field.object()?;
    field.only(object, &["type", "name", "description", "tools"])?;
    let namespace = name(&field.required(object, "name")?)?;
    let description = field.member(object, "description").map_or(Ok(""), |text| text.string())?;
    draft.forms().describe_namespace(&namespace, description);
    for entry in field.required(object, "tools")?.array_of(TOOLS_MAX)? {
        let kind = entry.required(entry.object()?, "type")?;
        match kind.string()? {
            "function" => draft.function(&entry, Some(&namespace))?,
            "custom" => custom(draft, &entry, Some(&namespace))?,
            _ => return Err(kind.unsupported("it must be `function` or `custom`")),
        }
    }
    Ok(())
}

/// A tool that takes a text. A worker gets a function with one argument, whose description has the grammar of the text.
fn custom(draft: &mut ToolsDraft, field: &Field<'_>, namespace: Option<&str>) -> Result<(), ApiError> {
    let object = field.object()?;
    let known = ["type", "name", "description", "format", "defer_loading", "allowed_callers", "async"];
    field.only(object, &known)?;
    let name = name(&field.required(object, "name")?)?;
    let description = field.member(object, "description").map_or(Ok(""), |text| text.string())?;
    let format = field.member(object, "format");
    let described = match &format {
        None => "The input as plain text.".to_owned(),
        Some(format) => description_of(format)?,
    };
    let schema = json!({
        "type": "object",
        "properties": {INPUT: {"type": "string", "description": described}},
        "required": [INPUT],
        "additionalProperties": false,
    });
    let tool = Tool { name, description: description.to_owned(), schema, strict: None };
    let kind = ToolKind::Custom { format: format.map(|format| format.value.clone()) };
    draft.offer(tool, field.path.clone(), namespace, kind);
    Ok(())
}

fn description_of(format: &Field<'_>) -> Result<String, ApiError> {
    let object = format.object()?;
    if format.required(object, "type")?.one_of(&["text", "grammar"])? == "text" {
        format.only(object, &["type"])?;
        return Ok("The input as plain text.".to_owned());
    }
    format.only(object, &["type", "syntax", "definition"])?;
    let syntax = format.required(object, "syntax")?.one_of(&["lark", "regex"])?;
    let definition = format.required(object, "definition")?.string()?;
    let kind = if syntax == "lark" { "Lark grammar" } else { "regular expression" };
    Ok(format!("The whole input as plain text. It must match this {kind}:\n{definition}"))
}

/// The client's own search for tools that it has not offered yet.
fn search(draft: &mut ToolsDraft, field: &Field<'_>) -> Result<(), ApiError> {
    let object = field.object()?;
    field.only(object, &["type", "execution", "description", "parameters"])?;
    let description = field.member(object, "description").map_or(Ok(""), |text| text.string())?;
    let schema = match field.member(object, "parameters") {
        Some(parameters) => parameters.value.clone(),
        None => Tool::no_parameters(),
    };
    let tool =
        Tool { name: TOOL_SEARCH.to_owned(), description: description.to_owned(), schema, strict: None };
    draft.offer(tool, field.path.clone(), None, ToolKind::Search);
    Ok(())
}

/// A tool in a response.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ToolBody<'a> {
    Function {
        name: &'a str,
        description: Option<&'a str>,
        parameters: &'a Value,
        strict: Option<bool>,
    },
    Custom {
        name: &'a str,
        description: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        format: Option<&'a Value>,
    },
    ToolSearch {
        execution: &'static str,
        description: Option<&'a str>,
        parameters: &'a Value,
    },
    Namespace {
        name: &'a str,
        description: &'a str,
        tools: Vec<ToolBody<'a>>,
    },
}

/// The tools of a response, as its client knows them.
pub(super) fn tools_of<'a>(tools: Option<&'a ToolUse>, forms: &'a ToolForms) -> Vec<ToolBody<'a>> {
    let mut bodies: Vec<ToolBody<'a>> = Vec::new();
    for tool in tools.iter().flat_map(|tools| &tools.tools) {
        let form = forms.of(&tool.name);
        let description = Some(tool.description.as_str()).filter(|text| !text.is_empty());
        let name = form.map_or(tool.name.as_str(), |form| &form.name);
        let body = match form.map(|form| &form.kind) {
            None | Some(ToolKind::Function) => {
                ToolBody::Function { name, description, parameters: &tool.schema, strict: tool.strict }
            }
            Some(ToolKind::Custom { format }) => {
                ToolBody::Custom { name, description, format: format.as_ref() }
            }
            Some(ToolKind::Search) => {
                ToolBody::ToolSearch { execution: "client", description, parameters: &tool.schema }
            }
        };
        match (form.and_then(|form| form.namespace.as_deref()), bodies.last_mut()) {
            (None, _) => bodies.push(body),
            (Some(wanted), Some(ToolBody::Namespace { name, tools, .. })) if *name == wanted => {
                tools.push(body);
            }
            (Some(name), _) => {
                let description = forms.description_of_namespace(name);
                bodies.push(ToolBody::Namespace { name, description, tools: vec![body] });
            }
        }
    }
    bodies
}

/// The parameter `tool_choice` in a response.
pub(super) fn tool_choice(tools: Option<&ToolUse>, forms: &ToolForms) -> Value {
    let name = match tools.map(|tools| &tools.choice) {
        None | Some(ToolChoice::Auto) => return json!("auto"),
        Some(ToolChoice::None) => return json!("none"),
        Some(ToolChoice::Required) => return json!("required"),
        Some(ToolChoice::Named(name)) => name,
    };
    let Some(form) = forms.of(name) else { return json!({"type": "function", "name": name}) };
    let kind = if matches!(form.kind, ToolKind::Custom { .. }) { "custom" } else { "function" };
    let mut choice = json!({"type": kind, "name": form.name});
    if let (Some(namespace), Some(choice)) = (&form.namespace, choice.as_object_mut()) {
        choice.insert("namespace".to_owned(), json!(namespace));
    }
    choice
}

#[cfg(test)]
mod tests {
    use podium_domain::tools::CallsAtOnce;

    use super::*;
    use crate::openai::tools::RequestTools;

    fn parsed(tools: &Value, choice: &Value) -> Result<RequestTools, ApiError> {
        let mut draft = ToolsDraft::flat();
        read_tools(&mut draft, ToolPlace::Parameter, &Field::new("tools", tools))?;
        draft.choice(&Field::new("tool_choice", choice))?;
        draft.finish()
    }

    fn named(name: &str) -> Value {
        json!({"type": "function", "name": name})
    }

    /// A function, a custom tool, a namespace with both, a search and a tool of OpenAI's service.
    fn all_kinds() -> Value {
        let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: \"a\""});
        let custom = json!({"type": "custom", "name": "patch", "description": "Patches.", "format": grammar});
        let inner = json!([
            {"type": "function", "name": "look", "description": null, "parameters": {"type": "object"}, "strict": false},
            {"type": "custom", "name": "note", "description": "Notes."},
        ]);
        let namespace =
            json!({"type": "namespace", "name": "crm", "description": "Customers.", "tools": inner});
        let search = json!({
            "type": "tool_search", "execution": "client", "description": "Finds tools.",
            "parameters": {"type": "object"},
        });
        let function = json!({
            "type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"},
            "strict": true,
        });
        json!([function, custom, namespace, search, {"type": "web_search", "external_web_access": true}])
    }

    #[test]
    fn tools_of_every_kind_become_functions_and_are_shown_as_sent() {
        let sent = all_kinds();
        let RequestTools { tools, forms } = parsed(&sent, &json!("auto")).unwrap();
        let tools = tools.unwrap();
        let names: Vec<_> = tools.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["look", "patch", "crm__look", "crm__note", "tool_search"]);
        assert_eq!(tools.at_once, CallsAtOnce::Several);
        let input = &tools.tools[1].schema["properties"]["input"]["description"];
        assert!(input.as_str().unwrap().ends_with("Lark grammar:\nstart: \"a\""), "{input}");
        let shown = serde_json::to_value(tools_of(Some(&tools), &forms)).unwrap();
        assert_eq!(shown.as_array().unwrap()[..], sent.as_array().unwrap()[..4]);
        assert_eq!(forms.left_out().iter().collect::<Vec<_>>(), ["web_search"]);
    }

    #[test]
    fn a_choice_names_tools_as_the_client_knows_them() {
        let chosen = |choice: Value| {
            let RequestTools { tools, forms } = parsed(&all_kinds(), &choice).unwrap();
            let tools = tools.unwrap();
            let names: Vec<_> = tools.tools.iter().map(|tool| tool.name.clone()).collect();
            (tools.choice.clone(), names, tool_choice(Some(&tools), &forms))
        };
        for (choice, offered) in [
            (named("look"), "look"),
            (json!({"type": "custom", "name": "patch"}), "patch"),
            (json!({"type": "function", "name": "look", "namespace": "crm"}), "crm__look"),
        ] {
            let (read, _, shown) = chosen(choice.clone());
            assert_eq!((read, shown), (ToolChoice::Named(offered.to_owned()), choice));
        }
        let list = json!([{"type": "namespace", "name": "crm"}, {"type": "image_generation"}]);
        let allowed = json!({"type": "allowed_tools", "mode": "required", "tools": list});
        let (read, names, _) = chosen(allowed);
        assert_eq!(read, ToolChoice::Required);
        assert_eq!(names, ["crm__look", "crm__note"]);
    }

    #[test]
    fn a_choice_that_needs_a_tool_of_another_service_is_refused() {
        let web = json!([{"type": "web_search"}]);
        for (tools, choice, param) in [
            (&web, json!("required"), "tool_choice"),
            (&all_kinds(), json!({"type": "web_search"}), "tool_choice.type"),
            (&all_kinds(), json!({"type": "file_search"}), "tool_choice.type"),
            (
                &all_kinds(),
                json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}),
                "tool_choice.tools",
            ),
        ] {
            let error = parsed(tools, &choice).map(|read| read.tools).unwrap_err();
            assert_eq!(error.param(), Some(param), "{error}");
        }
        let error = parsed(&web, &json!("required")).map(|read| read.tools).unwrap_err();
        assert!(error.message.contains("`web_search`"), "{error}");
        assert_eq!(parsed(&web, &json!("auto")).unwrap().tools, None);
    }

    #[test]
    fn an_invalid_tool_is_named_by_its_path() {
        let inner = |tool: Value| json!([{"type": "namespace", "name": "crm", "tools": [tool]}]);
        let format = |format: Value| json!([{"type": "custom", "name": "x", "format": format}]);
        for (tools, choice, param) in [
            (json!([{"type": "function", "function": named("look")}]), json!("auto"), "tools[0].function"),
            (json!([{"type": "psychic"}]), json!("auto"), "tools[0].type"),
            (json!([{"type": "function"}]), json!("auto"), "tools[0].name"),
            (json!([named("a"), named("a")]), json!("auto"), "tools[1].name"),
            (inner(named("a b")), json!("auto"), "tools[0].tools[0].name"),
            (inner(json!({"type": "namespace"})), json!("auto"), "tools[0].tools[0].type"),
            (json!([{"type": "namespace", "name": "a.b", "tools": []}]), json!("auto"), "tools[0].name"),
            (format(json!({"type": "xml"})), json!("auto"), "tools[0].format.type"),
            (format(json!({"type": "grammar", "syntax": "bnf"})), json!("auto"), "tools[0].format.syntax"),
            (
                format(json!({"type": "grammar", "syntax": "lark"})),
                json!("auto"),
                "tools[0].format.definition",
            ),
            (
                json!([named("look")]),
                json!({"type": "function", "function": {"name": "look"}}),
                "tool_choice.function",
            ),
            (json!([named("look")]), named("other"), "tool_choice"),
        ] {
            let error = parsed(&tools, &choice).map(|read| read.tools).unwrap_err();
            assert_eq!(error.param(), Some(param), "{tools} {choice}");
        }
    }
}
