//! The planner's engine compared with llama.cpp's own loop: its speed, and the cost of grammar, shared prefixes and waiting
//! requests. `benches/llama/README.md` says how to run it, and has the results.

mod bare;
mod child;
mod engine;
mod nano;
mod tables;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Compares the planner's engine with bare llama.cpp.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Measures all, with weights of any kind for speed and a bundle for whole plans.
    All {
        /// A GGUF file, as `make_model.py` makes one.
        #[arg(long)]
        weights: PathBuf,
        /// The folder of a bundle.
        #[arg(long, default_value = "models/nano")]
        bundle: PathBuf,
        /// How often each figure is measured; the median counts.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Tokens that each sequence writes while its time is taken.
        #[arg(long, default_value_t = 48)]
        tokens: u32,
        /// Threads that compute.
        #[arg(long, default_value_t = 2)]
        threads: u16,
        /// Computes all layers on GPUs.
        #[arg(long)]
        gpu: bool,
    },
    /// Measures one figure; `All` runs this in a separate process.
    #[command(hide = true)]
    One(child::Order),
}

fn main() -> Result<()> {
    match Arguments::parse().what {
        What::All { weights, bundle, rounds, tokens, threads, gpu } => {
            tables::Bench { weights, bundle, rounds, tokens, threads, gpu }.run()
        }
        What::One(order) => order.carry_out(),
    }
}
