//! `podium estimate`: the possible cost of a question.

use std::process::ExitCode;

use clap::Args;
use podium_api::v1;
use podium_domain::money::Cost;
use serde::Serialize;

use super::ask::read_question;
use super::backend::{Backend, Wanted, question_request};
use super::output::{print_json, print_line};
use super::{EffortName, SetupArgs, TierName};
use crate::assemble::Embedded;
use crate::error::Error;
use crate::pool::Pace;

#[derive(Debug, Args)]
pub(super) struct EstimateArgs {
    /// The question; `-` reads it from standard input.
    #[arg(value_name = "QUESTION")]
    question: String,
    /// Optimize latency (mini) or quality (ultra).
    #[arg(long, value_enum, default_value = "ultra")]
    tier: TierName,
    /// How much work to put into the answer.
    #[arg(long, value_enum, default_value = "medium")]
    effort: EffortName,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Ask the server whose gRPC API is at this URL, such as `http://127.0.0.1:8081`.
    #[arg(long, value_name = "URL", conflicts_with_all = ["data", "pool", "conductor"])]
    server: Option<String>,
    #[command(flatten)]
    setup: SetupArgs,
}

#[derive(Serialize)]
struct Report {
    cost_max_usd: f64,
    planning_cost_max_usd: f64,
    cost_min_usd: f64,
    steps: Vec<StepReport>,
    /// The median cost of runs of the same model; `None` if too few are known.
    typical_cost_usd: Option<f64>,
    typical_of_runs: u32,
}

#[derive(Serialize)]
struct StepReport {
    worker: String,
    cost_max_usd: f64,
}

pub(super) async fn estimate(args: EstimateArgs) -> Result<ExitCode, Error> {
    let settings = args.setup.settings()?;
    settings.start_log("warn");
    let request = question_request(read_question(&args.question)?, args.tier.into(), args.effort.into());
    let mut backend = match args.server {
        Some(url) => Backend::open(&Wanted::Server(url), &settings).await?,
        None => Backend::here(Embedded::start_idle(&settings, Pace::Instant).await?),
    };
    let estimate = backend.estimate(request).await;
    backend.close().await;
    let estimate = estimate?;
    let usd = |nano| Cost::from_nano_usd(nano);
    if args.json {
        let steps = estimate.steps.iter().map(|step| StepReport {
            worker: step.worker.clone(),
            cost_max_usd: usd(step.cost_max_nano_usd).usd(),
        });
        print_json(&Report {
            cost_max_usd: usd(estimate.cost_max_nano_usd).usd(),
            planning_cost_max_usd: usd(estimate.planning_cost_max_nano_usd).usd(),
            cost_min_usd: usd(estimate.cost_min_nano_usd).usd(),
            steps: steps.collect(),
            typical_cost_usd: estimate.typical.map(|typical| usd(typical.cost_nano_usd).usd()),
            typical_of_runs: estimate.typical.map_or(0, |typical| typical.runs),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    for (number, step) in (1..).zip(&estimate.steps) {
        print_line(&format!("{number}  {}  at most {}", step.worker, usd(step.cost_max_nano_usd)))?;
    }
    let by = if estimate.steps.is_empty() { "by any plan within the policy" } else { "by this plan" };
    print_line(&format!(
        "at most {} {by}, planning included ({}); failed attempts come on top",
        usd(estimate.cost_max_nano_usd),
        usd(estimate.planning_cost_max_nano_usd),
    ))?;
    print_line(&match estimate.typical {
        Some(v1::TypicalCost { cost_nano_usd, runs }) => {
            format!("half of your latest {runs} runs of this model cost at most {}", usd(cost_nano_usd))
        }
        None => "too few runs of this model have succeeded to say what is usual".to_owned(),
    })?;
    Ok(ExitCode::SUCCESS)
}
