//! `podium head`: trains mini heads from recorded outcomes and measures them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use podium_domain::ids::WorkerId;
use podium_domain::pool::slots_hash;
use podium_head::features::Features;
use podium_head::outcomes::Outcomes;
use podium_head::score::{self, Standing};
use podium_head::train::{Options, baselines, of_head, train};
use podium_head::{Dataset, Example, LinearHead, NoChoice};

use super::SetupArgs;
use super::output::print_line;
use crate::error::Error;
use crate::pool;

#[derive(Debug, Subcommand)]
pub(super) enum HeadCommand {
    /// Compute and write the hidden states of recorded questions with a bundle's weights.
    Features(FeaturesArgs),
    /// Fit a mini head to recorded outcomes, and report its accuracy on held-out questions.
    Train(Box<TrainArgs>),
    /// Report the accuracy of a mini head on recorded outcomes.
    Eval(EvalArgs),
}

#[derive(Debug, Args)]
pub(super) struct FeaturesArgs {
    /// The conductor's folder.
    #[arg(long, value_name = "FOLDER")]
    bundle: PathBuf,
    /// The outcomes, with their questions, as `podium eval --outcomes` writes them.
    #[arg(long, value_name = "FILE")]
    outcomes: PathBuf,
    /// The file to write.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct DataArgs {
    /// The outcomes: one JSON object per line, with `schema`, `question_id`, `worker` and `reward`.
    #[arg(long, value_name = "FILE")]
    outcomes: PathBuf,
    /// The hidden states of their questions, as `podium head features` writes them.
    #[arg(long, value_name = "FILE")]
    features: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct TrainArgs {
    #[command(flatten)]
    data: DataArgs,
    /// The file to write the head into.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// The random seed, which divides the questions, too.
    #[arg(long, default_value_t = Options::default().seed)]
    seed: u64,
    /// Share of the questions that are held out for measuring.
    #[arg(long, value_name = "SHARE", default_value_t = Options::default().held_out)]
    held_out: f64,
    /// Temperature of the first targets: a reward that is higher by this much is e times as likely.
    #[arg(long, default_value_t = Options::default().temperature)]
    temperature: f64,
    /// Candidates of one iteration of sep-CMA-ES.
    #[arg(long, default_value_t = Options::default().population)]
    population: usize,
    /// Iterations of sep-CMA-ES; 0 leaves it out.
    #[arg(long, default_value_t = Options::default().iterations, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    iterations: u32,
    /// Standard deviation of its first population.
    #[arg(long, default_value_t = Options::default().sigma)]
    sigma: f64,
    #[command(flatten)]
    setup: SetupArgs,
}

#[derive(Debug, Args)]
pub(super) struct EvalArgs {
    /// The head.
    #[arg(value_name = "FILE")]
    head: PathBuf,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) async fn head(command: HeadCommand) -> Result<ExitCode, Error> {
    match command {
        HeadCommand::Features(args) => features(&args).await,
        HeadCommand::Train(args) => fit(&args),
        HeadCommand::Eval(args) => measure(&args),
    }
}

fn fit(args: &TrainArgs) -> Result<ExitCode, Error> {
    let pool = pool::read(&args.setup.settings()?.pool)?;
    let (outcomes, features) = (Outcomes::read(&args.data.outcomes)?, Features::read(&args.data.features)?);
    let workers = pool.workers().iter().map(|worker| &worker.id);
    let slots: Vec<WorkerId> = workers.filter(|id| outcomes.knows(id)).cloned().collect();
    for other in outcomes.workers().into_iter().filter(|id| pool.worker(id).is_none()) {
        eprintln!("podium: outcomes of `{other}` do not count, pool {} has no such worker", pool.version());
    }
    let dataset = Dataset::join(&outcomes, &features, &slots)?;
    tell_missing(&dataset);
    let pool_sha256 = slots_hash(&pool, &slots).map_err(|e| Error::OtherHead(e.to_string()))?;
    let options = Options {
        seed: args.seed,
        held_out: args.held_out,
        temperature: args.temperature,
        population: args.population,
        iterations: args.iterations,
        sigma: args.sigma,
    };
    let trained = train(&dataset, features.source().clone(), pool_sha256, &options)?;
    let bytes = trained.head.to_bytes()?;
    let written = std::fs::write(&args.output, &bytes);
    written.map_err(|source| Error::Unwritable { path: args.output.clone(), source })?;
    let held_out = trained.held_out.first().map_or(0, |(_, standing)| standing.questions);
    print_line(&format!(
        "questions  {}: {} to learn from, {} to choose by, {held_out} held out",
        dataset.examples().len(),
        trained.learned_from,
        trained.chosen_by
    ))?;
    print_line(&format!("head       {} slots, {} values", slots.len(), dataset.hidden()))?;
    print_line(&format!("kept       {}, pull {:.0e}", trained.stage.as_str(), trained.pull))?;
    print_table("on the questions that were held out", &trained.held_out)?;
    print_line(&format!("written    {}", args.output.display()))?;
    let file = args.output.file_name().unwrap_or_default().to_string_lossy();
    print_line(&format!(
        "for the manifest of its bundle:\n[head]\nfile = \"{file}\"\nsha256 = \"{}\"",
        podium_bundle::sha256(&bytes)
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &EvalArgs) -> Result<ExitCode, Error> {
    let head = LinearHead::read(&args.head)?;
    let (outcomes, features) = (Outcomes::read(&args.data.outcomes)?, Features::read(&args.data.features)?);
    if features.source() != head.source() || features.hidden() != head.hidden() {
        return Err(Error::OtherHead(format!(
            "{} was trained on hidden states of other weights or another prompt than {}: {:?}, {:?}",
            args.head.display(),
            args.data.features.display(),
            head.source(),
            features.source()
        )));
    }
    let dataset = Dataset::join(&outcomes, &features, head.slots())?;
    tell_missing(&dataset);
    let examples: Vec<&Example> = dataset.examples().iter().collect();
    let mut table = baselines(&examples, &examples, &dataset);
    table.push(("head".to_owned(), of_head(&head, &examples)));
    table.push(("best possible".to_owned(), score::oracle(&examples)));
    let ties = examples.iter().filter(|example| head.choose(&example.hidden, |_| true) == Err(NoChoice::Tie));
    print_line(&format!("questions  {}, those that the head was trained on included", examples.len()))?;
    print_line(&format!("ties       {}, left to the prompted conductor", ties.count()))?;
    print_table("on all of them", &table)?;
    Ok(ExitCode::SUCCESS)
}

fn tell_missing(dataset: &Dataset) {
    let missing = dataset.without_features();
    if missing > 0 {
        eprintln!("podium: {missing} questions with outcomes have no features and do not count");
    }
}

/// Accuracy: the share of questions on which no recorded worker was better.
fn print_table(title: &str, table: &[(String, Standing)]) -> Result<(), Error> {
    let width = table.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    print_line(&format!("{title}:"))?;
    for (name, standing) in table {
        let Standing { accuracy, reward, reward_error, questions } = standing;
        print_line(&format!(
            "  {name:width$}  accuracy {:5.1} %  mean reward {reward:.3} \u{b1} {reward_error:.3}  ({questions})",
            accuracy * 100.0
        ))?;
    }
    Ok(())
}

/// The distinct questions of a file of outcomes.
#[cfg(any(feature = "llama", test))]
fn questions(path: &std::path::Path) -> Result<std::collections::BTreeMap<String, String>, Error> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
    let mut questions = std::collections::BTreeMap::new();
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let bad = |problem: String| Error::BadLine { path: path.to_owned(), line, problem };
        let outcome: podium_head::outcomes::Outcome =
            serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
        let question = outcome.question.ok_or_else(|| bad("it has no `question` to read".to_owned()))?;
        match questions.get(&outcome.question_id) {
            Some(known) if *known != question => {
                return Err(bad(format!(
                    "question `{}` differs from an earlier line with the same id",
                    outcome.question_id
                )));
            }
            Some(_) => {}
            None => drop(questions.insert(outcome.question_id, question)),
        }
    }
    Ok(questions)
}

#[cfg(feature = "llama")]
async fn features(args: &FeaturesArgs) -> Result<ExitCode, Error> {
    let questions = questions(&args.outcomes)?;
    let folder = args.bundle.clone();
    let opened = tokio::task::spawn_blocking(move || podium_llama::QuestionReader::open(&folder)).await;
    let reader = opened.unwrap_or_else(|panic| Err(panic.into())).map_err(Error::Reading)?;
    let mut features = Features::new(reader.source().clone());
    let total = questions.len();
    for (id, question) in questions {
        match reader.read(&question).await {
            Ok(hidden) => features.add(id, hidden).map_err(|e| Error::Reading(e.into()))?,
            Err(podium_llama::engine::EngineError::PromptTooLong { tokens, tokens_max }) => {
                eprintln!(
                    "podium: question `{id}` is left out: {tokens} tokens, there is room for {tokens_max}"
                );
            }
            Err(error) => return Err(Error::Reading(error.into())),
        }
        if features.len().is_multiple_of(100) {
            eprintln!("podium: {} of {total} read", features.len());
        }
    }
    reader.shut_down().await;
    let written = std::fs::write(&args.output, features.to_bytes()?);
    written.map_err(|source| Error::Unwritable { path: args.output.clone(), source })?;
    print_line(&format!(
        "read       {} of {total} questions, {} values each, into {}",
        features.len(),
        features.hidden(),
        args.output.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(feature = "llama"))]
#[expect(clippy::unused_async, reason = "a build with a model waits for it")]
async fn features(args: &FeaturesArgs) -> Result<ExitCode, Error> {
    let FeaturesArgs { bundle, outcomes: _, output: _ } = args;
    let problem = format!("this podium was built without llama.cpp and cannot load {}", bundle.display());
    Err(Error::Reading(problem.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_once_and_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outcomes.jsonl");
        let line =
            |question: &str| format!(r#"{{"schema":1,"question_id":"q",{question}"worker":"a","reward":1}}"#);
        let read = |lines: [String; 2]| {
            std::fs::write(&path, lines.join("\n")).unwrap();
            questions(&path)
        };
        let same = line(r#""question":"why?","#);
        assert_eq!(read([same.clone(), same.clone()]).unwrap().len(), 1);
        let other = read([same.clone(), line(r#""question":"who?","#)]).unwrap_err().to_string();
        assert!(other.contains("line 2") && other.contains("differs from an earlier line"), "{other}");
        let missing = read([same, line("")]).unwrap_err().to_string();
        assert!(missing.contains("line 2") && missing.contains("no `question`"), "{missing}");
    }
}
