//! `podium runs`: lists, shows, cancels and rates runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use podium_api::v1;

use super::DataArgs;
use super::backend::{Backend, Wanted};
use super::outcomes::{self, Written};
use super::output::{print_json, print_line};
use crate::assemble::Embedded;
use crate::error::Error;
use crate::report::{RunReport, SummaryReport, count, describe};
use crate::terminal;

#[derive(Debug, Subcommand)]
pub(super) enum RunsCommand {
    /// List the newest runs.
    List(ListArgs),
    /// Show one run: its plan, its steps with their workers, and its cost.
    Show(ShowArgs),
    /// Cancel a run that has not ended.
    Cancel(CancelArgs),
    /// Rate the answer of a run. The last rating counts.
    Rate(RateArgs),
    /// Write the ratings of single workers to a file that `podium head train` reads.
    Outcomes(OutcomesArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Most runs to list, at most 200.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
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
pub(super) struct CancelArgs {
    /// The run's id.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    from: SourceArgs,
}

#[derive(Debug, Args)]
pub(super) struct RateArgs {
    /// The run's id.
    #[arg(value_name = "ID")]
    id: String,
    /// From 0 (useless) to 1 (right); up is 1, down is 0.
    #[arg(value_name = "SCORE", value_parser = score)]
    score: f64,
    /// A comment.
    #[arg(long, value_name = "TEXT", default_value = "")]
    comment: String,
    #[command(flatten)]
    from: SourceArgs,
}

#[derive(Debug, Args)]
pub(super) struct OutcomesArgs {
    /// The file, with one JSON object per line. Its previous content is replaced.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Only runs that were accepted at this time or later, such as `2026-11-01` or `2026-11-01T12:00:00Z`.
    #[arg(long, value_name = "TIME")]
    from: Option<prost_types::Timestamp>,
    /// Only runs that were accepted before this time.
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
    /// Ask the server whose gRPC API is at this URL, such as `http://127.0.0.1:8081`.
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    server: Option<String>,
    #[command(flatten)]
    setup: DataArgs,
}

impl SourceArgs {
    /// The data folder if a flag names it; otherwise a server if one runs, and else the data folder of the settings.
    pub(super) async fn open(&self) -> Result<Backend, Error> {
        let settings = self.setup.settings()?;
        settings.start_log("warn");
        if self.setup.names_a_folder() {
            return Ok(Backend::here(Embedded::open_to_read(&settings).await?));
        }
        let url = self.server.clone().unwrap_or_else(|| format!("http://{}", settings.grpc_listen));
        match Backend::open(&Wanted::Server(url), &settings).await {
            Ok(backend) => Ok(backend),
            Err(Error::NoServer { .. } | Error::NotPodium { .. }) if self.server.is_none() => {
                Ok(Backend::here(Embedded::open_to_read(&settings).await?))
            }
            Err(error) => Err(error),
        }
    }
}

/// Parses a rating: a number, `up` or `down`.
fn score(text: &str) -> Result<f64, String> {
    match text {
        "up" => Ok(1.0),
        "down" => Ok(0.0),
        _ => text
            .parse()
            .ok()
            .filter(|score| (0.0..=1.0).contains(score))
            .ok_or_else(|| "a score must be a number from 0 to 1, up or down".to_owned()),
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
        RunsCommand::Cancel(CancelArgs { id, from }) => {
            let mut backend = from.open().await?;
            let cancelled = backend.cancel(&id).await;
            backend.close().await;
            cancelled.map(|()| ExitCode::SUCCESS)
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
            let written = outcomes::write(&mut backend, &args.out, args.from, args.until).await;
            backend.close().await;
            let Written { outcomes, questions } = written?;
            let file = args.out.display();
            let (outcomes, questions) = (count(outcomes, "outcome"), count(questions, "question"));
            print_line(&format!("recorded   {outcomes} of {questions} in {file}"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list(runs: &[v1::RunSummary], as_json: bool) -> Result<ExitCode, Error> {
    let reports: Vec<_> = runs.iter().map(SummaryReport::of).collect();
    if as_json {
        print_json(&reports)?;
    } else if reports.is_empty() {
        terminal::note("there are no runs yet");
    }
    for report in reports.iter().filter(|_| !as_json) {
        print_line(&report.line())?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rating_is_a_number_or_a_thumb() {
        assert_eq!((score("up"), score("down"), score("0.5")), (Ok(1.0), Ok(0.0), Ok(0.5)));
        for wrong in ["", "2", "-0.1", "NaN", "sideways"] {
            assert!(score(wrong).is_err(), "{wrong}");
        }
    }
}
