//! `podium-bench-early`: how much sooner a run ends when its steps begin while the rest of the plan is being written, compared
//! with a run that waits for the whole plan.
//!
//! The conductor and the workers are simulated: the one writes a given text at a given speed, the others answer after a given
//! time. The engine, its store (SQLite, with every commit synced) and its queue are the real ones of the embedded system. It
//! prints one line of JSON for each speed, shape and number of steps.

mod house;
mod simulated;

use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use futures::future::try_join_all;
use serde_json::json;

use house::{House, Took};
use simulated::{Course, Order, Shape, Waits};

/// Steps of the longest plan.
const STEPS_MAX: u32 = 5;

/// Times runs whose steps begin early, and runs that wait for the whole plan. Conductor and workers are simulated.
#[derive(Debug, Parser)]
struct Arguments {
    /// Tokens a second at which the conductor writes; a token is four bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [20, 50, 150], value_parser = clap::value_parser!(u32).range(1..))]
    rates: Vec<u32>,
    /// Milliseconds that a worker takes for a step.
    #[arg(long, default_value_t = 1_500)]
    worker_ms: u64,
    /// Tokens that the conductor writes before the lists.
    #[arg(long, default_value_t = 40)]
    reasoning_tokens: usize,
    /// Tokens of each subtask.
    #[arg(long, default_value_t = 24)]
    subtask_tokens: usize,
    /// The list that the conductor writes last.
    #[arg(long, value_enum, default_value_t = Order::AccessLast)]
    order: Order,
    /// Runs of each kind; the medians are printed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let [early, whole] = [
        House::open(&arguments, Waits::ForTheStep).await?,
        House::open(&arguments, Waits::ForThePlan).await?,
    ];
    let begun = Instant::now();
    for rate in &arguments.rates {
        let shapes = [Shape::Chain, Shape::Fan];
        let courses = shapes
            .into_iter()
            .flat_map(|shape| (1..=STEPS_MAX).map(move |steps| Course { rate: *rate, shape, steps }));
        let courses: Vec<_> = courses.collect();
        let mut took = vec![Vec::new(); courses.len()];
        for _ in 0..arguments.rounds {
            // They sleep nearly all the time: side by side they do not disturb each other.
            let asked = courses
                .iter()
                .map(|course| futures::future::try_join(early.ask(*course), whole.ask(*course)));
            for (took, pair) in took.iter_mut().zip(try_join_all(asked).await?) {
                took.push(pair);
            }
        }
        for (course, took) in courses.into_iter().zip(took) {
            report(course, &took);
        }
    }
    early.close().await;
    whole.close().await;
    eprintln!("simulated conductor and workers, real engine, SQLite; {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result is what it is run for")]
fn report(course: Course, took: &[(Took, Took)]) {
    let early = |of: fn(&Took) -> u64| median(took.iter().map(|(early, _)| of(early)));
    let whole = |of: fn(&Took) -> u64| median(took.iter().map(|(_, whole)| of(whole)));
    let (run_early, run_whole) = (early(|took| took.run), whole(|took| took.run));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let result = json!({
        "bench": "early",
        "simulated": "conductor, workers",
        "tokens_per_s": course.rate,
        "shape": course.shape.name(),
        "steps": course.steps,
        "planned_ms": whole(|took| took.plan),
        "first_step_ms": { "early": early(|took| took.first_step), "whole_plan": whole(|took| took.first_step) },
        "run_ms": { "early": run_early, "whole_plan": run_whole },
        "saved_ms": run_whole.cast_signed() - run_early.cast_signed(),
        "load": load.split(' ').next(),
    });
    println!("{result}");
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut sorted: Vec<_> = values.collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
