//! Tests of the conversion of requests: each parameter is used, recorded, accepted or rejected by name.

use podium_domain::content::ToolResult;
use podium_domain::conversation::{CONTINUE, FOLLOW_INSTRUCTIONS};
use podium_domain::policy::Tier;
use podium_domain::tools::{CallsAtOnce, ToolChoice};
use serde_json::json;

use super::*;
use crate::image::of_url;

const RUN: &str = "01890a5dac96774bbcceb302099a8057";
const PNG: &str = "data:image/png;base64,iVBORw0KGgo=";

fn good() -> Value {
    json!({"model": "podium-ultra", "input": "why?"})
}

fn with(name: &str, value: Value) -> Result<ResponseRequest, ApiError> {
    let mut body = good();
    body[name] = value;
    ResponseRequest::parse(body.to_string().as_bytes())
}

fn refusal(name: &str, value: Value) -> (ErrorCode, String) {
    let error = with(name, value).unwrap_err();
    (error.code, error.param().unwrap_or_default().to_owned())
}

fn run_with(name: &str, value: Value) -> NewRun {
    with(name, value).unwrap().into_new_run(None, None).unwrap()
}

fn record_with(name: &str, value: Value) -> Record {
    with(name, value).unwrap().record
}

#[test]
fn a_text_is_a_question() {
    let request = ResponseRequest::parse(good().to_string().as_bytes()).unwrap();
    assert!(!request.stream && !request.is_background() && request.previous().is_none());
    let new_run = request.into_new_run(None, None).unwrap();
    assert_eq!(new_run.model, ModelName::of_tier(Tier::Ultra));
    assert_eq!(new_run.request.conversation.messages(), [Message::new(Role::User, "why?")]);
    assert_eq!(new_run.request.api_record, Some(json!({"api": "responses", "is_stored": true})));
}

#[test]
fn instructions_come_first_and_are_recorded() {
    let new_run = run_with("instructions", json!("be brief"));
    assert_eq!(new_run.request.conversation.messages()[0], Message::new(Role::System, "be brief"));
    assert_eq!(new_run.request.api_record.unwrap()["has_instructions"], true);
}

#[test]
fn items_become_messages() {
    let input = json!([
        {"role": "developer", "content": "be brief"},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "a"},
            {"type": "input_image", "image_url": PNG, "detail": "high"},
        ]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "message", "role": "assistant", "phase": "final_answer", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}]},
        {"role": "user", "content": "c"},
    ]);
    let png = Part::Image(of_url(PNG).unwrap());
    let expected = [
        Message::new(Role::System, "be brief"),
        Message::new(Role::User, "a").with([png]),
        Message::new(Role::Assistant, "b"),
        Message::new(Role::User, "c"),
    ];
    assert_eq!(run_with("input", input).request.conversation.messages(), expected);
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "id": "fc_1", "call_id": id, "name": "look", "arguments": "{ }", "status": "completed"})
}

fn output(id: &str, output: &Value) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": output})
}

#[test]
fn function_calls_belong_to_the_answer_before_them() {
    let shown = json!([{"type": "input_text", "text": "sky"}, {"type": "input_image", "image_url": PNG}]);
    let input = json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "I look."},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        call("a"),
        call("b"),
        {"role": "assistant", "content": "Wait."},
        output("a", &json!("blue")),
        output("b", &shown),
        call("c"),
        output("c", &json!("")),
    ]);
    let called = |id: &str| Part::ToolCall(ToolCall::new(id, "look", "{ }"));
    let gave = |id: &str, text: &str| ToolResult::new(id, "look", text);
    let pictured = ToolResult { images: vec![of_url(PNG).unwrap()], ..gave("b", "sky") };
    let expected = [
        Message::new(Role::User, "look"),
        Message::new(Role::Assistant, "I look.").with([
            called("a"),
            called("b"),
            Part::Text("Wait.".to_owned()),
        ]),
        Message::new(Role::User, "").with([Part::ToolResult(gave("a", "blue")), Part::ToolResult(pictured)]),
        Message::new(Role::Assistant, "").with([called("c")]),
        Message::new(Role::User, "").with([Part::ToolResult(gave("c", ""))]),
    ];
    assert_eq!(run_with("input", input).request.conversation.messages(), expected);
}

#[test]
fn a_call_without_output_is_rejected() {
    let input = json!([{"role": "user", "content": "look"}, call("a"), {"role": "user", "content": "and?"}]);
    let error = with("input", input).unwrap().into_new_run(None, None).unwrap_err();
    assert_eq!((error.code, error.param()), (ErrorCode::InvalidValue, Some("input")));
    assert!(error.message.contains("`a` has no result"), "{error}");
}

#[test]
fn tools_are_part_of_the_run() {
    let tool = json!({"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": true});
    let mut body = good();
    body["tools"] = json!([tool]);
    body["tool_choice"] = json!({"type": "function", "name": "look"});
    body["parallel_tool_calls"] = json!(false);
    let request = ResponseRequest::parse(body.to_string().as_bytes()).unwrap();
    let tools = request.into_new_run(None, None).unwrap().request.tools.unwrap();
    assert_eq!((tools.tools[0].name.as_str(), tools.tools[0].strict), ("look", Some(true)));
    assert_eq!((tools.choice, tools.at_once), (ToolChoice::Named("look".to_owned()), CallsAtOnce::One));
}

#[test]
fn an_item_may_refer_to_an_earlier_response() {
    let input = json!([
        {"type": "item_reference", "id": format!("rs_{RUN}")},
        {"type": "item_reference", "id": format!("msg_{RUN}")},
        {"role": "user", "content": "and now?"},
    ]);
    let request = with("input", input).unwrap();
    assert_eq!(request.referenced_runs().unwrap(), [RUN.parse().unwrap()]);
    let error = request.into_new_run(None, None).unwrap_err();
    assert_eq!((error.code, error.param()), (ErrorCode::InvalidValue, Some("input[1].id")));
}

#[test]
fn an_input_refers_to_a_bounded_number_of_responses() {
    let input = |count: u128| {
        let id =
            |number: u128| format!("msg_{:032x}", 0x0189_0a5d_ac96_774b_bcce_b302_0000_0000_u128 + number);
        let items: Vec<_> = (0..count).map(|n| json!({"type": "item_reference", "id": id(n)})).collect();
        with("input", Value::Array(items)).unwrap()
    };
    assert_eq!(input(256).referenced_runs().unwrap().len(), 256);
    let error = input(257).referenced_runs().unwrap_err();
    assert_eq!((error.code, error.param()), (ErrorCode::InvalidValue, Some("input")));
}

#[test]
fn parameters_that_shape_the_answer_are_used() {
    let request = |name, value| run_with(name, value).request;
    assert_eq!(request("max_output_tokens", json!(1)).answer_tokens_max, Some(1));
    assert_eq!(request("temperature", json!(0.2)).sampling.temperature, Some(0.2));
    assert_eq!(request("top_p", json!(0.5)).sampling.top_p, Some(0.5));
    assert_eq!(request("reasoning", json!({"effort": "high"})).policy.effort, Effort::High);
    assert_eq!(request("podium", json!({"steps_max": 2})).policy.steps_max, 2);
    let format = |format: Value| request("text", json!({"format": format})).answer;
    assert_eq!(format(json!({"type": "text"})), AnswerForm::Text);
    assert_eq!(format(json!({"type": "json_object"})), AnswerForm::JsonObject);
    let schema = json!({"type": "json_schema", "name": "s", "schema": {"type": "object"}, "strict": true});
    let AnswerForm::JsonSchema(form) = format(schema) else { panic!("no schema") };
    assert_eq!((form.name.as_str(), form.strict), ("s", true));
}

#[test]
fn parameters_that_change_nothing_are_recorded() {
    assert_eq!(record_with("metadata", json!({"a": "b"})).metadata["a"], "b");
    assert_eq!(record_with("reasoning", json!({"summary": "auto"})).summary.as_deref(), Some("auto"));
    assert_eq!(record_with("text", json!({"verbosity": "low"})).verbosity.as_deref(), Some("low"));
    assert_eq!(record_with("truncation", json!("auto")).truncation.as_deref(), Some("auto"));
    assert_eq!(record_with("user", json!("u")).user.as_deref(), Some("u"));
    assert_eq!(record_with("safety_identifier", json!("s")).safety_identifier.as_deref(), Some("s"));
    assert_eq!(record_with("prompt_cache_key", json!("k")).prompt_cache_key.as_deref(), Some("k"));
    assert_eq!(record_with("parallel_tool_calls", json!(false)).parallel_tool_calls, Some(false));
    assert_eq!(record_with("max_tool_calls", json!(3)).max_tool_calls, Some(3));
    assert_eq!(record_with("service_tier", json!("priority")).service_tier.as_deref(), Some("priority"));
    assert!(!record_with("store", json!(false)).is_stored);
    assert!(record_with("background", json!(true)).background);
    let previous = record_with("previous_response_id", json!(format!("resp_{RUN}"))).previous;
    assert_eq!(previous, RUN.parse().ok());
}

#[test]
fn parameters_that_request_nothing_are_accepted() {
    for (name, value) in [
        ("include", json!(["message.input_image.image_url"])),
        ("service_tier", json!("auto")),
        ("stream_options", json!({"include_obfuscation": true})),
        ("context_management", json!([{"type": "compaction", "compact_threshold": 100}])),
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("top_logprobs", json!(0)),
        ("presence_penalty", json!(0)),
        ("client_metadata", json!({"a": "b"})),
        ("conversation", Value::Null),
        ("reasoning", Value::Null),
        ("text", json!({"format": {"type": "text"}})),
    ] {
        assert_eq!(with(name, value), ResponseRequest::parse(good().to_string().as_bytes()), "{name}");
    }
}

#[test]
fn text_files_become_text() {
    let data = "data:text/markdown;charset=utf-8;base64,IyBUaXRsZQ==";
    let file = json!({"type": "input_file", "filename": "a.md", "file_data": data});
    let parts = json!([{"type": "input_text", "text": "Read:"}, file]);
    let messages = run_with("input", json!([{"role": "user", "content": parts}])).request.conversation;
    assert_eq!(messages.question(), "Read:\na.md:\n# Title");
}

#[test]
fn unsupported_parameters_are_rejected_by_name() {
    for (name, value, param) in [
        ("include", json!(["message.output_text.logprobs"]), "include[0]"),
        ("tools", json!([{"type": "psychic", "name": "patch"}]), "tools[0].type"),
        ("top_logprobs", json!(5), "top_logprobs"),
        ("frequency_penalty", json!(0.5), "frequency_penalty"),
        ("prompt", json!({"id": "p"}), "prompt"),
        ("image", json!({"detail": "high"}), "image"),
        ("access_programs", json!({"bio": "x"}), "access_programs"),
        ("input", json!([{"type": "computer_call"}]), "input[0].type"),
        (
            "input",
            json!([{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]),
            "input[0].content[0].file_id",
        ),
        (
            "input",
            json!([{"role": "user", "content": [{"type": "input_file", "file_data": "data:application/zip;base64,AAAA"}]}]),
            "input[0].content[0].file_data",
        ),
        (
            "input",
            json!([{"role": "system", "content": [{"type": "input_file", "file_data": "data:text/plain;base64,AAAA"}]}]),
            "input[0].content[0].type",
        ),
        (
            "input",
            json!([{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]),
            "input[0].content[0].file_id",
        ),
        (
            "input",
            json!([{"role": "system", "content": [{"type": "input_image", "image_url": PNG}]}]),
            "input[0].content[0].type",
        ),
    ] {
        assert_eq!(refusal(name, value), (ErrorCode::UnsupportedParameter, param.to_owned()));
    }
}

#[test]
fn invalid_values_are_rejected_by_name() {
    let long = |count: usize| "x".repeat(count);
    for (name, value, param) in [
        ("model", json!(7), "model"),
        ("input", json!(7), "input"),
        ("input", json!([{"role": "king", "content": "a"}]), "input[0].role"),
        ("input", json!([{"role": "user", "content": 7}]), "input[0].content"),
        ("input", json!([{"role": "user", "content": "a", "phase": "first"}]), "input[0].phase"),
        ("input", json!([{"type": "item_reference", "id": "msg_1"}]), "input[0].id"),
        ("instructions", json!(["a"]), "instructions"),
        ("max_output_tokens", json!(0), "max_output_tokens"),
        ("reasoning", json!({"effort": "extreme"}), "reasoning.effort"),
        ("reasoning", json!({"summary": "long"}), "reasoning.summary"),
        ("text", json!({"verbosity": "loud"}), "text.verbosity"),
        ("text", json!({"format": {"type": "xml"}}), "text.format.type"),
        ("text", json!({"format": {"type": "json_schema", "name": "", "schema": {}}}), "text.format.name"),
        ("text", json!({"format": {"type": "json_schema", "name": "s", "schema": 1}}), "text.format.schema"),
        ("temperature", json!(3), "temperature"),
        ("metadata", json!({"a": 1}), "metadata.a"),
        ("metadata", json!({"a": long(513)}), "metadata.a"),
        ("metadata", json!({long(65): "a"}), "metadata"),
        ("user", json!(long(513)), "user"),
        ("truncation", json!("some"), "truncation"),
        ("include", json!(["everything"]), "include[0]"),
        ("stream_options", json!({"include_obfuscation": 1}), "stream_options.include_obfuscation"),
        ("service_tier", json!("gold"), "service_tier"),
        ("conversation", json!("other_1"), "conversation"),
        ("conversation", json!({"id": "other_1"}), "conversation.id"),
        ("context_management", json!([{"type": "clear"}]), "context_management[0].type"),
        (
            "context_management",
            json!([{"type": "compaction", "compact_threshold": 0}]),
            "context_management[0].compact_threshold",
        ),
        ("store", json!("no"), "store"),
        ("tool_choice", json!("required"), "tool_choice"),
        ("tools", json!([{"type": "function", "name": "a b"}]), "tools[0].name"),
        ("input", json!([output("", &json!("a"))]), "input[0].call_id"),
        ("input", json!([output("a", &json!(7))]), "input[0].output"),
    ] {
        assert_eq!(refusal(name, value), (ErrorCode::InvalidValue, param.to_owned()));
    }
    let many: serde_json::Map<_, _> = (0..17).map(|n| (n.to_string(), json!("a"))).collect();
    assert_eq!(refusal("metadata", many.into()).1, "metadata");
    let unstored = json!({"model": "podium-mini", "input": "a", "background": true, "store": false});
    let error = ResponseRequest::parse(unstored.to_string().as_bytes()).unwrap_err();
    assert_eq!(error.param(), Some("background"));
}

#[test]
fn unknown_and_missing_parameters_are_rejected_by_name() {
    for (name, value, param) in [
        ("colour", Value::Null, "colour"),
        ("reasoning", json!({"depth": 1}), "reasoning.depth"),
        ("text", json!({"format": {"type": "text", "a": 1}}), "text.format.a"),
        ("input", json!([{"role": "user", "content": "a", "mood": 1}]), "input[0].mood"),
        (
            "input",
            json!([{"role": "user", "content": [{"type": "input_text", "text": "a", "b": 1}]}]),
            "input[0].content[0].b",
        ),
    ] {
        assert_eq!(refusal(name, value), (ErrorCode::UnknownParameter, param.to_owned()));
    }
    for (name, value, param) in [
        ("model", Value::Null, "model"),
        ("input", Value::Null, "input"),
        ("input", json!([{"role": "user"}]), "input[0].content"),
        ("input", json!([{"content": "a"}]), "input[0].role"),
        ("input", json!([{"type": "function_call", "call_id": "a", "name": "f"}]), "input[0].arguments"),
        ("input", json!([{"type": "function_call_output", "call_id": "a"}]), "input[0].output"),
        ("text", json!({"format": {"type": "json_schema", "name": "s"}}), "text.format.schema"),
    ] {
        assert_eq!(refusal(name, value), (ErrorCode::MissingParameter, param.to_owned()));
    }
}

#[test]
fn an_unknown_earlier_response_has_an_error_of_its_own() {
    for id in ["resp_1", "01890a5dac96774bbcceb302099a8057", ""] {
        let expected = (ErrorCode::PreviousResponseNotFound, "previous_response_id".to_owned());
        assert_eq!(refusal("previous_response_id", json!(id)), expected);
    }
}

#[test]
fn an_input_that_ends_with_an_answer_asks_for_its_rest() {
    let input = json!([{"role": "user", "content": "count"}, {"role": "assistant", "content": "one, "}]);
    let made = with("input", input).unwrap().into_new_run(None, None).unwrap().request;
    let messages = made.conversation.messages();
    assert_eq!(messages.last(), Some(&Message::new(Role::User, CONTINUE)));
    assert_eq!(made.api_record.unwrap()["is_continued"], true);
}

#[test]
fn instructions_with_an_empty_input_are_followed() {
    for input in [json!([]), json!(""), json!([{"role": "user", "content": ""}])] {
        let mut body = json!({"model": "podium-mini", "instructions": "Greet.", "max_output_tokens": 1});
        body["input"] = input;
        let made = ResponseRequest::parse(body.to_string().as_bytes()).unwrap();
        let made = made.into_new_run(None, None).unwrap().request;
        let expected = [Message::new(Role::System, "Greet."), Message::new(Role::User, FOLLOW_INSTRUCTIONS)];
        assert_eq!(made.conversation.messages(), expected);
        assert_eq!(made.api_record.unwrap()["is_continued"], true);
    }
}

#[test]
fn an_input_without_a_question_is_rejected() {
    for input in [json!([]), json!(" "), json!([{"role": "assistant", "content": " "}])] {
        let error = with("input", input).unwrap().into_new_run(None, None).unwrap_err();
        assert_eq!(
            error.message,
            "`input` must end with a message of role `user` that has text, images or files, or with outputs of functions"
        );
        assert_eq!(error.param(), Some("input"));
    }
}

#[test]
fn an_error_of_the_engine_names_this_apis_fields() {
    let renamed = |field: &str| {
        let error = ApiError::on_field(ErrorCode::InvalidValue, field, "x");
        with_response_names(error).fields.remove(0).field
    };
    assert_eq!(renamed("messages"), "input");
    assert_eq!(renamed("response_format.json_schema.name"), "text.format.name");
    assert_eq!(renamed("response_format"), "text.format");
    assert_eq!(renamed("policy.steps_max"), "policy.steps_max");
}
