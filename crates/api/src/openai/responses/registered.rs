//! Requests of a WebSocket with `generate: false`: their input is kept for the next request of the connection, and no worker is
//! called. Codex sends one while its user still types.

use podium_domain::ids::RunId;
use serde_json::{Map, Value, json};

use super::body::Moment;
use super::id::ResponseId;
use super::request::ResponseRequest;
use super::stream::response_event;
use crate::field::{Field, missing};
use crate::json;
use crate::{ApiError, ErrorCode, ModelName, StreamEvent};

/// Most bytes of a registered input as JSON, with those that it continues. It is the limit of a message.
const INPUT_BYTES_MAX: usize = 2 << 20;

/// A message of a WebSocket.
#[derive(Debug)]
pub enum SocketRequest {
    /// A response is made, and streamed.
    Create(Box<ResponseRequest>),
    /// Its input is kept for the next request.
    Register(Box<RegisteredInput>),
}

/// The input of a request that made no response.
#[derive(Debug)]
pub struct RegisteredInput {
    id: ResponseId,
    model: ModelName,
    /// The parameter `input`.
    input: Value,
    /// The parameter `previous_response_id`, if the request had it.
    previous: Option<Value>,
    /// The events of the response.
    events: [StreamEvent; 2],
}

impl SocketRequest {
    /// Parses a message: `response.create` with the parameters of a request. If it continues `registered`, the input of that comes
    /// before its own. `new_id` becomes the id of an input that is registered at `now_seconds`.
    pub fn parse(
        message: &[u8],
        registered: Option<&RegisteredInput>,
        new_id: RunId,
        now_seconds: u64,
    ) -> Result<Self, ApiError> {
        let mut body = json::parse_object(message)?;
        match body.remove("type") {
            Some(Value::String(kind)) if kind == "response.create" => {}
            Some(kind) => return Err(Field::new("type", &kind).must_be("`response.create`")),
            None => return Err(missing("type")),
        }
        let generate = body.remove("generate").filter(|generate| !generate.is_null());
        let generate = generate.map_or(Ok(true), |generate| Field::new("generate", &generate).boolean())?;
        body.insert("stream".to_owned(), Value::Bool(true));
        if let Some(registered) = registered {
            registered.put_before(&mut body);
        }
        if generate {
            return ResponseRequest::of(&body).map(Box::new).map(Self::Create);
        }
        RegisteredInput::of(body, ResponseId::new(new_id, 0), now_seconds).map(Box::new).map(Self::Register)
    }
}

impl RegisteredInput {
    /// Checks a request and keeps its input.
    fn of(mut body: Map<String, Value>, id: ResponseId, now_seconds: u64) -> Result<Self, ApiError> {
        // The question may come with the next request.
        body.entry("input").or_insert_with(|| json!([]));
        let request = ResponseRequest::of(&body)?;
        if request.is_background() {
            let message = "`background` cannot be combined with `generate: false`, which makes no response";
            return Err(ApiError::on_field(ErrorCode::InvalidValue, "background", message));
        }
        let name = request.model().to_string();
        let event = |kind, number, moment| {
            response_event(kind, number, request.registered(id, now_seconds, moment, &name))
        };
        let events =
            [event("response.created", 0, Moment::Begun), event("response.completed", 1, Moment::Now)];
        let model = request.model().clone();
        let input = body.remove("input").unwrap_or_default();
        let text = input.to_string();
        if text.len() > INPUT_BYTES_MAX || !json::has_few_values(&text) {
            let message = format!(
                "`input` with those of earlier requests has {} bytes; the limit is {INPUT_BYTES_MAX}, and 50000 values",
                text.len()
            );
            return Err(ApiError::on_field(ErrorCode::InvalidValue, "input", message));
        }
        Ok(Self { id, model, input, previous: body.remove("previous_response_id"), events })
    }

    /// The model of the request, which must be served.
    pub const fn model(&self) -> &ModelName {
        &self.model
    }

    /// The events of its response.
    pub fn events(&self) -> [StreamEvent; 2] {
        self.events.clone()
    }

    /// If a request continues the response of this one, it continues what this one continues, and its input follows on this one.
    fn put_before(&self, body: &mut Map<String, Value>) {
        if body.get("previous_response_id").and_then(Value::as_str) != Some(self.id.to_string().as_str()) {
            return;
        }
        body.remove("previous_response_id");
        if let Some(previous) = &self.previous {
            body.insert("previous_response_id".to_owned(), previous.clone());
        }
        let mut items = items_of(self.input.clone());
        match body.remove("input") {
            None => {}
            // The request is rejected with the input that its client sent.
            Some(input @ (Value::Bool(_) | Value::Number(_) | Value::Object(_))) => {
                body.insert("input".to_owned(), input);
                return;
            }
            Some(input) => items.extend(items_of(input)),
        }
        body.insert("input".to_owned(), items.into());
    }
}

/// The items of a valid input.
fn items_of(input: Value) -> Vec<Value> {
    match input {
        Value::Array(items) => items,
        Value::String(text) => vec![json!({"type": "message", "role": "user", "content": text})],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(change: Value, before: Option<&RegisteredInput>) -> Result<RegisteredInput, ApiError> {
        let mut body = json!({"type": "response.create", "model": "podium-mini", "generate": false});
        let (Value::Object(fields), Value::Object(change)) = (&mut body, change) else {
            panic!("no objects")
        };
        fields.extend(change);
        let id = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        match SocketRequest::parse(body.to_string().as_bytes(), before, id, 7)? {
            SocketRequest::Register(input) => Ok(*input),
            SocketRequest::Create(request) => panic!("{request:?}"),
        }
    }

    #[test]
    fn inputs_that_continue_each_other_are_bounded_together() {
        let long = json!([{"role": "user", "content": "x".repeat(INPUT_BYTES_MAX / 2)}]);
        let first = registered(json!({"input": long}), None).unwrap();
        let more = json!({"previous_response_id": first.id.to_string(), "input": long});
        let error = registered(more.clone(), Some(&first)).unwrap_err();
        assert_eq!(error.param(), Some("input"), "{error}");
        assert!(error.message.contains("the limit is 2097152"), "{error}");
        assert!(registered(more, None).is_ok(), "it continues a response of this connection");
    }

    #[test]
    fn a_text_becomes_a_message_before_the_next_input() {
        let first = registered(json!({"input": "a"}), None).unwrap();
        let change = json!({"previous_response_id": first.id.to_string(), "input": "b"});
        let second = registered(change, Some(&first)).unwrap();
        let message = |text: &str| json!({"type": "message", "role": "user", "content": text});
        assert_eq!(second.input, json!([message("a"), message("b")]));
        assert_eq!(second.previous, None);
    }
}
