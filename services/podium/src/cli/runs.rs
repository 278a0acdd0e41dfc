//! `podium runs`: the runs that there are, one of them in full, and what is thought of them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use podium_api::v1;

use super::SetupArgs;
use super::backend::{Backend, Wanted};
use super::outcomes::{self, Written};
use super::output::{print_json, print_line};
use crate::assemble::Embedded;
use crate::error::Error;
use crate::report::{RunReport, SummaryReport, describe};

#[derive(Debug, Subcommand)]
pub(super) enum RunsCommand {
    /// List the newest runs.
    List(ListArgs),
    /// Show one run: its plan, who did what, what it cost.
    Show(ShowArgs),
    /// Say how good the answer of a run was; the last word counts.
    Rate(RateArgs),
    /// Write what ratings say about single workers to a file that `podium head train` reads.
    Outcomes(OutcomesArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Most runs to list, at most 200.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    #[command(flatten)]
    from: FromArgs,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The run's id.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    from: FromArgs,
}

#[derive(Debug, Args)]
pub(super) struct RateArgs {
    /// The run's id.
    #[arg(value_name = "ID")]
    id: String,
    /// From 0 (useless) to 1 (right).
    #[arg(value_name = "SCORE")]
    score: f64,
    /// Why, in words.
    #[arg(long, value_name = "TEXT", default_value = "")]
    comment: String,
    #[command(flatten)]
    from: SourceArgs,
}

#[derive(Debug, Args)]
pub(super) struct OutcomesArgs {
    /// The file, with one JSON object a line. What was in it is replaced.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Only runs that were accepted then or later, such as `2026-11-01` or `2026-11-01T12:00:00Z`.
    #[arg(long, value_name = "TIME")]
    from: Option<prost_types::Timestamp>,
    /// Only runs that were accepted before that.
    #[arg(long, value_name = "TIME")]
    until: Option<prost_types::Timestamp>,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, Args)]
struct FromArgs {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, Args)]
pub(super) struct SourceArgs {
    /// Ask the server whose gRPC door is at this URL, such as `http://127.0.0.1:8081`.
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    server: Option<String>,
    #[command(flatten)]
    setup: SetupArgs,
}

impl SourceArgs {
    /// A server if there is one, else the data folder; the data folder if it is named.
    pub(super) async fn open(&self) -> Result<Backend, Error> {
        let settings = self.setup.settings()?;
        settings.start_log("warn");
        if self.setup.data.is_some() {
            return Ok(Backend::here(Embedded::open_to_read(&settings).await?));
        }
        let url = self.server.clone().unwrap_or_else(|| format!("http://{}", settings.grpc_listen));
        match Backend::open(&Wanted::Server(url), &settings).await {
            Ok(backend) => Ok(backend),
            Err(error) if self.server.is_some() => Err(error),
            Err(_nobody_there) => Ok(Backend::here(Embedded::open_to_read(&settings).await?)),
        }
    }
}

pub(super) async fn runs(command: RunsCommand) -> Result<ExitCode, Error> {
    match command {
        RunsCommand::List(args) => {
            let mut backend = args.from.source.open().await?;
            let runs = backend.list(args.limit).await;
            backend.close().await;
            list(&runs?, args.from.json)
        }
        RunsCommand::Show(args) => {
            let mut backend = args.from.source.open().await?;
            let run = backend.run(&args.id).await;
            backend.close().await;
            let report = RunReport::of(&run?);
            if args.from.json {
                print_json(&report)?;
            } else {
                print_line(describe(&report).trim_end())?;
            }
            Ok(ExitCode::SUCCESS)
        }
        RunsCommand::Rate(RateArgs { id, score, comment, from }) => {
            let mut backend = from.open().await?;
            let rated = backend.rate(v1::RateRunRequest { run_id: id, score: Some(score), comment }).await;
            backend.close().await;
            rated?;
            Ok(ExitCode::SUCCESS)
        }
        RunsCommand::Outcomes(args) => {
            let mut backend = args.source.open().await?;
            let written = outcomes::write(&mut backend, &args.out, (args.from, args.until)).await;
            backend.close().await;
            let Written { outcomes, questions } = written?;
            let file = args.out.display();
            print_line(&format!("recorded   {outcomes} outcomes of {questions} questions in {file}"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list(runs: &[v1::RunSummary], as_json: bool) -> Result<ExitCode, Error> {
    let reports: Vec<_> = runs.iter().map(SummaryReport::of).collect();
    if as_json {
        print_json(&reports)?;
    } else if reports.is_empty() {
        eprintln!("podium: there are no runs yet");
    }
    for report in reports.iter().filter(|_| !as_json) {
        print_line(&report.line())?;
    }
    Ok(ExitCode::SUCCESS)
}
