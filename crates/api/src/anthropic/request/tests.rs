//! The parameters and blocks of a request: which are used, ignored or refused, and the names in the errors.

use podium_domain::content::{Image, MediaType, Part, Pdf, PdfSource, ToolCall};
use podium_domain::conversation::Role;
use podium_domain::policy::{PoolRule, Tier};
use serde_json::json;

use super::*;
use crate::Family;

fn good() -> Value {
    json!({"model": "podium-ultra", "max_tokens": 100, "messages": [{"role": "user", "content": "why?"}]})
}

fn with(name: &str, value: Value) -> Result<MessagesRequest, ApiError> {
    let mut body = good();
    body[name] = value;
    MessagesRequest::parse(body.to_string().as_bytes())
}

fn refusal(name: &str, value: Value) -> (ErrorCode, String) {
    let error = with(name, value).unwrap_err();
    assert!(error.message.contains(error.param().unwrap_or_default()), "{error} names no field");
    (error.code, error.param().unwrap_or_default().to_owned())
}

fn messages_of(value: Value) -> Vec<Message> {
    with("messages", value).unwrap().new_run.request.conversation.messages().to_vec()
}

#[test]
fn a_plain_request_is_parsed() {
    let request = MessagesRequest::parse(good().to_string().as_bytes()).unwrap();
    assert_eq!(request.new_run.model, ModelName::of_tier(Tier::Ultra));
    let run = &request.new_run.request;
    assert_eq!((run.conversation.question(), run.answer_tokens_max), ("why?".to_owned(), Some(100)));
    assert_eq!(run.policy, Policy::new(Tier::Ultra, Effort::Medium));
    assert!(!request.stream && with("stream", json!(true)).unwrap().stream);
}

#[test]
fn a_missing_parameter_is_named() {
    for name in ["model", "max_tokens", "messages"] {
        assert_eq!(refusal(name, Value::Null), (ErrorCode::MissingParameter, name.to_owned()));
    }
}

#[test]
fn a_model_name_may_ask_for_a_long_context() {
    let model = |name: &str| with("model", json!(name)).map(|request| request.new_run.model);
    assert_eq!(model("podium-mini[1m]").unwrap(), ModelName::of_tier(Tier::Mini));
    let pinned = ModelName { family: Family::Ultra, pin: Some("nano-1".to_owned()) };
    assert_eq!(model("podium-ultra@nano-1[1m]").unwrap(), pinned);
    for name in ["claude-opus-5", "[1m]", "podium-mini[2m]", "podium-mini[1m][1m]"] {
        assert_eq!(model(name).unwrap_err().code, ErrorCode::ModelNotFound, "{name}");
    }
}

#[test]
fn instructions_come_before_the_messages() {
    let marked =
        json!({"type": "text", "text": "in French", "cache_control": {"type": "ephemeral", "ttl": "1h"}});
    for (system, expected) in [
        (json!("be brief"), "be brief"),
        (json!([{"type": "text", "text": "be brief"}, marked]), "be brief\nin French"),
    ] {
        let request = with("system", system).unwrap();
        let conversation = request.new_run.request.conversation;
        assert_eq!(conversation.instructions().as_deref(), Some(expected));
        assert_eq!(conversation.question(), "why?");
    }
    let later = json!([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user", "content": "c"}]);
    assert_eq!(messages_of(later)[1], Message::new(Role::System, "b"));
    let last = json!([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]);
    assert_eq!(messages_of(last)[1], Message::new(Role::System, "b"));
}

#[test]
fn blocks_keep_their_order() {
    let png = json!({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="});
    let document = json!({"type": "text", "media_type": "text/plain", "data": "Two lines."});
    let content = json!([
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": png, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "and"},
        {"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}},
        {"type": "document", "title": "T", "context": "C", "source": document},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "inner"}]}},
        {"type": "search_result", "title": "S", "source": "https://x.org", "content": [{"type": "text", "text": "found"}]},
    ]);
    let data = Image::Data { media_type: MediaType::Png, base64: "iVBORw0KGgo=".to_owned() };
    let url = Image::Url("https://x.org/a.png".to_owned());
    let expected = Message::new(Role::User, "Look:").with([
        Part::Image(data),
        Part::Text("and".to_owned()),
        Part::Image(url),
        Part::Text("T\nC\nTwo lines.\ninner\nS\nhttps://x.org\nfound".to_owned()),
    ]);
    assert_eq!(messages_of(json!([{"role": "user", "content": content}])), [expected]);
}

#[test]
fn pdfs_keep_their_titles_and_follow_their_context() {
    let data = json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="});
    let document = json!({
        "type": "document", "title": "Report", "context": "Of 2026.", "source": data,
        "citations": {"enabled": true}, "cache_control": {"type": "ephemeral"},
    });
    let url = json!({"type": "document", "source": {"type": "url", "url": "https://x.org/a.pdf"}});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "find", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": [document, url]});
    let read = messages_of(json!([
        {"role": "user", "content": [url, {"type": "text", "text": "Compare:"}, document]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]));
    let data = Pdf { name: Some("Report".to_owned()), source: PdfSource::Data("JVBERi0=".to_owned()) };
    let url = Pdf { name: None, source: PdfSource::Url("https://x.org/a.pdf".to_owned()) };
    let text = Part::Text("Compare:\nOf 2026.".to_owned());
    let expected = Message::new(Role::User, "").with([Part::Pdf(url.clone()), text, Part::Pdf(data.clone())]);
    assert_eq!(read[0], expected);
    let result = read[2].results().next().unwrap();
    assert_eq!((result.output.as_str(), &result.pdfs), ("Of 2026.", &vec![data, url]));
}

#[test]
fn earlier_thinking_is_dropped() {
    let answered = json!([
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "blue", "citations": null},
    ]);
    let turns = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": answered},
        {"role": "user", "content": "b"},
    ]);
    assert_eq!(messages_of(turns)[1], Message::new(Role::Assistant, "blue"));
}

#[test]
fn calls_and_results_of_tools_are_read() {
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"b": 1, "a": [1.0]}});
    let image = json!({"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}});
    let blocks = json!([{"type": "text", "text": "blue"}, image, {"type": "text", "text": "sky"}]);
    let result =
        json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": blocks, "is_error": true});
    let turns = json!([
        {"role": "user", "content": "Which colour?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "Now?"}]},
    ]);
    let read = messages_of(turns);
    let call = ToolCall::new("toolu_1", "look", r#"{"b":1,"a":[1.0]}"#);
    assert_eq!(read[1], Message::new(Role::Assistant, "I look.").with([Part::ToolCall(call)]));
    let [Part::ToolResult(result), Part::Text(text)] = read[2].parts.as_slice() else { panic!("{read:?}") };
    assert_eq!((result.call_id.as_str(), result.output.as_str()), ("toolu_1", "blue\nsky"));
    assert_eq!((result.is_error, result.images.len(), text.as_str()), (true, 1, "Now?"));
}

#[test]
fn a_conversation_may_end_with_results() {
    let call = json!({"type": "tool_use", "id": "c", "name": "look", "input": {}});
    for content in [json!("blue"), Value::Null, json!([])] {
        let result = json!({"type": "tool_result", "tool_use_id": "c", "content": content});
        let turns = json!([
            {"role": "user", "content": "Which colour?"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]);
        assert_eq!(messages_of(turns).len(), 3);
    }
}

#[test]
fn tools_are_part_of_the_run_and_of_its_prompt() {
    let tools = json!([{"name": "look", "input_schema": {"type": "object"}}]);
    let mut body = good();
    body["tools"] = tools.clone();
    body["tool_choice"] = json!({"type": "any"});
    let request = MessagesRequest::parse(body.to_string().as_bytes()).unwrap().new_run.request;
    let offered = request.tools.unwrap();
    assert_eq!((offered.tools.len(), offered.choice.is_forced()), (1, true));
    let count = |body: &Value| {
        let counted = TokenCount::parse(body.to_string().as_bytes()).unwrap().to_json();
        serde_json::from_str::<Value>(&counted).unwrap()["input_tokens"].as_u64().unwrap()
    };
    assert!(count(&body) > count(&good()));
    let twice = json!([tools[0], tools[0]]);
    assert_eq!(refusal("tools", twice), (ErrorCode::InvalidValue, "tools[1].name".to_owned()));
    assert_eq!(refusal("tool_choice", json!({"type": "any"})).1, "tool_choice");
}

#[test]
fn an_error_names_the_call_without_a_result() {
    let user = json!({"role": "user", "content": "a"});
    let called = json!({"role": "assistant", "content": [
        {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "c", "name": "look", "input": {}},
    ]});
    let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "d"}]});
    for (turns, place) in [
        (json!([user, called, user]), "messages[1].content[1]"),
        (json!([user, called, result]), "messages[2].content[0]"),
    ] {
        let error = with("messages", turns).unwrap_err();
        assert_eq!(error.param(), Some(place));
        assert!(error.message.starts_with(&format!("`{place}`: the tool ")), "{error}");
    }
}

#[test]
fn an_error_names_the_place_in_the_messages() {
    let block = |block: Value| json!({"role": "user", "content": [block]});
    let image = |source: Value| block(json!({"type": "image", "source": source}));
    let document = |source: Value| block(json!({"type": "document", "source": source}));
    let source = "messages[0].content[0].source";
    let [kind, url, media_type, data] =
        ["type", "url", "media_type", "data"].map(|name| format!("{source}.{name}"));
    for (message, param) in [
        (json!({"content": "a"}), "messages[0].role"),
        (json!({"role": "king", "content": "a"}), "messages[0].role"),
        (json!({"role": "user"}), "messages[0].content"),
        (json!({"role": "user", "content": 1}), "messages[0].content"),
        (json!({"role": "user", "content": "a", "name": "b"}), "messages[0].name"),
        (block(json!({"text": "a"})), "messages[0].content[0].type"),
        (block(json!({"type": "text"})), "messages[0].content[0].text"),
        (block(json!({"type": "text", "text": "a", "bold": true})), "messages[0].content[0].bold"),
        (block(json!({"type": "input_audio"})), "messages[0].content[0].type"),
        (
            block(json!({"type": "thinking", "thinking": "a", "signature": "b"})),
            "messages[0].content[0].type",
        ),
        (
            block(json!({"type": "text", "text": "a", "cache_control": {"type": "eternal"}})),
            "messages[0].content[0].cache_control.type",
        ),
        (image(json!({"type": "file", "file_id": "f"})), kind.as_str()),
        (image(json!({"type": "url", "url": "file:///a"})), url.as_str()),
        (image(json!({"type": "url"})), url.as_str()),
        (image(json!({"type": "base64", "media_type": "image/bmp", "data": "Qk0="})), media_type.as_str()),
        (image(json!({"type": "base64", "media_type": "image/png", "data": "?"})), data.as_str()),
        (document(json!({"type": "file", "file_id": "f"})), kind.as_str()),
        (document(json!({"type": "url", "url": "file:///a.pdf"})), url.as_str()),
        (document(json!({"type": "url", "url": 7})), url.as_str()),
        (
            document(json!({"type": "base64", "media_type": "text/plain", "data": "eA=="})),
            media_type.as_str(),
        ),
        (document(json!({"type": "base64", "media_type": "application/pdf", "data": "x"})), data.as_str()),
        (document(json!({"type": "base64", "media_type": "application/pdf", "data": ""})), data.as_str()),
        (document(json!({"type": "base64", "media_type": "application/pdf"})), data.as_str()),
        (
            block(
                json!({"type": "document", "title": "a\nb", "source": {"type": "url", "url": "https://x.org"}}),
            ),
            "messages[0].content[0].title",
        ),
        (
            json!({"role": "assistant", "content": [{"type": "document", "source": {}}]}),
            "messages[0].content[0].type",
        ),
        (
            json!({"role": "assistant", "content": [{"type": "image", "source": {}}]}),
            "messages[0].content[0].type",
        ),
        (
            block(json!({"type": "tool_use", "id": "c", "name": "a", "input": {}})),
            "messages[0].content[0].type",
        ),
        (block(json!({"type": "tool_result"})), "messages[0].content[0].tool_use_id"),
        (block(json!({"type": "tool_result", "tool_use_id": ""})), "messages[0].content[0].tool_use_id"),
        (
            block(json!({"type": "tool_result", "tool_use_id": "c", "content": 1})),
            "messages[0].content[0].content",
        ),
    ] {
        assert_eq!(refusal("messages", json!([message])).1, param);
    }
}

#[test]
fn a_conversation_that_ends_with_the_assistant_is_rejected() {
    let prefilled =
        json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "The answer is ("}]);
    assert_eq!(refusal("messages", prefilled), (ErrorCode::InvalidValue, "messages".to_owned()));
    assert_eq!(refusal("messages", json!([])), (ErrorCode::InvalidValue, "messages".to_owned()));
}

#[test]
fn thinking_and_output_config_set_the_effort() {
    let effort = |name: &str, value: Value| with(name, value).unwrap().new_run.request.policy.effort;
    for (thinking, expected) in [
        (json!({"type": "disabled"}), Effort::None),
        (json!({"type": "adaptive", "display": "omitted"}), Effort::Medium),
        (json!({"type": "adaptive", "display": "updates"}), Effort::Medium),
        (json!({"type": "between_tools"}), Effort::Medium),
        (json!({"type": "enabled", "budget_tokens": 50}), Effort::Low),
        (json!({"type": "enabled", "budget_tokens": 4097}), Effort::Medium),
        (json!({"type": "enabled", "budget_tokens": 31_999, "display": "summarized"}), Effort::High),
        (json!({"type": "enabled", "budget_tokens": 64_000}), Effort::XHigh),
    ] {
        assert_eq!(effort("thinking", thinking.clone()), expected, "{thinking}");
    }
    for name in Effort::ALL.map(Effort::as_str) {
        assert_eq!(effort("output_config", json!({"effort": name})).as_str(), name);
    }
    let mut both = good();
    both["thinking"] = json!({"type": "disabled"});
    both["output_config"] = json!({"effort": "max"});
    let both = MessagesRequest::parse(both.to_string().as_bytes()).unwrap();
    assert_eq!(both.new_run.request.policy.effort, Effort::Max);
}

#[test]
fn a_schema_is_read_from_either_place() {
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    let form = |request: MessagesRequest| request.new_run.request.answer;
    let expected = JsonSchema { name: "answer".into(), schema: json!({"type": "object"}), strict: false };
    for request in [with("output_format", format.clone()), with("output_config", json!({"format": format}))] {
        assert_eq!(form(request.unwrap()), AnswerForm::JsonSchema(expected.clone()));
    }
    let wrong = json!({"format": {"type": "json_schema", "schema": []}});
    assert_eq!(
        refusal("output_config", wrong),
        (ErrorCode::InvalidValue, "output_config.format.schema".to_owned())
    );
}

#[test]
fn sampling_and_stop_sequences_are_read() {
    let run = |name: &str, value: Value| with(name, value).unwrap().new_run.request;
    assert_eq!(run("temperature", json!(0.5)).sampling.temperature, Some(0.5));
    assert_eq!(run("top_p", json!(0.9)).sampling.top_p, Some(0.9));
    assert_eq!(run("stop_sequences", json!(["\n", "END"])).stops.as_slice(), ["\n", "END"]);
}

#[test]
fn parameters_that_change_nothing_are_accepted() {
    let plain = MessagesRequest::parse(good().to_string().as_bytes());
    for (name, value) in [
        ("top_k", json!(40)),
        ("metadata", json!({"user_id": "u"})),
        ("metadata", json!({})),
        ("service_tier", json!("standard_only")),
        ("cache_control", json!({"type": "ephemeral"})),
        ("context_management", json!({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})),
        ("speed", json!("standard")),
        ("mcp_servers", json!([])),
        ("tools", json!([])),
        ("tool_choice", json!({"type": "auto"})),
        ("container", Value::Null),
    ] {
        assert_eq!(with(name, value), plain, "{name}");
    }
}

#[test]
fn unsupported_parameters_are_rejected_by_name() {
    for (name, value) in [
        ("container", json!("c")),
        ("mcp_servers", json!([{"url": "https://x.org"}])),
        ("speed", json!("fast")),
        ("inference_geo", json!("eu")),
        ("thread", json!({})),
    ] {
        assert_eq!(refusal(name, value), (ErrorCode::UnsupportedParameter, name.to_owned()));
    }
    let budget = json!({"task_budget": {"type": "tokens", "total": 7}});
    assert_eq!(refusal("output_config", budget).1, "output_config.task_budget");
    assert_eq!(refusal("colour", json!("red")), (ErrorCode::UnknownParameter, "colour".to_owned()));
}

#[test]
fn invalid_values_are_rejected_by_name() {
    for (name, value, param) in [
        ("max_tokens", json!(0), "max_tokens"),
        ("max_tokens", json!("5"), "max_tokens"),
        ("temperature", json!(1.5), "temperature"),
        ("top_p", json!(-1), "top_p"),
        ("top_k", json!(-1), "top_k"),
        ("stream", json!("yes"), "stream"),
        ("stop_sequences", json!("END"), "stop_sequences"),
        ("stop_sequences", json!(["a", "b", "c", "d", "e"]), "stop_sequences"),
        ("stop_sequences", json!(["a", ""]), "stop_sequences"),
        ("stop_sequences", json!(["a", 1]), "stop_sequences[1]"),
        ("system", json!(7), "system"),
        ("metadata", json!({"user_id": "x".repeat(513)}), "metadata.user_id"),
        ("thinking", json!({"type": "enabled"}), "thinking.budget_tokens"),
        ("thinking", json!({"type": "deep"}), "thinking.type"),
        ("output_config", json!({"effort": "extreme"}), "output_config.effort"),
        ("output_config", json!({"format": {"type": "xml"}}), "output_config.format.type"),
        ("podium", json!({"steps_max": 17}), "podium.steps_max"),
    ] {
        assert_eq!(refusal(name, value).1, param);
    }
}

#[test]
fn the_object_podium_sets_the_bounds_of_the_run() {
    let policy = with("podium", json!({"steps_max": 2, "fallback": "none"})).unwrap().new_run.request.policy;
    assert_eq!((policy.steps_max, policy.fallback), (2, PoolRule::None));
}

#[test]
fn tokens_are_counted_without_a_limit_and_for_any_last_message() {
    let count = |body: Value| TokenCount::parse(body.to_string().as_bytes());
    let turn = |role: &str, text: &str| json!({"role": role, "content": text});
    let messages = json!([turn("user", "12345678"), turn("assistant", "1234")]);
    let counted = count(json!({"model": "podium-mini", "messages": messages})).unwrap();
    assert_eq!(counted.to_json(), r#"{"input_tokens":3}"#);
    let system = json!({"model": "podium-mini", "system": "1234", "messages": messages});
    assert_eq!(count(system).unwrap().to_json(), r#"{"input_tokens":4}"#);
    let image = json!({"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}});
    let images = json!({"model": "podium-mini", "messages": [{"role": "user", "content": [image]}]});
    assert_eq!(count(images).unwrap().to_json(), r#"{"input_tokens":1600}"#);
    let source = json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="});
    let document = json!({"type": "document", "source": source});
    let page = json!({"model": "podium-mini", "messages": [{"role": "user", "content": [document]}]});
    assert_eq!(count(page).unwrap().to_json(), r#"{"input_tokens":3000}"#);
    assert_eq!(count(json!({"model": "podium-mini"})).unwrap_err().param(), Some("messages"));
}
