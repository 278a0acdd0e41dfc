//! Answers a question with a tool that this program executes.
//!
//!     cargo run --example tools -- http://127.0.0.1:8081 podium-ultra "How is the weather in Oslo?"

use std::error::Error;
use std::io::{Write, stdout};

use podium_client::v1::{CreateRunRequest, Message, Run, RunState, Tool, ToolCall, ToolResult};
use podium_client::{AnswerPart, Client};

const SCHEMA: &str =
    r#"{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}"#;

fn weather() -> Tool {
    Tool {
        name: "weather".to_owned(),
        description: "The weather in a city.".to_owned(),
        parameters: SCHEMA.to_owned(),
        strict: None,
    }
}

/// Executes a call. Arguments are the text that the model wrote: a real tool parses and checks them.
fn execute(call: &ToolCall) -> ToolResult {
    match call.name.as_str() {
        "weather" => call.result("4 degrees, rain"),
        unknown => call.error(format!("unknown tool `{unknown}`")),
    }
}

fn execute_all(calls: &[ToolCall], out: &mut impl Write) -> std::io::Result<Vec<ToolResult>> {
    for call in calls {
        writeln!(out, "{}({})", call.name, call.arguments)?;
    }
    Ok(calls.iter().map(execute).collect())
}

/// One run. While it is suspended, executes its calls and submits the results.
async fn run(
    client: &Client,
    request: CreateRunRequest,
    out: &mut impl Write,
) -> Result<Run, Box<dyn Error>> {
    let mut answer = client.ask(request).await?;
    let run_id = answer.run_id().to_owned();
    while let Some(part) = answer.next().await {
        match part? {
            AnswerPart::ToolCalls(calls) => {
                client.submit_tool_results(&run_id, execute_all(&calls, out)?).await?;
            }
            AnswerPart::Ended(run) if run.state() == RunState::Succeeded => return Ok(*run),
            AnswerPart::Ended(run) => return Err(format!("the run has no answer: {:?}", run.failure).into()),
            _ => {}
        }
    }
    Err("the answer has no end".into())
}

pub(crate) async fn ask(
    client: &Client,
    model: &str,
    question: &str,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let mut request = CreateRunRequest::question(question);
    request.model = model.to_owned();
    request.tools = vec![weather()];
    loop {
        let run = run(client, request.clone(), out).await?;
        if run.tool_calls.is_empty() {
            return Ok(writeln!(out, "{}", run.answer())?);
        }
        // A run of `podium-mini` ends with its calls. The next run continues the conversation.
        let results = execute_all(&run.tool_calls, out)?;
        request.messages.push(Message::assistant(run.answer(), run.tool_calls.clone()));
        request.messages.push(Message::tool_results(results));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [url, model, question] = arguments.as_slice() else {
        return Err("usage: tools URL MODEL QUESTION".into());
    };
    ask(&Client::builder(url).build()?, model, question, &mut stdout()).await
}
