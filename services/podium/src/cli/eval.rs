//! `podium eval`: asks every question of a file and counts the right answers, of one system or of several.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use futures::StreamExt as _;
use podium_api::{ModelName, NewRun};
use podium_domain::conversation::Conversation;
use podium_domain::money::Cost;
use podium_domain::policy::{Policy, Tier};
use podium_domain::pool::Pool;
use podium_domain::request::RunRequest;
use podium_domain::run::{Round, Run, RunState, StepRun};
use podium_domain::sampling::Sampling;
use podium_domain::usage::Usage;
use podium_engine::Engine;
use podium_server::Caller;
use serde::{Deserialize, Serialize};

use super::compare::{CompareArgs, Questions, compare};
use super::output::{print_json, print_line};
use super::record;
use super::{EffortName, SetupArgs, TierName};
use crate::assemble::Embedded;
use crate::error::Error;
use crate::grading::{Expected, Grader, Graders, Verdict, by_name};
use crate::pool::Pace;
use crate::report::dollars;

#[derive(Debug, Args)]
pub(super) struct EvalArgs {
    /// The questions: one JSON object per line, with `id`, `question`, `answer` and perhaps `tags` and `grader`.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Optimize latency (mini) or quality (ultra).
    #[arg(long, value_enum, default_value = "ultra")]
    tier: TierName,
    /// How much work to put into each answer.
    #[arg(long, value_enum, default_value = "medium")]
    effort: EffortName,
    /// Most questions that are asked concurrently.
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Print one JSON document, which includes each question's outcome.
    #[arg(long)]
    json: bool,
    /// Ask each worker of the pool each question instead, without a conductor, and write into this file which workers were right.
    /// `podium head train` learns from it. Every question costs one call for each worker.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "tier", "effort"])]
    outcomes: Option<PathBuf>,
    #[command(flatten)]
    compare: CompareArgs,
    #[command(flatten)]
    setup: SetupArgs,
}

/// A line of the file. Other members are ignored.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) question: String,
    #[serde(default)]
    answer: String,
    /// How the answer is compared.
    #[serde(default, deserialize_with = "by_name")]
    grader: Grader,
    /// Its kinds: a comparison shows each of them apart.
    #[serde(default, alias = "skills")]
    pub(super) tags: Vec<String>,
}

impl Item {
    /// The right answer.
    pub(super) fn answer(&self) -> &str {
        &self.answer
    }

    /// How the answer is compared.
    pub(super) fn grader(&self) -> &Grader {
        &self.grader
    }
}

/// The outcome of one question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) id: String,
    run: String,
    pub(super) right: bool,
    expected: String,
    pub(super) answer: Option<String>,
    pub(super) error: Option<String>,
    /// Whether the last worker declined to answer; `answer` is then its refusal.
    refused: bool,
    /// Whether the answer was built although a step that it needs gave no output.
    degraded: bool,
    steps: usize,
    /// Calls of workers, with those that failed.
    pub(super) calls: u32,
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    planning_tokens: u64,
    pub(super) cost_nano_usd: u64,
    /// The cost of a judge; no part of the system's cost.
    #[serde(default)]
    grading_cost_nano_usd: u64,
    pub(super) latency_ms: u64,
    /// The steps of all rounds.
    plan: Vec<PlannedStep>,
}

/// A step of a plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PlannedStep {
    worker: String,
    subtask: String,
    /// The steps whose outputs it sees, from 0.
    sees: Vec<u16>,
    /// Such as `done`, or `skipped` if it took over the output of an earlier step.
    #[serde(default)]
    state: String,
    output: Option<String>,
}

impl Outcome {
    /// The outcome of a question that was not answered.
    pub(super) fn failed(id: &str, expected: &str, error: &str) -> Self {
        Self {
            id: id.to_owned(),
            run: String::new(),
            right: false,
            expected: expected.to_owned(),
            answer: None,
            error: Some(error.to_owned()),
            refused: false,
            degraded: false,
            steps: 0,
            calls: 0,
            prompt_tokens: 0,
            completion_tokens: 0,
            planning_tokens: 0,
            cost_nano_usd: 0,
            grading_cost_nano_usd: 0,
            latency_ms: 0,
            plan: Vec::new(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Summary {
    conductor: String,
    pool: String,
    tier: &'static str,
    questions: usize,
    right: usize,
    failed: usize,
    refused: usize,
    degraded: usize,
    accuracy: f64,
    prompt_tokens: u64,
    completion_tokens: u64,
    planning_tokens: u64,
    cost_usd: f64,
    steps_mean: f64,
    latency_ms_p50: u64,
    latency_ms_p95: u64,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    items: &'a [Outcome],
}

pub(super) async fn eval(args: EvalArgs) -> Result<ExitCode, Error> {
    let settings = args.setup.settings()?;
    settings.start_log("warn");
    let items = read(&args.file)?;
    if let Some(file) = &args.outcomes {
        return record::record(settings, &items, args.concurrency.into(), file).await;
    }
    if args.compare.is_wanted() {
        let (effort, concurrency) = (args.effort.into(), args.concurrency.into());
        return compare(&settings, &Questions { items, effort, concurrency }, &args.compare, args.json).await;
    }
    let tier = args.tier.into();
    let policy = Policy::new(tier, args.effort.into());
    let embedded = Embedded::start_apart(&settings, Pace::Instant).await?;
    embedded.notices().iter().for_each(|notice| eprintln!("podium: {notice}"));
    let (engine, graders) = (embedded.engine(), Graders::new(embedded.engine().clone()));
    check_pool(&items, &engine.pool())?;
    let total = items.len();
    let asked = futures::stream::iter(items)
        .map(|item| ask(&graders, item, ModelName::of_tier(tier), policy.clone(), Sampling::NONE));
    let mut asked = asked.buffer_unordered(args.concurrency.into());
    let mut outcomes = Vec::with_capacity(total);
    while let Some(outcome) = asked.next().await {
        outcomes.push(outcome?);
        if outcomes.len() % 50 == 0 {
            eprintln!("podium: {} of {total} asked", outcomes.len());
        }
    }
    drop(asked);
    outcomes.sort_by(|a, b| a.id.cmp(&b.id));
    let summary = summary(engine, tier, &outcomes);
    embedded.stop().await;
    if args.json {
        print_json(&Report { summary: &summary, items: &outcomes })?;
    } else {
        print_summary(&summary)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Vec<Item>, Error> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
    let bad = |line: usize, problem: String| Error::BadLine { path: path.to_owned(), line, problem };
    let mut ids = BTreeSet::new();
    let mut items = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let item: Item = serde_json::from_str(line).map_err(|e| bad(index + 1, e.to_string()))?;
        if item.question.trim().is_empty() {
            return Err(bad(index + 1, "question must not be blank".to_owned()));
        }
        item.grader.check(&item.answer).map_err(|problem| bad(index + 1, problem))?;
        if !ids.insert(item.id.clone()) {
            return Err(bad(index + 1, format!("id `{}` occurs twice", item.id)));
        }
        items.push(item);
    }
    if items.is_empty() {
        return Err(bad(1, "there is no question".to_owned()));
    }
    Ok(items)
}

/// Checks that the pool has the judges of all questions.
pub(super) fn check_pool(items: &[Item], pool: &Pool) -> Result<(), Error> {
    items.iter().try_for_each(|item| {
        let checked = item.grader.check_pool(pool);
        checked.map_err(|problem| Error::Refused(format!("question `{}`: {problem}", item.id)))
    })
}

/// Asks a question and grades the answer.
pub(super) async fn ask(
    graders: &Graders,
    item: Item,
    model: ModelName,
    policy: Policy,
    sampling: Sampling,
) -> Result<Outcome, Error> {
    let engine = graders.engine();
    let conversation = Conversation::question_only(item.question.clone());
    let conversation = conversation.map_err(|e| Error::Refused(format!("question `{}`: {e}", item.id)))?;
    let new_run = NewRun {
        request_id: None,
        model,
        request: RunRequest { sampling, ..RunRequest::new(conversation, policy) },
    };
    let refused = |e: podium_api::ApiError| Error::Refused(format!("question `{}`: {e}", item.id));
    let caller = Caller::local().map_err(|e| Error::Refused(e.to_string()))?;
    let id = podium_server::submit(engine, caller.clone(), new_run).await.map_err(refused)?.run_id();
    let mut updates = engine.watch(id, 0).await.map_err(|e| refused(podium_server::watch_error(id, &e)))?;
    while let Some(update) = updates.next().await {
        update?;
    }
    let run = podium_server::load(engine, &caller.tenant, id).await.map_err(refused)?;
    let outcome = outcome(item.clone(), &run);
    let Some(answer) = outcome.answer.as_deref().filter(|_| !outcome.refused) else { return Ok(outcome) };
    let (question, seed) = (item.question.as_str(), sampling.seed.unwrap_or_default());
    let expected = Expected { question, answer: &item.answer, grader: &item.grader, seed };
    match graders.grade(expected, answer).await {
        Ok(Verdict { is_right, cost }) => {
            Ok(Outcome { right: is_right, grading_cost_nano_usd: cost.nano_usd(), ..outcome })
        }
        Err(error) => Ok(Outcome { error: Some(error.to_string()), ..outcome }),
    }
}

/// The outcome of an ended run, before its answer is graded.
fn outcome(item: Item, run: &Run) -> Outcome {
    let answer = run.answer().map(ToOwned::to_owned);
    let refused = run.refusal().is_some();
    let error = match run.state() {
        RunState::Failed { reason } => Some(reason.to_string()),
        RunState::Cancelled => Some("the run was cancelled".to_owned()),
        RunState::Active | RunState::Suspended | RunState::Succeeded { .. } => None,
    };
    let (usage, planning): (Usage, Usage) = (run.usage(), run.planning_usage());
    let latency = run.ended_at().map(|at| at.since(run.spec().accepted_at)).unwrap_or_default();
    Outcome {
        id: item.id,
        run: run.id().to_string(),
        right: false,
        expected: item.answer,
        answer,
        error,
        refused,
        degraded: run.is_degraded(),
        steps: run.rounds().iter().map(|round| round.steps.len()).sum(),
        calls: run.rounds().iter().flat_map(|round| &round.steps).map(attempts).sum(),
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        planning_tokens: planning.total_tokens(),
        cost_nano_usd: run.cost().nano_usd(),
        grading_cost_nano_usd: 0,
        latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
        plan: run.rounds().iter().flat_map(plan).collect(),
    }
}

fn attempts(step: &StepRun) -> u32 {
    u32::try_from(step.task.attempts.len()).unwrap_or(u32::MAX)
}

fn plan(round: &Round) -> Vec<PlannedStep> {
    let steps = round.plan().into_iter().flat_map(|plan| plan.steps().iter().zip(&round.steps));
    let planned = steps.map(|(step, run)| PlannedStep {
        worker: run.worker.as_ref().unwrap_or(&step.worker).to_string(),
        subtask: step.subtask.clone(),
        sees: step.access.as_slice().iter().map(|index| index.get()).collect(),
        state: run.task.state.as_str().to_owned(),
        output: run.output.clone(),
    });
    planned.collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of questions are small, and the quotient is for display"
)]
fn summary(engine: &Engine, tier: Tier, outcomes: &[Outcome]) -> Summary {
    let count = outcomes.len();
    let right = outcomes.iter().filter(|outcome| outcome.right).count();
    let mut latencies: Vec<_> = outcomes.iter().map(|outcome| outcome.latency_ms).collect();
    latencies.sort_unstable();
    let cost: Cost = outcomes.iter().map(|outcome| Cost::from_nano_usd(outcome.cost_nano_usd)).sum();
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    Summary {
        conductor: engine.conductor_id(),
        pool: engine.pool().version(),
        tier: tier.as_str(),
        questions: count,
        right,
        failed: outcomes.iter().filter(|outcome| outcome.error.is_some()).count(),
        refused: outcomes.iter().filter(|outcome| outcome.refused).count(),
        degraded: outcomes.iter().filter(|outcome| outcome.degraded).count(),
        accuracy: right as f64 / count as f64,
        prompt_tokens: sum(|outcome| outcome.prompt_tokens),
        completion_tokens: sum(|outcome| outcome.completion_tokens),
        planning_tokens: sum(|outcome| outcome.planning_tokens),
        cost_usd: cost.usd(),
        steps_mean: outcomes.iter().map(|outcome| outcome.steps).sum::<usize>() as f64 / count as f64,
        latency_ms_p50: percentile(&latencies, 50),
        latency_ms_p95: percentile(&latencies, 95),
    }
}

/// The least value that is not below `percent` of all. `sorted` must be ascending. 0 if it is empty.
pub(super) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn print_summary(summary: &Summary) -> Result<(), Error> {
    let tokens = summary.prompt_tokens + summary.completion_tokens;
    for line in [
        format!("conductor  {} over pool {}, tier {}", summary.conductor, summary.pool, summary.tier),
        format!("questions  {}", summary.questions),
        format!("right      {} ({:.1} %)", summary.right, summary.accuracy * 100.0),
        format!("failed     {}", summary.failed),
        format!("refused    {}", summary.refused),
        format!("degraded   {}", summary.degraded),
        format!("steps      {:.2} per question", summary.steps_mean),
        format!("tokens     {tokens}, of which planning {}", summary.planning_tokens),
        format!("cost       {}", dollars(summary.cost_usd)),
        format!("latency    p50 {} ms, p95 {} ms", summary.latency_ms_p50, summary.latency_ms_p95),
    ] {
        print_line(&line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem_of(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("questions.jsonl");
        std::fs::write(&path, text).unwrap();
        read(&path).unwrap_err().to_string()
    }

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        let good = r#"{"id":"a","question":"why?","answer":"so","skills":["x"]}"#;
        for (second, said) in [
            ("{", "line 2"),
            (r#"{"id":"b","question":" ","answer":"so"}"#, "question must not be blank"),
            (r#"{"id":"b","question":"why?"}"#, "answer must not be blank"),
            (r#"{"id":"b","question":"why?","answer":"so","grader":"choice"}"#, "not a letter from A to J"),
            (good, "id `a` occurs twice"),
        ] {
            let problem = problem_of(&format!("{good}\n{second}\n"));
            assert!(problem.contains("line 2") && problem.contains(said), "{problem}");
        }
        assert!(problem_of("\n \n").contains("there is no question"));
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!((percentile(&hundred, 50), percentile(&hundred, 95)), (50, 95));
        assert_eq!((percentile(&[7], 50), percentile(&[7], 95), percentile(&[], 50)), (7, 7, 0));
    }
}
