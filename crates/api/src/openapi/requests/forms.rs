//! Forms of values that the schemas of several APIs have.

use podium_domain::conversation::CALL_ID_BYTES_MAX;
use podium_domain::policy::Effort;
use podium_domain::stops::STOP_BYTES_MAX;
use serde_json::{Map, Value, json};

/// Padded base64 of the standard alphabet, not empty.
const BASE64: &str =
    "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)";
/// The address of an image or a PDF.
const ADDRESS: &str = "https?://[!-.0-~][!-~]*";
const ADDRESS_CHARS_MAX: usize = 8 << 10;
/// Most characters of a name of a tool in OpenAI's APIs, and of a name of a schema.
pub(super) const NAME_CHARS_MAX: usize = 64;

pub(super) fn any() -> Value {
    json!({})
}

/// A member that may be present only without a value.
pub(super) fn nothing() -> Value {
    json!({"type": "null"})
}

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

pub(super) fn flag() -> Value {
    json!({"type": ["boolean", "null"]})
}

pub(super) fn any_object() -> Value {
    json!({"type": "object"})
}

pub(super) fn one_of(names: &[&str]) -> Value {
    json!({ "enum": names })
}

pub(super) fn kind(name: &str) -> (&'static str, Value) {
    ("type", json!({ "const": name }))
}

pub(super) fn maybe(schema: &Value) -> Value {
    either(&[schema.clone(), json!({"type": "null"})])
}

pub(super) fn maybe_text() -> Value {
    json!({"type": ["string", "null"]})
}

pub(super) fn either(schemas: &[Value]) -> Value {
    json!({ "anyOf": schemas })
}

pub(super) fn list(entry: &Value, max: usize) -> Value {
    json!({"type": "array", "items": entry, "maxItems": max})
}

/// A list that is not empty.
pub(super) fn some(entry: &Value, max: usize) -> Value {
    json!({"type": "array", "items": entry, "minItems": 1, "maxItems": max})
}

pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// An object with these members and no others.
pub(super) fn object(members: &[(&str, Value)], required: &[&str]) -> Value {
    let properties: Map<_, _> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    crate::openapi::object(&Value::Object(properties), required)
}

/// The same object with further members.
pub(super) fn with(mut object: Value, more: &[(&str, Value)]) -> Value {
    if let Some(properties) = object["properties"].as_object_mut() {
        properties.extend(more.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())));
    }
    object
}

pub(super) fn integer(min: u64, max: u64) -> Value {
    json!({"type": ["integer", "null"], "minimum": min, "maximum": max})
}

pub(super) fn effort() -> Value {
    one_of(&Effort::ALL.map(Effort::as_str))
}

pub(super) fn stop() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": STOP_BYTES_MAX, "description": "The limit is in bytes."})
}

pub(super) fn name(chars_max: usize) -> Value {
    json!({"type": "string", "pattern": format!("^[A-Za-z0-9_-]{{1,{chars_max}}}$"), "examples": ["look"]})
}

pub(super) fn call_id() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": CALL_ID_BYTES_MAX, "description": "The limit is in bytes."})
}

pub(super) fn image_url() -> Value {
    json!({
        "type": "string",
        "pattern": format!("^({ADDRESS}|data:image/(png|jpeg|webp|gif);base64,{BASE64})$"),
        "examples": ["https://example.org/a.png"],
        "description": "An address that the worker's vendor can fetch, or the image itself.",
    })
}

pub(super) fn address() -> Value {
    let pattern = format!("^{ADDRESS}$");
    json!({"type": "string", "pattern": pattern, "maxLength": ADDRESS_CHARS_MAX, "examples": ["https://example.org/a.pdf"]})
}

pub(super) fn base64() -> Value {
    json!({"type": "string", "pattern": format!("^{BASE64}$"), "examples": ["JVBERi0="]})
}

pub(super) fn file_data() -> Value {
    json!({
        "type": "string",
        "pattern": format!("^data:(application/pdf|text/[a-z]+|application/(json|xml|yaml|x-yaml|toml));base64,{BASE64}$"),
        "examples": ["data:application/pdf;base64,JVBERi0="],
        "description": "A PDF, or a text file in UTF-8.",
    })
}

pub(super) fn file_name() -> Value {
    json!({"type": ["string", "null"], "maxLength": 500, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"})
}

/// The description of a function.
pub(super) fn function() -> Value {
    object(&function_members(), &["name"])
}

pub(super) fn function_members() -> [(&'static str, Value); 4] {
    [
        ("name", name(NAME_CHARS_MAX)),
        ("description", maybe_text()),
        ("parameters", maybe(&any_object())),
        ("strict", flag()),
    ]
}

/// The members of a JSON schema as a response format.
pub(super) fn schema_members() -> [(&'static str, Value); 4] {
    [("name", name(NAME_CHARS_MAX)), ("description", any()), ("schema", any_object()), ("strict", flag())]
}
