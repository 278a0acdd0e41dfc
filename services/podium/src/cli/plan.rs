//! `podium plan`: plans a question without running the plan.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use podium_domain::conversation::Conversation;
use podium_domain::policy::Policy;
use podium_domain::run::{PlanResult, Planned};
use podium_ports::conductor::PlanOutcome;
use serde::Serialize;

use super::ask::{is_live, read_question};
use super::output::{print_json, print_line};
use super::{EffortName, SetupArgs, TierName};
use crate::assemble::Embedded;
use crate::error::Error;
use crate::pool::Pace;
use crate::terminal;

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
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
    #[command(flatten)]
    setup: SetupArgs,
}

#[derive(Serialize)]
struct PlanReport<'a> {
    conductor: String,
    pool: String,
    reasoning: &'a str,
    fallback: Option<&'a str>,
    steps: Vec<StepReport<'a>>,
    prompt_tokens: u64,
    completion_tokens: u64,
    cost_usd: f64,
}

#[derive(Serialize)]
struct StepReport<'a> {
    index: u16,
    worker: &'a str,
    subtask: &'a str,
    access: Vec<u16>,
    /// The step takes over the output of the first of these if their answers agree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unless_agree: Vec<u16>,
}

pub(super) async fn plan(args: PlanArgs) -> Result<ExitCode, Error> {
    let settings = args.setup.settings()?;
    settings.start_log("warn");
    let question = read_question(&args.question)?;
    let conversation = Conversation::question_only(question).map_err(|e| Error::Refused(e.to_string()))?;
    let policy = Policy::new(args.tier.into(), args.effort.into());
    let embedded = Embedded::start_idle(&settings, Pace::Instant).await?;
    embedded.notices().iter().for_each(|notice| terminal::note(notice));
    let live = is_live();
    let write = move |text: &str| {
        if live {
            eprint!("{}", terminal::visible(text));
            let _ = std::io::stderr().flush();
        }
    };
    let outcome = embedded.plan(&conversation, policy, &write).await;
    if live {
        eprintln!();
    }
    let printed = match outcome {
        Ok(outcome) => print(&embedded, &outcome, args.json),
        Err(error) => Err(error.into()),
    };
    embedded.stop().await;
    printed.map(|()| ExitCode::SUCCESS)
}

fn print(embedded: &Embedded, outcome: &PlanOutcome, as_json: bool) -> Result<(), Error> {
    let PlanResult::Plan(planned) = &outcome.result else {
        return Err(Error::Refused(
            "the conductor kept an earlier answer, but a new question has none".to_owned(),
        ));
    };
    if as_json {
        return print_json(&report(embedded, outcome, planned));
    }
    if let Some(why) = &planned.fallback {
        terminal::note(&format!("the plan is a substitute: {why}"));
    }
    for (index, step) in planned.plan.indexed() {
        let sees: Vec<_> = step.access.as_slice().iter().map(ToString::to_string).collect();
        let sees = if sees.is_empty() { String::new() } else { format!("  (sees {})", sees.join(", ")) };
        let named: Vec<_> = step.unless_agree.as_slice().iter().map(ToString::to_string).collect();
        let unless = match named.len() {
            0 => String::new(),
            _ => format!("  (unless {} agree)", named.join(", ")),
        };
        print_line(&format!("{index}  {}  {}{sees}{unless}", step.worker, step.subtask))?;
    }
    Ok(())
}

fn report<'a>(embedded: &'a Embedded, outcome: &PlanOutcome, planned: &'a Planned) -> PlanReport<'a> {
    let steps = planned.plan.indexed().map(|(index, step)| StepReport {
        index: index.get(),
        worker: step.worker.as_str(),
        subtask: &step.subtask,
        access: step.access.as_slice().iter().map(|seen| seen.get()).collect(),
        unless_agree: step.unless_agree.as_slice().iter().map(|named| named.get()).collect(),
    });
    PlanReport {
        conductor: embedded.engine().conductor_id(),
        pool: embedded.engine().pool().version(),
        reasoning: &planned.reasoning,
        fallback: planned.fallback.as_deref(),
        steps: steps.collect(),
        prompt_tokens: outcome.usage.prompt_tokens,
        completion_tokens: outcome.usage.completion_tokens,
        cost_usd: outcome.cost.usd(),
    }
}
