//! `podium top`: a live view of lanes, runs, reserved money and vendors.
//!
//! Lanes, runs and money are read from the store, which knows them for all processes; the statements read the open work only. The
//! calls of vendors are in the processes' memory, so they come from the metrics pages of executors, if some are named.

mod metrics;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use podium_domain::money::Cost;
use podium_domain::time::Timestamp;
use podium_ports::clock::Clock as _;
use podium_ports::operations::{OpenRun, OpenRunFilter, Reservation};
use podium_ports::store::LaneLoad;
use podium_setup::{SystemClock, VERSION};

use self::metrics::{Calls, Pages};
use super::accounts::{AccountsArgs, OperatorStore};
use super::admin::age;
use super::output::{clear_terminal, print_line};
use crate::error::Error;
use crate::terminal;

/// Most open runs that are read for a frame; with more, the sums are lower bounds.
const RUNS_MAX: u32 = 10_000;
/// Most reservations that are read for a frame.
const RESERVATIONS_MAX: u32 = 10_000;
/// Tenants that are shown.
const TENANTS_SHOWN: usize = 5;

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Print one frame and exit. Without a terminal on standard output that is the default.
    #[arg(long)]
    once: bool,
    /// Seconds between two frames.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// A metrics page, such as `http://10.0.0.7:8083/metrics`; for all vendors, name that of each executor.
    #[arg(long, value_name = "URL")]
    metrics: Vec<String>,
    #[command(flatten)]
    store: AccountsArgs,
}

/// The content of a frame.
struct Frame {
    now: Timestamp,
    lanes: Vec<LaneLoad>,
    runs: Vec<OpenRun>,
    reservations: Vec<Reservation>,
    /// The calls of each worker since the processes started; `None` if no page was named.
    calls: Option<Result<BTreeMap<String, Calls>, String>>,
}

pub(super) async fn top(args: TopArgs) -> Result<ExitCode, Error> {
    let store = args.store.open_all().await?;
    let pages = Pages::new(&args.metrics)?;
    let is_once = args.once || !terminal::is_stdout();
    loop {
        let frame = read(&store, &pages).await?.text();
        if is_once {
            print_line(frame.trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        clear_terminal()?;
        print_line(&frame)?;
        tokio::select! {
            () = SystemClock.sleep(Duration::from_secs(args.every)) => {}
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        }
    }
}

async fn read(store: &OperatorStore, pages: &Pages) -> Result<Frame, Error> {
    let operations = &store.operations;
    Ok(Frame {
        now: store.clock.now(),
        lanes: store.runs.lane_loads().await?,
        runs: operations.open_runs(&OpenRunFilter::default(), None, RUNS_MAX).await?,
        reservations: operations.reservations(RESERVATIONS_MAX).await?,
        calls: pages.read().await,
    })
}

impl Frame {
    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let seconds = i64::try_from(self.now.unix_ms() / 1000).unwrap_or_default();
        writeln!(out, "podium {VERSION}  {}", prost_types::Timestamp { seconds, nanos: 0 })?;
        self.write_runs(out)?;
        self.write_lanes(out)?;
        match &self.calls {
            None => Ok(()),
            Some(Err(error)) => writeln!(out, "\ncalls: {error}"),
            Some(Ok(calls)) => write_calls(calls, out),
        }
    }

    fn write_runs(&self, out: &mut String) -> std::fmt::Result {
        let count = |state| self.runs.iter().filter(|run| run.state == state).count();
        let spent: Cost = self.runs.iter().map(|run| run.cost).sum();
        let reserved: Cost = self.reservations.iter().map(|held| held.charge.reserved).sum();
        let more = if self.runs.len() == RUNS_MAX as usize { " or more" } else { "" };
        let (active, suspended) = (count("active"), count("suspended"));
        writeln!(
            out,
            "runs   {active} active, {suspended} suspended{more}; {spent} so far, {reserved} reserved"
        )?;
        if let Some(oldest) =
            self.runs.iter().filter(|run| run.state == "active").map(|run| run.accepted_at).min()
        {
            writeln!(out, "oldest active run: {}", age(self.since(oldest)))?;
        }
        let mut tenants = BTreeMap::<&str, usize>::new();
        self.runs.iter().for_each(|run| *tenants.entry(run.tenant.as_str()).or_default() += 1);
        let mut tenants: Vec<_> = tenants.into_iter().collect();
        tenants.sort_by_key(|(name, runs)| (std::cmp::Reverse(*runs), *name));
        if !tenants.is_empty() {
            let shown = tenants.iter().take(TENANTS_SHOWN).map(|(name, runs)| format!("{name} {runs}"));
            writeln!(out, "tenants: {}", shown.collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }

    fn write_lanes(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n{:<32} {:>8} {:>9} {:>8} {:>8}",
            "LANE", "BACKLOG", "PUBLISHED", "RUNNING", "OLDEST"
        )?;
        for LaneLoad { lane, backlog, published, running, oldest } in &self.lanes {
            let oldest = oldest.map_or_else(|| "-".to_owned(), |oldest| age(self.since(oldest)));
            writeln!(out, "{lane:<32} {backlog:>8} {published:>9} {running:>8} {oldest:>8}")?;
        }
        if self.lanes.is_empty() {
            writeln!(out, "no open tasks")?;
        }
        Ok(())
    }

    fn since(&self, at: Timestamp) -> Duration {
        self.now.since(at)
    }
}

fn write_calls(calls: &BTreeMap<String, Calls>, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "\n{:<32} {:>8} {:>8} {:>8} {:>9} {:>12}  STATE",
        "WORKER", "CALLS", "FAILED", "GRANTED", "REFUSED", "COST"
    )?;
    for (worker, Calls { made, failed, granted, refused, cost, is_shut }) in calls {
        let state = if *is_shut { "breaker open" } else { "ok" };
        let cost = cost.to_string();
        writeln!(out, "{worker:<32} {made:>8} {failed:>8} {granted:>8} {refused:>9} {cost:>12}  {state}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use podium_domain::budget::Charge;
    use podium_domain::ids::{RunId, TenantId};

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);

    #[test]
    fn a_frame_shows_runs_lanes_and_money() {
        let run = |tenant: &str, state: &str, age_s: u64| OpenRun {
            id: RunId::least_at(NOW),
            tenant: TenantId::new(tenant).unwrap(),
            model: "podium-ultra".to_owned(),
            state: state.to_owned(),
            accepted_at: NOW.before(Duration::from_secs(age_s)),
            due_at: NOW,
            cost: Cost::from_nano_usd(500_000_000),
        };
        let lane = LaneLoad {
            lane: "ultra.step.openai".to_owned(),
            backlog: 7,
            published: 2,
            running: 3,
            oldest: Some(NOW.before(Duration::from_secs(90))),
        };
        let held = Reservation {
            payer: "tenant:acme".to_owned(),
            from: NOW,
            charge: Charge { spent: Cost::ZERO, reserved: Cost::from_nano_usd(2_000_000_000) },
        };
        let runs = vec![run("acme", "active", 600), run("acme", "suspended", 5), run("zeta", "active", 30)];
        let frame = Frame { now: NOW, lanes: vec![lane], runs, reservations: vec![held], calls: None };
        let shown = frame.text();
        assert!(shown.contains("runs   2 active, 1 suspended; $1.5"), "{shown}");
        assert!(shown.contains("$2.000000 reserved"), "{shown}");
        assert!(
            shown.contains("oldest active run: 10m") && shown.contains("tenants: acme 2, zeta 1"),
            "{shown}"
        );
        let row = shown.lines().find(|row| row.starts_with("ultra.step.openai")).unwrap();
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(words, ["ultra.step.openai", "7", "2", "3", "90s"]);
    }

    #[test]
    fn a_frame_without_work_says_so() {
        let calls = Some(Err("http://x: refused".to_owned()));
        let frame = Frame { now: NOW, lanes: vec![], runs: vec![], reservations: vec![], calls };
        let shown = frame.text();
        assert!(
            shown.contains("0 active") && shown.contains("no open tasks") && shown.contains("calls: http"),
            "{shown}"
        );
    }
}
