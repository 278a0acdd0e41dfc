//! The report of the chaos test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use podium_vendor_sim::{Call, Outcome};

use super::recovery::Recovery;
use super::troubles::{Kind, Made, Plan};
use crate::client::{Ended, LostAttempt};
use crate::load::Life;
use crate::workflow::{STEPS, wrong};

/// The figures of one run of the test, with simulated workers.
pub(crate) struct Report<'m> {
    nats_version: String,
    accepted: usize,
    unaccepted: Vec<u64>,
    lost: Vec<u64>,
    wrong: Vec<String>,
    faults: Vec<String>,
    run_twice: usize,
    calls: usize,
    refused: usize,
    calls_forgotten: bool,
    unused: usize,
    needed: usize,
    /// Turns of steps that ended with tool calls.
    tool_turns: usize,
    /// Attempts lost with executors that were killed or frozen, and with others.
    attempts_hit: usize,
    attempts_lost_otherwise: usize,
    /// The numbers of attempts that were lost and handed back, by the last fault before them.
    lost_in: BTreeMap<&'static str, usize>,
    handed_back_in: BTreeMap<&'static str, usize>,
    turns: usize,
    resumed: usize,
    compared_bytes: usize,
    took: Vec<Duration>,
    recoveries: Vec<(Kind, Recovery)>,
    made: &'m Made,
}

impl<'m> Report<'m> {
    pub(crate) fn new(
        nats_version: &str,
        ended: &[Ended],
        calls: &[Call],
        lives: &[Life],
        made: &'m Made,
    ) -> Self {
        let accepted: Vec<_> = ended.iter().filter(|run| run.run_id.is_some()).collect();
        let ids: BTreeSet<_> = accepted.iter().map(|run| &run.run_id).collect();
        let wrong = accepted.iter().filter_map(|run| wrong(run.number, run.answer.as_ref()?));
        let faults = accepted.iter().flat_map(|run| {
            let id = run.run_id.as_deref().unwrap_or_default();
            run.faults.iter().map(move |fault| format!("run {id}: {fault}"))
        });
        let is_hit = |attempt: &&LostAttempt| {
            let pid = attempt.executor.rsplit('-').next().and_then(|pid| pid.parse().ok());
            pid.is_some_and(|pid| made.hit_executors.contains(&pid))
        };
        let attempts_lost = || ended.iter().flat_map(|run| &run.lost_attempts);
        let attempts_hit = attempts_lost().filter(is_hit).count();
        // A rejected call was not worked on, and cost nothing.
        let refused = calls.iter().filter(|call| call.outcome == Outcome::Failed).count();
        let answered = calls.iter().filter(|call| call.outcome == Outcome::Answered).count();
        let tool_turns = accepted.iter().map(|run| run.tool_turns).sum();
        let needed = accepted.len() * STEPS + tool_turns;
        let mut took: Vec<_> = ended.iter().map(|run| run.answered_at - run.asked_at).collect();
        took.sort_unstable();
        let measured = made.troubles.iter().filter(|trouble| trouble.is_measured);
        Self {
            nats_version: nats_version.to_owned(),
            accepted: accepted.len(),
            unaccepted: ended.iter().filter(|run| run.run_id.is_none()).map(|run| run.number).collect(),
            lost: accepted.iter().filter(|run| run.answer.is_none()).map(|run| run.number).collect(),
            wrong: wrong.collect(),
            faults: faults.collect(),
            run_twice: accepted.len() - ids.len(),
            calls: calls.len() - refused,
            refused,
            calls_forgotten: calls.first().is_some_and(|call| call.sequence > 1),
            unused: answered.saturating_sub(needed),
            needed,
            tool_turns,
            attempts_hit,
            attempts_lost_otherwise: attempts_lost().count() - attempts_hit,
            lost_in: by_trouble(made, attempts_lost()),
            handed_back_in: by_trouble(made, ended.iter().flat_map(|run| &run.handed_back)),
            turns: ended.iter().map(|run| run.turns).sum(),
            resumed: ended.iter().map(|run| run.resumed).sum(),
            compared_bytes: ended.iter().map(|run| run.compared_bytes).sum(),
            took,
            recoveries: measured
                .map(|trouble| (trouble.kind, Recovery::of(lives, trouble.began, trouble.ended)))
                .collect(),
            made,
        }
    }

    fn repeated(&self) -> usize {
        self.calls.saturating_sub(self.needed)
    }

    /// Checks the properties that must hold.
    pub(crate) fn check(&self) {
        assert!(self.unaccepted.is_empty(), "no gateway accepted: {:?}", self.unaccepted);
        assert!(self.lost.is_empty(), "runs without an answer: {:?}", self.lost);
        assert!(self.wrong.is_empty(), "wrong answers: {:?}", self.wrong);
        assert!(self.faults.is_empty(), "clients saw faults: {:#?}", self.faults);
        assert_eq!(self.run_twice, 0, "two requests share a run");
        assert!(!self.calls_forgotten, "the load was longer than the log of calls");
        assert!(self.calls >= self.needed, "fewer calls than steps: the count is wrong");
        let lost = self.attempts_hit + self.attempts_lost_otherwise;
        assert!(self.repeated() <= lost, "{} calls repeated, {lost} attempts lost", self.repeated());
        assert!(self.compared_bytes > 0, "no client saw a text");
        assert!(self.tool_turns > 0, "no step called a tool");
        let breaks_streams = self.made.plan.kinds.contains(&Kind::GatewayKilled);
        assert!(self.resumed > 0 || !breaks_streams, "no stream broke in a text");
        for kind in &self.made.plan.kinds {
            let made = self.made.troubles.iter().any(|trouble| trouble.kind == *kind);
            assert!(made, "{} did not happen", kind.name());
        }
        for (kind, recovery) in &self.recoveries {
            // The time depends on the load of the machine, so it is reported but not checked.
            let ended = recovery.first_end.or(recovery.rate_back);
            assert!(ended.is_some(), "no run ended after: {}", kind.name());
        }
    }

    fn of_calls(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, refused, needed, unused, tool_turns, .. } = self;
        let repeated = self.repeated();
        writeln!(
            f,
            "  {calls} vendor calls, {needed} needed ({tool_turns} ended with tool calls), and {refused} that the vendor rejected"
        )?;
        writeln!(f, "    {repeated} repeated: {:.2} % of all calls", 100.0 * ratio(repeated, *calls))?;
        writeln!(
            f,
            "    {:.2} for each of {} calls under way in executors that were killed or frozen",
            ratio(repeated, self.attempts_hit),
            self.attempts_hit
        )?;
        writeln!(
            f,
            "    {} attempts lost otherwise, {unused} answers paid for and not used",
            self.attempts_lost_otherwise
        )?;
        for (what, troubles) in [("lost", &self.lost_in), ("handed back", &self.handed_back_in)] {
            for (trouble, attempts) in troubles {
                writeln!(f, "    {attempts:>4} attempts {what} in: {trouble}")?;
            }
        }
        Ok(())
    }

    fn of_recoveries(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  seconds from the end of a fault until")?;
        writeln!(
            f,
            "    {:<36} {:>5}  {:^15} {:^15} {:^15}",
            "(median, worst)", "times", "a run ended", "rate was back", "all had ended"
        )?;
        for kind in &self.made.plan.kinds {
            let of_kind = self.recoveries.iter().filter(|(of, _)| of == kind).map(|(_, recovery)| *recovery);
            let of_kind: Vec<_> = of_kind.collect();
            let times = self.made.troubles.iter().filter(|trouble| trouble.kind == *kind).count();
            writeln!(
                f,
                "    {:<36} {times:>5}  {:^15} {:^15} {:^15}",
                kind.name(),
                median_and_worst(&of_kind, |recovery| recovery.first_end),
                median_and_worst(&of_kind, |recovery| recovery.rate_back),
                median_and_worst(&of_kind, |recovery| recovery.all_ended),
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "chaos over simulated workers, nats-server {}", self.nats_version)?;
        let Plan { kinds, left_out, rounds, seed, redis_away, nats_away, .. } = &self.made.plan;
        let (kinds, redis, nats) = (kinds.len(), redis_away.as_secs(), nats_away.as_secs());
        writeln!(
            f,
            "  seed {seed}, {rounds} rounds of {kinds} kinds of fault, Redis unreachable for {redis} s and NATS for {nats} s at a time"
        )?;
        if let Some(why) = left_out {
            writeln!(f, "  LEFT OUT: full disks: {why}")?;
        }
        let Self { accepted, lost, wrong, faults, .. } = self;
        let (lost, wrong, faults) = (lost.len(), wrong.len(), faults.len());
        writeln!(
            f,
            "  {accepted} runs accepted, {} finished, {lost} lost, {wrong} wrong, {faults} faults seen by clients",
            accepted - lost
        )?;
        self.of_calls(f)?;
        writeln!(
            f,
            "  {} calls of a gateway; {} streams broke in a text and were resumed elsewhere; {} bytes compared",
            self.turns, self.resumed, self.compared_bytes
        )?;
        writeln!(f, "  {} commits whose answer was lost", self.made.answers_lost)?;
        let seconds = |at: usize| self.took.get(at).copied().unwrap_or_default().as_secs_f64();
        let (median, slowest) = (self.took.len() / 2, self.took.len().saturating_sub(1));
        writeln!(
            f,
            "  {:.1} s for the median run, {:.1} s for the slowest",
            seconds(median),
            seconds(slowest)
        )?;
        self.of_recoveries(f)
    }
}

/// The number of attempts by fault.
fn by_trouble<'a>(
    made: &Made,
    attempts: impl Iterator<Item = &'a LostAttempt>,
) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for attempt in attempts {
        let before = made.troubles.iter().rfind(|trouble| trouble.began <= attempt.ended_at);
        *counts.entry(before.map_or("peace", |trouble| trouble.kind.name())).or_default() += 1;
    }
    counts
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn median_and_worst(recoveries: &[Recovery], of: fn(&Recovery) -> Option<Duration>) -> String {
    let mut spans: Vec<_> = recoveries.iter().map(of).collect();
    // A recovery that never came counts as the slowest.
    spans.sort_unstable_by_key(|span| span.unwrap_or(Duration::MAX));
    let said = |span: Option<&Option<Duration>>| match span {
        None => "-".to_owned(),
        Some(None) => "never".to_owned(),
        Some(Some(span)) => format!("{:.1}", span.as_secs_f64()),
    };
    format!("{} {:>6}", said(spans.get(spans.len() / 2)), said(spans.last()))
}
