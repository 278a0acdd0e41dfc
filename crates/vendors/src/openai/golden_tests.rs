//! Golden files: internal requests against what stands on the wire, and answers against the events that they become.
//!
//! A case is a file in `tests/golden`; beside it lies the snapshot. `INSTA_UPDATE=always` writes the snapshots anew.

use std::fmt::Write as _;
use std::path::PathBuf;

use podium_domain::conversation::Message;
use podium_domain::ids::VendorId;
use podium_domain::policy::Effort;
use podium_domain::pool::Pool;
use podium_ports::vendor::{ChatEvent, ChatRequest, VendorError};
use serde::Deserialize;

use super::error::Faults;
use super::request::{self, TokenLimit};
use super::stream::AnswerReader;

const POOL: &str = r#"
schema = 1
name = "golden"
version = "1"
vendors = [{ id = "v", kind = "openai-compatible", base_url = "http://127.0.0.1:1/v1" }]
[[workers]]
id = "w"
vendor = "v"
model = "the-model"
description = "a worker"
context_tokens = 8192
output_tokens_max = 2048
usd_per_million_tokens = { input = 1.0, output = 1.0 }
"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestFile {
    messages: Vec<Message>,
    output_tokens_max: u32,
    temperature: Option<f32>,
    effort: Option<Effort>,
}

/// The golden files of a folder: name and content, sorted.
fn cases(folder: &str) -> Vec<(String, Vec<u8>)> {
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

fn settings(folder: &str) -> insta::Settings {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

#[test]
fn requests_stand_on_the_wire_as_their_golden_files_say() {
    let pool = Pool::parse(POOL).unwrap();
    for (name, json) in cases("requests") {
        let file: RequestFile = serde_json::from_slice(&json).unwrap();
        let request = ChatRequest {
            messages: file.messages,
            output_tokens_max: file.output_tokens_max,
            temperature: file.temperature,
            effort: file.effort,
        };
        for (server, limit) in [("openai", TokenLimit::MaxCompletionTokens), ("other", TokenLimit::MaxTokens)]
        {
            let body = request::body(&pool.workers()[0], &request, limit);
            settings("requests").bind(|| insta::assert_json_snapshot!(format!("{name}.{server}"), body));
        }
    }
}

#[test]
fn answers_become_the_events_that_their_golden_files_say() {
    for (name, bytes) in cases("streams") {
        let whole = events([bytes.as_slice()]);
        assert_eq!(events(bytes.chunks(1)), whole, "{name}, byte for byte");
        assert_eq!(events(bytes.chunks(7)), whole, "{name}, in pieces of seven bytes");
        settings("streams").bind(|| insta::assert_snapshot!(name, whole));
    }
}

fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut reader = AnswerReader::new(Faults::new(VendorId::new("v").unwrap(), None));
    for piece in pieces {
        reader.push(piece);
    }
    reader.end(None);
    let mut text = String::new();
    for item in reader.items {
        match item {
            Ok(event) => write_event(&mut text, &event),
            Err(error) => write_error(&mut text, &error),
        }
    }
    text
}

fn write_event(text: &mut String, event: &ChatEvent) {
    let _ = match event {
        ChatEvent::Started { .. } => writeln!(text, "started"),
        ChatEvent::Delta(delta) => writeln!(text, "delta {delta:?}"),
        ChatEvent::Finished { reason, usage: None } => writeln!(text, "finished: {reason:?}, no usage"),
        ChatEvent::Finished { reason, usage: Some(usage) } => writeln!(
            text,
            "finished: {reason:?}, prompt {} (cached {}), completion {} (reasoning {})",
            usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, usage.reasoning_tokens
        ),
    };
}

fn write_error(text: &mut String, error: &VendorError) {
    let again = if error.is_retryable() { "may be tried again" } else { "final" };
    let _ = writeln!(text, "error ({again}): {error}");
}
