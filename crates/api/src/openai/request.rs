//! Converts a Chat Completions request into a request for a run.

use podium_domain::answer::{AnswerForm, AnswerFormError, JsonSchema};
use podium_domain::conversation::{Conversation, Message, answerable};
use podium_domain::policy::{Effort, Policy};
use podium_domain::request::RunRequest;
use podium_domain::sampling::{Sampling, TEMPERATURE_MAX, TOP_P_MAX};
use podium_domain::stops::{STOPS_MAX, Stops};
use serde_json::{Map, Value};

use super::message::{messages, path_of};
use super::parameters::rule;
use super::tools::ToolsDraft;
use crate::field::{Field, missing, unknown};
use crate::json;
use crate::model::model_name;
use crate::podium_object::bound;
use crate::{ApiError, ErrorCode, ModelName, NewRun};

/// A request for a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The run. It has no request id yet, which is in a header.
    pub new_run: NewRun,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether the stream ends with a chunk that has the usage.
    pub include_usage: bool,
}

impl ChatRequest {
    /// Parses the body of a request. Reports the first problem only, as OpenAI does.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let body = json::parse_object(body)?;
        let mut draft = Draft::default();
        for (name, value) in &body {
            let rule = rule(name).ok_or_else(|| unknown(name))?;
            let field = Field::new(name, value);
            if !value.is_null() && rule.is_read(&field)? {
                draft.read(&field)?;
            }
        }
        draft.finish(body.get("messages").unwrap_or(&Value::Null))
    }
}

#[derive(Default)]
struct Draft {
    model: Option<ModelName>,
    messages: Option<Vec<Message>>,
    effort: Effort,
    answer_tokens_max: Option<u32>,
    sampling: Sampling,
    answer: AnswerForm,
    stops: Stops,
    tools: ToolsDraft,
    stream: bool,
    include_usage: Option<bool>,
    shows_reasoning: bool,
    /// The object `podium`.
    podium: Option<Value>,
}

impl Draft {
    fn read(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        match field.path.as_str() {
            "model" => self.model = Some(model_name(field)?),
            "messages" => self.messages = Some(messages(field)?),
            "stream" => self.stream = field.boolean()?,
            "stream_options" => self.include_usage = Some(stream_options(field)?),
            "reasoning_effort" => self.effort = effort(field)?,
            // If both names are given, the newer one wins.
            "max_tokens" => {
                let tokens = field.integer(1, u32::MAX)?;
                self.answer_tokens_max.get_or_insert(tokens);
            }
            "max_completion_tokens" => self.answer_tokens_max = Some(field.integer(1, u32::MAX)?),
            // It changes the bounds of the tier, so it is parsed once the tier is known.
            "podium" => self.podium = Some(field.value.clone()),
            "temperature" => self.sampling.temperature = Some(field.fraction(TEMPERATURE_MAX)?),
            "top_p" => self.sampling.top_p = Some(field.fraction(TOP_P_MAX)?),
            "seed" => self.sampling.seed = Some(field.seed()?),
            "response_format" => self.answer = response_format(field)?,
            "stop" => self.stops = stops(field)?,
            "tools" => self.tools.tools(field)?,
            "tool_choice" => self.tools.choice(field)?,
            "parallel_tool_calls" => self.tools.parallel(field)?,
            "include_reasoning" => self.shows_reasoning = field.boolean()?,
            other => return Err(unknown(other)),
        }
        Ok(())
    }

    /// `sent` are the messages as the client sent them, for errors.
    fn finish(self, sent: &Value) -> Result<ChatRequest, ApiError> {
        let model = self.model.ok_or_else(|| missing("model"))?;
        let messages = self.messages.ok_or_else(|| missing("messages"))?;
        let conversation = Conversation::new(answerable(messages).messages)
            .map_err(|e| ApiError::on_field(ErrorCode::InvalidValue, path_of(sent, &e), e.to_string()))?;
        if self.include_usage.is_some() && !self.stream {
            let message = "`stream_options` is allowed only when `stream` is true";
            return Err(ApiError::on_field(ErrorCode::InvalidValue, "stream_options", message));
        }
        let mut policy = Policy::new(model.tier(), self.effort);
        if let Some(podium) = &self.podium {
            bound(&Field::new("podium", podium), &mut policy)?;
        }
        let Self { answer_tokens_max, sampling, answer, stops, shows_reasoning, .. } = self;
        let tools = self.tools.finish()?.tools;
        let plain = RunRequest::new(conversation, policy);
        let request =
            RunRequest { answer_tokens_max, sampling, answer, stops, tools, shows_reasoning, ..plain };
        let new_run = NewRun { request_id: None, model, request };
        Ok(ChatRequest { new_run, stream: self.stream, include_usage: self.include_usage.unwrap_or(false) })
    }
}

pub(super) fn effort(field: &Field<'_>) -> Result<Effort, ApiError> {
    let name = field.one_of(&Effort::ALL.map(Effort::as_str))?;
    Ok(Effort::from_name(name).unwrap_or_default())
}

fn stream_options(field: &Field<'_>) -> Result<bool, ApiError> {
    let options = field.object()?;
    field.only(options, &["include_usage", "include_obfuscation"])?;
    field.member(options, "include_usage").map_or(Ok(false), |include| include.boolean())
}

pub(super) fn response_format(field: &Field<'_>) -> Result<AnswerForm, ApiError> {
    let format = field.object()?;
    let kind = field.member(format, "type").ok_or_else(|| missing(&format!("{}.type", field.path)))?;
    let known: &[&str] = match kind.one_of(&["text", "json_object", "json_schema"])? {
        "json_schema" => &["type", "json_schema"],
        _ => &["type"],
    };
    field.only(format, known)?;
    match kind.string()? {
        "text" => Ok(AnswerForm::Text),
        "json_object" => Ok(AnswerForm::JsonObject),
        _ => {
            let schema = field.member(format, "json_schema");
            json_schema(&schema.ok_or_else(|| missing(&format!("{}.json_schema", field.path)))?)
        }
    }
}

/// The stop sequences: a string or an array of strings.
fn stops(field: &Field<'_>) -> Result<Stops, ApiError> {
    let texts = match field.value {
        Value::String(text) => vec![text.clone()],
        Value::Array(_) => {
            let texts = field.array_of(STOPS_MAX)?;
            texts.map(|text| text.string().map(str::to_owned)).collect::<Result<_, _>>()?
        }
        _ => return Err(field.must_be("a string or an array of strings")),
    };
    Stops::new(texts).map_err(|e| ApiError::on_field(ErrorCode::InvalidValue, &*field.path, e.to_string()))
}

fn json_schema(field: &Field<'_>) -> Result<AnswerForm, ApiError> {
    let members = field.object()?;
    field.only(members, &["name", "description", "schema", "strict"])?;
    schema_form(field, members)
}

/// The response format of a schema, whose name and flags stand in the same object.
pub(super) fn schema_form(field: &Field<'_>, members: &Map<String, Value>) -> Result<AnswerForm, ApiError> {
    let schema = JsonSchema {
        name: field.required(members, "name")?.string()?.to_owned(),
        // `description` is ignored: not every vendor takes it, while the schema's own description reaches every worker.
        schema: field.required(members, "schema")?.value.clone(),
        strict: field.member(members, "strict").map_or(Ok(false), |strict| strict.boolean())?,
    };
    let form = AnswerForm::JsonSchema(schema);
    let wrong = |e: AnswerFormError| {
        let in_this_api = |text: &str| text.replacen("json_schema", &field.path, 1);
        ApiError::on_field(ErrorCode::InvalidValue, in_this_api(e.field()), in_this_api(&e.to_string()))
    };
    form.check().map_err(wrong)?;
    Ok(form)
}

#[cfg(test)]
mod tests {
    use podium_domain::content::{Image, Part};
    use podium_domain::conversation::{CONTINUE, FOLLOW_INSTRUCTIONS, Role};
    use podium_domain::policy::Tier;
    use serde_json::json;

    use super::*;
    use crate::Family;
    use crate::image::of_url;

    fn good() -> Value {
        json!({"model": "podium-ultra", "messages": [{"role": "user", "content": "why?"}]})
    }

    fn with(name: &str, value: Value) -> Result<ChatRequest, ApiError> {
        let mut body = good();
        body[name] = value;
        ChatRequest::parse(body.to_string().as_bytes())
    }

    fn refusal(name: &str, value: Value) -> (ErrorCode, String) {
        let error = with(name, value).unwrap_err();
        (error.code, error.param().unwrap_or_default().to_owned())
    }

    #[test]
    fn a_plain_request_is_parsed() {
        let request = with("model", json!("podium-mini@nano-1")).unwrap();
        assert_eq!(request.new_run.model, ModelName { family: Family::Mini, pin: Some("nano-1".into()) });
        assert_eq!(request.new_run.request.conversation.question(), "why?");
        assert!(!request.stream);
    }

    #[test]
    fn parameters_that_change_nothing_are_accepted() {
        for (name, value) in [
            ("user", json!("u")),
            ("metadata", json!({"a": "b"})),
            ("store", json!(true)),
            ("service_tier", json!("auto")),
            ("presence_penalty", json!(0)),
            ("n", json!(1)),
            ("tools", json!([])),
            ("stop", Value::Null),
            ("response_format", json!({"type": "text"})),
            ("modalities", json!(["text"])),
            ("verbosity", json!("low")),
            ("prompt_cache_key", json!("k")),
            ("prediction", json!({"type": "content", "content": "def f():"})),
        ] {
            assert_eq!(with(name, value), ChatRequest::parse(good().to_string().as_bytes()), "{name}");
        }
    }

    #[test]
    fn sampling_parameters_are_parsed() {
        let sampling = |name: &str, value: Value| with(name, value).unwrap().new_run.request.sampling;
        let temperature = Sampling { temperature: Some(0.2), ..Sampling::NONE };
        assert_eq!(sampling("temperature", json!(0.2)), temperature);
        assert_eq!(sampling("top_p", json!(1)), Sampling { top_p: Some(1.0), ..Sampling::NONE });
        assert_eq!(sampling("temperature", Value::Null), Sampling::NONE);
        let seed = |value: Value| sampling("seed", value).seed.unwrap();
        assert_eq!((seed(json!(0)), seed(json!(u32::MAX))), (0, u32::MAX));
        assert_eq!(seed(json!(-7)), seed(json!(-7)));
        assert_ne!(seed(json!(-7)), seed(json!(-8)));
        assert_ne!(seed(json!(1_u64 << 40)), seed(json!(1_u64 << 41)));
    }

    #[test]
    fn stop_is_one_sequence_or_a_few() {
        let read = |value: Value| with("stop", value).unwrap().new_run.request.stops;
        assert_eq!(read(json!("END")).as_slice(), ["END"]);
        assert_eq!(read(json!(["\n", "END"])).as_slice(), ["\n", "END"]);
        assert!(read(json!([])).is_empty() && read(Value::Null).is_empty());
        for (value, param) in [
            (json!(""), "stop"),
            (json!(["x", "x", "x", "x", "x"]), "stop"),
            (json!(["x".repeat(65)]), "stop"),
            (json!(7), "stop"),
            (json!(["x", 7]), "stop[1]"),
        ] {
            assert_eq!(refusal("stop", value), (ErrorCode::InvalidValue, param.to_owned()));
        }
    }

    #[test]
    fn unsupported_parameters_are_rejected_by_name() {
        for (name, value) in [
            ("n", json!(2)),
            ("functions", json!([{"name": "look"}])),
            ("function_call", json!({"name": "look"})),
            ("logprobs", json!(true)),
            ("audio", json!({"voice": "x"})),
            ("frequency_penalty", json!(0.5)),
            ("modalities", json!(["text", "audio"])),
        ] {
            assert_eq!(refusal(name, value), (ErrorCode::UnsupportedParameter, name.to_owned()));
        }
    }

    #[test]
    fn invalid_values_are_rejected_by_name() {
        for (name, value) in [
            ("reasoning_effort", json!("extreme")),
            ("stream", json!("yes")),
            ("temperature", json!(3)),
            ("top_p", json!(-0.5)),
            ("seed", json!(0.5)),
            ("max_tokens", json!(0)),
            ("max_completion_tokens", json!(1.5)),
            ("messages", json!("why?")),
            ("messages", json!([])),
            ("stream_options", json!({"include_usage": true})),
            ("metadata", json!("x")),
        ] {
            assert_eq!(refusal(name, value), (ErrorCode::InvalidValue, name.to_owned()));
        }
        let error = with("reasoning_effort", json!("extreme")).unwrap_err();
        assert!(error.message.contains("`low`, `medium`, `high`, `xhigh`"), "{error}");
    }

    #[test]
    fn unknown_names_are_rejected_even_if_null() {
        assert_eq!(refusal("colour", json!("red")), (ErrorCode::UnknownParameter, "colour".to_owned()));
        assert_eq!(refusal("colour", Value::Null), (ErrorCode::UnknownParameter, "colour".to_owned()));
        let options = json!({"include_all": true});
        assert_eq!(refusal("stream_options", options).1, "stream_options.include_all");
    }

    #[test]
    fn an_unknown_and_a_missing_model_are_different_errors() {
        assert_eq!(refusal("model", json!("gpt-5")), (ErrorCode::ModelNotFound, "model".to_owned()));
        assert_eq!(refusal("model", Value::Null), (ErrorCode::MissingParameter, "model".to_owned()));
    }

    #[test]
    fn an_error_names_the_place_in_the_messages() {
        for (message, param) in [
            (json!({"content": "a"}), "messages[0].role"),
            (json!({"role": "king", "content": "a"}), "messages[0].role"),
            (json!({"role": "function", "content": "a"}), "messages[0].role"),
            (json!({"role": "user"}), "messages[0].content"),
            (json!({"role": "user", "content": 1}), "messages[0].content"),
            (json!({"role": "user", "content": "a", "mood": 1}), "messages[0].mood"),
            (json!({"role": "assistant"}), "messages[0].content"),
            (json!({"role": "user", "content": [{"type": "image_url"}]}), "messages[0].content[0].image_url"),
            (json!({"role": "user", "content": [{"type": "input_audio"}]}), "messages[0].content[0].type"),
            (image_part("user", &json!({})), "messages[0].content[0].image_url.url"),
            (image_part("user", &json!({"url": "file:///a"})), "messages[0].content[0].image_url.url"),
            (
                image_part("user", &json!({"url": PNG, "detail": "much"})),
                "messages[0].content[0].image_url.detail",
            ),
            (image_part("user", &json!({"url": PNG, "size": 1})), "messages[0].content[0].image_url.size"),
            (image_part("user", &json!(PNG)), "messages[0].content[0].image_url"),
            (image_part("assistant", &json!({"url": PNG})), "messages[0].content[0].type"),
            (image_part("system", &json!({"url": PNG})), "messages[0].content[0].type"),
            (json!({"role": "user", "content": [{"type": "text"}]}), "messages[0].content[0].text"),
        ] {
            assert_eq!(refusal("messages", json!([message])).1, param);
        }
    }

    #[test]
    fn arrays_that_are_too_long_are_rejected_by_length() {
        let zeros = |count| Value::Array(vec![json!(0); count]);
        let message_of = |name: &str, value: Value| with(name, value).unwrap_err().message;
        assert_eq!(message_of("messages", zeros(1001)), "`messages` has 1001 entries, the limit is 1000");
        assert_eq!(message_of("stop", zeros(5)), "`stop` has 5 entries, the limit is 4");
        let message = json!([{"role": "user", "content": zeros(257)}]);
        assert_eq!(
            message_of("messages", message),
            "`messages[0].content` has 257 entries, the limit is 256"
        );
    }

    #[test]
    fn an_error_shows_the_quotes_of_a_string() {
        let message = with("max_tokens", json!("5")).unwrap_err().message;
        assert!(message.ends_with("(got `\"5\"`)"), "{message}");
    }

    #[test]
    fn text_parts_are_joined_and_developer_means_system() {
        let messages = json!([
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ]);
        let conversation = with("messages", messages).unwrap().new_run.request.conversation;
        assert_eq!(conversation.instructions().as_deref(), Some("be brief"));
        assert_eq!(conversation.question(), "a\nb");
    }

    #[test]
    fn messages_that_end_with_an_answer_ask_for_its_rest() {
        let messages =
            json!([{"role": "user", "content": "count"}, {"role": "assistant", "content": "one, "}]);
        let conversation = with("messages", messages).unwrap().new_run.request.conversation;
        assert_eq!(conversation.messages().last(), Some(&Message::new(Role::User, CONTINUE)));
        assert_eq!(refusal("messages", json!([{"role": "assistant", "content": " "}])).1, "messages");
    }

    #[test]
    fn messages_of_instructions_only_are_followed() {
        let messages = json!([{"role": "developer", "content": "Greet."}]);
        let conversation = with("messages", messages).unwrap().new_run.request.conversation;
        assert_eq!(conversation.question(), FOLLOW_INSTRUCTIONS);
        assert_eq!(refusal("messages", json!([{"role": "system", "content": " "}])).1, "messages");
    }

    const PNG: &str = "data:image/png;base64,iVBORw0KGgo=";

    fn image_part(role: &str, image_url: &Value) -> Value {
        json!({"role": role, "content": [{"type": "image_url", "image_url": image_url}]})
    }

    #[test]
    fn images_keep_their_place_in_a_message() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url, "detail": "high"}});
        let content =
            json!([text("a"), text("b"), image(PNG), text("c"), text("d"), image("https://x.org/y")]);
        let messages = json!([{"role": "user", "content": content}, {"role": "user", "content": [image(PNG), text("e")]}]);
        let conversation = with("messages", messages).unwrap().new_run.request.conversation;
        let png = || Part::Image(of_url(PNG).unwrap());
        let url = Part::Image(Image::Url("https://x.org/y".to_owned()));
        let expected = [
            Message::new(Role::User, "a\nb").with([png(), Part::Text("c\nd".to_owned()), url]),
            Message::new(Role::User, "").with([png(), Part::Text("e".to_owned())]),
        ];
        assert_eq!(conversation.messages(), expected);
    }

    #[test]
    fn the_response_format_is_parsed() {
        let form =
            |value: Value| with("response_format", value).map(|request| request.new_run.request.answer);
        assert_eq!(form(json!({"type": "text"})).unwrap(), AnswerForm::Text);
        assert_eq!(form(Value::Null).unwrap(), AnswerForm::Text);
        assert_eq!(form(json!({"type": "json_object"})).unwrap(), AnswerForm::JsonObject);
        let schema = |value: Value| json!({"type": "json_schema", "json_schema": value});
        let read = |value: Value| match form(schema(value)).unwrap() {
            AnswerForm::JsonSchema(JsonSchema { name, schema, strict }) => (name, schema.to_string(), strict),
            other => panic!("{other:?}"),
        };
        let whole = json!({"name": "s", "description": "d", "strict": true, "schema": {"z": 1, "a": 2}});
        assert_eq!(read(whole), ("s".to_owned(), r#"{"z":1,"a":2}"#.to_owned(), true));
        assert!(!read(json!({"name": "s", "schema": {}})).2);
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({"a": deep});
        }
        for (value, code, param) in [
            (json!({}), ErrorCode::MissingParameter, "response_format.type"),
            (json!({"type": "xml"}), ErrorCode::InvalidValue, "response_format.type"),
            (json!({"type": "json_schema"}), ErrorCode::MissingParameter, "response_format.json_schema"),
            (json!({"type": "text", "a": 1}), ErrorCode::UnknownParameter, "response_format.a"),
            (schema(json!({"schema": {}})), ErrorCode::MissingParameter, "response_format.json_schema.name"),
            (schema(json!({"name": "s"})), ErrorCode::MissingParameter, "response_format.json_schema.schema"),
            (
                schema(json!({"name": "", "schema": {}})),
                ErrorCode::InvalidValue,
                "response_format.json_schema.name",
            ),
            (
                schema(json!({"name": "s", "schema": 1})),
                ErrorCode::InvalidValue,
                "response_format.json_schema.schema",
            ),
            (
                schema(json!({"name": "s", "schema": deep})),
                ErrorCode::InvalidValue,
                "response_format.json_schema.schema",
            ),
            (
                schema(json!({"name": "s", "schema": {}, "a": 1})),
                ErrorCode::UnknownParameter,
                "response_format.json_schema.a",
            ),
        ] {
            assert_eq!(refusal("response_format", value), (code, param.to_owned()));
        }
    }

    #[test]
    fn the_object_podium_sets_the_bounds_of_the_run() {
        let request = with("podium", json!({"steps_max": 2, "fallback": "none"})).unwrap();
        let policy = request.new_run.request.policy;
        assert_eq!((policy.tier, policy.steps_max), (Tier::Ultra, 2));
        assert_eq!(policy.fallback, podium_domain::policy::PoolRule::None);
        assert_eq!(refusal("podium", json!({"mood": 1})).1, "podium.mood");
    }

    #[test]
    fn a_body_that_is_not_a_json_object_is_rejected() {
        for body in ["", "[]", "{", "\"model\"", "{\"model\": nope}"] {
            assert_eq!(ChatRequest::parse(body.as_bytes()).unwrap_err().code, ErrorCode::InvalidJson);
        }
    }
}
