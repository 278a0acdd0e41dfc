//! What came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use podium_vendor_sim::{Call, Outcome};

use crate::client::Ended;

/// Figures of one run of the chaos; the workers in it are simulated.
pub(crate) struct Report<'c> {
    accepted: usize,
    lost: Vec<u64>,
    wrong: Vec<String>,
    faults: Vec<String>,
    run_twice: usize,
    calls: usize,
    answered: usize,
    needed: usize,
    turns: usize,
    slowest: Duration,
    median: Duration,
    troubles: &'c BTreeMap<&'static str, usize>,
}

impl<'c> Report<'c> {
    pub(crate) fn new(
        ended: &[Ended],
        calls: &[Call],
        steps: usize,
        troubles: &'c BTreeMap<&'static str, usize>,
    ) -> Self {
        let expected = |number: u64| (4 * number + 5).to_string();
        let wrong = ended.iter().filter_map(|run| {
            let answer = run.answer.as_ref()?;
            (*answer != expected(run.number)).then(|| format!("{}: {answer}", run.number))
        });
        let faults = ended
            .iter()
            .flat_map(|run| run.faults.iter().map(|fault| format!("run {}: {fault}", run.run_id)));
        let ids: BTreeSet<_> = ended.iter().map(|run| &run.run_id).collect();
        let mut times: Vec<_> = ended.iter().map(|run| run.took).collect();
        times.sort_unstable();
        Self {
            accepted: ended.len(),
            lost: ended.iter().filter(|run| run.answer.is_none()).map(|run| run.number).collect(),
            wrong: wrong.collect(),
            faults: faults.collect(),
            run_twice: ended.len() - ids.len(),
            calls: calls.len(),
            answered: calls.iter().filter(|call| call.outcome == Outcome::Answered).count(),
            needed: ended.len() * steps,
            turns: ended.iter().map(|run| run.turns).sum(),
            slowest: times.last().copied().unwrap_or_default(),
            median: times.get(times.len() / 2).copied().unwrap_or_default(),
            troubles,
        }
    }

    /// What must hold.
    pub(crate) fn check(&self) {
        assert!(self.lost.is_empty(), "runs without an answer: {:?}", self.lost);
        assert!(self.wrong.is_empty(), "wrong answers: {:?}", self.wrong);
        assert!(self.faults.is_empty(), "clients saw what they must not: {:#?}", self.faults);
        assert_eq!(self.run_twice, 0, "two requests share a run");
        assert!(self.calls >= self.needed, "fewer calls than steps: the count is wrong");
        assert!(!self.troubles.is_empty(), "nothing went wrong: the load was too short");
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "chaos over simulated workers")?;
        for (trouble, times) in self.troubles {
            writeln!(f, "  {times:>5} x {trouble}")?;
        }
        let repeated = self.calls - self.needed.min(self.calls);
        #[expect(clippy::cast_precision_loss, reason = "a share for people to read")]
        let share = 100.0 * repeated as f64 / self.calls.max(1) as f64;
        writeln!(
            f,
            "  {:>5} runs accepted, {} lost, {} wrong",
            self.accepted,
            self.lost.len(),
            self.wrong.len()
        )?;
        writeln!(
            f,
            "  {:>5} calls, {} answered; {} needed, {repeated} repeated ({share:.1} %)",
            self.calls, self.answered, self.needed
        )?;
        writeln!(f, "  {:>5} turns to a gateway", self.turns)?;
        write!(
            f,
            "  {:>5.1} s for the median run, {:.1} s for the slowest",
            self.median.as_secs_f64(),
            self.slowest.as_secs_f64()
        )
    }
}
