//! The `OpenAPI` document of the HTTP API. It is made from the tables by which requests are parsed and errors are written, and from
//! the table of routes here, which a test of the server compares with its router.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::rule::Parameter;
use crate::{ErrorCode, anthropic, openai};

/// A route of the HTTP API.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The method in capitals.
    pub method: &'static str,
    /// The path; `{id}` stands for a segment.
    pub path: &'static str,
    summary: &'static str,
    takes: Takes,
    gives: Gives,
}

/// The body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    /// A page: `limit`, `after` and, for items, `order`.
    Page,
    /// An object that the API parses.
    Body(&'static str),
}

/// The body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gives {
    Json,
    /// JSON, or events if the request asks for them.
    JsonOrEvents,
    Events,
    Text,
}

const fn route(
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    takes: Takes,
    gives: Gives,
) -> Route {
    Route { method, path, summary, takes, gives }
}

/// Every route, but for the WebSocket of the Responses API, which `OpenAPI` cannot describe.
pub const ROUTES: &[Route] = &[
    route(
        "POST",
        "/v1/chat/completions",
        "Answers with a completion",
        Takes::Body("ChatCompletion"),
        Gives::JsonOrEvents,
    ),
    route("POST", "/v1/responses", "Makes a response", Takes::Body("Response"), Gives::JsonOrEvents),
    route(
        "POST",
        "/v1/responses/compact",
        "Summarizes a conversation",
        Takes::Body("Compaction"),
        Gives::Json,
    ),
    route("GET", "/v1/responses/{id}", "Returns a stored response", Takes::Nothing, Gives::JsonOrEvents),
    route("DELETE", "/v1/responses/{id}", "Removes a response", Takes::Nothing, Gives::Json),
    route("POST", "/v1/responses/{id}/cancel", "Cancels a response", Takes::Nothing, Gives::Json),
    route("GET", "/v1/responses/{id}/input_items", "Lists the items of an input", Takes::Page, Gives::Json),
    route("POST", "/v1/conversations", "Makes a conversation", Takes::Body("Conversation"), Gives::Json),
    route("GET", "/v1/conversations/{id}", "Returns a conversation", Takes::Nothing, Gives::Json),
    route(
        "POST",
        "/v1/conversations/{id}",
        "Replaces its metadata",
        Takes::Body("ConversationChange"),
        Gives::Json,
    ),
    route("DELETE", "/v1/conversations/{id}", "Removes a conversation", Takes::Nothing, Gives::Json),
    route("GET", "/v1/conversations/{id}/items", "Lists its items", Takes::Page, Gives::Json),
    route(
        "POST",
        "/v1/conversations/{id}/items",
        "Adds items",
        Takes::Body("ConversationItems"),
        Gives::Json,
    ),
    route("GET", "/v1/conversations/{id}/items/{item}", "Returns an item", Takes::Nothing, Gives::Json),
    route("DELETE", "/v1/conversations/{id}/items/{item}", "Removes an item", Takes::Nothing, Gives::Json),
    route("POST", "/v1/messages", "Answers with a message", Takes::Body("Message"), Gives::JsonOrEvents),
    route("POST", "/v1/messages/count_tokens", "Estimates input tokens", Takes::Body("Message"), Gives::Json),
    route(
        "POST",
        "/v1/estimates",
        "Estimates the cost of a completion",
        Takes::Body("ChatCompletion"),
        Gives::Json,
    ),
    route("GET", "/v1/budgets", "Lists the caller's budgets", Takes::Nothing, Gives::Json),
    route("GET", "/v1/runs", "Lists the caller's runs", Takes::Page, Gives::Json),
    route("GET", "/v1/runs/{id}", "Returns a run", Takes::Nothing, Gives::Json),
    route("POST", "/v1/runs/{id}/cancel", "Cancels a run", Takes::Nothing, Gives::Json),
    route("GET", "/v1/runs/{id}/events", "Streams the events of a run", Takes::Nothing, Gives::Events),
    route("POST", "/v1/runs/{id}/rating", "Rates a run", Takes::Body("Rating"), Gives::Json),
    route("GET", "/v1/models", "Lists the models", Takes::Nothing, Gives::Json),
    route("GET", "/v1/models/{id}", "Returns a model", Takes::Nothing, Gives::Json),
    route("GET", "/healthz", "Whether the process is alive", Takes::Nothing, Gives::Text),
    route("GET", "/readyz", "Whether the process takes requests", Takes::Nothing, Gives::Text),
    route("GET", "/api/hello", "Whether the API is reachable", Takes::Nothing, Gives::Text),
    route("GET", "/openapi.json", "Returns this document", Takes::Nothing, Gives::Json),
];

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
            "responses": {"Error": {
                "description": "The request was rejected, or it failed.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            }},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        // Without `keys_required`, no key is needed.
        "security": [{"key": []}, {}],
    })
}

impl Route {
    fn operation(&self) -> Value {
        let mut operation = json!({
            "summary": self.summary,
            "operationId": self.id(),
            "responses": {
                "200": {"description": "The request succeeded.", "content": self.gives.content()},
                "default": {"$ref": "#/components/responses/Error"},
            },
        });
        let Some(members) = operation.as_object_mut() else { return operation };
        let parameters = self.parameters();
        if !parameters.is_empty() {
            members.insert("parameters".to_owned(), parameters.into());
        }
        if let Takes::Body(name) = self.takes {
            let schema = json!({"$ref": format!("#/components/schemas/{name}Request")});
            let body = json!({"required": true, "content": {"application/json": {"schema": schema}}});
            members.insert("requestBody".to_owned(), body);
        }
        operation
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
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
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
            query("after", json!({"type": "string"}));
            if !is_runs {
                query("order", json!({"enum": ["asc", "desc"]}));
            }
        }
        if self.method == "GET" && self.gives == Gives::JsonOrEvents {
            query("stream", json!({"type": "boolean"}));
            query("starting_after", json!({"type": "integer", "minimum": 0}));
        }
        if self.gives == Gives::Events {
            query("after", json!({"type": "integer", "minimum": 0}));
        }
        parameters
    }
}

impl Gives {
    fn content(self) -> Value {
        let json = json!({"schema": {"type": "object"}});
        let text = json!({"schema": {"type": "string"}});
        match self {
            Self::Json => json!({"application/json": json}),
            Self::JsonOrEvents => json!({"application/json": json, "text/event-stream": text}),
            Self::Events => json!({"text/event-stream": text}),
            Self::Text => json!({"text/plain": text}),
        }
    }
}

fn schemas() -> Value {
    let chat = request(openai::CHAT_PARAMETERS, &["model", "messages"], |_| true);
    let response = request(openai::RESPONSE_PARAMETERS, &["model"], |_| true);
    let compaction = request(openai::RESPONSE_PARAMETERS, &["model"], |name| {
        openai::COMPACTION_PARAMETERS.contains(&name)
    });
    let message = request(anthropic::PARAMETERS, &["model", "messages"], |_| true);
    let metadata =
        json!({"type": ["object", "null"], "additionalProperties": {"type": "string"}, "maxProperties": 16});
    let items = json!({"type": "array", "items": {"type": "object"}, "maxItems": 20});
    json!({
        "ChatCompletionRequest": chat,
        "ResponseRequest": response,
        "CompactionRequest": compaction,
        "MessageRequest": message,
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
    })
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// The schema of a request with these parameters, as far as `is_known` admits them.
fn request(parameters: &[Parameter], required: &[&str], is_known: impl Fn(&str) -> bool) -> Value {
    let known = parameters.iter().filter(|parameter| is_known(parameter.name));
    let properties: Map<_, _> =
        known.map(|parameter| (parameter.name.to_owned(), parameter.schema())).collect();
    object(&Value::Object(properties), required)
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
        assert!(checked > 60, "{checked}");
    }

    #[test]
    fn every_reference_and_every_id_is_unique_and_known() {
        let document = document("1");
        let mut ids = Vec::new();
        for methods in document["paths"].as_object().unwrap().values() {
            for operation in methods.as_object().unwrap().values() {
                ids.push(operation["operationId"].as_str().unwrap());
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
                if let Some(path) = schema.as_str() {
                    assert!(document.pointer(path.trim_start_matches('#')).is_some(), "{path}");
                }
            }
        }
        assert_eq!(ids.len(), ROUTES.len());
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ROUTES.len());
    }
}
