//! Golden files: internal requests and their wire form, and answers and the events that they become.
//!
//! Each file in `tests/golden` is a case with its snapshot next to it. `INSTA_UPDATE=always` rewrites the snapshots. The
//! files were written by hand from the vendors' public documentation and the types of their own clients.

use std::fmt::Write as _;
use std::path::PathBuf;

use podium_domain::content::{Part, Pdf, PdfSource};
use podium_domain::conversation::Message;
use podium_domain::ids::VendorId;
use podium_domain::policy::Effort;
use podium_domain::pool::{Feature, TokenLimitField, WireFormat, Worker};
use podium_domain::required_features::BLANK_STOP;
use podium_ports::vendor::{
    AnswerForm, CallsAtOnce, ChatEvent, ChatRequest, JsonSchema, ReasoningText, Tool, ToolChoice, ToolUse,
    VendorError,
};
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

use crate::answer::{AnswerReader, Decoder, Offered};
use crate::errors::ErrorBuilder;
use crate::format::Header;
use crate::{capability_check, format};

/// The formats with all their features; `effort` is sent as a name or as a number of tokens, depending on the feature.
const FORMATS: [(&str, WireFormat, &str, Feature); 7] = [
    ("openai-chat", WireFormat::OpenaiChat, "https://api.openai.com/v1", Feature::Effort),
    ("openai-chat-elsewhere", WireFormat::OpenaiChat, "http://127.0.0.1:1/v1", Feature::Effort),
    ("openai-responses", WireFormat::OpenaiResponses, "https://api.openai.com/v1", Feature::Effort),
    ("anthropic", WireFormat::Anthropic, "https://api.anthropic.com/v1", Feature::Effort),
    ("anthropic-budget", WireFormat::Anthropic, "https://api.anthropic.com/v1", Feature::ThinkingBudget),
    ("gemini", WireFormat::Gemini, "https://generativelanguage.googleapis.com/v1beta", Feature::Effort),
    (
        "gemini-budget",
        WireFormat::Gemini,
        "https://generativelanguage.googleapis.com/v1beta",
        Feature::ThinkingBudget,
    ),
];

const FEATURES: [Feature; 10] = [
    Feature::Temperature,
    Feature::TopP,
    Feature::Stop,
    Feature::Seed,
    Feature::Tools,
    Feature::OneToolCall,
    Feature::JsonObject,
    Feature::JsonSchema,
    Feature::ReasoningText,
    Feature::CacheHint,
];

fn worker(api: WireFormat, effort: Feature) -> Worker {
    let features: Vec<_> = FEATURES
        .into_iter()
        .chain([effort])
        .filter(|feature| api.carries(*feature))
        .map(|f| format!("{:?}", f.as_str()))
        .collect();
    let features = features.join(", ");
    let lines = format!(
        "modalities = [\"text\", \"image\", \"pdf\"]\nfeatures = [{features}]\noutput_tokens_max = 16384"
    );
    podium_testkit::a_worker(api.as_str(), &lines)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestFile {
    messages: Vec<Message>,
    output_tokens_max: u32,
    temperature: Option<f32>,
    top_p: Option<f32>,
    #[serde(default)]
    stops: Vec<String>,
    seed: Option<u32>,
    effort: Option<Effort>,
    #[serde(default)]
    shows_reasoning: bool,
    #[serde(default)]
    tools: Vec<ToolFile>,
    tool_choice: Option<String>,
    #[serde(default)]
    one_call_at_a_time: bool,
    answer: Option<Value>,
    strict: Option<bool>,
    cache_hint: Option<String>,
}

#[derive(Deserialize)]
struct ToolFile {
    name: String,
    #[serde(default)]
    description: String,
    schema: Value,
    strict: Option<bool>,
}

impl RequestFile {
    fn request(self) -> ChatRequest {
        let tools: Vec<_> = self
            .tools
            .into_iter()
            .map(|ToolFile { name, description, schema, strict }| Tool { name, description, schema, strict })
            .collect();
        let choice = match self.tool_choice.as_deref() {
            None | Some("auto") => ToolChoice::Auto,
            Some("none") => ToolChoice::None,
            Some("required") => ToolChoice::Required,
            Some(name) => ToolChoice::Named(name.to_owned()),
        };
        let at_once = if self.one_call_at_a_time { CallsAtOnce::One } else { CallsAtOnce::Several };
        let answer = match self.answer {
            None => AnswerForm::Text,
            Some(Value::String(word)) if word == "json_object" => AnswerForm::JsonObject,
            Some(schema) => AnswerForm::JsonSchema(JsonSchema {
                name: "the_answer".to_owned(),
                schema,
                strict: self.strict.unwrap_or(true),
            }),
        };
        ChatRequest {
            messages: self.messages,
            output_tokens_max: self.output_tokens_max,
            temperature: self.temperature,
            top_p: self.top_p,
            stops: self.stops,
            seed: self.seed,
            effort: self.effort,
            reasoning: if self.shows_reasoning { ReasoningText::Shown } else { ReasoningText::Hidden },
            tools: (!tools.is_empty()).then_some(ToolUse { tools, choice, at_once }),
            answer,
            cache_hint: self.cache_hint,
            trace: None,
        }
    }
}

/// The golden files of a folder, sorted: name and content.
pub(crate) fn cases(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension != "snap" && extension != "new"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap()))
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    cases
}

pub(crate) fn settings(folder: &str) -> insta::Settings {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

/// Removes what the worker rejects from a request, one by one, by the name in the error. Returns what is left and the names.
fn accepted_part(mut request: ChatRequest, worker: &Worker) -> (ChatRequest, Vec<String>) {
    let errors = ErrorBuilder::new(VendorId::new("v").unwrap(), []);
    let mut refused = Vec::new();
    while let Err(error) = capability_check::check(worker, &request, &errors) {
        let VendorError::Unsupported { what, .. } = error else { panic!("{error}") };
        match what.as_str() {
            "temperature together with effort" => request.temperature = None,
            "top_p together with effort" => request.top_p = None,
            "stop" => request.stops.clear(),
            BLANK_STOP => request.stops.retain(|stop| !stop.trim().is_empty()),
            "seed" => request.seed = None,
            "json_object" => request.answer = AnswerForm::Text,
            "tools that have to be called together with effort" => {
                request.tools.as_mut().unwrap().choice = ToolChoice::Auto;
            }
            "pdf by URL" => {
                let is_url = |part: &Part| matches!(part, Part::Pdf(Pdf { source: PdfSource::Url(_), .. }));
                request.messages.iter_mut().for_each(|message| message.parts.retain(|part| !is_url(part)));
            }
            "one_tool_call" => request.tools.as_mut().unwrap().at_once = CallsAtOnce::Several,
            other => panic!("{other}"),
        }
        refused.push(what);
    }
    (request, refused)
}

#[test]
fn requests_match_their_golden_files() {
    for (name, json) in cases("requests") {
        for (folder, api, base, effort) in FORMATS {
            let file: RequestFile = serde_json::from_slice(&json).unwrap();
            let worker = worker(api, effort);
            let (request, refused) = accepted_part(file.request(), &worker);
            let base = Url::parse(base).unwrap();
            let format = format::of(api);
            let limit = format.token_limit_of_host(base.host_str().unwrap());
            let limit = limit.unwrap_or(TokenLimitField::MaxTokens);
            let (url, body) = (format.url(&base, &worker), format.body(&worker, &request, limit));
            let mut body: Value = serde_json::from_slice(&body.unwrap()).unwrap();
            body.sort_all_objects();
            let mut text = format!("POST {url}\n");
            if let Some(Header { name, value }) = format.header(&request) {
                let _ = writeln!(text, "{name}: {value}");
            }
            for what in refused {
                let _ = writeln!(text, "rejected before the call: {what}");
            }
            let _ = write!(text, "{body:#}");
            settings("requests").bind(|| insta::assert_snapshot!(format!("{name}.{folder}"), text));
        }
    }
}

fn decoder(api: WireFormat) -> Box<dyn Decoder> {
    let request = ChatRequest::new(Vec::new(), 1);
    format::of(api).decoder(&worker(api, Feature::Effort), &request)
}

fn answers_become_events(folder: &str, api: WireFormat) {
    let folder = format!("streams/{folder}");
    for (name, bytes) in cases(&folder) {
        let whole = events(decoder(api), [bytes.as_slice()]);
        assert_eq!(events(decoder(api), bytes.chunks(1)), whole, "{name}, byte for byte");
        assert_eq!(events(decoder(api), bytes.chunks(7)), whole, "{name}, in pieces of seven bytes");
        settings(&folder).bind(|| insta::assert_snapshot!(name, whole));
    }
}

#[test]
fn openai_chat_answers_match_their_golden_files() {
    answers_become_events("openai_chat", WireFormat::OpenaiChat);
}

#[test]
fn openai_responses_answers_match_their_golden_files() {
    answers_become_events("openai_responses", WireFormat::OpenaiResponses);
}

#[test]
fn anthropic_answers_match_their_golden_files() {
    answers_become_events("anthropic", WireFormat::Anthropic);
}

#[test]
fn gemini_answers_match_their_golden_files() {
    answers_become_events("gemini", WireFormat::Gemini);
}

#[test]
fn unoffered_tool_calls_are_dropped() {
    let call = |arguments: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"42\",\"tool_calls\":[{{\"index\":0,\"id\":\"c\",\
             \"function\":{{\"name\":\"look\",\"arguments\":\"{arguments}\"}}}}]}},\
             \"finish_reason\":\"tool_calls\"}}]}}\n\ndata: [DONE]\n\n"
        )
    };
    for arguments in ["{}", "{broken"] {
        let stream = call(arguments);
        let output = events_of(decoder(WireFormat::OpenaiChat), Offered::NoTools, [stream.as_bytes()]);
        assert_eq!(output, "delta \"42\"\nfinished: Stop, no usage\n");
    }
    let output = events_of(decoder(WireFormat::OpenaiChat), Offered::Tools, [call("{broken").as_bytes()]);
    assert!(output.contains("call c of look with {broken\n"), "{output}");
}

#[test]
fn commentary_stays_out_of_answers_that_must_be_json() {
    let stream = std::str::from_utf8(
        &cases("streams/openai_responses").into_iter().find(|(name, _)| name == "commentary").unwrap().1,
    )
    .unwrap()
    .to_owned();
    let api = WireFormat::OpenaiResponses;
    let request = ChatRequest { answer: AnswerForm::JsonObject, ..ChatRequest::new(Vec::new(), 1) };
    let decoder = format::of(api).decoder(&worker(api, Feature::Effort), &request);
    let output = events(decoder, [stream.as_bytes()]);
    assert!(output.starts_with("reasoning \"Let me \"\nreasoning \"see.\"\ndelta \"42\"\n"), "{output}");
}

#[test]
fn a_decoders_buffer_is_bounded() {
    let call = |arguments: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"c\",\
             \"function\":{{\"name\":\"look\",\"arguments\":\"{arguments}\"}}}}]}}}}]}}\n\n"
        )
    };
    let half = call(&"x".repeat(1 << 19)).repeat(9);
    let output = events(decoder(WireFormat::OpenaiChat), [half.as_bytes()]);
    assert!(
        output.contains("more than 4194304 bytes of tool arguments"),
        "{}",
        &output[output.len() - 200..]
    );
    let many = (0..200).map(|n| call("{}").replace("\"c\"", &format!("\"c{n}\""))).collect::<String>();
    let output = events(decoder(WireFormat::OpenaiChat), [many.as_bytes(), b"data: [DONE]\n\n"]);
    assert!(output.contains("more than 128 tool calls"), "{output}");
}

fn events<'a>(decoder: Box<dyn Decoder>, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    events_of(decoder, Offered::Tools, pieces)
}

fn events_of<'a>(
    decoder: Box<dyn Decoder>,
    offered: Offered,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> String {
    let mut reader = AnswerReader::new(decoder, offered, ErrorBuilder::new(VendorId::new("v").unwrap(), []));
    for piece in pieces {
        reader.push(piece);
    }
    reader.end(None);
    let mut text = String::new();
    for item in reader.answer.items {
        match item {
            Ok(event) => write_event(&mut text, &event),
            Err(error) => write_error(&mut text, &error),
        }
    }
    text
}

/// JSON with sorted keys (whether `serde_json` keeps their order depends on enabled features). Other text unchanged.
fn in_order(text: &str) -> String {
    serde_json::from_str::<Value>(text).map_or_else(
        |_| text.to_owned(),
        |mut value| {
            value.sort_all_objects();
            value.to_string()
        },
    )
}

fn write_event(text: &mut String, event: &ChatEvent) {
    let _ = match event {
        ChatEvent::Started { .. } => writeln!(text, "started"),
        ChatEvent::Quota(quota) => writeln!(text, "quota {quota:?}"),
        ChatEvent::Delta(delta) => writeln!(text, "delta {delta:?}"),
        ChatEvent::Unread(bytes) => writeln!(text, "{bytes} undecoded bytes"),
        ChatEvent::Reasoning(reasoning) => writeln!(text, "reasoning {reasoning:?}"),
        ChatEvent::ReasoningSealed(seal) => writeln!(text, "sealed {}", in_order(&seal.mark)),
        ChatEvent::ToolCallBegun { index, name } => writeln!(text, "call {index} of {name} begins"),
        ChatEvent::ToolArguments { index, text: arguments } => {
            writeln!(text, "arguments {index} {arguments:?}")
        }
        ChatEvent::ToolCall(call) => {
            let seal = call
                .seal
                .as_ref()
                .map(|seal| format!(", sealed {}", in_order(&seal.mark)))
                .unwrap_or_default();
            writeln!(text, "call {} of {} with {}{seal}", call.id, call.name, call.arguments)
        }
        ChatEvent::StopSequence(stop) => writeln!(text, "stopped by {stop:?}"),
        ChatEvent::Finished { reason, usage: None } => writeln!(text, "finished: {reason:?}, no usage"),
        ChatEvent::Finished { reason, usage: Some(usage) } => writeln!(
            text,
            "finished: {reason:?}, prompt {} (cached {}{}), completion {} (reasoning {})",
            usage.prompt_tokens,
            usage.cached_tokens,
            match usage.cache_write_tokens {
                0 => String::new(),
                written => format!(", cache writes {written}"),
            },
            usage.completion_tokens,
            usage.reasoning_tokens
        ),
    };
}

pub(crate) fn write_error(text: &mut String, error: &VendorError) {
    let again = if error.is_retryable() { "retryable" } else { "final" };
    let wait = error.retry_after().map(|wait| format!(", after {} ms", wait.as_millis())).unwrap_or_default();
    let _ = writeln!(text, "error ({again}{wait}): {error}");
}
