//! The planner: asks the conductor for workflows. The only process of a cluster that may hold a model.
#![deny(missing_docs)]

use std::error::Error;
use std::process::ExitCode;

use podium_bundle::hardware::GpuError;
use podium_cluster::{
    ClusterError, Connections, PLANNER, PLANNER_GROUPS, Process, ProcessSettings, Program, Role,
    main_with_inspection as run_program,
};
use podium_engine::Work;
use podium_planning::{OpenBundle, Place, choose_all, choose_all_again};
use podium_ports::conductor_profile::ConductorProfile;
use podium_setup::settings::ProgramKeys;
use podium_setup::{Changes, VERSION};
use tracing::warn;

/// Loads a model in this process, if the program was built with llama.cpp.
#[cfg(feature = "llama")]
const OPEN_BUNDLE: Option<OpenBundle> = Some(podium_llama::open);
#[cfg(not(feature = "llama"))]
const OPEN_BUNDLE: Option<OpenBundle> = None;

const PROGRAM: Program = Program {
    name: PLANNER,
    version: VERSION,
    about: "A planner of a Podium cluster: asks the conductor for the workflow of each run.",
    role: Role::Planner,
};

/// The planner's keys.
pub fn keys() -> ProgramKeys {
    ProcessSettings::keys(PLANNER, &PLANNER_GROUPS, "127.0.0.1:8082")
}

/// Runs the process.
pub fn main() -> ExitCode {
    let check = |sources| ProcessSettings::check(sources, PLANNER, Place::Here(OPEN_BUNDLE));
    run_program(&PROGRAM, &keys(), check, inspect, serve)
}

/// Connects and loads the conductors, then runs the loops that fetch and plan runs, until a signal.
async fn serve(settings: ProcessSettings, changes: Changes<ProcessSettings>) -> Result<(), ClusterError> {
    let mut process = Process::start(&PROGRAM, &settings).await?;
    let cluster = settings.cluster;
    let connections = process.start_up(Connections::open(&cluster, Role::Planner)).await?;
    let connections = connections.with_traces(process.traces());
    let (pool, callees) = (connections.pool(), connections.callees());
    let choosing = choose_all(&cluster.conductors, pool, &callees, OPEN_BUNDLE, cluster.local);
    let chosen = match process.start_up(choosing).await {
        Err(error) if GpuError::among(&error).is_some() => {
            connections.close().await;
            return process.stay_unready(&error).await;
        }
        chosen => chosen?,
    };
    for notice in chosen.notices {
        warn!("{notice}");
    }
    let engine = connections.engine(&cluster, ConductorProfile::of_all(&chosen.conductors));
    let conductors = chosen.conductors.clone();
    let rebuild = async |connections: &Connections| {
        let (choices, callees) = (&cluster.conductors, connections.callees());
        let again = choose_all_again(&conductors, choices, connections.pool(), &callees, cluster.local);
        let conductors = again.await?;
        let parts = connections.parts(&cluster, ConductorProfile::of_all(&conductors));
        Ok((parts, Work { plan: Some(conductors), execute: None }))
    };
    let work = Work { plan: Some(chosen.conductors), execute: None };
    process.run(connections, engine, work, changes, rebuild).await
}

/// Reports the devices that would compute a local model, or that the GPU is missing.
#[cfg(feature = "llama")]
fn inspect(settings: &ProcessSettings) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
    if !settings.cluster.conductors.need_a_model_here() {
        return Ok(None);
    }
    Ok(Some(podium_llama::inspect(settings.cluster.local.hardware)?))
}

#[cfg(not(feature = "llama"))]
#[expect(clippy::unnecessary_wraps, reason = "a build with llama.cpp may miss its GPU")]
fn inspect(_: &ProcessSettings) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
    Ok(None)
}
