//! The `OpenAPI` document of the HTTP API. It is made from the tables by which requests are parsed and errors are written, from the
//! table of routes, and from the schemas of answers.

mod answers;
mod requests;
mod routes;

use std::collections::BTreeMap;

use podium_domain::policy::Tier;
use podium_domain::run::StateKind;
use serde_json::{Map, Value, json};

use crate::rule::{Parameter, Rule};
use crate::{ErrorCode, anthropic, openai};

use routes::{Other, Takes};
pub use routes::{ROUTES, Route};

/// Most seconds since the Unix epoch in a filter of runs: ids of runs have 48 bits of milliseconds.
pub const CREATED_SECONDS_MAX: u64 = (1 << 48) / 1000;
/// The forms of ids in paths, as regular expressions.
const RUN_ID: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
const RESPONSE_ID: &str = "^resp_[0-9a-f]{32}(_r[1-9][0-9]{0,4})?$";
const CONVERSATION_ID: &str = "^conv_[0-9a-f]{32}$";

/// The document, for this version of the program.
pub fn document(version: &str) -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in ROUTES {
        let methods = paths.entry(route.path).or_default();
        methods.insert(route.method.to_ascii_lowercase(), route.operation());
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Podium",
            "version": version,
            "description": "OpenAI's Chat Completions and Responses, Anthropic's Messages, and the routes of runs.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "responses": {"Error": failed("Error"), "MessageError": failed("MessageError")},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        // Without `keys_required`, no key is needed.
        "security": [{"key": []}, {}],
    })
}

/// A request that was rejected, or failed.
fn failed(schema: &str) -> Value {
    json!({
        "description": "The request was rejected, or it failed.",
        "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}},
    })
}

impl Route {
    fn operation(&self) -> Value {
        let error = if self.path.starts_with("/v1/messages") { "MessageError" } else { "Error" };
        let mut operation = json!({
            "summary": self.summary,
            "operationId": self.id(),
            "responses": {
                "200": self.success(),
                "default": {"$ref": format!("#/components/responses/{error}")},
            },
        });
        let Some(members) = operation.as_object_mut() else { return operation };
        let parameters = self.parameters();
        if !parameters.is_empty() {
            members.insert("parameters".to_owned(), parameters.into());
        }
        if let Takes::Body(name) | Takes::MaybeBody(name) = self.takes {
            let schema = json!({"$ref": format!("#/components/schemas/{name}")});
            let is_required = matches!(self.takes, Takes::Body(_));
            let body = json!({"required": is_required, "content": {"application/json": {"schema": schema}}});
            members.insert("requestBody".to_owned(), body);
        }
        operation
    }

    fn success(&self) -> Value {
        let mut content = Map::new();
        if let Some(name) = self.json {
            let schema = json!({"schema": {"$ref": format!("#/components/schemas/{name}")}});
            content.insert("application/json".to_owned(), schema);
        }
        let text = json!({"schema": {"type": "string"}});
        match self.other {
            // A schema would be one of each event, and events of several forms share a stream.
            Some(Other::Events) => drop(content.insert("text/event-stream".to_owned(), json!({}))),
            Some(Other::Text) => drop(content.insert("text/plain".to_owned(), text)),
            Some(Other::Empty) | None => {}
        }
        if content.is_empty() {
            return json!({"description": "The request succeeded. The body is empty."});
        }
        json!({"description": "The request succeeded.", "content": content})
    }

    /// Such as `get_v1_runs_id`.
    fn id(&self) -> String {
        let parts = self.path.split(['/', '{', '}', '.']).filter(|part| !part.is_empty());
        let parts: Vec<_> =
            std::iter::once(self.method.to_ascii_lowercase()).chain(parts.map(str::to_owned)).collect();
        parts.join("_")
    }

    fn parameters(&self) -> Vec<Value> {
        let segments = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let mut parameters: Vec<_> = segments
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": self.segment(name)}))
            .collect();
        let mut query = |name: &str, schema: Value| {
            parameters.push(json!({"name": name, "in": "query", "schema": schema}));
        };
        if self.takes == Takes::Page {
            let is_runs = self.path == "/v1/runs";
            query(
                "limit",
                json!({"type": "integer", "minimum": 1, "maximum": if is_runs { 200 } else { 100 }}),
            );
            query(
                "after",
                if is_runs {
                    json!({"type": "string", "pattern": RUN_ID})
                } else {
                    json!({"type": "string"})
                },
            );
            if is_runs {
                let states = StateKind::ALL.map(StateKind::as_str);
                let state = json!({"type": "array", "items": {"enum": states}, "minItems": 1});
                query("state", state);
                query("tier", json!({"enum": [Tier::Mini.as_str(), Tier::Ultra.as_str()]}));
                query("model", json!({"type": "string", "pattern": "^podium-(mini|ultra)(@.+)?$"}));
                for name in ["created_after", "created_before"] {
                    let schema = json!({
                        "type": "integer",
                        "minimum": 0,
                        "maximum": CREATED_SECONDS_MAX,
                        "description": "Seconds since the Unix epoch.",
                    });
                    query(name, schema);
                }
            } else {
                query("order", json!({"enum": ["asc", "desc"]}));
            }
        }
        let has_events = self.method == "GET" && self.other == Some(Other::Events);
        if has_events && self.json.is_some() {
            query("stream", json!({"type": "boolean"}));
            query(
                "starting_after",
                json!({"type": "integer", "minimum": 0, "description": "Needs `stream`."}),
            );
        } else if has_events {
            query("after", json!({"type": "integer", "minimum": 0}));
        }
        parameters
    }

    /// The schema of a segment of the path.
    fn segment(&self, name: &str) -> Value {
        let pattern = match self.path.split('/').nth(2) {
            Some("runs") => RUN_ID,
            Some("responses") => RESPONSE_ID,
            Some("conversations") if name == "id" => CONVERSATION_ID,
            _ => return json!({"type": "string", "minLength": 1}),
        };
        json!({"type": "string", "pattern": pattern})
    }
}

fn schemas() -> Value {
    let chat = request(openai::CHAT_PARAMETERS, &["model", "messages"], requests::of_chat, |_| true);
    let of_responses = requests::of_responses;
    let response = request(openai::RESPONSE_PARAMETERS, &["model", "input"], of_responses, |_| true);
    let compaction = request(openai::RESPONSE_PARAMETERS, &["model"], of_responses, |name| {
        openai::COMPACTION_PARAMETERS.contains(&name)
    });
    let input_count = request(openai::RESPONSE_PARAMETERS, &["model"], of_responses, |name| {
        openai::COUNT_PARAMETERS.contains(&name)
    });
    let of_messages = requests::of_messages;
    let message = request(anthropic::PARAMETERS, &["model", "max_tokens", "messages"], of_messages, |_| true);
    let token_count = request(anthropic::PARAMETERS, &["model", "messages"], of_messages, |_| true);
    let metadata =
        json!({"type": ["object", "null"], "additionalProperties": {"type": "string"}, "maxProperties": 16});
    let item = json!({"$ref": "#/components/schemas/InputItem"});
    let items = json!({"type": "array", "items": item, "maxItems": 20});
    let mut schemas = answers::schemas();
    schemas.extend(requests::schemas());
    let others = json!({
        "ChatCompletionRequest": chat,
        "ResponseRequest": response,
        "CompactionRequest": compaction,
        "InputTokensRequest": input_count,
        "MessageRequest": message,
        "TokenCountRequest": token_count,
        "ConversationRequest": object(&json!({"items": items, "metadata": metadata}), &[]),
        "ConversationChangeRequest": object(&json!({"metadata": metadata}), &["metadata"]),
        "ConversationItemsRequest": object(&json!({"items": items}), &["items"]),
        "RatingRequest": object(
            &json!({
                "score": {"type": "number", "minimum": 0, "maximum": 1},
                "thumb": {"enum": ["up", "down"]},
                "comment": {"type": "string"},
            }),
            &[],
        ),
        "Error": error(),
        "MessageError": message_error(),
    });
    if let Value::Object(others) = others {
        schemas.extend(others);
    }
    schemas.into()
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// The schema of a request with these parameters, as far as `is_known` admits them. Those that ask for something that Podium does not
/// support are left out. `members` has the schemas of those with members.
fn request(
    parameters: &[Parameter],
    required: &[&str],
    members: fn(&str) -> Option<Value>,
    is_known: impl Fn(&str) -> bool,
) -> Value {
    let is_supported = |parameter: &&Parameter| !matches!(parameter.rule, Rule::Unsupported { .. });
    let known = parameters.iter().filter(is_supported).filter(|parameter| is_known(parameter.name));
    let properties: Map<_, _> =
        known.map(|parameter| (parameter.name.to_owned(), described(parameter, members))).collect();
    object(&Value::Object(properties), required)
}

/// The schema of a parameter, with its members if it has any.
fn described(parameter: &Parameter, members: fn(&str) -> Option<Value>) -> Value {
    members(parameter.name).unwrap_or_else(|| parameter.schema())
}

/// An error in OpenAI's format, with every code.
fn error() -> Value {
    let mut codes: Vec<_> = ErrorCode::ALL.iter().map(|code| code.mapping().code).collect();
    codes.sort_unstable();
    codes.dedup();
    json!({
        "type": "object",
        "properties": {"error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"enum": codes},
            },
            "required": ["message", "type", "param", "code"],
        }},
        "required": ["error"],
    })
}

/// An error in Anthropic's format.
fn message_error() -> Value {
    let mut kinds: Vec<_> = ErrorCode::ALL.iter().map(|code| anthropic::error_type(*code)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    json!({
        "type": "object",
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "properties": {"type": {"enum": kinds}, "message": {"type": "string"}},
                "required": ["type", "message"],
            },
            "request_id": {"type": ["string", "null"]},
        },
        "required": ["type", "error", "request_id"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anthropic::MessagesRequest;
    use crate::openai::{ChatRequest, ResponseRequest};

    /// A value that the schema of a parameter forbids.
    fn invalid(schema: &Value) -> Option<Value> {
        let is_forbidden = |value: &Value| match (&schema["type"][0], &schema["enum"]) {
            (Value::String(kind), _) => match kind.as_str() {
                "string" => !value.is_string(),
                "boolean" => !value.is_boolean(),
                "integer" | "number" => !value.is_number(),
                "object" => !value.is_object(),
                _ => !value.is_array(),
            },
            (_, Value::Array(names)) => !names.contains(value),
            _ => false,
        };
        [json!("?"), json!(-7), json!(true)].into_iter().find(is_forbidden)
    }

    #[test]
    fn the_types_of_parameters_are_those_that_requests_are_checked_by() {
        type Parse = fn(&[u8]) -> Option<String>;
        let parsers: [(&str, Value, Parse); 3] = [
            (
                "ChatCompletionRequest",
                json!({"model": "podium-mini", "messages": [{"role": "user", "content": "a"}]}),
                |body| ChatRequest::parse(body).err().and_then(|e| e.param().map(str::to_owned)),
            ),
            ("ResponseRequest", json!({"model": "podium-mini", "input": "a"}), |body| {
                ResponseRequest::parse(body).err().and_then(|e| e.param().map(str::to_owned))
            }),
            (
                "MessageRequest",
                json!({"model": "podium-mini", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}),
                |body| MessagesRequest::parse(body).err().and_then(|e| e.param().map(str::to_owned)),
            ),
        ];
        let document = document("1");
        let mut checked = 0;
        for (name, good, refused) in parsers {
            let schema = &document["components"]["schemas"][name];
            assert_eq!(refused(good.to_string().as_bytes()), None, "{name}");
            for (parameter, schema) in schema["properties"].as_object().unwrap() {
                let Some(value) = invalid(schema) else { continue };
                let mut body = good.clone();
                body[parameter] = value;
                assert_eq!(refused(body.to_string().as_bytes()).as_ref(), Some(parameter), "{name}: {body}");
                checked += 1;
            }
        }
        assert!(checked > 40, "{checked}");
    }

    /// Checks each reference in a value.
    fn check_references(document: &Value, value: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(path) = members.get("$ref").and_then(Value::as_str) {
                    assert!(document.pointer(path.trim_start_matches('#')).is_some(), "{path}");
                }
                members.values().for_each(|member| check_references(document, member));
            }
            Value::Array(entries) => entries.iter().for_each(|entry| check_references(document, entry)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_is_known_and_every_id_is_unique() {
        let document = document("1");
        check_references(&document, &document);
        let mut ids = Vec::new();
        for methods in document["paths"].as_object().unwrap().values() {
            for operation in methods.as_object().unwrap().values() {
                ids.push(operation["operationId"].as_str().unwrap());
            }
        }
        assert_eq!(ids.len(), ROUTES.len());
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ROUTES.len());
    }
}
