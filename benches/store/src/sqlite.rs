//! The same runs in SQLite, which works in this process: the duration and the CPU time of a run, for one caller and for sixteen at
//! once.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use podium_bench_measure::CpuTimes;
use podium_store_sqlite::{Options, Store};
use podium_testkit::SeededIds;
use serde_json::json;
use tokio::task::JoinSet;

use crate::course::Course;
use crate::milliseconds;

const CALLERS: [u32; 2] = [1, 16];

/// Measures each number of callers in turn, in a new database for each turn.
#[expect(clippy::print_stdout, reason = "the result is what it is run for")]
pub(crate) async fn measure(folder: &Path, runs: u32, rounds: u32) -> Result<()> {
    for _ in 0..rounds {
        for callers in CALLERS {
            let folder = tempfile::tempdir_in(folder)?;
            let store = Store::open(&folder.path().join("podium.db"), Options::default()).await?;
            let result = turn(&store, callers, runs.div_ceil(callers)).await;
            store.close().await;
            println!("{}", result?);
        }
    }
    Ok(())
}

async fn turn(store: &Store, callers: u32, runs_each: u32) -> Result<serde_json::Value> {
    let ids = SeededIds::new(1);
    let courses: Vec<Vec<_>> =
        (0..callers).map(|_| (0..runs_each).map(|_| Course::new(&ids)).collect()).collect();
    let (cpu, begun) = (CpuTimes::read()?, Instant::now());
    let mut calls = JoinSet::new();
    for courses in courses {
        let store = store.clone();
        calls.spawn(async move {
            for course in courses {
                course.take(&store).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = calls.join_next().await {
        done??;
    }
    let (took, runs) = (begun.elapsed(), callers * runs_each);
    Ok(json!({
        "bench": "store-sqlite",
        "callers": callers,
        "runs": runs,
        "run_ms": milliseconds(took) / f64::from(runs),
        "cpu_ms_per_run": CpuTimes::read()?.since(&cpu).ms_per_run(runs),
        "load": std::fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next(),
    }))
}
