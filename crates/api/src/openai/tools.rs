//! The tools of a request of either API: their definitions, and how they may be called.

use podium_domain::tools::{CallsAtOnce, TOOLS_MAX, Tool, ToolChoice, ToolUse, ToolsError};

use crate::field::Field;
use crate::{ApiError, ErrorCode};

/// Most characters of a tool's name in these APIs.
const NAME_CHARS_MAX: usize = 64;

/// The place of the members that describe a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Layout {
    /// In a member of their own, such as `function`, as Chat Completions has them.
    #[default]
    Nested,
    /// Next to `type`, as the Responses API has them.
    Flat,
}

impl Layout {
    /// The object that describes the value of type `kind`. Its members may have these names only.
    fn described<'a>(self, field: &Field<'a>, kind: &str, names: &[&str]) -> Result<Field<'a>, ApiError> {
        let outer = field.object()?;
        if self == Self::Nested {
            field.only(outer, &["type", kind])?;
            let inner = field.required(outer, kind)?;
            inner.only(inner.object()?, names)?;
            return Ok(inner);
        }
        let names: Vec<_> = names.iter().chain(&["type"]).copied().collect();
        field.only(outer, &names)?;
        Ok(field.clone())
    }

    /// The names of the members of a function.
    const fn function_names(self) -> &'static [&'static str] {
        match self {
            Self::Nested => &["name", "description", "parameters", "strict"],
            // The last one tells OpenAI's own service when to load a tool.
            Self::Flat => &["name", "description", "parameters", "strict", "defer_loading"],
        }
    }

    fn path_of(self, error: &ToolsError) -> String {
        let function = |index: &usize| match self {
            Self::Nested => format!("tools[{index}].function"),
            Self::Flat => format!("tools[{index}]"),
        };
        match error {
            ToolsError::Name { index } | ToolsError::SameName { index, .. } => {
                format!("{}.name", function(index))
            }
            ToolsError::NoObject { index } | ToolsError::TooDeep { index } => {
                format!("{}.parameters", function(index))
            }
            ToolsError::Count { .. } | ToolsError::TooLong { .. } => "tools".to_owned(),
            ToolsError::UnknownChoice { .. } => "tool_choice".to_owned(),
        }
    }
}

/// The tools of a request while it is parsed.
#[derive(Default)]
pub(super) struct ToolsDraft {
    layout: Layout,
    tools: Vec<Tool>,
    choice: Option<Selection>,
    at_once: CallsAtOnce,
}

/// The parameter `tool_choice`.
struct Selection {
    choice: ToolChoice,
    /// The only tools that may be called.
    allowed: Option<Vec<String>>,
    /// The path of a choice that cannot be obeyed without tools.
    needs_tools: Option<String>,
}

impl ToolsDraft {
    /// The draft for a request of the Responses API; the default one is for Chat Completions.
    pub(super) fn flat() -> Self {
        Self { layout: Layout::Flat, ..Self::default() }
    }

    pub(super) fn tools(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        let layout = self.layout;
        self.tools =
            field.array_of(TOOLS_MAX)?.map(|field| tool(layout, &field)).collect::<Result<_, _>>()?;
        Ok(())
    }

    pub(super) fn choice(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        self.choice = Some(choice(self.layout, field)?);
        Ok(())
    }

    pub(super) fn parallel(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        self.at_once = if field.boolean()? { CallsAtOnce::Several } else { CallsAtOnce::One };
        Ok(())
    }

    /// The tools and their rules; `None` without tools.
    pub(super) fn finish(self) -> Result<Option<ToolUse>, ApiError> {
        let Self { layout, mut tools, choice, at_once } = self;
        if tools.is_empty() {
            return match choice.and_then(|choice| choice.needs_tools) {
                Some(path) => {
                    Err(invalid(&path, "`tool_choice` needs `tools`, which are missing".to_owned()))
                }
                None => Ok(None),
            };
        }
        let mut chosen = ToolChoice::Auto;
        if let Some(Selection { choice, allowed, .. }) = choice {
            if let Some(allowed) = allowed {
                let is_offered = |name: &&String| tools.iter().any(|tool| tool.name == **name);
                if let Some(name) = allowed.iter().find(|name| !is_offered(name)) {
                    let message = format!("`tool_choice` allows `{name}`, which is not in `tools`");
                    return Err(invalid("tool_choice", message));
                }
                tools.retain(|tool| allowed.contains(&tool.name));
            }
            chosen = choice;
        }
        let tools = ToolUse { tools, choice: chosen, at_once };
        tools.check().map_err(|e| invalid(&layout.path_of(&e), e.to_string()))?;
        Ok(Some(tools))
    }
}

fn invalid(path: &str, message: String) -> ApiError {
    ApiError::on_field(ErrorCode::InvalidValue, path, message)
}

fn tool(layout: Layout, field: &Field<'_>) -> Result<Tool, ApiError> {
    check_function(field)?;
    let function = layout.described(field, "function", layout.function_names())?;
    let of = function.object()?;
    let name = name(&function.required(of, "name")?)?;
    let description = function.member(of, "description");
    let schema = match function.member(of, "parameters") {
        Some(parameters) => {
            parameters.object()?;
            parameters.value.clone()
        }
        None => Tool::no_parameters(),
    };
    Ok(Tool {
        name,
        description: description.map_or(Ok(""), |text| text.string())?.to_owned(),
        schema,
        strict: function.member(of, "strict").map(|strict| strict.boolean()).transpose()?,
    })
}

/// Rejects tools of other types than functions.
fn check_function(field: &Field<'_>) -> Result<(), ApiError> {
    let kind = field.required(field.object()?, "type")?;
    if kind.string()? == "function" {
        return Ok(());
    }
    Err(kind.unsupported("only tools of type `function` can be called"))
}

/// The name of a tool.
pub(super) fn name(field: &Field<'_>) -> Result<String, ApiError> {
    let name = field.string()?;
    if name.len() <= NAME_CHARS_MAX && podium_domain::tools::is_name(name) {
        return Ok(name.to_owned());
    }
    Err(field.must_be(&format!("1 to {NAME_CHARS_MAX} letters, digits, `_` or `-`")))
}

fn choice(layout: Layout, field: &Field<'_>) -> Result<Selection, ApiError> {
    let simple = |choice: ToolChoice| {
        let needs_tools = choice.is_forced().then(|| field.path.clone());
        Ok(Selection { choice, allowed: None, needs_tools })
    };
    if field.value.is_string() {
        return simple(mode(field, &["none", "auto", "required"])?);
    }
    let object = field.object().map_err(|_| field.must_be("`none`, `auto`, `required` or an object"))?;
    let kind = field.required(object, "type")?;
    match kind.string()? {
        "function" => {
            let function = layout.described(field, "function", &["name"])?;
            let name = function.required(function.object()?, "name")?;
            simple(ToolChoice::Named(name.string()?.to_owned()))
        }
        "allowed_tools" => {
            let allowed = layout.described(field, "allowed_tools", &["mode", "tools"])?;
            let of = allowed.object()?;
            let choice = mode(&allowed.required(of, "mode")?, &["auto", "required"])?;
            let names = allowed.required(of, "tools")?;
            let names = names.array_of(TOOLS_MAX)?.map(|tool| allowed_name(layout, &tool));
            let names: Vec<_> = names.collect::<Result<_, _>>()?;
            if names.is_empty() {
                return Err(allowed.required(of, "tools")?.must_be("an array with at least one tool"));
            }
            Ok(Selection { choice, allowed: Some(names), needs_tools: Some(field.path.clone()) })
        }
        _ => Err(kind.unsupported("it must be `function` or `allowed_tools`")),
    }
}

fn mode(field: &Field<'_>, names: &[&str]) -> Result<ToolChoice, ApiError> {
    Ok(match field.one_of(names)? {
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        _ => ToolChoice::Auto,
    })
}

fn allowed_name(layout: Layout, field: &Field<'_>) -> Result<String, ApiError> {
    check_function(field)?;
    let function = layout.described(field, "function", &["name"])?;
    Ok(function.required(function.object()?, "name")?.string()?.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed(tools: &Value, choice: &Value, parallel: &Value) -> Result<Option<ToolUse>, ApiError> {
        let mut draft = ToolsDraft::default();
        for (name, value) in [("tools", tools), ("tool_choice", choice), ("parallel_tool_calls", parallel)] {
            if value.is_null() {
                continue;
            }
            let field = Field::new(name, value);
            match name {
                "tools" => draft.tools(&field)?,
                "tool_choice" => draft.choice(&field)?,
                _ => draft.parallel(&field)?,
            }
        }
        draft.finish()
    }

    fn function(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name}})
    }

    fn two() -> Value {
        json!([function("look"), function("find")])
    }

    #[test]
    fn a_tool_without_parameters_takes_an_empty_object() {
        let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
        let whole = json!({"type": "function", "function": {
            "name": "look", "description": "Looks.", "parameters": schema, "strict": true,
        }});
        let bare = json!({"type": "function", "function": {"name": "find", "description": null, "parameters": null}});
        let tools = parsed(&json!([whole, bare]), &Value::Null, &Value::Null).unwrap().unwrap();
        assert_eq!((tools.choice, tools.at_once), (ToolChoice::Auto, CallsAtOnce::Several));
        assert_eq!(tools.tools[0].schema.to_string(), schema.to_string());
        assert_eq!((tools.tools[0].strict, tools.tools[0].description.as_str()), (Some(true), "Looks."));
        assert_eq!(tools.tools[1].schema, json!({"type": "object", "properties": {}}));
        assert_eq!((tools.tools[1].strict, tools.tools[1].description.as_str()), (None, ""));
    }

    #[test]
    fn every_tool_choice_is_read() {
        let chosen = |choice: Value| parsed(&two(), &choice, &json!(false)).unwrap().unwrap();
        for (value, expected) in [
            (json!("none"), ToolChoice::None),
            (json!("auto"), ToolChoice::Auto),
            (json!("required"), ToolChoice::Required),
            (function("find"), ToolChoice::Named("find".to_owned())),
        ] {
            let tools = chosen(value);
            assert_eq!((tools.choice, tools.at_once, tools.tools.len()), (expected, CallsAtOnce::One, 2));
        }
        let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [function("find")]}});
        let tools = chosen(allowed);
        assert_eq!(
            (tools.choice, tools.tools.len(), tools.tools[0].name.as_str()),
            (ToolChoice::Required, 1, "find")
        );
    }

    #[test]
    fn tools_of_the_responses_api_are_flat() {
        let parsed = |tools: Value, choice: Value| {
            let mut draft = ToolsDraft::flat();
            draft.tools(&Field::new("tools", &tools))?;
            draft.choice(&Field::new("tool_choice", &choice))?;
            draft.finish()
        };
        let named = |name: &str| json!({"type": "function", "name": name});
        let look =
            json!({"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": false});
        let tools = json!([look, named("find")]);
        let read = parsed(tools.clone(), named("find")).unwrap().unwrap();
        assert_eq!(read.choice, ToolChoice::Named("find".to_owned()));
        assert_eq!((read.tools.len(), read.tools[0].strict), (2, Some(false)));
        let allowed = json!({"type": "allowed_tools", "mode": "required", "tools": [named("look")]});
        let read = parsed(tools.clone(), allowed).unwrap().unwrap();
        assert_eq!((read.choice, read.tools.len()), (ToolChoice::Required, 1));
        for (tools, choice, param) in [
            (json!([function("look")]), json!("auto"), "tools[0].function"),
            (json!([{"type": "custom", "name": "x"}]), json!("auto"), "tools[0].type"),
            (json!([{"type": "function"}]), json!("auto"), "tools[0].name"),
            (json!([named("a"), named("a")]), json!("auto"), "tools[1].name"),
            (tools.clone(), function("look"), "tool_choice.function"),
            (tools, named("other"), "tool_choice"),
        ] {
            assert_eq!(parsed(tools, choice).unwrap_err().param(), Some(param));
        }
    }

    #[test]
    fn no_tools_need_no_choice() {
        for (tools, choice) in
            [(Value::Null, Value::Null), (json!([]), json!("auto")), (json!([]), json!("none"))]
        {
            assert_eq!(parsed(&tools, &choice, &json!(true)), Ok(None));
        }
        let refused = parsed(&json!([]), &json!("required"), &Value::Null).unwrap_err();
        assert_eq!(refused.param(), Some("tool_choice"));
    }

    #[test]
    fn an_error_names_the_invalid_part_of_a_tool() {
        let long = "n".repeat(65);
        for (tools, choice, param) in [
            (json!("look"), Value::Null, "tools"),
            (json!([1]), Value::Null, "tools[0]"),
            (json!([{}]), Value::Null, "tools[0].type"),
            (json!([{"type": "custom", "custom": {"name": "x"}}]), Value::Null, "tools[0].type"),
            (json!([{"type": "function"}]), Value::Null, "tools[0].function"),
            (json!([{"type": "function", "function": {"name": "a"}, "x": 1}]), Value::Null, "tools[0].x"),
            (json!([function("a b")]), Value::Null, "tools[0].function.name"),
            (json!([function("")]), Value::Null, "tools[0].function.name"),
            (json!([function(&long)]), Value::Null, "tools[0].function.name"),
            (json!([function("a"), function("a")]), Value::Null, "tools[1].function.name"),
            (json!([{"type": "function", "function": {}}]), Value::Null, "tools[0].function.name"),
            (
                json!([{"type": "function", "function": {"name": "a", "parameters": []}}]),
                Value::Null,
                "tools[0].function.parameters",
            ),
            (
                json!([{"type": "function", "function": {"name": "a", "strict": 1}}]),
                Value::Null,
                "tools[0].function.strict",
            ),
            (
                json!([{"type": "function", "function": {"name": "a", "y": 1}}]),
                Value::Null,
                "tools[0].function.y",
            ),
            (json!(vec![function("a"); 129]), Value::Null, "tools"),
            (two(), json!("always"), "tool_choice"),
            (two(), json!(1), "tool_choice"),
            (two(), json!({}), "tool_choice.type"),
            (two(), json!({"type": "custom"}), "tool_choice.type"),
            (two(), json!({"type": "function"}), "tool_choice.function"),
            (two(), json!({"type": "function", "function": {}}), "tool_choice.function.name"),
            (two(), function("other"), "tool_choice"),
            (
                two(),
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": []}}),
                "tool_choice.allowed_tools.mode",
            ),
            (
                two(),
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}),
                "tool_choice.allowed_tools.tools",
            ),
            (
                two(),
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function("other")]}}),
                "tool_choice",
            ),
        ] {
            let error = parsed(&tools, &choice, &Value::Null).unwrap_err();
            assert_eq!(error.param(), Some(param), "{tools} {choice}: {error}");
        }
    }
}
