//! The comparison as numbers, as Markdown, and as a chart of characters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use podium_domain::pool::Pool;
use serde::Serialize;

use super::super::eval::{Outcome, percentile};
use super::plot::{self, Dot};
use super::results::Outcomes;
use super::statistics::{Paired, real, wilson};
use super::systems::{Described, System};
use super::{CompareArgs, Questions};

/// The width and height of the chart, in characters.
const WIDTH: usize = 60;
const HEIGHT: usize = 15;

/// A comparison.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    pool: String,
    /// Whether workers are simulated: programs, not language models.
    are_workers_simulated: bool,
    effort: &'static str,
    seed: u32,
    questions: usize,
    /// The best single worker on these questions, chosen afterwards.
    best_worker: Option<&'a str>,
    baseline: Option<&'a str>,
    systems: Vec<Row<'a>>,
    /// The share of the questions that at least one single worker answered right; `None` without single workers.
    oracle: Option<f64>,
    /// Each system's right answers and questions by tag, in the order of the systems.
    tags: BTreeMap<&'a str, Vec<[usize; 2]>>,
    items: BTreeMap<&'a str, Vec<&'a Outcome>>,
}

/// A system's figures.
#[derive(Debug, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    system: Described<'a>,
    right: usize,
    accuracy: f64,
    accuracy_interval: [f64; 2],
    failed: usize,
    against_best_worker: Option<Comparison>,
    against_baseline: Option<Comparison>,
    tokens_mean: f64,
    calls_mean: f64,
    usd_per_thousand: f64,
    latency_ms_p50: u64,
    latency_ms_p95: u64,
    /// Whether it answers some question, and no other system is at least as accurate for less, or more accurate for the same.
    is_best_for_its_cost: bool,
}

/// A paired comparison with another system.
#[derive(Debug, Serialize)]
struct Comparison {
    difference: f64,
    interval: [f64; 2],
    won: usize,
    lost: usize,
    p_value: f64,
}

impl From<Paired> for Comparison {
    fn from(paired: Paired) -> Self {
        let (difference, interval) = paired.difference();
        Self { difference, interval, won: paired.won, lost: paired.lost, p_value: paired.p_value() }
    }
}

type Answers = BTreeMap<String, Outcome>;

impl<'a> Report<'a> {
    /// Compares the systems. Each has an outcome of each question.
    pub(super) fn of(
        questions: &'a Questions,
        systems: &'a [System],
        outcomes: &'a Outcomes,
        args: &'a CompareArgs,
        pool: &Pool,
    ) -> Self {
        let answers: Vec<(&System, &Answers)> =
            systems.iter().filter_map(|system| Some((system, outcomes.get(&system.name)?))).collect();
        let right = |answers: &Answers| answers.values().filter(|outcome| outcome.right).count();
        let of_workers = || answers.iter().filter(|(system, _)| system.is_worker());
        // Of several equally good workers, the first one of the pool.
        let best = of_workers().rev().max_by_key(|(_, answers)| right(answers));
        let baseline = answers.iter().find(|(system, _)| Some(&system.name) == args.baseline.as_ref());
        let rows: Vec<Row<'_>> = answers
            .iter()
            .map(|(system, answers)| {
                let against = |other: Option<&(&System, &Answers)>| {
                    let (_, other) = other.filter(|(other, _)| other.name != system.name)?;
                    Some(paired(answers, other).into())
                };
                Row::of(system, answers, against(best), against(baseline))
            })
            .collect();
        let is_beaten = |row: &Row<'_>| {
            rows.iter().any(|other| {
                let (cost, others_cost) = (row.usd_per_thousand, other.usd_per_thousand);
                (other.right >= row.right && others_cost < cost)
                    || (other.right > row.right && others_cost <= cost)
            })
        };
        let are_best: Vec<bool> = rows.iter().map(|row| row.right > 0 && !is_beaten(row)).collect();
        let rows = rows.into_iter().zip(are_best);
        let tags: BTreeSet<&str> =
            questions.items.iter().flat_map(|item| item.tags.iter().map(String::as_str)).collect();
        let of_tag = |tag: &str| {
            let with_tag = questions.items.iter().filter(|item| item.tags.iter().any(|own| own == tag));
            let ids: Vec<&str> = with_tag.map(|item| item.id.as_str()).collect();
            let is_right = |answers: &Answers, id: &str| answers.get(id).is_some_and(|outcome| outcome.right);
            let counted = answers
                .iter()
                .map(|(_, answers)| [ids.iter().filter(|id| is_right(answers, id)).count(), ids.len()]);
            counted.collect::<Vec<_>>()
        };
        let solved = |id: &String| {
            of_workers().any(|(_, answers)| answers.get(id).is_some_and(|outcome| outcome.right))
        };
        let oracle = questions.items.iter().filter(|item| solved(&item.id)).count();
        Self {
            pool: pool.version(),
            are_workers_simulated: pool.workers().iter().any(|worker| worker.model.starts_with("sim-")),
            effort: questions.effort.as_str(),
            seed: args.seed,
            questions: questions.items.len(),
            best_worker: best.map(|(system, _)| system.name.as_str()),
            baseline: args.baseline.as_deref(),
            systems: rows.map(|(row, is_best_for_its_cost)| Row { is_best_for_its_cost, ..row }).collect(),
            oracle: best.map(|_| real(oracle) / real(questions.items.len().max(1))),
            tags: tags.into_iter().map(|tag| (tag, of_tag(tag))).collect(),
            items: answers
                .iter()
                .map(|(system, answers)| (system.name.as_str(), answers.values().collect()))
                .collect(),
        }
    }

    /// The comparison as Markdown.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "# {} systems, {} questions\n", self.systems.len(), self.questions)?;
        writeln!(out, "Pool {}, effort {}, seed {}.", self.pool, self.effort, self.seed)?;
        if self.are_workers_simulated {
            writeln!(out, "The workers are simulated: they are small programs, not language models.")?;
        }
        writeln!(
            out,
            "\n| system | right | 95 % interval | against {} | against {} | calls | tokens | $ per 1,000 | p50, p95 ms | failed | best for its cost |",
            self.best_worker.unwrap_or("the best worker"),
            self.baseline.unwrap_or("a baseline")
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|---|---|")?;
        for row in &self.systems {
            let [low, high] = row.accuracy_interval;
            writeln!(
                out,
                "| {} | {} ({}) | {} to {} | {} | {} | {:.2} | {:.0} | {:.4} | {}, {} | {} | {} |",
                row.system.name,
                row.right,
                percent(row.accuracy),
                percent(low),
                percent(high),
                compared(row.against_best_worker.as_ref()),
                compared(row.against_baseline.as_ref()),
                row.calls_mean,
                row.tokens_mean,
                row.usd_per_thousand,
                row.latency_ms_p50,
                row.latency_ms_p95,
                row.failed,
                if row.is_best_for_its_cost { "yes" } else { "" },
            )?;
        }
        if let Some(oracle) = self.oracle {
            writeln!(
                out,
                "\nAn oracle that always asks a single worker that is right would answer {}.",
                percent(oracle)
            )?;
        }
        writeln!(
            out,
            "\nCalls, tokens and costs are means of a question. Tokens and costs include planning; calls are those of workers. Intervals of accuracies: Wilson. Comparisons are paired: the difference in percentage points with its 95 % interval, questions won and lost, and the p-value of McNemar's exact test."
        )?;
        if self.best_worker.is_some() {
            writeln!(out, "The best single worker was chosen on these questions, so it is flattered.")?;
        }
        if !self.tags.is_empty() {
            writeln!(out, "\n## By tag\n")?;
            let names: Vec<&str> = self.systems.iter().map(|row| row.system.name).collect();
            writeln!(out, "| tag | questions | {} |", names.join(" | "))?;
            writeln!(out, "|---|---|{}", "---|".repeat(names.len()))?;
            for (tag, counts) in &self.tags {
                let asked = counts.first().map_or(0, |[_, asked]| *asked);
                let shares =
                    counts.iter().map(|[right, asked]| percent(real(*right) / real((*asked).max(1))));
                writeln!(out, "| {tag} | {asked} | {} |", shares.collect::<Vec<_>>().join(" | "))?;
            }
        }
        writeln!(out, "\n## Accuracy and cost\n\n```text\n{}```", self.chart())
    }

    /// The accuracy over the cost as an image.
    pub(super) fn svg(&self) -> String {
        let dots: Vec<Dot<'_>> = self.systems.iter().map(Row::dot).collect();
        let kind = if self.are_workers_simulated { "simulated workers" } else { "95 % intervals" };
        plot::svg(
            &dots,
            &format!("pool {}, {} questions, seed {}, {kind}", self.pool, self.questions, self.seed),
        )
    }

    /// The systems by cost, to the right, and accuracy, upwards.
    fn chart(&self) -> String {
        let costs = self.systems.iter().map(|row| row.usd_per_thousand);
        let (lowest, highest) = costs
            .filter(|cost| *cost > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(low, high), cost| (low.min(cost), high.max(cost)));
        // Costs differ by factors, so the axis is logarithmic. Free systems stand at its beginning.
        let place = |cost: f64| {
            let is_on_axis = cost > 0.0 && highest > lowest;
            let share = if is_on_axis { (cost / lowest).ln() / (highest / lowest).ln() } else { 0.0 };
            rounded(share, WIDTH - 1)
        };
        let mut lines = vec![vec![' '; WIDTH]; HEIGHT + 1];
        let mut legend = String::new();
        for (row, mark) in self.systems.iter().zip(('a'..='z').chain('A'..='Z')) {
            let line = HEIGHT - rounded(row.accuracy, HEIGHT);
            let mut column = place(row.usd_per_thousand);
            while column + 1 < WIDTH && lines[line][column] != ' ' {
                column += 1;
            }
            lines[line][column] = mark;
            let best = if row.is_best_for_its_cost { ", best for its cost" } else { "" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                legend,
                "{mark} {}: {}, ${:.4}{best}",
                row.system.name,
                percent(row.accuracy),
                row.usd_per_thousand
            );
        }
        let mut chart = String::new();
        for (line, number) in lines.iter().zip(0..) {
            let label = match number {
                0 => "100 %",
                HEIGHT => "  0 %",
                _ => "     ",
            };
            let text: String = line.iter().collect();
            let _ = writeln!(chart, "{label} |{}", text.trim_end());
        }
        let ends = if highest > 0.0 {
            [format!("${lowest:.4}"), format!("${highest:.4} per 1,000 questions")]
        } else {
            Default::default()
        };
        let _ =
            writeln!(chart, "      +{}\n       {} to {}, logarithmic\n", "-".repeat(WIDTH), ends[0], ends[1]);
        chart + &legend
    }
}

impl<'a> Row<'a> {
    fn of(
        system: &'a System,
        answers: &Answers,
        against_best_worker: Option<Comparison>,
        against_baseline: Option<Comparison>,
    ) -> Self {
        let asked = answers.len();
        let right = answers.values().filter(|outcome| outcome.right).count();
        let mean = |of: fn(&Outcome) -> u64| {
            let total: u64 = answers.values().map(of).sum();
            real(usize::try_from(total).unwrap_or(usize::MAX)) / real(asked.max(1))
        };
        let mut latencies: Vec<u64> = answers.values().map(|outcome| outcome.latency_ms).collect();
        latencies.sort_unstable();
        Self {
            system: system.described(),
            right,
            accuracy: real(right) / real(asked.max(1)),
            accuracy_interval: wilson(right, asked),
            failed: answers.values().filter(|outcome| outcome.error.is_some()).count(),
            against_best_worker,
            against_baseline,
            tokens_mean: mean(|outcome| outcome.prompt_tokens + outcome.completion_tokens),
            calls_mean: mean(|outcome| u64::from(outcome.calls)),
            usd_per_thousand: mean(|outcome| outcome.cost_nano_usd) / 1e6,
            latency_ms_p50: percentile(&latencies, 50),
            latency_ms_p95: percentile(&latencies, 95),
            is_best_for_its_cost: false,
        }
    }

    fn dot(&self) -> Dot<'_> {
        Dot {
            name: self.system.name,
            accuracy: self.accuracy,
            interval: self.accuracy_interval,
            usd_per_thousand: self.usd_per_thousand,
            is_best_for_its_cost: self.is_best_for_its_cost,
        }
    }
}

fn paired(these: &Answers, others: &Answers) -> Paired {
    let both = these.iter().filter_map(|(id, this)| Some([this.right, others.get(id)?.right]));
    Paired::of(both)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn compared(comparison: Option<&Comparison>) -> String {
    let Some(Comparison { difference, interval: [low, high], won, lost, p_value }) = comparison else {
        return "-".to_owned();
    };
    let p = if *p_value < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p_value:.3}") };
    format!("{:+.1} ({:+.1} to {:+.1}), {won} : {lost}, {p}", 100.0 * difference, 100.0 * low, 100.0 * high)
}

/// The nearest whole number to a share, 0 to 1, of `most`.
fn rounded(share: f64, most: usize) -> usize {
    (0..=most).find(|number| real(*number) + 0.5 > share * real(most)).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_to_places() {
        assert_eq!([rounded(0.0, 15), rounded(0.5, 10), rounded(0.97, 10), rounded(1.0, 15)], [0, 5, 10, 15]);
    }

    #[test]
    fn a_comparison_states_its_interval_and_its_p_value() {
        let comparison = Paired { asked: 200, won: 60, lost: 30 }.into();
        assert_eq!(compared(Some(&comparison)), "+15.0 (+5.9 to +24.1), 60 : 30, p = 0.002");
        assert_eq!(compared(None), "-");
    }
}
