//! Headers and body fields that a pool adds to the calls of a vendor or of a worker.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{KeyHeader, SecretRef, Vendor, Worker};

/// Most headers of a vendor or a worker.
const HEADERS_MAX: usize = 32;
/// Longest name of a header.
const NAME_BYTES_MAX: usize = 64;
/// Longest value of a header.
const VALUE_BYTES_MAX: usize = 4096;
/// Most bytes of an entry's body fields, as JSON.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Headers that every call sets itself, or that belong to the connection.
const OWN_HEADERS: [&str; 16] = [
    "accept",
    "accept-encoding",
    "anthropic-version",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// The value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderText {
    /// The text in the pool file.
    Plain(String),
    /// A reference to a secret.
    Secret(SecretRef),
}

/// Additional headers and body fields of a vendor's or a worker's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Headers, by lower-case name.
    pub headers: BTreeMap<String, HeaderText>,
    /// Fields of the body. A field that a request sets itself takes precedence; objects are merged field by field.
    pub body: Map<String, Value>,
}

impl Extras {
    /// Checks an entry of a pool file, as far as that is possible without the rest of the file.
    pub(super) fn check(
        headers: BTreeMap<String, String>,
        body: toml::Table,
        at: &str,
        problems: &mut Vec<String>,
    ) -> Self {
        if headers.len() > HEADERS_MAX {
            problems.push(format!("{at}: headers has {} entries, the limit is {HEADERS_MAX}", headers.len()));
        }
        let mut checked = BTreeMap::new();
        for (name, text) in headers {
            match header(&name, &text) {
                Ok(text) => {
                    if checked.insert(name.to_ascii_lowercase(), text).is_some() {
                        problems.push(format!("{at}: headers.{name} occurs twice, in upper and lower case"));
                    }
                }
                Err(problem) => problems.push(format!("{at}: headers.{name} {problem}")),
            }
        }
        let mut fields = Map::new();
        for (name, value) in body {
            match json(value) {
                Ok(value) => {
                    fields.insert(name, value);
                }
                Err(problem) => problems.push(format!("{at}: body.{name} {problem}")),
            }
        }
        let bytes = serde_json::to_string(&fields).map_or(0, |text| text.len());
        if bytes > BODY_BYTES_MAX {
            problems.push(format!("{at}: body has {bytes} bytes as JSON, the limit is {BODY_BYTES_MAX}"));
        }
        Self { headers: checked, body: fields }
    }
}

/// Names the extras of a worker and its vendor that contradict the worker's wire format.
pub(super) fn contradictions(vendor: &Vendor, worker: &Worker) -> Vec<String> {
    let mut problems = Vec::new();
    let key_header = match vendor.key_header(worker.api) {
        KeyHeader::Bearer => "authorization".to_owned(),
        KeyHeader::Named(name) => name,
    };
    let entries = [
        (format!("vendors `{}`", vendor.id), &vendor.extras),
        (format!("workers `{}`", worker.id), &worker.extras),
    ];
    for (at, extras) in entries {
        if !vendor.keys.is_empty() && extras.headers.contains_key(&key_header) {
            problems.push(format!("{at}: headers.{key_header} is set already: it carries the vendor's key"));
        }
        for field in worker.api.own_fields() {
            let is_set = match field.split_once('.') {
                None => extras.body.contains_key(*field),
                Some((outer, inner)) => {
                    extras.body.get(outer).is_some_and(|outer| outer.get(inner).is_some())
                }
            };
            if is_set {
                problems.push(format!(
                    "{at}: body.{field} cannot be set: every request of api `{}` sets it itself",
                    worker.api
                ));
            }
        }
    }
    problems
}

fn header(name: &str, text: &str) -> Result<HeaderText, String> {
    let lower = name.to_ascii_lowercase();
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(allowed) {
        return Err(format!(
            "is not a valid header name: use 1 to {NAME_BYTES_MAX} letters, digits, `-` and `_`"
        ));
    }
    if OWN_HEADERS.contains(&lower.as_str()) {
        return Err("cannot be set: every call sets it itself".to_owned());
    }
    if let Some(secret) = SecretRef::parse(text) {
        return secret.map(HeaderText::Secret);
    }
    if text.is_empty()
        || text.len() > VALUE_BYTES_MAX
        || !text.chars().all(|c| c == ' ' || c.is_ascii_graphic())
    {
        return Err(format!("must be 1 to {VALUE_BYTES_MAX} printable ASCII characters"));
    }
    Ok(HeaderText::Plain(text.to_owned()))
}

/// Converts TOML to JSON. Values that JSON cannot express are rejected.
fn json(value: toml::Value) -> Result<Value, String> {
    match value {
        toml::Value::String(text) => Ok(Value::String(text)),
        toml::Value::Integer(number) => Ok(Value::from(number)),
        toml::Value::Float(number) => serde_json::Number::from_f64(number)
            .map(Value::Number)
            .ok_or_else(|| format!("has the number {number}, which JSON cannot express")),
        toml::Value::Boolean(yes) => Ok(Value::Bool(yes)),
        toml::Value::Datetime(time) => {
            Err(format!("has the date {time}, which JSON cannot express: quote it"))
        }
        toml::Value::Array(list) => list.into_iter().map(json).collect::<Result<_, _>>().map(Value::Array),
        toml::Value::Table(table) => {
            let fields = table.into_iter().map(|(name, value)| Ok((name, json(value)?)));
            fields.collect::<Result<_, String>>().map(Value::Object)
        }
    }
}
