//! Prints the events of a run. The watch resumes by itself after a lost connection; a program that was stopped continues after the
//! last event that it printed.
//!
//!     cargo run --example watch -- http://127.0.0.1:8081 RUN_ID [AFTER_SEQUENCE]

use std::error::Error;
use std::io::{Write, stdout};

use podium_client::Client;
use podium_client::v1::run_event::Kind;
use podium_client::v1::watch_run_response::Update;

pub(crate) async fn watch(
    client: &Client,
    run_id: &str,
    after: u64,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let mut watch = client.watch(run_id, after);
    while let Some(update) = watch.next().await {
        let Update::Event(event) = update? else { continue };
        let said = match event.kind {
            Some(Kind::Accepted(accepted)) => format!("accepted for {}", accepted.model),
            Some(Kind::PlanReady(plan)) => format!("plan with {} steps", plan.steps.len()),
            Some(Kind::StepDone(done)) => format!("step {}: {}", done.step, done.output),
            Some(Kind::Succeeded(_)) => "succeeded".to_owned(),
            Some(Kind::Failed(failed)) => format!("failed: {:?}", failed.failure),
            Some(Kind::Cancelled(_)) => "cancelled".to_owned(),
            // There are further kinds, and later versions of the server may add some.
            _ => continue,
        };
        writeln!(out, "{} {said}", event.sequence)?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(run_id)) = (arguments.next(), arguments.next()) else {
        return Err("usage: watch URL RUN_ID [AFTER_SEQUENCE]".into());
    };
    let after = arguments.next().map_or(Ok(0), |after| after.parse())?;
    watch(&Client::builder(url).build()?, &run_id, after, &mut stdout()).await
}
