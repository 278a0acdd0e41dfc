//! Compares the schemas with the parsers of requests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::schemas;
use crate::ApiError;
use crate::field::{Field, known_members};

type Read = fn(&Field<'_>) -> Result<(), ApiError>;

/// The parsers of the schemas.
const PARSERS: [(&str, Read); 15] = [
    ("ChatMessage", crate::openai::reading::message),
    ("ChatTool", crate::openai::reading::tool),
    ("ChatToolChoice", crate::openai::reading::tool_choice),
    ("ResponseFormat", crate::openai::reading::response_format),
    ("InputItem", crate::openai::reading::item),
    ("ResponseTool", crate::openai::reading::response_tool),
    ("ResponseToolChoice", crate::openai::reading::response_tool_choice),
    ("TextOptions", crate::openai::reading::text),
    ("ReasoningOptions", crate::openai::reading::reasoning),
    ("MessageParam", crate::anthropic::reading::message),
    ("MessageTool", crate::anthropic::reading::tool),
    ("MessageToolChoice", crate::anthropic::reading::tool_choice),
    ("ThinkingOptions", crate::anthropic::reading::thinking),
    ("OutputOptions", crate::anthropic::reading::output),
    ("PodiumOptions", crate::podium_object::reading),
];

/// A value that fits a schema, and the schemas of the objects in it, by their paths.
#[derive(Clone, Debug)]
struct Instance {
    value: Value,
    objects: BTreeMap<String, Value>,
}

/// Instances of a schema: one with the first form of each part, and one for each other form of a part.
fn instances(named: &Map<String, Value>, schema: &Value, path: &str) -> Vec<Instance> {
    let plain = |value: Value| vec![Instance { value, objects: BTreeMap::new() }];
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap();
        return instances(named, &named[name], path);
    }
    if let Some(forms) = schema["anyOf"].as_array() {
        let forms = forms.iter().filter(|form| form["type"] != "null");
        return forms.flat_map(|form| instances(named, form, path)).collect();
    }
    if let Some(value) = schema.get("const") {
        return plain(value.clone());
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().flat_map(|value| plain(value.clone())).collect();
    }
    if let Some(example) = schema["examples"].get(0) {
        return plain(example.clone());
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        None | Some("string") => plain(json!("a")),
        Some("boolean") => plain(json!(true)),
        Some("integer") => plain(schema["minimum"].clone()),
        Some("null") => plain(Value::Null),
        Some("array") => {
            let entries = instances(named, &schema["items"], &format!("{path}[0]"));
            entries.into_iter().map(|entry| Instance { value: json!([entry.value]), ..entry }).collect()
        }
        Some("object") => objects(named, schema, path),
        Some(other) => panic!("{other}"),
    }
}

fn objects(named: &Map<String, Value>, schema: &Value, path: &str) -> Vec<Instance> {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let members: Vec<_> = properties
        .iter()
        .map(|(name, schema)| (name, instances(named, schema, &format!("{path}.{name}"))))
        .collect();
    let first = |but: Option<(usize, &Instance)>| {
        let mut whole = Instance { value: json!({}), objects: BTreeMap::new() };
        if schema["additionalProperties"] == false {
            whole.objects.insert(path.to_owned(), schema.clone());
        }
        for (index, (name, forms)) in members.iter().enumerate() {
            let form = but.filter(|(at, _)| *at == index).map_or(&forms[0], |(_, form)| form);
            whole.value[name.as_str()] = form.value.clone();
            whole.objects.extend(form.objects.clone());
        }
        whole
    };
    let others = members
        .iter()
        .enumerate()
        .flat_map(|(index, (_, forms))| forms.iter().skip(1).map(move |form| (index, form)));
    std::iter::once(first(None)).chain(others.map(|other| first(Some(other)))).collect()
}

/// The object at a path such as `x.content[0]`.
fn at<'v>(value: &'v mut Value, path: &str) -> &'v mut Map<String, Value> {
    let pointer = path.trim_start_matches('x').replace(['.', '['], "/").replace(']', "");
    value.pointer_mut(&pointer).unwrap().as_object_mut().unwrap()
}

/// A value of none of the types that a schema has.
fn wrong(named: &Map<String, Value>, schema: &Value) -> Option<Value> {
    fn may_be(named: &Map<String, Value>, schema: &Value, value: &Value) -> bool {
        if let Some(reference) = schema["$ref"].as_str() {
            return may_be(named, &named[reference.rsplit('/').next().unwrap()], value);
        }
        if let Some(forms) = schema["anyOf"].as_array() {
            return forms.iter().any(|form| may_be(named, form, value));
        }
        if let Some(only) = schema.get("const") {
            return only == value;
        }
        if let Some(values) = schema["enum"].as_array() {
            return values.contains(value);
        }
        let kinds = match &schema["type"] {
            Value::Null => return true,
            Value::String(kind) => vec![kind.as_str()],
            kinds => kinds.as_array().unwrap().iter().filter_map(Value::as_str).collect(),
        };
        kinds.iter().any(|kind| match *kind {
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            _ => value.is_null(),
        })
    }
    let values = [json!("zz"), json!(7.5), json!([[7]])];
    values.into_iter().find(|value| !may_be(named, schema, value))
}

/// The path of the error that a parser reports.
fn refusal(read: Read, value: &Value) -> Option<String> {
    read(&Field::new("x", value)).err().map(|error| error.param().unwrap_or_default().to_owned())
}

/// Whether the value is valid without the member too: an assistant's message needs a text or calls, and without `execution`, a search
/// for tools is one that OpenAI's service runs.
fn another_form_lacks(name: &str, value: &Value, member: &str) -> bool {
    match name {
        "ChatMessage" => value["role"] == "assistant" && ["content", "tool_calls"].contains(&member),
        "ResponseTool" | "InputItem" => member == "execution",
        _ => false,
    }
}

#[test]
fn every_schema_has_a_parser() {
    let schemas = schemas();
    assert_eq!(
        schemas.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        PARSERS.iter().map(|(name, _)| *name).collect()
    );
}

#[test]
fn parsers_accept_what_schemas_allow_and_know_no_other_members() {
    let schemas = schemas();
    let mut checked = 0;
    for (name, read) in PARSERS {
        for Instance { value, objects } in instances(&schemas, &schemas[name], "x") {
            known_members::clear();
            assert_eq!(refusal(read, &value), None, "{name}: {value}");
            let known = known_members::take();
            for (path, schema) in objects {
                let members: BTreeSet<_> =
                    schema["properties"].as_object().unwrap().keys().cloned().collect();
                assert_eq!(known.get(&path), Some(&members), "{name}: {path} of {value}");
                checked += 1;
            }
        }
    }
    assert!(checked > 300, "{checked}");
}

#[test]
fn parsers_reject_what_schemas_forbid() {
    let schemas = schemas();
    let mut checked = 0;
    for (name, read) in PARSERS {
        for Instance { value, objects } in instances(&schemas, &schemas[name], "x") {
            for (path, schema) in objects {
                let mut unknown = value.clone();
                at(&mut unknown, &path).insert("zz_unknown".to_owned(), json!(1));
                assert_eq!(refusal(read, &unknown), Some(format!("{path}.zz_unknown")), "{name}: {unknown}");
                for member in schema["required"].as_array().unwrap() {
                    if another_form_lacks(name, &value, member.as_str().unwrap()) {
                        continue;
                    }
                    let mut missing = value.clone();
                    at(&mut missing, &path).remove(member.as_str().unwrap());
                    assert!(refusal(read, &missing).is_some(), "{name}: {missing}");
                }
                for (member, schema) in schema["properties"].as_object().unwrap() {
                    // Another value of `execution` makes it a search that OpenAI's service runs.
                    let Some(wrong) = wrong(&schemas, schema).filter(|_| member != "execution") else {
                        continue;
                    };
                    let mut changed = value.clone();
                    at(&mut changed, &path).insert(member.clone(), wrong);
                    let refused = refusal(read, &changed);
                    let is_named = refused.as_ref().is_some_and(|at| at.starts_with(&format!("{path}.")));
                    assert!(is_named, "{name}: {refused:?} for {path}.{member} of {changed}");
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 500, "{checked}");
}
