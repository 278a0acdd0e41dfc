//! Asks a question and prints the answer as it is written.
//!
//!     cargo run --example ask -- http://127.0.0.1:8081 "Why is the sky blue?"
//!
//! `PODIUM_API_KEY` is the key, if the server asks for one.

use std::error::Error;
use std::io::{Write, stdout};

use podium_client::v1::{CreateRunRequest, RunState};
use podium_client::{AnswerPart, Client};

pub(crate) async fn ask(client: &Client, question: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut answer = client.ask(CreateRunRequest::question(question)).await?;
    while let Some(part) = answer.next().await {
        match part? {
            AnswerPart::Text(text) => {
                write!(out, "{text}")?;
                out.flush()?;
            }
            AnswerPart::Restarted => writeln!(out, "\n--- the answer begins again ---")?,
            AnswerPart::Ended(run) if run.state() == RunState::Succeeded => writeln!(out)?,
            AnswerPart::Ended(run) => return Err(format!("the run has no answer: {:?}", run.failure).into()),
            _ => {}
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(question)) = (arguments.next(), arguments.next()) else {
        return Err("usage: ask URL QUESTION".into());
    };
    let mut builder = Client::builder(url);
    if let Ok(key) = std::env::var("PODIUM_API_KEY") {
        builder = builder.api_key(key);
    }
    ask(&builder.connect().await?, &question, &mut stdout()).await
}
