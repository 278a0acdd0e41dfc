//! `podium demo`: one question that no single skill answers, over simulated workers, and a check of the answer.

mod truth;

use std::process::ExitCode;

use clap::Args;
use podium_api::v1;
use podium_domain::policy::{Effort, Tier};

use crate::assemble::Embedded;
use crate::cli::{Backend, Drawn, SetupArgs, draw_run, print_line, question_request};
use crate::error::{Error, run_failed};
use crate::settings::PoolChoice;
use crate::{OPEN_BUNDLE, pool};
use podium_planning::{ConductorChoice, demo_bundle};

/// The question. It needs dates, arithmetic and number words; [`truth`] answers it without any of the workers.
const QUESTION: &str = "Take the number of days between 3 March 2024 and 17 May 2025, multiply it by 12, and write the \
    result in words.";

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The conductor: auto, llama:FOLDER, fixed:FILE or direct:WORKER.
    #[arg(long, value_name = "CONDUCTOR", default_value = "auto")]
    conductor: String,
}

/// Runs the demo. The exit code is 0 if the answer is right.
pub(crate) async fn demo(args: DemoArgs) -> Result<ExitCode, Error> {
    let setup = SetupArgs::default().with("pool", "demo".to_owned()).with("conductor", args.conductor);
    let settings = setup.settings()?;
    settings.start_log("warn");
    if settings.conductors.current == ConductorChoice::Auto {
        let pool = pool::read(&PoolChoice::Demo)?;
        demo_bundle(&pool, OPEN_BUNDLE).map_err(|problem| Error::NoDemoConductor { problem })?;
    }
    let embedded = Embedded::start_apart(&settings, pool::Pace::Visible).await?;
    introduce(&embedded, &settings.conductors.current);
    let mut backend = Backend::here(embedded);
    let drawn =
        draw_run(&mut backend, question_request(QUESTION.to_owned(), Tier::Ultra, Effort::Medium)).await;
    backend.close().await;
    match drawn? {
        Drawn::Ended(run) => judge(&run),
        Drawn::Interrupted => Ok(ExitCode::from(130)),
    }
}

fn introduce(embedded: &Embedded, conductor: &ConductorChoice) {
    let engine = embedded.engine();
    let kind = match conductor {
        ConductorChoice::Auto | ConductorChoice::Llama(_) => "a small language model under llama.cpp",
        _ => "no language model this time",
    };
    eprintln!("Podium demo");
    eprintln!();
    eprintln!(
        "  real:       the conductor that plans ({}, {kind}), the engine, the store",
        engine.conductor_id()
    );
    eprintln!(
        "  simulated:  the workers (pool {}). They are small programs that play models:",
        engine.pool().version()
    );
    eprintln!("              each solves one kind of task; their prices and delays are made up.");
    eprintln!();
}

fn judge(run: &v1::Run) -> Result<ExitCode, Error> {
    let expected = truth::answer();
    eprintln!();
    let Some(answer) = &run.answer else {
        let why = run.failure.as_ref().map_or("it was cancelled", |failure| &failure.message);
        eprintln!("podium: the demo has no answer: {why}");
        return Ok(run_failed());
    };
    print_line(answer)?;
    eprintln!();
    if truth::says_the_same(answer, &expected) {
        eprintln!("Right: a computation of the demo's own, without any worker, also gives `{expected}`.");
        advise();
        Ok(ExitCode::SUCCESS)
    } else {
        eprintln!("Wrong: a computation of the demo's own gives `{expected}`.");
        Ok(run_failed())
    }
}

fn advise() {
    let program = std::env::args().next().unwrap_or_else(|| "podium".to_owned());
    eprintln!(
        r#"
Next, in the project's folder:

  {program} serve
      the same workers behind an OpenAI-compatible API and gRPC

  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \
    -d '{{"model": "podium-ultra", "messages": [{{"role": "user", "content": "What is 12 squared? Then write it in words."}}]}}'

  from openai import OpenAI
  client = OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="none")
  question = {{"role": "user", "content": "Add the atomic number of gold to the number of legs of a spider."}}
  print(client.chat.completions.create(model="podium-ultra", messages=[question]).choices[0].message.content)

  {program} ask "..."
      draws the workflow; asks the server if one runs

  {program} serve --pool FILE
      real models: pools/example-real.toml shows how"#
    );
}
