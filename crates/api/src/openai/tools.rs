//! The tools of a request of either API: their definitions, and how they may be called.

use podium_domain::tools::{CallsAtOnce, TOOLS_MAX, Tool, ToolChoice, ToolUse, ToolsError};

use super::tool_forms::{ToolForm, ToolForms, ToolKind, offered_name};
use crate::field::Field;
use crate::{ApiError, ErrorCode};

/// Most characters of a tool's name in these APIs.
pub(super) const NAME_CHARS_MAX: usize = 64;

/// The types of tools that [`is_hosted`]; those of dated web searches come on top.
pub(crate) const HOSTED_TOOLS: [&str; 13] = [
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "programmatic_tool_calling",
    "shell",
    "tool_search",
    "web_search",
];

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
            // The last ones tell OpenAI's own service when to load a tool, and who may call it.
            Self::Flat => &[
                "name",
                "description",
                "parameters",
                "strict",
                "defer_loading",
                "allowed_callers",
                "output_schema",
                "async",
            ],
        }
    }
}

/// The tools of a request while it is parsed.
#[derive(Default)]
pub(super) struct ToolsDraft {
    layout: Layout,
    offered: Vec<Offered>,
    forms: ToolForms,
    /// The forms of earlier calls, whose tools need not be offered again.
    called: ToolForms,
    /// The place that is read now.
    pub(super) place: ToolPlace,
    choice: Option<Selection>,
    at_once: CallsAtOnce,
}

/// A tool, and its place in the request.
struct Offered {
    tool: Tool,
    /// The path of its description.
    path: String,
    place: ToolPlace,
}

/// Where a request has tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ToolPlace {
    /// In the parameter `tools`.
    #[default]
    Parameter,
    /// In an item of the input. It replaces an earlier tool with its name.
    Input,
}

/// The tools of a request.
pub(super) struct RequestTools {
    /// `None` without tools.
    pub(super) tools: Option<ToolUse>,
    /// How the client knows them.
    pub(super) forms: ToolForms,
}

/// The parameter `tool_choice`.
struct Selection {
    choice: Choice,
    /// The only tools that may be called.
    allowed: Option<Vec<Target>>,
    /// The path of a choice that cannot be obeyed without tools.
    needs_tools: Option<String>,
}

/// Which tool must be called.
enum Choice {
    Any(ToolChoice),
    Named(Target),
}

/// A tool, by the names that the client gave it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) namespace: Option<String>,
    /// `None`: all tools of the namespace.
    pub(super) name: Option<String>,
}

impl Target {
    fn shown(&self) -> &str {
        self.name.as_deref().or(self.namespace.as_deref()).unwrap_or_default()
    }

    fn is(&self, form: &ToolForm) -> bool {
        self.name.as_ref().is_none_or(|name| *name == form.name)
            && self.namespace.as_ref().is_none_or(|namespace| Some(namespace) == form.namespace.as_ref())
    }
}

impl ToolsDraft {
    /// The draft for a request of the Responses API; the default one is for Chat Completions.
    pub(super) fn flat() -> Self {
        Self { layout: Layout::Flat, ..Self::default() }
    }

    /// Reads the functions of Chat Completions.
    pub(super) fn tools(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        for entry in field.array_of(TOOLS_MAX)? {
            check_function(&entry)?;
            self.function(&entry, None)?;
        }
        Ok(())
    }

    /// Reads a function.
    pub(super) fn function(&mut self, field: &Field<'_>, namespace: Option<&str>) -> Result<(), ApiError> {
        let function = self.layout.described(field, "function", self.layout.function_names())?;
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
        let tool = Tool {
            name,
            description: description.map_or(Ok(""), |text| text.string())?.to_owned(),
            schema,
            strict: function.member(of, "strict").map(|strict| strict.boolean()).transpose()?,
        };
        self.offer(tool, function.path, namespace, ToolKind::Function);
        Ok(())
    }

    /// Adds a tool, which the client knows in this form. `path` is the path of its description.
    pub(super) fn offer(&mut self, tool: Tool, path: String, namespace: Option<&str>, kind: ToolKind) {
        let offered = offered_name(namespace, &tool.name);
        if namespace.is_some() || kind != ToolKind::Function {
            let namespace = namespace.map(str::to_owned);
            self.forms.insert(&offered, ToolForm { name: tool.name, namespace, kind });
        }
        self.offered.push(Offered { tool: Tool { name: offered, ..tool }, path, place: self.place });
    }

    pub(super) const fn forms(&mut self) -> &mut ToolForms {
        &mut self.forms
    }

    /// The name that workers know for the tool of an earlier call, of which only a form other than a plain function is kept.
    pub(super) fn called(&mut self, namespace: Option<&str>, name: &str, kind: ToolKind) -> String {
        let offered = offered_name(namespace, name);
        if namespace.is_some() || kind != ToolKind::Function {
            let (name, namespace) = (name.to_owned(), namespace.map(str::to_owned));
            self.called.insert(&offered, ToolForm { name, namespace, kind });
        }
        offered
    }

    /// The forms of the tools of earlier calls.
    pub(super) fn into_called(self) -> ToolForms {
        self.called
    }

    pub(super) fn choice(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        self.choice = Some(choice(self.layout, field)?);
        Ok(())
    }

    pub(super) fn parallel(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        self.at_once = if field.boolean()? { CallsAtOnce::Several } else { CallsAtOnce::One };
        Ok(())
    }

    /// The tools and their rules.
    pub(super) fn finish(self) -> Result<RequestTools, ApiError> {
        let Self { offered, mut forms, called, choice, at_once, .. } = self;
        let offered = without_replaced(offered);
        let (tools, paths): (Vec<_>, Vec<_>) =
            offered.into_iter().map(|offered| (offered.tool, offered.path)).unzip();
        forms.add_missing(called, |name| tools.iter().all(|tool| tool.name != name));
        if tools.is_empty() {
            return match choice.and_then(|choice| choice.needs_tools) {
                Some(path) => Err(invalid(&path, needs_tools(&forms))),
                None => Ok(RequestTools { tools: None, forms }),
            };
        }
        let mut tools = ToolUse { tools, choice: ToolChoice::Auto, at_once };
        tools.check().map_err(|e| invalid(&path_of(&e, &paths), e.to_string()))?;
        if let Some(selection) = choice {
            selection.narrow(&mut tools, &forms)?;
        }
        Ok(RequestTools { tools: Some(tools), forms })
    }
}

/// The tools without those that an item of the input replaces.
fn without_replaced(offered: Vec<Offered>) -> Vec<Offered> {
    let mut kept: Vec<Offered> = Vec::new();
    let (input, parameter): (Vec<_>, Vec<_>) =
        offered.into_iter().partition(|offered| offered.place == ToolPlace::Input);
    kept.extend(parameter);
    for later in input {
        kept.retain(|earlier| earlier.tool.name != later.tool.name);
        kept.push(later);
    }
    kept
}

impl Selection {
    /// Restricts the tools to this selection.
    fn narrow(self, tools: &mut ToolUse, forms: &ToolForms) -> Result<(), ApiError> {
        if let Some(allowed) = &self.allowed {
            let mut names = Vec::new();
            for target in allowed {
                let found = find(&tools.tools, forms, target);
                if found.is_empty() {
                    let name = target.shown();
                    let message = format!("`tool_choice` allows `{name}`, which is not in `tools`");
                    return Err(invalid("tool_choice", message));
                }
                names.extend(found);
            }
            tools.tools.retain(|tool| names.contains(&tool.name));
        }
        tools.choice = match self.choice {
            Choice::Any(choice) => choice,
            Choice::Named(target) => {
                let found = find(&tools.tools, forms, &target).into_iter().next();
                ToolChoice::Named(found.ok_or_else(|| {
                    let error = ToolsError::UnknownChoice { name: target.shown().to_owned() };
                    invalid("tool_choice", error.to_string())
                })?)
            }
        };
        Ok(())
    }
}

/// The names that workers know for a tool, or for the tools of a namespace.
fn find(tools: &[Tool], forms: &ToolForms, target: &Target) -> Vec<String> {
    if let Target { namespace: None, name: Some(name) } = target
        && tools.iter().any(|tool| tool.name == *name)
    {
        return vec![name.clone()];
    }
    let named = forms.named(|form| target.is(form));
    let is_offered = |name: &&str| tools.iter().any(|tool| tool.name == **name);
    named.into_iter().filter(is_offered).map(str::to_owned).collect()
}

fn needs_tools(forms: &ToolForms) -> String {
    let left_out: Vec<_> = forms.left_out().iter().map(|kind| format!("`{kind}`")).collect();
    if left_out.is_empty() {
        return "`tool_choice` needs `tools`, which are missing".to_owned();
    }
    format!("`tool_choice` needs a tool, and Podium does not run {}", left_out.join(", "))
}

/// The path of an error. `paths` are those of the tools.
fn path_of(error: &ToolsError, paths: &[String]) -> String {
    let of = |index: &usize, member: &str| match paths.get(*index) {
        Some(path) => format!("{path}.{member}"),
        None => "tools".to_owned(),
    };
    match error {
        ToolsError::Name { index } | ToolsError::SameName { index, .. } => of(index, "name"),
        ToolsError::NoObject { index } | ToolsError::TooDeep { index } => of(index, "parameters"),
        ToolsError::Count { .. } | ToolsError::TooLong { .. } => "tools".to_owned(),
        ToolsError::UnknownChoice { .. } => "tool_choice".to_owned(),
    }
}

fn invalid(path: &str, message: String) -> ApiError {
    ApiError::on_field(ErrorCode::InvalidValue, path, message)
}

/// Rejects tools of other types than functions.
pub(super) fn check_function(field: &Field<'_>) -> Result<(), ApiError> {
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
    if field.value.is_string() {
        let choice = mode(field, &["none", "auto", "required"])?;
        let needs_tools = choice.is_forced().then(|| field.path.clone());
        return Ok(Selection { choice: Choice::Any(choice), allowed: None, needs_tools });
    }
    let object = field.object().map_err(|_| field.must_be("`none`, `auto`, `required` or an object"))?;
    let kind = field.required(object, "type")?;
    let needs_tools = Some(field.path.clone());
    if kind.string()? == "allowed_tools" {
        let allowed = layout.described(field, "allowed_tools", &["mode", "tools"])?;
        let of = allowed.object()?;
        let choice = mode(&allowed.required(of, "mode")?, &["auto", "required"])?;
        let list = allowed.required(of, "tools")?;
        let targets = list.array_of(TOOLS_MAX)?.map(|tool| target(layout, &tool));
        let targets: Vec<_> = targets.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        if targets.is_empty() {
            return Err(list.must_be("an array with at least one tool that can be called"));
        }
        return Ok(Selection { choice: Choice::Any(choice), allowed: Some(targets), needs_tools });
    }
    match target(layout, field)? {
        Some(target) if target.name.is_some() => {
            Ok(Selection { choice: Choice::Named(target), allowed: None, needs_tools })
        }
        _ => {
            Err(kind
                .unsupported("Podium does not run this tool; choose a tool that the client runs, or `auto`"))
        }
    }
}

fn mode(field: &Field<'_>, names: &[&str]) -> Result<ToolChoice, ApiError> {
    Ok(match field.one_of(names)? {
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        _ => ToolChoice::Auto,
    })
}

/// The tool that a choice names; `None` for a tool that is not offered because of its type.
fn target(layout: Layout, field: &Field<'_>) -> Result<Option<Target>, ApiError> {
    let kind = field.required(field.object()?, "type")?;
    let text = |of: &Field<'_>, member: &str| {
        let member = of.member(of.object()?, member);
        member.map(|text| text.string().map(str::to_owned)).transpose()
    };
    match (kind.string()?, layout) {
        ("function", Layout::Nested) => {
            let function = layout.described(field, "function", &["name"])?;
            function.required(function.object()?, "name")?.string()?;
            Ok(Some(Target { namespace: None, name: text(&function, "name")? }))
        }
        ("function" | "custom", Layout::Flat) => {
            let function = layout.described(field, "function", &["name", "namespace"])?;
            function.required(function.object()?, "name")?.string()?;
            Ok(Some(Target { namespace: text(&function, "namespace")?, name: text(&function, "name")? }))
        }
        ("namespace", Layout::Flat) => {
            let namespace = layout.described(field, "namespace", &["name"])?;
            let name = namespace.required(namespace.object()?, "name")?.string()?;
            Ok(Some(Target { namespace: Some(name.to_owned()), name: None }))
        }
        (hosted, Layout::Flat) if is_hosted(hosted) => Ok(None),
        (_, Layout::Nested) => Err(kind.unsupported("it must be `function` or `allowed_tools`")),
        (_, Layout::Flat) => {
            Err(kind.unsupported("it must be `function`, `custom`, `namespace` or `allowed_tools`"))
        }
    }
}

/// Whether tools of this type are run by OpenAI's service, or are forms of a client's tools that only its models know.
pub(super) fn is_hosted(kind: &str) -> bool {
    HOSTED_TOOLS.contains(&kind) || kind.starts_with("web_search_")
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
        draft.finish().map(|read| read.tools)
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
