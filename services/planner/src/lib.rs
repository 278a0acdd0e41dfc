//! The planner: asks the conductor for workflows. The only process of a cluster that may hold a model.
#![deny(missing_docs)]

use std::error::Error;
use std::process::ExitCode;

use podium_cluster::{
    PLANNER, Program, Work, WorkSettings, check_work, main_with_inspection as process, planner_keys,
    work_until_signal,
};
use podium_planning::OpenBundle;

/// How this program loads a model that runs here.
#[cfg(feature = "llama")]
const OPEN_BUNDLE: Option<OpenBundle> = Some(podium_llama::open);
#[cfg(not(feature = "llama"))]
const OPEN_BUNDLE: Option<OpenBundle> = None;

const PROGRAM: Program = Program {
    name: PLANNER,
    version: env!("CARGO_PKG_VERSION"),
    about: "A planner of a Podium cluster: asks the conductor for the workflow of each run.",
};

/// Runs the process.
pub fn main() -> ExitCode {
    let work = Work::Plan(OPEN_BUNDLE);
    let check = |sources| check_work(sources, work);
    process(&PROGRAM, &planner_keys(), check, inspect, |settings| work_until_signal(settings, work))
}

/// The devices that would compute a local model, or that the GPU is missing.
#[cfg(feature = "llama")]
fn inspect(settings: &WorkSettings) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
    if !settings.cluster.conductors.need_a_model_here() {
        return Ok(None);
    }
    Ok(Some(podium_llama::inspect(settings.cluster.local.hardware)?))
}

#[cfg(not(feature = "llama"))]
#[expect(clippy::unnecessary_wraps, reason = "a build with a model may miss its GPU")]
fn inspect(_: &WorkSettings) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
    Ok(None)
}
