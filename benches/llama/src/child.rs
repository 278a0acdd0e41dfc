//! Measures one figure in a separate process: llama.cpp can be started once per process, and earlier measurements leave no state.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use podium_bundle::hardware::{GpuLayers, Hardware};

use crate::{bare, engine, nano};

/// Which figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Figure {
    /// Tokens a second of llama.cpp in a loop, all sequences in one buffer as the engine has them.
    Bare,
    /// The same with a separate buffer for each sequence.
    BareSplit,
    /// Tokens a second of the engine, of free text.
    Free,
    /// The same, drawn at temperature 1.
    FreeDrawn,
    /// Tokens a second of the engine, of a plan whose subtasks are the model's own words.
    Grammar,
    /// Seconds until all have their first token, when prompts share their beginning.
    Prefix,
    /// The same, when nothing is said of it.
    NoPrefix,
    /// Milliseconds until the first subtask of a plan is whole, as the median of requests in turn.
    FirstStep,
    /// Bytes of memory for each request that waits.
    Waiting,
    /// Milliseconds of a plan, as the median over questions.
    Plan,
    /// The same without grammar: bare llama.cpp, the likeliest token each time, until the text ends.
    PlanBare,
    /// Milliseconds of 8 plans asked for together, as the median.
    PlansTogether,
}

/// The instructions of a child.
#[derive(Args, Clone, Debug)]
pub(crate) struct Order {
    #[arg(long)]
    pub(crate) figure: Figure,
    /// A GGUF file, or for plans the folder of a bundle.
    #[arg(long)]
    pub(crate) model: PathBuf,
    #[arg(long)]
    pub(crate) sequences: u16,
    #[arg(long)]
    pub(crate) tokens: u32,
    #[arg(long)]
    pub(crate) threads: u16,
    /// Computes all layers on GPUs.
    #[arg(long)]
    pub(crate) gpu: bool,
}

impl Order {
    /// What computes.
    pub(crate) fn hardware(&self) -> Hardware {
        let gpu_layers = if self.gpu { GpuLayers::All } else { GpuLayers::None };
        Hardware { gpu_layers, ..Hardware::default() }
    }

    /// Takes the figure and writes it to standard output.
    pub(crate) fn carry_out(&self) -> Result<()> {
        let figure = match self.figure {
            Figure::Bare => bare::tokens_a_second(self, bare::Buffers::One)?,
            Figure::BareSplit => bare::tokens_a_second(self, bare::Buffers::Split)?,
            Figure::Free | Figure::FreeDrawn | Figure::Grammar => engine::tokens_a_second(self)?,
            Figure::Prefix | Figure::NoPrefix => engine::seconds_to_first_tokens(self)?,
            Figure::FirstStep => engine::ms_to_first_step(self)?,
            Figure::Waiting => engine::bytes_of_waiting(self)?,
            Figure::Plan => nano::plan_ms(self)?,
            Figure::PlansTogether => nano::plans_together_ms(self)?,
            Figure::PlanBare => nano::plan_bare_ms(self)?,
        };
        writeln!(std::io::stdout(), "{figure}")?;
        Ok(())
    }

    /// Has another process take it.
    pub(crate) fn take(&self) -> Result<f64> {
        let figure = self.figure.to_possible_value().context("a figure has a name")?;
        let mut child = Command::new(std::env::current_exe()?);
        child.args(["one", "--figure", figure.get_name(), "--model"]).arg(&self.model);
        for (name, value) in [
            ("--sequences", u32::from(self.sequences)),
            ("--tokens", self.tokens),
            ("--threads", u32::from(self.threads)),
        ] {
            child.args([name, &value.to_string()]);
        }
        if self.gpu {
            child.arg("--gpu");
        }
        let output = child.env("GGML_NO_BACKTRACE", "1").output().context("starting a measurement")?;
        if !output.status.success() {
            let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
            let _ = write!(said, " ({})", output.status);
            bail!("measuring {:?} failed: {said}", self.figure);
        }
        let written = String::from_utf8(output.stdout)?;
        written.trim().parse().with_context(|| format!("{:?} gave `{}`", self.figure, written.trim()))
    }
}
