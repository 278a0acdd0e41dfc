//! `podium head`: trains mini heads from recorded outcomes and measures them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use podium_domain::ids::WorkerId;
use podium_domain::pool::{Pool, slots_hash};
use podium_head::features::Features;
use podium_head::folds::{self, Compared, Comparison};
use podium_head::outcomes::Outcomes;
use podium_head::score::{self, Paired, Scores, Standing};
use podium_head::train::{Options, baselines, of_head, train};
use podium_head::{Choices, Dataset, Example, Head, Identity, Kind, NoChoice, Source};
use podium_planning::WorkflowSet;
use podium_ports::causes::with_causes;

use super::SetupArgs;
use super::output::print_line;
use super::workflow_outcomes;
use crate::error::Error;
use crate::pool;

#[derive(Debug, Subcommand)]
pub(super) enum HeadCommand {
    /// Compute and write the hidden states of recorded questions.
    Features(FeaturesArgs),
    /// Fit a mini head to recorded outcomes, and evaluate it on held-out questions.
    Train(Box<TrainArgs>),
    /// Evaluate a mini head on recorded outcomes, or compare all kinds of heads by cross-validation.
    Eval(Box<EvalArgs>),
    /// Add outcomes to the memory of a head of kind `neighbours`; they count without training.
    Add(AddArgs),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ModelArgs {
    /// Read the questions with the weights of the conductor in this folder.
    #[arg(long, value_name = "FOLDER")]
    bundle: Option<PathBuf>,
    /// Read the questions with this sentence encoder.
    #[arg(long, value_name = "FILE.gguf")]
    encoder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct FeaturesArgs {
    #[command(flatten)]
    model: ModelArgs,
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
    #[arg(long, value_name = "FILE", required_unless_present_any = ["encoder", "words"], conflicts_with_all = ["encoder", "words"])]
    features: Option<PathBuf>,
    /// Compute the hidden states with this sentence encoder instead.
    #[arg(long, value_name = "FILE.gguf", conflicts_with = "words")]
    encoder: Option<PathBuf>,
    /// Read vectors of the questions' words instead, which need no model. Heads of `podium-max` read these.
    #[arg(long)]
    words: bool,
    /// Choose among the workflows of this file, the one of `conductor_max`, instead of among workers. Outcomes that the recorded ones
    /// lack are derived from the recorded `answer`s of workers, for workflows whose steps get the question alone.
    #[arg(long, value_name = "FILE.yaml")]
    workflows: Option<PathBuf>,
}

/// The kinds of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KindArg {
    /// A row of weights for each worker.
    Linear,
    /// The mean over the most similar recorded questions.
    Neighbours,
    /// Kernel ridge regression over recorded questions and the form of their texts.
    Kernel,
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::Linear => Self::Linear,
            KindArg::Neighbours => Self::Neighbours,
            KindArg::Kernel => Self::Kernel,
        }
    }
}

#[derive(Debug, Args)]
struct FitArgs {
    /// The random seed. It also divides the questions into those for training and those for measuring.
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().seed)]
    seed: u64,
    /// How many right answers a US dollar is worth: a head is trained for the reward minus this factor times the cost.
    #[arg(long, value_name = "FACTOR", default_value_t = 0.0)]
    price_factor: f64,
    /// Temperature of a linear head's first targets: a value that is higher by this much is e times as likely.
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().temperature)]
    temperature: f64,
    /// Candidates of one iteration of sep-CMA-ES, the second stage of a linear head.
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().population)]
    population: usize,
    /// Iterations of sep-CMA-ES; 0 leaves it out.
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().iterations, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    iterations: u32,
    /// Standard deviation of its first population.
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().sigma)]
    sigma: f64,
}

impl FitArgs {
    fn options(&self, kind: Kind, held_out: f64) -> Options {
        let Self { seed, price_factor: _, temperature, population, iterations, sigma } = *self;
        Options { kind, seed, held_out, temperature, population, iterations, sigma }
    }
}

#[derive(Debug, Args)]
pub(super) struct TrainArgs {
    #[command(flatten)]
    data: DataArgs,
    /// The file to write the head into.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// How the head chooses.
    #[arg(long, value_enum, default_value_t = KindArg::Linear)]
    kind: KindArg,
    /// Share of the questions that are held out for measuring.
    #[arg(long, value_name = "SHARE", default_value_t = Options::default().held_out)]
    held_out: f64,
    #[command(flatten)]
    fit: FitArgs,
    #[command(flatten)]
    setup: SetupArgs,
}

#[derive(Debug, Args)]
pub(super) struct EvalArgs {
    /// The head.
    #[arg(value_name = "FILE", required_unless_present = "folds", conflicts_with = "folds")]
    head: Option<PathBuf>,
    #[command(flatten)]
    data: DataArgs,
    /// Compare heads by cross-validation with this many folds, 2 to 100, divided by question. Everything is fitted and chosen
    /// without the fold on which it is evaluated.
    #[arg(long, value_name = "NUMBER")]
    folds: Option<usize>,
    /// The kinds of heads to compare.
    #[arg(long, value_enum, value_delimiter = ',', requires = "folds", default_values = ["linear", "neighbours", "kernel"])]
    kinds: Vec<KindArg>,
    #[command(flatten)]
    fit: FitArgs,
    #[command(flatten)]
    setup: SetupArgs,
}

#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// The head, of kind `neighbours`.
    #[arg(value_name = "FILE")]
    head: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// The file to write the head into; it may be the same.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

pub(super) async fn head(command: HeadCommand) -> Result<ExitCode, Error> {
    match command {
        HeadCommand::Features(args) => write_features(&args).await,
        HeadCommand::Train(args) => fit(&args).await,
        HeadCommand::Eval(args) => match &args.head {
            Some(head) => measure(head, &args).await,
            None => cross_validate(&args).await,
        },
        HeadCommand::Add(args) => add(&args).await,
    }
}

impl DataArgs {
    /// The outcomes, with those that are derived for workflows, and the hidden states.
    async fn read(&self, workflows: Option<&WorkflowSet>) -> Result<(Outcomes, Features), Error> {
        let mut outcomes = Outcomes::read(&self.outcomes)?;
        if let Some(workflows) = workflows {
            workflow_outcomes::derive(&mut outcomes, workflows)?;
        }
        let features = match (&self.features, &self.encoder) {
            (Some(file), _) => Features::read(file)?,
            (None, Some(encoder)) => compute(Model::Encoder(encoder.clone()), &self.outcomes).await?,
            (None, None) => workflow_outcomes::features_of_words(&questions(&self.outcomes)?)?,
        };
        Ok((outcomes, features))
    }

    /// The workflows to choose among, if they are given, for the pool of these settings.
    fn workflows(&self, setup: &SetupArgs) -> Result<Option<WorkflowSet>, Error> {
        let Some(file) = &self.workflows else { return Ok(None) };
        let pool = pool::read(&setup.settings()?.pool)?;
        let set = WorkflowSet::read(file, Arc::new(pool));
        set.map(Some).map_err(|error| Error::OtherHead(with_causes(&error)))
    }

    /// Where the hidden states come from, for people.
    fn origin(&self) -> std::path::Display<'_> {
        self.features.as_ref().or(self.encoder.as_ref()).unwrap_or(&self.outcomes).display()
    }
}

/// The identity of a head for this pool, with the choices that the outcomes know.
fn identity_in(
    pool: &Pool,
    workflows: Option<&WorkflowSet>,
    outcomes: &Outcomes,
    features: &Features,
) -> Result<Identity, Error> {
    let source = features.source().clone();
    let known = |ids: Vec<WorkerId>| ids.into_iter().filter(|id| outcomes.knows(id)).collect::<Vec<_>>();
    if let Some(workflows) = workflows {
        let slots = known(workflows.choices());
        for unknown in workflows.choices().iter().filter(|id| !slots.contains(id)) {
            eprintln!("podium: no outcome of workflow `{unknown}`: the head never chooses it");
        }
        let pool_sha256 = workflows.hash(&slots).map_err(|error| Error::OtherHead(with_causes(&error)))?;
        return Ok(Identity { choices: Choices::Workflows, slots, pool_sha256, source });
    }
    let slots = known(pool.workers().iter().map(|worker| worker.id.clone()).collect());
    for other in outcomes.workers().into_iter().filter(|id| pool.worker(id).is_none()) {
        eprintln!("podium: outcomes of `{other}` do not count, pool {} has no such worker", pool.version());
    }
    let pool_sha256 = slots_hash(pool, &slots).map_err(|e| Error::OtherHead(e.to_string()))?;
    Ok(Identity { choices: Choices::Workers, slots, pool_sha256, source })
}

async fn fit(args: &TrainArgs) -> Result<ExitCode, Error> {
    let pool = pool::read(&args.setup.settings()?.pool)?;
    let workflows = args.data.workflows(&args.setup)?;
    let (outcomes, features) = args.data.read(workflows.as_ref()).await?;
    let identity = identity_in(&pool, workflows.as_ref(), &outcomes, &features)?;
    let dataset = Dataset::join(&outcomes, &features, &identity.slots, args.fit.price_factor)?;
    tell_missing(&dataset);
    let trained = train(&dataset, &identity, &args.fit.options(args.kind.into(), args.held_out))?;
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
    let kind = trained.head.kind().as_str();
    print_line(&format!("head       {kind}, {} slots, {} values", identity.slots.len(), dataset.hidden()))?;
    print_line(&format!("kept       {}", trained.chosen))?;
    print_table("on the questions that were held out", &dataset, &trained.held_out)?;
    print_line(&format!("over the best single worker: {}", interval(&trained.over_best_single)))?;
    print_line(&format!("written    {}", args.output.display()))?;
    let file = args.output.file_name().unwrap_or_default().to_string_lossy();
    if let Some(workflows) = &args.data.workflows {
        print_line(&format!("for {}:\nhead: {file}", workflows.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(&format!(
        "for the manifest of its bundle:\n[head]\nfile = \"{file}\"\nsha256 = \"{}\"",
        podium_bundle::sha256(&bytes)
    ))?;
    if let Some(encoder) = &args.data.encoder {
        let file = encoder.file_name().unwrap_or_default().to_string_lossy();
        let sha256 = &identity.source.weights_sha256;
        print_line(&format!("[encoder]\nfile = \"{file}\"\nsha256 = \"{sha256}\""))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks that the hidden states have the origin and size of those that the head was trained on.
fn check_source(
    head: &Head,
    file: &std::path::Path,
    features: &Features,
    args: &DataArgs,
) -> Result<(), Error> {
    if features.source() == head.source() && features.hidden() == head.hidden() {
        return Ok(());
    }
    let (ours, theirs): (&Source, &Source) = (head.source(), features.source());
    let (file, origin) = (file.display(), args.origin());
    Err(Error::OtherHead(format!(
        "{file} was trained on hidden states of other weights or another prompt than {origin}: {ours}; {theirs}"
    )))
}

async fn measure(file: &std::path::Path, args: &EvalArgs) -> Result<ExitCode, Error> {
    let head = Head::read(file)?;
    let workflows = args.data.workflows(&args.setup)?;
    let (outcomes, features) = args.data.read(workflows.as_ref()).await?;
    check_source(&head, file, &features, &args.data)?;
    let dataset = Dataset::join(&outcomes, &features, head.slots(), args.fit.price_factor)?;
    tell_missing(&dataset);
    let examples: Vec<&Example> = dataset.examples().iter().collect();
    let mut ways = baselines(&examples, &examples, &dataset);
    ways.push(("head".to_owned(), of_head(&head, &examples)));
    ways.push(("best possible".to_owned(), score::oracle(&examples)));
    let is_tie = |example: &&&Example| head.choose(example.input(), |_| true) == Err(NoChoice::Tie);
    let ties = examples.iter().filter(is_tie).count();
    print_line(&format!("questions  {}, those that the head was trained on included", examples.len()))?;
    print_line(&format!("ties       {ties}, left to the prompted conductor"))?;
    let table: Vec<_> = ways.iter().map(|(name, scores)| (name.clone(), Standing::of(scores))).collect();
    print_table("on all of them", &dataset, &table)?;
    print_tasks(&dataset, &examples, &ways)?;
    Ok(ExitCode::SUCCESS)
}

async fn cross_validate(args: &EvalArgs) -> Result<ExitCode, Error> {
    let workflows = args.data.workflows(&args.setup)?;
    let (outcomes, features) = args.data.read(workflows.as_ref()).await?;
    let choices = workflows.as_ref().map_or(Choices::Workers, |_| Choices::Workflows);
    let known = || outcomes.workers().into_iter().cloned().collect();
    let slots: Vec<WorkerId> = workflows.as_ref().map_or_else(known, WorkflowSet::choices);
    let slots: Vec<WorkerId> = slots.into_iter().filter(|slot| outcomes.knows(slot)).collect();
    let dataset = Dataset::join(&outcomes, &features, &slots, args.fit.price_factor)?;
    tell_missing(&dataset);
    // Nothing is written, so the heads belong to no pool.
    let (pool_sha256, source) = (String::new(), features.source().clone());
    let identity = Identity { choices, slots, pool_sha256, source };
    let kinds: Vec<Kind> = args.kinds.iter().map(|kind| (*kind).into()).collect();
    let folds = args.folds.unwrap_or_default();
    let options = args.fit.options(Kind::Linear, Options::default().held_out);
    let done = |fold| eprintln!("podium: {fold} of {folds} folds evaluated");
    let compared = folds::compare(&dataset, &identity, &kinds, folds, &options, done)?;
    let Comparison { questions, ways: compared } = compared;
    print_line(&format!("questions  {} in {folds} folds", dataset.examples().len()))?;
    let table: Vec<_> = compared.iter().map(|way| (way.name.clone(), Standing::of(&way.scores))).collect();
    print_table("on questions that nothing was fitted to", &dataset, &table)?;
    for base in ["best single", Kind::Neighbours.as_str()] {
        print_differences(&compared, base)?;
    }
    let ways: Vec<_> = compared.into_iter().map(|way| (way.name, way.scores)).collect();
    let always = (0..)
        .zip(dataset.slots())
        .map(|(slot, id)| (format!("always {id}"), score::always(&questions, slot)));
    print_tasks(&dataset, &questions, &always.chain(ways).collect::<Vec<_>>())?;
    Ok(ExitCode::SUCCESS)
}

async fn add(args: &AddArgs) -> Result<ExitCode, Error> {
    let head = Head::read(&args.head)?;
    if args.data.workflows.is_some() {
        return Err(Error::OtherHead("--workflows is not for `add`; train the head again".to_owned()));
    }
    let (outcomes, features) = args.data.read(None).await?;
    check_source(&head, &args.head, &features, &args.data)?;
    let Head::Neighbours(head) = head else {
        let (file, kind) = (args.head.display(), head.kind().as_str());
        return Err(Error::OtherHead(format!(
            "{file} is of kind `{kind}`, which has to be trained again; outcomes can be added to kind `neighbours`"
        )));
    };
    let before = head.questions();
    let dataset = Dataset::join(&outcomes, &features, &head.identity().slots, head.price_factor())?;
    tell_missing(&dataset);
    let head = head.with(&dataset).map_err(|error| Error::OtherHead(error.to_string()))?;
    let bytes = head.to_bytes()?;
    let written = std::fs::write(&args.output, &bytes);
    written.map_err(|source| Error::Unwritable { path: args.output.clone(), source })?;
    print_line(&format!(
        "questions  {} remembered, {} of them new",
        head.questions(),
        head.questions() - before
    ))?;
    print_line(&format!("written    {}", args.output.display()))?;
    print_line(&format!("sha256     {}", podium_bundle::sha256(&bytes)))?;
    Ok(ExitCode::SUCCESS)
}

fn tell_missing(dataset: &Dataset) {
    let missing = dataset.without_features();
    if missing > 0 {
        eprintln!("podium: {missing} questions with outcomes have no features and do not count");
    }
}

/// Quantile of the normal distribution for a 95 % interval.
const NORMAL_975: f64 = 1.96;

fn print_table(title: &str, dataset: &Dataset, table: &[(String, Standing)]) -> Result<(), Error> {
    let width = table.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    print_line(&format!("{title}, with 95 % intervals:"))?;
    for (name, standing) in table {
        let Standing { unbeaten, reward, reward_error, value, cost_usd, questions } = standing;
        let error = NORMAL_975 * reward_error;
        let cost = cost_usd.map(|cost| format!("  ${cost:.6} each")).unwrap_or_default();
        let value = match dataset.price_factor() {
            0.0 => String::new(),
            _ => format!("  value {value:.4}"),
        };
        print_line(&format!(
            "  {name:width$}  mean reward {reward:.4} \u{b1} {error:.4}{value}{cost}  no worker does better on {:.1} %  ({questions})",
            unbeaten * 100.0
        ))?;
    }
    Ok(())
}

/// The result of each way of choosing by task, with the choices that it made.
fn print_tasks(dataset: &Dataset, questions: &[&Example], ways: &[(String, Scores)]) -> Result<(), Error> {
    let tasks: BTreeSet<&str> = questions.iter().filter_map(|example| example.task.as_deref()).collect();
    for task in tasks {
        let of_task = |scores: &Scores| -> Scores {
            let own =
                scores.iter().zip(questions).filter(|(_, example)| example.task.as_deref() == Some(task));
            own.map(|(score, _)| *score).collect()
        };
        let ways: Vec<_> = ways.iter().map(|(name, scores)| (name.clone(), of_task(scores))).collect();
        let table: Vec<_> = ways.iter().map(|(name, scores)| (name.clone(), Standing::of(scores))).collect();
        print_table(&format!("task {task}"), dataset, &table)?;
        for (name, scores) in &ways {
            let chosen =
                |slot: usize| scores.iter().flatten().filter(|score| score.slot == Some(slot)).count();
            let counts = dataset.slots().iter().enumerate().map(|(slot, id)| (chosen(slot), id));
            let counts: Vec<_> = counts.filter(|(count, _)| *count > 0).collect();
            if counts.len() > 1 {
                let counts: Vec<_> = counts.iter().map(|(count, id)| format!("{id} {count}")).collect();
                print_line(&format!("  {name} chooses {}", counts.join(", ")))?;
            }
        }
    }
    Ok(())
}

fn print_differences(compared: &[Compared], base: &str) -> Result<(), Error> {
    let Some(scores) = compared.iter().find(|way| way.name == base).map(|way| &way.scores) else {
        return Ok(());
    };
    print_line(&format!("over {base}, in pairs:"))?;
    let width = compared.iter().map(|way| way.name.len()).max().unwrap_or_default();
    let row = |name: &str, ours: &Scores| format!("  {name:width$}  {}", interval(&Paired::of(ours, scores)));
    for way in compared.iter().filter(|way| way.name != base) {
        print_line(&row(&way.name, &way.scores))?;
    }
    Ok(())
}

fn interval(paired: &Paired) -> String {
    format!("{:+.4} \u{b1} {:.4}", paired.difference, paired.half_width)
}

/// The distinct questions of a file of outcomes.
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

/// What reads questions.
#[derive(Debug)]
enum Model {
    /// A conductor's bundle.
    Bundle(PathBuf),
    /// A sentence encoder.
    Encoder(PathBuf),
}

async fn write_features(args: &FeaturesArgs) -> Result<ExitCode, Error> {
    let model = match (&args.model.bundle, &args.model.encoder) {
        (Some(folder), _) => Model::Bundle(folder.clone()),
        (None, Some(file)) => Model::Encoder(file.clone()),
        (None, None) => return Err(Error::OtherHead("neither --bundle nor --encoder is given".to_owned())),
    };
    let features = compute(model, &args.outcomes).await?;
    let written = std::fs::write(&args.output, features.to_bytes()?);
    written.map_err(|source| Error::Unwritable { path: args.output.clone(), source })?;
    print_line(&format!(
        "read       {} questions, {} values each, into {}",
        features.len(),
        features.hidden(),
        args.output.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The hidden states of the questions of a file of outcomes.
#[cfg(feature = "llama")]
async fn compute(model: Model, outcomes: &std::path::Path) -> Result<Features, Error> {
    let questions = questions(outcomes)?;
    let opened = tokio::task::spawn_blocking(move || match model {
        Model::Bundle(folder) => podium_llama::QuestionReader::open(&folder),
        Model::Encoder(file) => podium_llama::QuestionReader::open_encoder(&file),
    });
    let reader = opened.await.unwrap_or_else(|panic| Err(panic.into())).map_err(Error::Reading)?;
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
    Ok(features)
}

#[cfg(not(feature = "llama"))]
#[expect(clippy::unused_async, reason = "a build with a model waits for it")]
async fn compute(model: Model, _outcomes: &std::path::Path) -> Result<Features, Error> {
    let (Model::Bundle(path) | Model::Encoder(path)) = model;
    let problem = format!("this podium was built without llama.cpp and cannot load {}", path.display());
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
