//! The vendor adapters against the simulator over real HTTP: the same questions give the same results in each wire format.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use podium_domain::content::{Part, Reasoning, Seal, ToolCall, ToolResult};
use podium_domain::conversation::{Message, Role};
use podium_domain::policy::Effort;
use podium_domain::pool::{Pool, Worker};
use podium_domain::usage::Usage;
use podium_ports::vendor::{
    AnswerForm, CallsAtOnce, ChatEvent, ChatRequest, FinishReason, JsonSchema, ReasoningText, Tool,
    ToolChoice, ToolUse, VendorError, Vendors,
};
use podium_vendor_sim::{Behaviour, Fault, Options, Running, ScriptedFault, VendorSim};
use podium_vendors::HttpVendors;
use secrecy::SecretString;
use serde_json::{Value, json};

const KEY: &str = "sk-simulated";
const FORMATS: [&str; 4] = ["openai-chat", "openai-responses", "anthropic", "gemini"];

/// A simulator, and a worker for `sim-echo` in each wire format.
struct Setup {
    sim: Running,
    pool: Pool,
    vendors: HttpVendors,
}

impl Setup {
    async fn new() -> Self {
        Self::with_key(KEY).await
    }

    async fn with_key(key: &str) -> Self {
        let options = Options { api_key: Some(KEY.to_owned()), ..Options::loopback(7) };
        let sim = VendorSim::start(options).await.unwrap();
        let pool = Pool::parse(&pool(&sim)).unwrap();
        let keys = BTreeMap::from([("SIM_KEY".to_owned(), SecretString::from(key))]);
        let vendors = HttpVendors::new(&pool, &keys).unwrap();
        Self { sim, pool, vendors }
    }

    fn worker(&self, format: &str) -> &Worker {
        self.pool.workers().iter().find(|worker| worker.id.as_str() == format).unwrap()
    }

    async fn ask(&self, format: &str, request: &ChatRequest) -> Result<Received, VendorError> {
        let mut answer = self.vendors.chat(self.worker(format), request).await?;
        let mut events = Vec::new();
        while let Some(event) = answer.next().await {
            events.push(event?);
        }
        Ok(Received::of(events))
    }

    fn fail(&self, fault: Fault) {
        let faults = vec![ScriptedFault::next_calls(fault, 1)];
        self.sim.set_behaviour("sim-echo", Behaviour { faults, ..Behaviour::default() }).unwrap();
    }
}

fn pool(sim: &Running) -> String {
    let root = format!("http://{}", sim.addr());
    let mut toml = "schema = 1\nname = \"formats\"\nversion = \"1\"\n".to_owned();
    for (format, path, more) in [
        ("openai-chat", "/v1", r#""seed", "stop", "json_object", "one_tool_call", "effort""#),
        (
            "openai-responses",
            "/v1",
            r#""json_object", "one_tool_call", "effort", "reasoning_text", "cache_hint""#,
        ),
        ("anthropic", "/v1", r#""stop", "one_tool_call", "thinking_budget", "reasoning_text", "cache_hint""#),
        ("gemini", "/v1beta", r#""seed", "stop", "json_object", "thinking_budget", "reasoning_text""#),
    ] {
        write!(
            toml,
            r#"
            [[vendors]]
            id = "{format}"
            api = "{format}"
            base_url = "{root}{path}"
            api_key_env = "SIM_KEY"
            [[workers]]
            id = "{format}"
            vendor = "{format}"
            model = "sim-echo"
            description = "repeats its question"
            modalities = ["text", "image", "pdf"]
            features = ["temperature", "top_p", "tools", "json_schema", {more}]
            context_tokens = 65536
            output_tokens_max = 16384
            usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
            "#
        )
        .unwrap();
    }
    toml
}

/// The outcome of a call.
#[derive(Debug, Default)]
struct Received {
    request_id: Option<String>,
    text: String,
    deltas: usize,
    reasoning: String,
    seals: Vec<Seal>,
    calls: Vec<ToolCall>,
    /// The name and the arguments of each call, as they were streamed.
    live: Vec<(String, String)>,
    finish: Option<FinishReason>,
    stop_sequence: Option<String>,
    usage: Option<Usage>,
}

impl Received {
    fn of(events: Vec<ChatEvent>) -> Self {
        let mut received = Self::default();
        for event in events {
            match event {
                ChatEvent::Started { vendor_request_id } => received.request_id = vendor_request_id,
                ChatEvent::Quota(_) | ChatEvent::Unread(_) => {}
                ChatEvent::StopSequence(stop) => received.stop_sequence = Some(stop),
                ChatEvent::Delta(text) => {
                    received.text += &text;
                    received.deltas += 1;
                }
                ChatEvent::Reasoning(text) => received.reasoning += &text,
                ChatEvent::ReasoningSealed(seal) => received.seals.push(seal),
                ChatEvent::ToolCallBegun { index, name } => {
                    assert_eq!(index, received.live.len());
                    received.live.push((name, String::new()));
                }
                ChatEvent::ToolArguments { index, text } => received.live[index].1 += &text,
                ChatEvent::ToolCall(call) => received.calls.push(call),
                ChatEvent::Finished { reason, usage } => {
                    received.finish = Some(reason);
                    received.usage = usage;
                }
            }
        }
        received
    }
}

fn question(text: &str) -> ChatRequest {
    ChatRequest::new(vec![Message::new(Role::System, "Repeat."), Message::new(Role::User, text)], 4096)
}

fn tools(choice: ToolChoice) -> ToolUse {
    let tool = |name: &str| Tool {
        name: name.to_owned(),
        description: format!("The {name}."),
        schema: json!({
            "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"],
            "additionalProperties": false,
        }),
        strict: Some(true),
    };
    ToolUse { tools: vec![tool("weather"), tool("clock")], choice, at_once: CallsAtOnce::Several }
}

#[tokio::test]
async fn text_is_streamed_with_its_usage() {
    let setup = Setup::new().await;
    for format in FORMATS {
        let request =
            ChatRequest { temperature: Some(0.5), top_p: Some(0.75), ..question("Žluť 🙂 早, please.") };
        let received = setup.ask(format, &request).await.unwrap();
        assert_eq!(
            (received.text.as_str(), received.finish),
            ("Žluť 🙂 早, please.", Some(FinishReason::Stop)),
            "{format}"
        );
        assert!(received.deltas > 2, "{format}: {}", received.deltas);
        assert_eq!(received.request_id.is_some(), format != "gemini", "{format}");
        let usage = received.usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (2 + 6, received.deltas as u64),
            "{format}"
        );
    }
}

#[tokio::test]
async fn a_limit_and_a_stop_end_the_answer() {
    let setup = Setup::new().await;
    for format in FORMATS {
        let short = ChatRequest { output_tokens_max: 2, ..question("abcdefghijkl") };
        let received = setup.ask(format, &short).await.unwrap();
        assert_eq!(
            (received.text.as_str(), received.finish),
            ("abcdefgh", Some(FinishReason::Length)),
            "{format}"
        );
        let stopped = ChatRequest { stops: vec!["ef".to_owned()], ..question("abcdefghijkl") };
        match setup.ask(format, &stopped).await {
            Ok(received) => {
                assert_eq!(
                    (received.text.as_str(), received.finish),
                    ("abcd", Some(FinishReason::Stop)),
                    "{format}"
                );
                let named = (format == "anthropic").then_some("ef");
                assert_eq!(received.stop_sequence.as_deref(), named, "{format}");
            }
            Err(error) => {
                assert_eq!(format, "openai-responses");
                assert_eq!(error.to_string(), "worker `openai-responses` does not take stop");
            }
        }
    }
}

#[tokio::test]
async fn tools_are_called_in_parallel_and_their_results_go_back() {
    let setup = Setup::new().await;
    for format in FORMATS {
        let mut request = ChatRequest {
            tools: Some(tools(ToolChoice::Auto)),
            ..question("Ask weather and clock, please.")
        };
        let received = setup.ask(format, &request).await.unwrap();
        assert_eq!(received.finish, Some(FinishReason::ToolCalls), "{format}");
        let names: Vec<_> = received.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["weather", "clock"], "{format}");
        assert_ne!(received.calls[0].id, received.calls[1].id, "{format}");
        let arguments: Value = serde_json::from_str(&received.calls[0].arguments).unwrap();
        assert_eq!(arguments, json!({ "city": "Ask weather and clock, please." }), "{format}");
        assert_eq!(received.calls[0].seal.is_some(), format == "gemini", "{format}");
        let written = received.calls.iter().map(|call| (call.name.clone(), call.arguments.clone()));
        assert_eq!(received.live, written.collect::<Vec<_>>(), "{format}");

        let results = received.calls.iter().map(|call| {
            let output = format!("{} is fine", call.name);
            Part::ToolResult(ToolResult::new(call.id.clone(), call.name.clone(), output))
        });
        let results: Vec<_> = results.collect();
        request
            .messages
            .push(Message::new(Role::Assistant, "").with(received.calls.into_iter().map(Part::ToolCall)));
        request.messages.push(Message::new(Role::User, "").with(results));
        let received = setup.ask(format, &request).await.unwrap();
        assert_eq!(received.text, "The tools gave: weather is fine; clock is fine", "{format}");
        assert_eq!(received.finish, Some(FinishReason::Stop), "{format}");
    }
}

#[tokio::test]
async fn scripted_calls_arrive_as_they_were_written() {
    let setup = Setup::new().await;
    let arguments = "{ \"city\": \"Oslo\",\t\"days\": [1,2] }";
    // Results of Chat Completions and Gemini have no images and files: these follow as the user's.
    let behaviour = json!({ "replies": [
        { "when": { "last": "user", "last_contains": "[pdf" }, "text": "It is cold." },
        { "when": { "last": "tool", "last_contains": "[pdf" }, "text": "It is cold." },
        { "when": { "last": "user", "last_contains": "broken" }, "calls": [{ "name": "weather", "arguments": "{\"city\":" }] },
        {
            "when": { "assistant_turns": 0 }, "text": "I look.",
            "calls": [{ "name": "weather", "arguments": arguments }, { "name": "clock" }],
        },
    ] });
    setup.sim.set_behaviour("sim-echo", serde_json::from_value(behaviour).unwrap()).unwrap();
    for format in FORMATS {
        let asking = |text| ChatRequest { tools: Some(tools(ToolChoice::Auto)), ..question(text) };
        let received = setup.ask(format, &asking("How warm?")).await.unwrap();
        assert_eq!(
            (received.text.as_str(), received.finish),
            ("I look.", Some(FinishReason::ToolCalls)),
            "{format}"
        );
        // Gemini sends arguments as JSON, not as text.
        let expected = if format == "gemini" { r#"{"city":"Oslo","days":[1,2]}"# } else { arguments };
        let written = [("weather".to_owned(), expected.to_owned()), ("clock".to_owned(), "{}".to_owned())];
        assert_eq!(received.live, written, "{format}");
        let called = received.calls.iter().map(|call| (call.name.clone(), call.arguments.clone()));
        assert_eq!(called.collect::<Vec<_>>(), written, "{format}");
        let broken = setup.ask(format, &asking("broken")).await.unwrap();
        let expected = if format == "gemini" { "{}" } else { "{\"city\":" };
        assert_eq!(broken.calls[0].arguments, expected, "{format}");
        // Invalid arguments are history like others, and results may have images and PDFs.
        let call = ToolCall {
            id: "call_1".to_owned(),
            arguments: "{\"city\":".to_owned(),
            ..broken.calls[0].clone()
        };
        let image = podium_domain::content::Image::Url("https://example.org/a.png".to_owned());
        let source = podium_domain::content::PdfSource::Data("JVBERi0=".to_owned());
        let pdfs = vec![podium_domain::content::Pdf { name: None, source }];
        let result = ToolResult { images: vec![image], pdfs, ..ToolResult::new("call_1", "weather", "cold") };
        let mut request = asking("broken");
        request.messages.push(Message::new(Role::Assistant, "").with([Part::ToolCall(call)]));
        request.messages.push(Message::new(Role::User, "").with([Part::ToolResult(result)]));
        let last = setup.ask(format, &request).await.unwrap();
        assert_eq!(last.text, "It is cold.", "{format}");
    }
}

#[tokio::test]
async fn tool_choice_and_single_calls_are_respected() {
    let setup = Setup::new().await;
    for format in FORMATS {
        let called = async |choice, at_once| {
            let tools = Some(ToolUse { at_once, ..tools(choice) });
            let request = ChatRequest { tools, ..question("Ask weather and clock.") };
            let received = setup.ask(format, &request).await;
            received.map(|received| received.calls.into_iter().map(|call| call.name).collect::<Vec<_>>())
        };
        let several = CallsAtOnce::Several;
        assert_eq!(called(ToolChoice::None, several).await.unwrap(), [""; 0], "{format}");
        let named = ToolChoice::Named("clock".to_owned());
        assert_eq!(called(named, several).await.unwrap(), ["clock"], "{format}");
        assert_eq!(called(ToolChoice::Required, several).await.unwrap(), ["weather", "clock"], "{format}");
        let one = called(ToolChoice::Auto, CallsAtOnce::One).await;
        if format == "gemini" {
            assert_eq!(one.unwrap_err().to_string(), "worker `gemini` does not take one_tool_call");
        } else {
            assert_eq!(one.unwrap(), ["weather"], "{format}");
        }
    }
}

#[tokio::test]
async fn an_answer_follows_the_response_format() {
    let setup = Setup::new().await;
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    for format in FORMATS {
        let answer = JsonSchema { name: "city".to_owned(), schema: schema.clone(), strict: true };
        let answer = AnswerForm::JsonSchema(answer);
        let received = setup.ask(format, &ChatRequest { answer, ..question("Oslo") }).await.unwrap();
        assert_eq!(received.text, r#"{"city":"Oslo"}"#, "{format}");
        let object = ChatRequest { answer: AnswerForm::JsonObject, ..question("Oslo") };
        match setup.ask(format, &object).await {
            Ok(received) => assert_eq!(received.text, r#"{"answer":"Oslo"}"#, "{format}"),
            Err(error) => assert_eq!(error.to_string(), "worker `anthropic` does not take json_object"),
        }
    }
}

#[tokio::test]
async fn a_call_carries_the_span_that_its_request_names_and_no_other() {
    let setup = Setup::new().await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for format in ["openai-chat", "openai-responses", "anthropic", "gemini"] {
        setup.ask(format, &question("Oslo")).await.unwrap();
        let traced = ChatRequest { trace: Some(parent.parse().unwrap()), ..question("Oslo") };
        setup.ask(format, &traced).await.unwrap();
        let calls = setup.sim.calls();
        let seen: Vec<_> = calls[calls.len() - 2..].iter().map(|call| call.traceparent.as_deref()).collect();
        assert_eq!(seen, [None, Some(parent)], "{format}");
    }
}

#[tokio::test]
async fn reasoning_is_shown_sealed_and_accepted_again() {
    let setup = Setup::new().await;
    for format in ["openai-responses", "anthropic", "gemini"] {
        let mut request = ChatRequest {
            effort: Some(Effort::High),
            reasoning: ReasoningText::Shown,
            cache_hint: Some("a-hint".to_owned()),
            tools: Some(tools(ToolChoice::Auto)),
            output_tokens_max: 16_384,
            ..question("Ask clock.")
        };
        let received = setup.ask(format, &request).await.unwrap();
        assert_eq!(received.reasoning, "This is a simulation: nobody reasons here.", "{format}");
        let usage = received.usage.unwrap();
        assert!(usage.completion_tokens > usage.reasoning_tokens, "{format}: {usage:?}");
        let mut parts: Vec<_> = received
            .seals
            .into_iter()
            .map(|seal| Part::Reasoning(Reasoning { text: received.reasoning.clone(), seal: Some(seal) }))
            .collect();
        assert_eq!(parts.len(), usize::from(format != "gemini"), "{format}");
        let call = received.calls.into_iter().next().unwrap();
        let result = ToolResult::new(call.id.clone(), call.name.clone(), "noon");
        parts.push(Part::ToolCall(call));
        request.messages.push(Message::new(Role::Assistant, "").with(parts));
        request.messages.push(Message::new(Role::User, "").with([Part::ToolResult(result)]));
        assert_eq!(setup.ask(format, &request).await.unwrap().text, "The tools gave: noon", "{format}");
    }
}

#[tokio::test]
async fn images_arrive() {
    use podium_domain::content::{Image, MediaType};
    let setup = Setup::new().await;
    for format in FORMATS {
        let url = Part::Image(Image::Url("https://example.org/a.png".to_owned()));
        let data = Image::Data { media_type: MediaType::Png, base64: "iVBORw0KGgo=".to_owned() };
        let message =
            Message::new(Role::User, "See ").with([url, Part::Text(" and ".to_owned()), Part::Image(data)]);
        let received = setup.ask(format, &ChatRequest::new(vec![message], 4096)).await.unwrap();
        let (first, second) = received.text.split_once(" and ").unwrap();
        assert_eq!(first, "See [image https://example.org/a.png]", "{format}");
        assert!(second.starts_with("[image ") && second.contains("image/png"), "{format}: {second}");
    }
}

#[tokio::test]
async fn pdfs_arrive() {
    use podium_domain::content::{Pdf, PdfSource};
    let setup = Setup::new().await;
    let pdf = |name: Option<&str>, source| Pdf { name: name.map(str::to_owned), source };
    let data = |base64: &str| PdfSource::Data(base64.to_owned());
    let asking = |pdf| {
        let message = Message::new(Role::User, "See ").with([Part::Pdf(pdf)]);
        ChatRequest::new(vec![message], 4096)
    };
    for format in FORMATS {
        let held = setup.ask(format, &asking(pdf(Some("a.pdf"), data("JVBERi0=")))).await.unwrap().text;
        // Gemini has no field for the name of a file.
        let name = if format == "gemini" { "" } else { "a.pdf " };
        assert!(
            held.starts_with(&format!("See [pdf {name}")) && held.ends_with("JVBERi0=]"),
            "{format}: {held}"
        );
        let garbled = setup.ask(format, &asking(pdf(None, data("JVB")))).await.unwrap_err();
        assert!(!garbled.is_retryable(), "{format}: {garbled}");
        let url = PdfSource::Url("https://example.org/a.pdf".to_owned());
        let fetched = setup.ask(format, &asking(pdf(None, url))).await;
        if format == "openai-chat" {
            let said = fetched.unwrap_err().to_string();
            assert_eq!(said, "worker `openai-chat` does not take pdf by URL");
        } else {
            assert_eq!(fetched.unwrap().text, "See [pdf https://example.org/a.pdf]", "{format}");
        }
    }
}

#[tokio::test]
async fn errors_report_whether_and_when_to_retry() {
    let setup = Setup::new().await;
    for format in FORMATS {
        setup.fail(Fault::RateLimit { retry_after_s: 2 });
        let error = setup.ask(format, &question("why?")).await.unwrap_err();
        assert!(matches!(error, VendorError::Throttled { .. }), "{format}: {error:?}");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(2)), "{format}");

        setup.fail(Fault::Overloaded);
        let error = setup.ask(format, &question("why?")).await.unwrap_err();
        let expected = if format == "anthropic" { 529 } else { 503 };
        assert!(
            matches!(error, VendorError::Failed { status, .. } if status == expected),
            "{format}: {error:?}"
        );
        assert!(error.is_retryable(), "{format}");

        setup.fail(Fault::ServerError);
        let error = setup.ask(format, &question("why?")).await.unwrap_err();
        assert!(matches!(error, VendorError::Failed { status: 500, .. }), "{format}: {error:?}");
    }
}

#[tokio::test]
async fn a_cut_stream_fails_after_its_text() {
    let setup = Setup::new().await;
    for format in FORMATS {
        setup.fail(Fault::CutStream { after_chunks: 7 });
        let request = question("a text of more than seven tokens, so that something is left");
        let answer = setup.vendors.chat(setup.worker(format), &request).await.unwrap();
        let items: Vec<_> = answer.collect().await;
        assert!(items.iter().any(|item| matches!(item, Ok(ChatEvent::Delta(_)))), "{format}: {items:?}");
        let last = items.into_iter().next_back().unwrap().unwrap_err();
        assert!(last.is_retryable(), "{format}: {last:?}");
    }
}

#[tokio::test]
async fn a_wrong_key_is_permanent_and_never_shown() {
    let setup = Setup::with_key("sk-wrong").await;
    for format in FORMATS {
        let error = setup.ask(format, &question("why?")).await.unwrap_err();
        assert!(matches!(error, VendorError::Rejected { .. }), "{format}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("sk-wrong"), "{format}");
    }
    assert!(setup.sim.calls().is_empty());
}

#[tokio::test]
async fn a_key_may_go_into_another_header() {
    let sim =
        VendorSim::start(Options { api_key: Some(KEY.to_owned()), ..Options::loopback(7) }).await.unwrap();
    let toml = pool(&sim).replace("api_key_env", "key_header = \"api-key\"\n            api_key_env");
    let pool = Pool::parse(&toml).unwrap();
    let keys = BTreeMap::from([("SIM_KEY".to_owned(), SecretString::from(KEY))]);
    let vendors = HttpVendors::new(&pool, &keys).unwrap();
    for worker in pool.workers() {
        let answer = vendors.chat(worker, &question("why?")).await.unwrap();
        let events: Vec<_> = answer.try_collect().await.unwrap();
        assert_eq!(Received::of(events).text, "why?", "{}", worker.id);
    }
}
