//! The engine in each case: no run hangs, and none loses its record.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use podium_domain::conversation::Conversation;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::plan::{Plan, PlanDraft, RawAccess, RawId};
use podium_domain::policy::{BrokenAnswer, Effort, Policy, PoolRule, Tier};
use podium_domain::pool::Pool;
use podium_domain::request::RunRequest;
use podium_domain::run::{Attempt, AttemptOutcome, FailReason, Run, RunState};
use podium_engine::{CallParts, Engine, Options, Parts, Submit, Work};
use podium_memory::{LiveOptions, MemoryLimiter, MemoryLive, MemoryQueue, QueueOptions};
use podium_ports::conductor::{Conductor, Conductors};
use podium_ports::conductor_profile::ConductorProfile;
use podium_store_sqlite::Store;
use podium_testkit::{ScriptedConductor, SeededIds, TestClock};
use podium_vendors::HttpVendors;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cases::{Case, Cell, Outcome, cases};
use crate::house::{Delivery, FORMATS, House, QUESTION};

/// A timeout against hanging tests; durations are not asserted.
const PATIENCE: Duration = Duration::from_mins(3);

/// Cells of a format that run concurrently: with all of them, a busy machine would be too slow to open their stores.
const CELLS_AT_ONCE: usize = 4;

/// A running engine for one case, whose plans call the worker of one format.
struct AtWork {
    engine: Engine,
    conductor: ScriptedConductor,
    pool: Pool,
    stop: CancellationToken,
    work: JoinSet<()>,
    _folder: tempfile::TempDir,
}

impl AtWork {
    async fn on(pool: Pool, vendors: HttpVendors) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = podium_store_sqlite::Options::default();
        let store = Store::open(&folder.path().join("podium.db"), options).await.unwrap();
        let (clock, conductor) = (Arc::new(TestClock::new()), ScriptedConductor::new());
        let conductors: Conductors = (Arc::new(conductor.clone()) as Arc<dyn Conductor>).into();
        let calls = CallParts {
            limiter: Arc::new(MemoryLimiter::new(clock.clone())),
            cache: None,
            vendors: Arc::new(vendors),
        };
        let parts = Parts {
            conductors: ConductorProfile::of_all(&conductors),
            store: Arc::new(store),
            queue: Arc::new(MemoryQueue::new(clock.clone(), QueueOptions::default())),
            live: Arc::new(MemoryLive::new(LiveOptions::default())),
            clock,
            ids: Arc::new(SeededIds::new(7)),
            pool: Arc::new(pool.clone()),
            traces: None,
        };
        let options = Options { retry_pause: Duration::from_millis(1), ..Options::default() };
        let engine = Engine::new(parts, options);
        let (stop, mut work) = (CancellationToken::new(), JoinSet::new());
        let (at_work, stopping) = (engine.clone(), stop.clone());
        let work_parts = Work { plan: Some(conductors), execute: Some(calls) };
        work.spawn(async move { at_work.work(work_parts, stopping).await.unwrap() });
        Self { engine, conductor, pool, stop, work, _folder: folder }
    }

    fn plan(&self, format: &str) -> Plan {
        let draft = PlanDraft {
            model_id: vec![RawId::Name(format.to_owned())],
            subtasks: vec![QUESTION.to_owned()],
            access_list: vec![RawAccess::Indices(Vec::new())],
        };
        draft.check(&self.pool, &policy()).unwrap()
    }

    async fn run(&self, format: &str, policy: Policy) -> Arc<Run> {
        self.conductor.otherwise(self.plan(format));
        let submit = Submit {
            tenant: TenantId::new("acme").unwrap(),
            key: None,
            budgets: Vec::new(),
            request_id: None,
            request_digest: None,
            model: "podium-ultra".to_owned(),
            conductor: None,
            request: RunRequest::new(Conversation::question_only(QUESTION).unwrap(), policy),
        };
        let (submitted, mut ending) = self.engine.ask(submit).await.unwrap();
        let id: RunId = submitted.run_id();
        let ended = tokio::time::timeout(PATIENCE, ending.run()).await;
        ended.unwrap_or_else(|_| unreachable!("run {id} hangs")).unwrap()
    }

    async fn end(mut self) {
        self.stop.cancel();
        while self.work.join_next().await.is_some() {}
    }
}

/// Without fallback workers.
fn policy() -> Policy {
    Policy { attempts_max: 2, fallback: PoolRule::None, ..Policy::new(Tier::Ultra, Effort::Low) }
}

/// Without fallback workers; a broken answer is retried.
fn again() -> Policy {
    Policy { broken_answer: BrokenAnswer::Again, ..policy() }
}

/// With fallback workers.
fn elsewhere() -> Policy {
    Policy { fallback: PoolRule::Pool, ..policy() }
}

fn attempts(run: &Run) -> &[Attempt] {
    &run.rounds()[0].steps[0].task.attempts
}

/// The problem of the attempt with the fault, if any.
fn wrong_with(case: &Case, cell: &Cell<'_>, attempt: &Attempt) -> Option<String> {
    let AttemptOutcome::Failed(message) = &attempt.outcome else {
        return Some(format!("{cell}: the attempt ended as {:?}", attempt.outcome));
    };
    if !message.contains(case.becomes.words()) {
        return Some(format!("{cell}: the error is `{message}`"));
    }
    // Nothing is kept of an unstreamed 10 MB answer.
    let is_billed = case.has_begun && (case.breaks_off() || cell.2 == Delivery::Streamed);
    let has_cost = attempt.cost > Cost::ZERO && attempt.usage.completion_tokens > 0;
    (is_billed != has_cost).then(|| format!("{cell}: {:?} cost {:?}", attempt.usage, attempt.cost))
}

/// The problem of a run whose first call has the fault and whose second one succeeds, with this number of fallbacks.
fn wrong_with_recovery(case: &Case, cell: &Cell<'_>, run: &Run, fallbacks: u32) -> Option<String> {
    if run.answer() != Some(QUESTION) || attempts(run).len() != 2 || run.fallbacks() != fallbacks {
        return Some(format!("{cell}: ended as {:?} after {} attempts", run.state(), attempts(run).len()));
    }
    let spent: Cost = run.tasks().flat_map(|(_, task)| &task.attempts).map(|attempt| attempt.cost).sum();
    if run.cost() != spent || run.wasted_cost() != attempts(run)[0].cost {
        return Some(format!("{cell}: cost {:?}, wasted {:?}", run.cost(), run.wasted_cost()));
    }
    wrong_with(case, cell, &attempts(run)[0])
}

/// The problem of a run whose calls all have the fault.
fn wrong_with_failure(case: &Case, cell: &Cell<'_>, run: &Run) -> Option<String> {
    match run.state() {
        RunState::Failed { reason: FailReason::FinalStepFailed { message, .. } }
            if message.contains(case.becomes.words()) => {}
        state => return Some(format!("{cell}: ended as {state:?}")),
    }
    attempts(run).iter().find_map(|attempt| wrong_with(case, cell, attempt))
}

/// The problem of a run whose first three calls are throttled, which is more often than its policy has attempts.
fn wrong_with_waiting(cell: &Cell<'_>, run: &Run) -> Option<String> {
    let [waited @ .., answered] = attempts(run) else { return Some(format!("{cell}: no attempt")) };
    let is_right = run.answer() == Some(QUESTION)
        && waited.len() == 3
        && waited.iter().all(|attempt| attempt.outcome == AttemptOutcome::HandedBack)
        && answered.outcome == AttemptOutcome::Accepted;
    (!is_right).then(|| format!("{cell}: ended as {:?} after {:?}", run.state(), attempts(run)))
}

/// How often the engine calls the worker: 0 if it does not count as a failure.
fn tries(case: &Case, policy: &Policy) -> usize {
    match case.becomes {
        // A too long answer, an untrusted certificate and an unpaid account are permanent.
        Outcome::Answered(crate::cases::HUGE_BYTES) | Outcome::Untrusted(_) | Outcome::Unpaid => 1,
        Outcome::Answered(_) => 0,
        _ if case.breaks_off() && policy.broken_answer == BrokenAnswer::Elsewhere => 1,
        _ => 2,
    }
}

/// One cell: runs with a temporary fault, and some with a permanent one.
async fn cell_problems(house: &House, case: &Case, cell: &Cell<'_>, at_work: &AtWork) -> Vec<String> {
    let mut problems = Vec::new();
    let is_scripted = matches!(case.trouble, crate::cases::Trouble::Scripted(_));
    if is_scripted && (case.breaks_off() || case.becomes == Outcome::Unpaid) {
        house.script(case, cell.2, 1);
        let run = at_work.run(cell.1, elsewhere()).await;
        problems.extend(wrong_with_recovery(case, cell, &run, 1));
    }
    if matches!(case.becomes, Outcome::Throttled(_)) {
        house.script(case, cell.2, 3);
        let run = at_work.run(cell.1, policy()).await;
        problems.extend(wrong_with_waiting(cell, &run));
        return problems;
    }
    let policies = if case.breaks_off() { vec![policy(), again()] } else { vec![policy()] };
    for policy in policies {
        let tries = tries(case, &policy);
        if is_scripted && tries == 2 {
            house.script(case, cell.2, 1);
            let run = at_work.run(cell.1, policy.clone()).await;
            problems.extend(wrong_with_recovery(case, cell, &run, 0));
        }
        house.script(case, cell.2, 2);
        let run = at_work.run(cell.1, policy.clone()).await;
        let is_last = tries == 1 && case.breaks_off();
        match tries {
            0 if run.answer() == Some(QUESTION) => {}
            0 => problems.push(format!("{cell}: ended as {:?}", run.state())),
            tries if attempts(&run).len() != tries => {
                problems.push(format!("{cell}: {} attempts under {policy:?}", attempts(&run).len()));
            }
            _ => problems.extend(wrong_with_failure(case, cell, &run)),
        }
        if is_last != explains_failure(&run) {
            problems.push(format!("{cell}: ended as {:?}", run.state()));
        }
    }
    problems
}

/// Whether a failed run explains that a worker was not retried because its answer had begun.
fn explains_failure(run: &Run) -> bool {
    let RunState::Failed { reason } = run.state() else { return false };
    reason.to_string().ends_with("; not tried again: its answer had begun")
}

/// Checks all cells of one format. Each format has a test of its own, so that they run concurrently.
async fn no_run_hangs_or_loses_its_record(format: &'static str) {
    let cells = cases().into_iter().flat_map(|case| Delivery::BOTH.map(|delivery| (case.clone(), delivery)));
    let checks = cells.map(|(case, delivery)| async move {
        let house = House::new().await;
        let pool = house.pool(&case);
        // A separate limiter, because the failures of one cell open circuit breakers.
        let at_work = AtWork::on(pool.clone(), house.vendors(&pool)).await;
        let problems = cell_problems(&house, &case, &Cell(&case, format, delivery), &at_work).await;
        at_work.end().await;
        problems
    });
    let problems = futures::stream::iter(checks).buffer_unordered(CELLS_AT_ONCE).collect::<Vec<_>>().await;
    assert!(problems.concat().is_empty(), "{}", problems.concat().join("\n"));
}

// Each test names all formats, so that the compiler reports a new one that has no test.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_over_openai_chat_hangs_or_loses_its_record() {
    let [format, _, _, _] = FORMATS;
    no_run_hangs_or_loses_its_record(format).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_over_openai_responses_hangs_or_loses_its_record() {
    let [_, format, _, _] = FORMATS;
    no_run_hangs_or_loses_its_record(format).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_over_anthropic_hangs_or_loses_its_record() {
    let [_, _, format, _] = FORMATS;
    no_run_hangs_or_loses_its_record(format).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_over_gemini_hangs_or_loses_its_record() {
    let [_, _, _, format] = FORMATS;
    no_run_hangs_or_loses_its_record(format).await;
}
