//! `podium eval --outcomes`: asks each worker of the pool each question, and records which workers were right.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use futures::StreamExt as _;
use podium_api::ModelName;
use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::policy::{Effort, Policy, Tier, WorkersAllowed};
use podium_domain::sampling::Sampling;
use podium_head::outcomes::{Outcome, SCHEMA};
use podium_planning::{ConductorChoice, ConductorChoices};

use super::eval::{Item, ask, check_pool};
use super::output::print_line;
use crate::assemble::Embedded;
use crate::error::Error;
use crate::grading::Graders;
use crate::pool::Pace;
use crate::settings::Settings;
use crate::terminal;

/// Asks all workers, and writes one line for each answer. A failed run is not an outcome, because it says nothing about the question.
pub(super) async fn record(
    settings: Settings,
    items: &[Item],
    concurrency: usize,
    file: &Path,
) -> Result<ExitCode, Error> {
    let settings = Settings { conductors: ConductorChoices::one(ConductorChoice::Direct(None)), ..settings };
    let embedded = Embedded::start_apart(&settings, Pace::Instant).await?;
    embedded.notices().iter().for_each(|notice| terminal::note(notice));
    let (engine, graders) = (embedded.engine(), &Graders::new(embedded.engine().clone()));
    check_pool(items, &engine.pool())?;
    let workers: Vec<WorkerId> = engine.pool().workers().iter().map(|worker| worker.id.clone()).collect();
    let total = items.len() * workers.len();
    let pairs = items.iter().flat_map(|item| workers.iter().map(move |worker| (item, worker)));
    let asked = pairs.map(|(item, worker)| async move {
        let policy = Policy {
            workers_allowed: WorkersAllowed::Only(BTreeSet::from([worker.clone()])),
            ..Policy::new(Tier::Mini, Effort::Medium)
        };
        Ok::<_, Error>((
            item,
            worker,
            ask(graders, item.clone(), ModelName::of_tier(Tier::Mini), policy, Sampling::NONE).await?,
        ))
    });
    let mut asked = futures::stream::iter(asked).buffer_unordered(concurrency);
    let (mut outcomes, mut failed, mut cost) = (Vec::with_capacity(total), 0usize, Cost::ZERO);
    while let Some(answered) = asked.next().await {
        let (item, worker, answer) = answered?;
        cost += Cost::from_nano_usd(answer.cost_nano_usd);
        if let Some(error) = answer.error {
            terminal::note(&format!("question `{}` to {worker}: {error}", item.id));
            failed += 1;
            continue;
        }
        outcomes.push(Outcome {
            schema: SCHEMA,
            question_id: item.id.clone(),
            question: Some(item.question.clone()),
            task: None,
            answer: answer.answer.clone(),
            worker: worker.clone(),
            reward: if answer.right { 1.0 } else { 0.0 },
            cost_nano_usd: Some(answer.cost_nano_usd),
            latency_ms: Some(answer.latency_ms),
        });
    }
    drop(asked);
    embedded.stop().await;
    outcomes.sort_by(|a, b| (&a.question_id, &a.worker).cmp(&(&b.question_id, &b.worker)));
    write(file, &outcomes)?;
    print_line(&format!("questions  {}", items.len()))?;
    for worker in &workers {
        let of_worker = outcomes.iter().filter(|outcome| outcome.worker == *worker);
        let (asked, right) = of_worker
            .fold((0, 0), |(asked, right), outcome| (asked + 1, right + usize::from(outcome.reward > 0.5)));
        print_line(&format!("  {worker}  {right} of {asked} right"))?;
    }
    print_line(&format!(
        "recorded   {} outcomes in {}, {failed} runs failed",
        outcomes.len(),
        file.display()
    ))?;
    print_line(&format!("cost       {cost}"))?;
    Ok(ExitCode::SUCCESS)
}

fn write(file: &Path, outcomes: &[Outcome]) -> Result<(), Error> {
    let mut text = String::new();
    for outcome in outcomes {
        let line = serde_json::to_string(outcome);
        text += &line.map_err(|e| Error::Unwritable { path: file.to_owned(), source: e.into() })?;
        text.push('\n');
    }
    std::fs::write(file, text).map_err(|source| Error::Unwritable { path: file.to_owned(), source })
}
