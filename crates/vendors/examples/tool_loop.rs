//! Asks each worker of a pool a question that needs two tool calls, sends the results back together with the worker's
//! reasoning, and prints one line of JSON per worker with the outcome: `cargo run --example tool_loop POOL_FILE`.

use std::error::Error;
use std::fs;

use futures::StreamExt;
use podium_domain::content::{Part, Reasoning, ToolCall, ToolResult};
use podium_domain::conversation::{Message, Role};
use podium_domain::policy::Effort;
use podium_domain::pool::{Feature, Pool, Worker};
use podium_ports::vendor::{
    CallsAtOnce, ChatEvent, ChatRequest, FinishReason, ReasoningText, Tool, ToolChoice, ToolUse, Vendors,
};
use podium_vendors::{EnvironmentKeys, HttpVendors};
use serde_json::{Value, json};

const QUESTION: &str = "Is it warm in Lisbon and in Oslo?";
const OUTPUT_TOKENS_MAX: u32 = 8192;

/// The content of one answer.
#[derive(Default)]
struct Said {
    text: String,
    reasoning: Vec<Reasoning>,
    unsealed: String,
    calls: Vec<ToolCall>,
    finish: Option<FinishReason>,
    tokens: u64,
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "prints its result")]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: tools POOL_FILE")?;
    let pool = Pool::parse(&fs::read_to_string(file)?)?;
    let vendors = HttpVendors::new(&pool, &EnvironmentKeys)?;
    for worker in pool.workers() {
        let line = match round_trip(&vendors, worker).await {
            Ok(line) => line,
            Err(error) => json!({ "worker": worker.id.as_str(), "error": error.to_string() }),
        };
        println!("{line}");
    }
    Ok(())
}

async fn round_trip(vendors: &HttpVendors, worker: &Worker) -> Result<Value, Box<dyn Error>> {
    let question = Message::new(Role::User, QUESTION);
    let asked = ask(vendors, worker, vec![question.clone()]).await?;
    let thought = asked.reasoning.iter().cloned().map(Part::Reasoning);
    let called = asked.calls.iter().cloned().map(Part::ToolCall);
    let results = asked.calls.iter().map(|call| {
        let output = if call.arguments.contains("Oslo") { "cold" } else { "warm" };
        Part::ToolResult(ToolResult::new(call.id.clone(), call.name.clone(), output))
    });
    let conversation = vec![
        question,
        Message::new(Role::Assistant, asked.text.clone()).with(thought.chain(called)),
        Message::new(Role::User, "").with(results),
    ];
    let answered = ask(vendors, worker, conversation).await?;
    let reasoning: String = asked.reasoning.iter().map(|reasoning| reasoning.text.as_str()).collect();
    let calls = asked.calls.iter().map(|call| {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        json!({ "name": call.name, "arguments": arguments })
    });
    Ok(json!({
        "worker": worker.id.as_str(),
        "reasoning": reasoning + &asked.unsealed,
        "calls": calls.collect::<Vec<_>>(),
        "asked_ended": asked.finish.map(|reason| format!("{reason:?}")),
        "answer": answered.text,
        "answered_ended": answered.finish.map(|reason| format!("{reason:?}")),
        "tokens": asked.tokens + answered.tokens,
    }))
}

async fn ask(vendors: &HttpVendors, worker: &Worker, messages: Vec<Message>) -> Result<Said, Box<dyn Error>> {
    let schema =
        json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    let (name, description) = ("weather".to_owned(), "How warm a city is.".to_owned());
    let tool = Tool { name, description, schema, strict: None };
    let request = ChatRequest {
        tools: Some(ToolUse { tools: vec![tool], choice: ToolChoice::Auto, at_once: CallsAtOnce::Several }),
        effort: worker.takes_effort().then_some(Effort::High),
        reasoning: if worker.takes(Feature::ReasoningText) {
            ReasoningText::Shown
        } else {
            ReasoningText::Hidden
        },
        ..ChatRequest::new(messages, OUTPUT_TOKENS_MAX)
    };
    let (mut said, mut events) = (Said::default(), vendors.chat(worker, &request).await?);
    while let Some(event) = events.next().await {
        match event? {
            ChatEvent::Started { .. }
            | ChatEvent::Quota(_)
            | ChatEvent::Unread(_)
            | ChatEvent::StopSequence(_)
            | ChatEvent::ToolCallBegun { .. }
            | ChatEvent::ToolArguments { .. } => {}
            ChatEvent::Delta(text) => said.text += &text,
            ChatEvent::Reasoning(text) => said.unsealed += &text,
            ChatEvent::ReasoningSealed(seal) => {
                let text = std::mem::take(&mut said.unsealed);
                said.reasoning.push(Reasoning { text, seal: Some(seal) });
            }
            ChatEvent::ToolCall(call) => said.calls.push(call),
            ChatEvent::Finished { reason, usage } => {
                said.finish = Some(reason);
                said.tokens = usage.map(|usage| usage.total_tokens()).unwrap_or_default();
            }
        }
    }
    Ok(said)
}
