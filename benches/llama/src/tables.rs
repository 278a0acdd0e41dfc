//! Takes the figures, in rounds so that a busy moment of the machine hits all of them alike, and writes the tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::child::{Figure, Order};

/// Requests at the same time, on processors and on GPUs.
const SEQUENCES: [u16; 3] = [1, 4, 8];
const SEQUENCES_ON_GPU: [u16; 3] = [1, 8, 32];
/// The speeds that are compared.
const SPEEDS: [(Figure, &str); 5] = [
    (Figure::Bare, "bare llama.cpp, one buffer"),
    (Figure::BareSplit, "bare llama.cpp, a buffer each"),
    (Figure::Free, "engine, free text"),
    (Figure::FreeDrawn, "engine, free text at temperature 1"),
    (Figure::Grammar, "engine, under the grammar"),
];

/// What is measured.
pub(crate) struct Bench {
    pub(crate) weights: PathBuf,
    pub(crate) bundle: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) tokens: u32,
    pub(crate) threads: u16,
    pub(crate) gpu: bool,
}

/// The one in the middle.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Bench {
    /// Takes all figures and writes them to standard output.
    pub(crate) fn run(&self) -> Result<()> {
        self.speeds()?;
        self.prefixes()?;
        let first_step = self.order(Figure::FirstStep, &self.weights, 1).take()?;
        writeln!(std::io::stdout(), "first subtask of a plan: {first_step:.1} ms")?;
        self.plans()?;
        let waiting = self.order(Figure::Waiting, &self.weights, 1).take()?;
        writeln!(std::io::stdout(), "memory of a waiting request: {:.1} kB", waiting / 1e3)?;
        Ok(())
    }

    fn order(&self, figure: Figure, model: &Path, sequences: u16) -> Order {
        let (tokens, threads, gpu) = (self.tokens, self.threads, self.gpu);
        Order { figure, model: model.to_owned(), sequences, tokens, threads, gpu }
    }

    fn speeds(&self) -> Result<()> {
        let mut out = std::io::stdout();
        let at_once = if self.gpu { SEQUENCES_ON_GPU } else { SEQUENCES };
        let mut taken: BTreeMap<(usize, u16), Vec<f64>> = BTreeMap::new();
        for _ in 0..self.rounds {
            for sequences in at_once {
                for (number, (figure, _)) in SPEEDS.iter().enumerate() {
                    let rate = self.order(*figure, &self.weights, sequences).take()?;
                    taken.entry((number, sequences)).or_default().push(rate);
                }
            }
        }
        writeln!(out, "tokens a second, of the better bare one; load {}", load())?;
        for (number, (_, name)) in SPEEDS.iter().enumerate() {
            let mut line = format!("{name:36}");
            for sequences in at_once {
                let of = |number| median(taken[&(number, sequences)].clone());
                let share = of(number) / of(0).max(of(1)) * 100.0;
                write!(line, "  {sequences}: {:8.1} ({share:5.1} %)", of(number))?;
            }
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn prefixes(&self) -> Result<()> {
        let mut taken = [Vec::new(), Vec::new()];
        for _ in 0..self.rounds {
            for (times, figure) in taken.iter_mut().zip([Figure::Prefix, Figure::NoPrefix]) {
                times.push(self.order(figure, &self.weights, 8).take()?);
            }
        }
        let [with, without] = taken.map(median);
        let gain = without / with;
        writeln!(
            std::io::stdout(),
            "first tokens of 8 requests together: {with:.2} s with a shared prefix, {without:.2} s without ({gain:.1} times)"
        )?;
        Ok(())
    }

    fn plans(&self) -> Result<()> {
        let figures = [
            (Figure::Plan, 1),
            (Figure::PlanBare, 1),
            (Figure::PlansTogether, 8),
            (Figure::PlansTogether, 1),
        ];
        let mut taken = figures.map(|_| Vec::new());
        for _ in 0..self.rounds {
            for (times, (figure, sequences)) in taken.iter_mut().zip(figures) {
                times.push(self.order(figure, &self.bundle, sequences).take()?);
            }
        }
        let [plan, bare, together, in_turn] = taken.map(median);
        writeln!(
            std::io::stdout(),
            "plan of the bundle: {plan:.1} ms, {bare:.1} ms as bare text; 8 at once: {together:.1} ms in one batch, {in_turn:.1} ms in turn"
        )?;
        Ok(())
    }
}

/// The machine's load.
fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}
