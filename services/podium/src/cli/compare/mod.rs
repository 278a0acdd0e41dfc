//! `podium eval --system`: asks several systems the same questions, and compares them in pairs.

mod neighbours;
mod plot;
mod report;
mod results;
mod statistics;
mod systems;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use futures::StreamExt as _;
use podium_domain::ids::WorkerId;
use podium_domain::policy::Effort;
use podium_domain::pool::Pool;
use podium_domain::sampling::Sampling;
use podium_domain::split_mix::split_mix;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::eval::{Item, Outcome, ask, check_pool};
use super::output::{print_json, print_text};
use crate::assemble::Embedded;
use crate::error::Error;
use crate::grading::{Grader, Graders};
use crate::pool::Pace;
use crate::settings::Settings;
use crate::terminal;
use report::Report;
use results::Results;
use systems::System;

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// Compare this system with the others, as NAME=CONDUCTOR: a value of the setting `conductor` for podium-ultra, or `mini` for
    /// podium-mini, or `random` for a worker that is drawn for each question, or `neighbours:FILE` for the worker that answered the
    /// most similar questions of a file of `--outcomes` best, or `max:FILE` for podium-max with the workflows of this file. May be
    /// repeated.
    #[arg(long = "system", value_name = "NAME=CONDUCTOR", conflicts_with_all = ["outcomes", "tier"])]
    systems: Vec<System>,
    /// Compare each worker of the pool, too, and with them the best single worker and an oracle that always asks a worker that is
    /// right.
    #[arg(long, conflicts_with_all = ["outcomes", "tier"])]
    each_worker: bool,
    /// Also compare each system in pairs with this one. The best single worker is always compared with.
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// The random seed. Each question's seed follows from it, and is sent to conductors and workers.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u32,
    /// Draw accuracy over cost into this file, as an SVG image.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Keep each answer in this file, and continue from it after an interruption.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

impl CompareArgs {
    /// Whether several systems were asked for.
    pub(super) fn is_wanted(&self) -> bool {
        self.each_worker || !self.systems.is_empty()
    }
}

/// The questions, and how they are asked.
pub(super) struct Questions {
    pub(super) items: Vec<Item>,
    pub(super) effort: Effort,
    pub(super) concurrency: usize,
}

/// Asks all systems, one after the other, and prints the comparison.
pub(super) async fn compare(
    settings: &Settings,
    questions: &Questions,
    args: &CompareArgs,
    as_json: bool,
) -> Result<ExitCode, Error> {
    let pool = crate::pool::read(&settings.pool)?;
    let workers: Vec<WorkerId> = pool.workers().iter().map(|worker| worker.id.clone()).collect();
    check_pool(&questions.items, &pool)?;
    let systems = systems(args, &workers)?;
    let (mut results, mut outcomes) =
        Results::open(args.results.as_deref(), &header(questions, &systems, &pool, args.seed))?;
    for system in &systems {
        let known = outcomes.entry(system.name.clone()).or_default();
        let open: Vec<&Item> = questions.items.iter().filter(|item| !known.contains_key(&item.id)).collect();
        if open.is_empty() {
            continue;
        }
        let neighbours = system.neighbours(&workers)?;
        terminal::note(&format!("{}: {} questions", system.name, open.len()));
        let embedded = Embedded::start_apart(&system.settings(settings), Pace::Instant).await?;
        let graders = Graders::new(embedded.engine().clone());
        let asked = open.into_iter().map(|item| async {
            let seed = seed_of(args.seed, &item.id);
            let sampling = Sampling { seed: Some(seed), ..Sampling::NONE };
            let routed = neighbours.as_ref().and_then(|neighbours| neighbours.choose(&item.question));
            let policy = system.policy(questions.effort, &workers, routed.as_ref(), seed);
            match ask(&graders, item.clone(), system.model(), policy, sampling).await {
                // A question that one system refuses is a wrong answer of that system.
                Err(Error::Refused(problem)) => Ok(Outcome::failed(&item.id, item.answer(), &problem)),
                asked => asked,
            }
        });
        let mut asked = futures::stream::iter(asked).buffer_unordered(questions.concurrency);
        while let Some(outcome) = asked.next().await {
            let outcome = outcome?;
            results.add(&system.name, &outcome)?;
            known.insert(outcome.id.clone(), outcome);
            if known.len() % 100 == 0 {
                terminal::note(&format!("{}: {} of {}", system.name, known.len(), questions.items.len()));
            }
        }
        drop(asked);
        embedded.stop().await;
    }
    let report = Report::of(questions, &systems, &outcomes, args, &pool);
    if let Some(path) = &args.plot {
        let drawn = std::fs::write(path, report.svg());
        drawn.map_err(|source| Error::Unwritable { path: path.clone(), source })?;
    }
    if as_json {
        print_json(&report)?;
    } else {
        print_text(&report.markdown())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn systems(args: &CompareArgs, workers: &[WorkerId]) -> Result<Vec<System>, Error> {
    let mut systems = args.systems.clone();
    if args.each_worker {
        systems.extend(workers.iter().map(System::of_worker));
    }
    let mut names = BTreeSet::new();
    for system in &systems {
        if !names.insert(system.name.as_str()) {
            let problem = format!("two systems have the name `{}`", system.name);
            return Err(Error::Contradiction { flag: "--system", problem });
        }
    }
    match &args.baseline {
        Some(name) if !names.contains(name.as_str()) => {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            let problem = format!("no system has the name `{name}`; there are {names}");
            Err(Error::Contradiction { flag: "--baseline", problem })
        }
        _ => Ok(systems),
    }
}

/// Describes an evaluation: results of another one are not mixed with its results.
fn header(questions: &Questions, systems: &[System], pool: &Pool, seed: u32) -> Value {
    let mut hash = Sha256::new();
    for item in &questions.items {
        for text in [&item.id, &item.question, item.answer()] {
            hash.update(text.as_bytes());
            hash.update([0]);
        }
        if *item.grader() != Grader::Exact {
            hash.update(json!(item.grader()).to_string().as_bytes());
        }
    }
    let digest = hash.finalize().iter().take(8).fold(0, |number: u64, byte| (number << 8) | u64::from(*byte));
    json!({
        "schema": 1,
        "questions": format!("{digest:016x}"),
        "pool": pool.version(),
        "effort": questions.effort.as_str(),
        "seed": seed,
        "systems": systems.iter().map(System::described).collect::<Vec<_>>(),
    })
}

/// The seed of a question. It is the same for all systems.
fn seed_of(seed: u32, id: &str) -> u32 {
    let digest: [u8; 32] = Sha256::digest(id.as_bytes()).into();
    let number = digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte));
    // Seeds of 31 bits are accepted by every vendor.
    u32::try_from(split_mix(u64::from(seed) ^ number, 1) >> 33).unwrap_or(seed)
}
