//! Tools, tool calls and their results over gRPC.

use podium_domain::content::{Image, Part, Pdf, ToolCall, ToolResult};
use podium_domain::conversation::{CALL_ID_BYTES_MAX, PARTS_MAX};
use podium_domain::tools::{CallsAtOnce, TOOLS_MAX, Tool, ToolChoice, ToolUse, ToolsError, is_name};

use crate::{Problems, v1};

/// The tools of a request; `None` without any, or if they are invalid.
pub(crate) fn tools(
    tools: Vec<v1::Tool>,
    choice: Option<v1::ToolChoice>,
    parallel: Option<bool>,
    problems: &mut Problems,
) -> Option<ToolUse> {
    let choice = tool_choice(choice, problems);
    if tools.is_empty() {
        if choice.is_forced() {
            problems.add("tool_choice", "tool_choice needs tools, which are missing");
        }
        return None;
    }
    if tools.len() > TOOLS_MAX {
        problems.add("tools", format!("tools has {} entries, the limit is {TOOLS_MAX}", tools.len()));
        return None;
    }
    let at_once = if parallel == Some(false) { CallsAtOnce::One } else { CallsAtOnce::Several };
    let tools = ToolUse { tools: tools.into_iter().map(tool).collect(), choice, at_once };
    tools
        .check()
        .map_err(|e| {
            let field = match (&e, e.index()) {
                (ToolsError::UnknownChoice { .. }, _) => "tool_choice".to_owned(),
                (_, Some(index)) => format!("tools[{index}]"),
                (_, None) => "tools".to_owned(),
            };
            problems.add(&field, e.to_string());
        })
        .ok()?;
    Some(tools)
}

fn tool(v1::Tool { name, description, parameters, strict }: v1::Tool) -> Tool {
    let schema = match parameters.as_str() {
        "" => Tool::no_parameters(),
        // Invalid JSON becomes null, which the check rejects because it is not an object.
        text => serde_json::from_str(text).unwrap_or_default(),
    };
    Tool { name, description, schema, strict }
}

fn tool_choice(choice: Option<v1::ToolChoice>, problems: &mut Problems) -> ToolChoice {
    use v1::tool_choice::Choice;
    match choice.and_then(|choice| choice.choice) {
        None => ToolChoice::Auto,
        Some(Choice::Name(name)) => ToolChoice::Named(name),
        Some(Choice::Mode(mode)) => match v1::ToolChoiceMode::try_from(mode) {
            Ok(v1::ToolChoiceMode::Unspecified | v1::ToolChoiceMode::Auto) => ToolChoice::Auto,
            Ok(v1::ToolChoiceMode::None) => ToolChoice::None,
            Ok(v1::ToolChoiceMode::Required) => ToolChoice::Required,
            Err(_) => {
                let message = format!("tool_choice.mode must be auto, none or required (got {mode})");
                problems.add("tool_choice.mode", message);
                ToolChoice::Auto
            }
        },
    }
}

/// The part of a message with a call; an error says what it must be.
pub(crate) fn call_part(v1::ToolCall { id, name, arguments }: v1::ToolCall) -> Result<Part, String> {
    if !is_name(&name) {
        return Err("a tool_call whose name has 1 to 128 letters, digits, `_` or `-`".to_owned());
    }
    check_id(&id)?;
    Ok(Part::ToolCall(ToolCall::new(id, name, arguments)))
}

/// The part of a message with a result; an error says what it must be. `image` reads one image, `file` one file.
pub(crate) fn result_part(
    result: v1::ToolResult,
    image: impl Fn(v1::Image) -> Result<Image, String>,
    file: impl Fn(v1::File) -> Result<Pdf, String>,
) -> Result<Part, String> {
    let v1::ToolResult { call_id, output, images, files, is_error } = result;
    check_id(&call_id)?;
    if images.len() + files.len() > PARTS_MAX {
        return Err(format!("a tool_result with at most {PARTS_MAX} images and files"));
    }
    let images = images.into_iter().map(image).collect::<Result<_, _>>()?;
    let pdfs = files.into_iter().map(file).collect::<Result<_, _>>()?;
    // The name of the tool comes from the call.
    Ok(Part::ToolResult(ToolResult { images, pdfs, is_error, ..ToolResult::new(call_id, "", output) }))
}

fn check_id(id: &str) -> Result<(), String> {
    if (1..=CALL_ID_BYTES_MAX).contains(&id.len()) {
        return Ok(());
    }
    Err(format!("a call or result whose id has 1 to {CALL_ID_BYTES_MAX} bytes"))
}

impl From<&ToolCall> for v1::ToolCall {
    fn from(ToolCall { id, name, arguments, .. }: &ToolCall) -> Self {
        Self { id: id.clone(), name: name.clone(), arguments: arguments.clone() }
    }
}

impl From<&Tool> for v1::Tool {
    fn from(Tool { name, description, schema, strict }: &Tool) -> Self {
        let (name, description) = (name.clone(), description.clone());
        Self { name, description, parameters: schema.to_string(), strict: *strict }
    }
}

impl From<&ToolChoice> for v1::ToolChoice {
    fn from(choice: &ToolChoice) -> Self {
        use v1::tool_choice::Choice;
        let choice = match choice {
            ToolChoice::Auto => Choice::Mode(v1::ToolChoiceMode::Auto.into()),
            ToolChoice::None => Choice::Mode(v1::ToolChoiceMode::None.into()),
            ToolChoice::Required => Choice::Mode(v1::ToolChoiceMode::Required.into()),
            ToolChoice::Named(name) => Choice::Name(name.clone()),
        };
        Self { choice: Some(choice) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(parameters: &str) -> v1::Tool {
        v1::Tool { name: "look".to_owned(), parameters: parameters.to_owned(), ..Default::default() }
    }

    fn mode(mode: i32) -> v1::ToolChoice {
        v1::ToolChoice { choice: Some(v1::tool_choice::Choice::Mode(mode)) }
    }

    fn named(name: &str) -> v1::ToolChoice {
        v1::ToolChoice { choice: Some(v1::tool_choice::Choice::Name(name.to_owned())) }
    }

    #[test]
    fn tools_convert_in_both_directions() {
        let sent = v1::Tool {
            name: "look".to_owned(),
            description: "Looks.".to_owned(),
            parameters: r#"{"type":"object","b":1,"a":2}"#.to_owned(),
            strict: Some(true),
        };
        let mut problems = Problems::default();
        for choice in [mode(1), mode(2), mode(3), named("look")] {
            let read = tools(vec![sent.clone()], Some(choice.clone()), Some(false), &mut problems).unwrap();
            assert_eq!(read.at_once, CallsAtOnce::One);
            assert_eq!(v1::ToolChoice::from(&read.choice), choice);
            assert_eq!(
                read.tools.iter().map(v1::Tool::from).collect::<Vec<_>>(),
                std::slice::from_ref(&sent)
            );
        }
        let bare = tools(vec![look("")], None, None, &mut problems).unwrap();
        assert_eq!(bare.tools[0].schema, Tool::no_parameters());
        assert_eq!(tools(Vec::new(), Some(mode(2)), Some(true), &mut problems), None);
        assert!(problems.is_empty());
    }

    #[test]
    fn a_problem_names_the_tool() {
        let field_of = |given: Vec<v1::Tool>, choice| {
            let mut problems = Problems::default();
            assert_eq!(tools(given, choice, None, &mut problems), None);
            let error = crate::ApiError::on_fields(problems);
            error.param().unwrap_or_default().to_owned()
        };
        assert_eq!(field_of(vec![look(""), look("{")], None), "tools[1]");
        assert_eq!(field_of(vec![look("[]")], None), "tools[0]");
        assert_eq!(field_of(vec![look(""); 129], None), "tools");
        assert_eq!(field_of(vec![look("")], Some(named("other"))), "tool_choice");
        assert_eq!(field_of(Vec::new(), Some(mode(3))), "tool_choice");
        assert_eq!(field_of(Vec::new(), Some(mode(9))), "tool_choice.mode");
    }
}
