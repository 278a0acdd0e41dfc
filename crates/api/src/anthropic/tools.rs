//! Reads the tools of a request, and how they may be called.

use podium_domain::tools::{CallsAtOnce, TOOLS_MAX, Tool, ToolChoice, ToolUse, ToolsError, is_name};

use super::parameters::cache_control;
use crate::field::Field;
use crate::{ApiError, ErrorCode};

/// The parameters about tools, as far as they are read.
#[derive(Default)]
pub(super) struct ToolsDraft {
    tools: Vec<Tool>,
    choice: ToolChoice,
    at_once: CallsAtOnce,
}

impl ToolsDraft {
    /// Reads `tools`.
    pub(super) fn tools(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        self.tools = field.array_of(TOOLS_MAX)?.map(|tool| self::tool(&tool)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Reads `tool_choice`.
    pub(super) fn choice(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        let choice = field.object()?;
        field.only(choice, &["type", "name", "disable_parallel_tool_use"])?;
        self.choice = match field.required(choice, "type")?.one_of(&["auto", "any", "tool", "none"])? {
            "any" => ToolChoice::Required,
            "tool" => ToolChoice::Named(field.required(choice, "name")?.string()?.to_owned()),
            "none" => ToolChoice::None,
            _ => ToolChoice::Auto,
        };
        if let Some(one) = field.member(choice, "disable_parallel_tool_use") {
            self.at_once = if one.boolean()? { CallsAtOnce::One } else { CallsAtOnce::Several };
        }
        Ok(())
    }

    /// The tools and their rules; `None` without tools.
    pub(super) fn finish(self) -> Result<Option<ToolUse>, ApiError> {
        let Self { tools, choice, at_once } = self;
        let invalid =
            |path: &str, message: String| ApiError::on_field(ErrorCode::InvalidValue, path, message);
        if tools.is_empty() {
            return if choice.is_forced() {
                Err(invalid("tool_choice", "`tool_choice` needs `tools`, which are missing".to_owned()))
            } else {
                Ok(None)
            };
        }
        let tools = ToolUse { tools, choice, at_once };
        tools.check().map_err(|e| {
            let path = path_of(&e);
            invalid(&path, format!("`{path}`: {e}"))
        })?;
        Ok(Some(tools))
    }
}

fn path_of(error: &ToolsError) -> String {
    match error {
        ToolsError::Name { index } | ToolsError::SameName { index, .. } => format!("tools[{index}].name"),
        ToolsError::NoObject { index } | ToolsError::TooDeep { index } => {
            format!("tools[{index}].input_schema")
        }
        ToolsError::Count { .. } | ToolsError::TooLong { .. } => "tools".to_owned(),
        ToolsError::UnknownChoice { .. } => "tool_choice.name".to_owned(),
    }
}

pub(super) fn tool(field: &Field<'_>) -> Result<Tool, ApiError> {
    let tool = field.object()?;
    if let Some(kind) = field.member(tool, "type")
        && kind.string()? != "custom"
    {
        return Err(kind.unsupported("Podium runs no tools of its own, so it must be `custom`"));
    }
    // The last four tell Anthropic's own service when to load, stream or explain a tool.
    field.only(
        tool,
        &[
            "type",
            "name",
            "description",
            "input_schema",
            "strict",
            "cache_control",
            "allowed_callers",
            "defer_loading",
            "eager_input_streaming",
            "input_examples",
        ],
    )?;
    if let Some(mark) = field.member(tool, "cache_control") {
        cache_control(&mark)?;
    }
    let schema = field.required(tool, "input_schema")?;
    schema.object()?;
    Ok(Tool {
        name: name(&field.required(tool, "name")?)?,
        description: field.member(tool, "description").map_or(Ok(""), |text| text.string())?.to_owned(),
        schema: schema.value.clone(),
        strict: field.member(tool, "strict").map(|strict| strict.boolean()).transpose()?,
    })
}

/// The name of a tool.
pub(super) fn name(field: &Field<'_>) -> Result<String, ApiError> {
    match field.string()? {
        name if is_name(name) => Ok(name.to_owned()),
        _ => Err(field.must_be("1 to 128 letters, digits, `_` or `-`")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed(tools: &Value, choice: &Value) -> Result<Option<ToolUse>, ApiError> {
        let mut draft = ToolsDraft::default();
        draft.tools(&Field::new("tools", tools))?;
        if !choice.is_null() {
            draft.choice(&Field::new("tool_choice", choice))?;
        }
        draft.finish()
    }

    fn look() -> Value {
        json!({"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}})
    }

    #[test]
    fn a_tool_is_read_with_its_schema() {
        let mut whole = look();
        whole["type"] = json!("custom");
        whole["description"] = json!("Looks.");
        whole["strict"] = json!(true);
        whole["cache_control"] = json!({"type": "ephemeral"});
        whole["defer_loading"] = json!(false);
        let read = parsed(&json!([whole]), &Value::Null).unwrap().unwrap();
        assert_eq!((read.choice, read.at_once), (ToolChoice::Auto, CallsAtOnce::Several));
        assert_eq!(read.tools[0].schema, look()["input_schema"]);
        assert_eq!((read.tools[0].description.as_str(), read.tools[0].strict), ("Looks.", Some(true)));
    }

    #[test]
    fn every_tool_choice_is_read() {
        let chosen = |choice: Value| parsed(&json!([look()]), &choice).unwrap().unwrap();
        for (value, expected) in [
            (json!({"type": "auto"}), ToolChoice::Auto),
            (json!({"type": "any"}), ToolChoice::Required),
            (json!({"type": "none"}), ToolChoice::None),
            (json!({"type": "tool", "name": "look"}), ToolChoice::Named("look".to_owned())),
        ] {
            assert_eq!(chosen(value).choice, expected);
        }
        assert_eq!(
            chosen(json!({"type": "auto", "disable_parallel_tool_use": true})).at_once,
            CallsAtOnce::One
        );
        assert_eq!(parsed(&json!([]), &json!({"type": "auto"})), Ok(None));
        assert_eq!(parsed(&json!([]), &json!({"type": "any"})).unwrap_err().param(), Some("tool_choice"));
    }

    #[test]
    fn an_error_names_the_invalid_part_of_a_tool() {
        let schema = json!({"type": "object"});
        for (tools, choice, param) in [
            (json!([1]), Value::Null, "tools[0]"),
            (json!([{"type": "web_search_20250305", "name": "web_search"}]), Value::Null, "tools[0].type"),
            (json!([{"input_schema": schema}]), Value::Null, "tools[0].name"),
            (json!([{"name": "a b", "input_schema": schema}]), Value::Null, "tools[0].name"),
            (json!([{"name": "a"}]), Value::Null, "tools[0].input_schema"),
            (json!([{"name": "a", "input_schema": []}]), Value::Null, "tools[0].input_schema"),
            (json!([{"name": "a", "input_schema": schema, "mood": 1}]), Value::Null, "tools[0].mood"),
            (json!([look(), look()]), Value::Null, "tools[1].name"),
            (json!(vec![look(); 129]), Value::Null, "tools"),
            (json!([look()]), json!("auto"), "tool_choice"),
            (json!([look()]), json!({"type": "function"}), "tool_choice.type"),
            (json!([look()]), json!({"type": "tool"}), "tool_choice.name"),
            (json!([look()]), json!({"type": "tool", "name": "other"}), "tool_choice.name"),
        ] {
            let error = parsed(&tools, &choice).unwrap_err();
            assert_eq!(error.param(), Some(param), "{tools} {choice}: {error}");
        }
    }
}
