//! Whether a store that is full of finished runs slows a new one down: the same operations on an empty database, on a full one,
//! and on a full one from which old runs are being removed, in one Postgres that syncs its commits, round by round in turn.

mod course;
mod full;
mod sqlite;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use podium_domain::time::Timestamp;
use podium_harness::Postgres;
use podium_ports::store::{RunCatalog, RunFilter, TaskBoard};
use podium_store_postgres::{Options, Store};
use podium_testkit::{SeededIds, TestClock, a_tenant};
use serde_json::json;
use tokio::sync::watch;

/// How much slower than in an empty database a run may be in a full one.
const RATIO_MAX: f64 = 1.2;
/// As the engine removes: so many runs, then so long a pause.
const REMOVED_RUNS_MAX: u32 = 64;
const REMOVAL_PAUSE: Duration = Duration::from_millis(50);
/// Most runs that the sweeper and a list look at.
const SWEEP_MAX: u32 = 256;
const LIST_MAX: u32 = 50;

/// Times the store's operations of new runs next to finished ones, in a separate Postgres.
#[derive(Debug, Parser)]
struct Arguments {
    /// Finished runs in the full database.
    #[arg(long, default_value_t = 1_000_000)]
    finished: u32,
    /// Rounds; in each, every database has its turn.
    #[arg(long, default_value_t = 15)]
    rounds: u32,
    /// New runs in each turn, one after the other; in SQLite, shared by the callers.
    #[arg(long, default_value_t = 40)]
    runs: u32,
    /// Measure SQLite instead, in new databases in this folder.
    #[arg(long, value_name = "FOLDER")]
    sqlite: Option<PathBuf>,
}

/// One of the databases that are compared, and what it took.
struct Subject {
    name: &'static str,
    store: Store,
    /// Whether old runs are removed while new ones are timed.
    is_cleared: bool,
    /// Milliseconds of each run, by round.
    rounds: Vec<Vec<f64>>,
    due_ms: Vec<f64>,
    list_ms: Vec<f64>,
}

impl Subject {
    fn new(name: &'static str, store: Store, is_cleared: bool) -> Self {
        Self { name, store, is_cleared, rounds: Vec::new(), due_ms: Vec::new(), list_ms: Vec::new() }
    }

    async fn turn(&mut self, runs: u32, ids: &SeededIds) -> Result<()> {
        let mut times = Vec::new();
        for _ in 0..runs {
            let course = course::Course::new(ids);
            times.push(milliseconds(course.take(&self.store).await?));
        }
        self.rounds.push(times);
        let begun = Instant::now();
        self.store.due(TestClock::START, TestClock::START, SWEEP_MAX, &[]).await?;
        self.due_ms.push(milliseconds(begun.elapsed()));
        let begun = Instant::now();
        self.store.list(&a_tenant(), &RunFilter::default(), None, LIST_MAX).await?;
        self.list_ms.push(milliseconds(begun.elapsed()));
        Ok(())
    }

    /// The median of each round.
    fn medians(&self) -> Vec<f64> {
        self.rounds.iter().map(|times| median(times)).collect()
    }

    /// How often as long as in `base`, round by round; the median of that.
    fn ratio_to(&self, base: &Self) -> f64 {
        let pairs = self.medians().into_iter().zip(base.medians());
        median(&pairs.map(|(own, base)| own / base).collect::<Vec<_>>())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(folder) = &arguments.sqlite {
        return sqlite::measure(folder, arguments.runs, arguments.rounds).await;
    }
    let postgres = Postgres::start().await?;
    let [empty, full] = [postgres.database().await?, postgres.database().await?];
    let open =
        async |address: &str| Store::open(address, Options::default()).await.context("opening the store");
    let full_store = open(&full).await?;
    let begun = Instant::now();
    full::fill(&full_store, &full, arguments.finished).await?;
    eprintln!("{} finished runs made in {:.0} s", arguments.finished, begun.elapsed().as_secs_f64());
    let mut subjects = [
        Subject::new("empty", open(&empty).await?, false),
        Subject::new("full", full_store.clone(), false),
        Subject::new("full, being cleared", full_store, true),
    ];
    let ids = SeededIds::new(1);
    for subject in &mut subjects {
        // Connections, prepared statements and caches.
        subject.turn(5, &ids).await?;
        *subject = Subject::new(subject.name, subject.store.clone(), subject.is_cleared);
    }
    let mut removed = Removed::default();
    for round in 0..arguments.rounds {
        for turn in 0..subjects.len() {
            let at = (turn + round as usize) % subjects.len();
            let subject = &mut subjects[at];
            if subject.is_cleared {
                let store = subject.store.clone();
                removed.while_doing(&store, subject.turn(arguments.runs, &ids)).await?;
            } else {
                subject.turn(arguments.runs, &ids).await?;
            }
        }
    }
    let ratio = report(&arguments, &subjects, &removed);
    if ratio > RATIO_MAX {
        bail!("a new run takes {ratio:.2} times as long next to finished runs; the limit is {RATIO_MAX}");
    }
    Ok(())
}

/// The removed runs, and how long the store was busy with them.
#[derive(Debug, Default)]
struct Removed {
    runs: u32,
    busy: Duration,
}

impl Removed {
    /// Removes the oldest runs, as an engine does, for as long as `work` takes.
    async fn while_doing(&mut self, store: &Store, work: impl Future<Output = Result<()>>) -> Result<()> {
        let (done, mut is_done) = watch::channel(false);
        let work = async {
            let outcome = work.await;
            done.send_replace(true);
            outcome
        };
        let remove = async {
            while !*is_done.borrow() {
                let begun = Instant::now();
                // None of the new runs: they are accepted at that time, and end later.
                let before = Timestamp::from_unix_ms(TestClock::START.unix_ms() - 1);
                self.runs += store.remove_ended(before, Duration::ZERO, REMOVED_RUNS_MAX).await?;
                self.busy += begun.elapsed();
                let _ = tokio::time::timeout(REMOVAL_PAUSE, is_done.changed()).await;
            }
            anyhow::Ok(())
        };
        let (worked, removed) = tokio::join!(work, remove);
        worked.and(removed)
    }
}

#[expect(clippy::print_stdout, reason = "the result is what it is run for")]
fn report(arguments: &Arguments, subjects: &[Subject; 3], removed: &Removed) -> f64 {
    let [empty, full, cleared] = subjects;
    for Subject { name, due_ms, list_ms, .. } in subjects {
        eprintln!("{name}: a sweep {:.2} ms, a list {:.2} ms", median(due_ms), median(list_ms));
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    let ratio = full.ratio_to(empty);
    let result = json!({
        "bench": "store",
        "finished_runs": arguments.finished,
        "rounds": arguments.rounds,
        "runs_per_round": arguments.runs,
        "run_ms": { "empty": rounded(median(&empty.medians())), "full": rounded(median(&full.medians())),
                    "full_being_cleared": rounded(median(&cleared.medians())) },
        "ratio": rounded(ratio),
        "ratio_max": RATIO_MAX,
        "ratio_being_cleared": rounded(cleared.ratio_to(empty)),
        "removed_runs": removed.runs,
        "removal_ms_per_run": rounded(milliseconds(removed.busy) / f64::from(removed.runs.max(1))),
        "load": load.split(' ').next(),
    });
    println!("{result}");
    ratio
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
