//! The executor: calls workers for the steps of each run. It keeps no state; any number may run, and each may be killed.
#![deny(missing_docs)]

use std::process::ExitCode;

use podium_cluster::{
    ClusterError, Connections, EXECUTOR, EXECUTOR_GROUPS, Parts, Process, ProcessSettings, Program,
    main as run_program,
};
use podium_engine::Roles;
use podium_planning::{Place, describe_all};
use podium_setup::settings::ProgramKeys;

const PROGRAM: Program = Program {
    name: EXECUTOR,
    version: env!("CARGO_PKG_VERSION"),
    about: "An executor of a Podium cluster: calls the vendors' models for the steps of each run.",
};

/// The executor's keys.
pub fn keys() -> ProgramKeys {
    ProcessSettings::keys(EXECUTOR, &EXECUTOR_GROUPS, "127.0.0.1:8083")
}

/// Runs the process.
pub fn main() -> ExitCode {
    main_with(PROGRAM, |parts| parts)
}

/// Runs the process as `program`, with some adapters replaced by `replace`: for measurements and tests.
pub fn main_with(program: Program, replace: fn(Parts) -> Parts) -> ExitCode {
    let check = |sources| ProcessSettings::check(sources, program.name, Place::Elsewhere);
    run_program(&program, &keys(), check, |settings| serve(program, settings, replace))
}

/// Connects, then runs the loops that fetch and execute steps, until a signal.
async fn serve(
    program: Program,
    settings: ProcessSettings,
    replace: fn(Parts) -> Parts,
) -> Result<(), ClusterError> {
    let mut process = Process::start(&program, &settings).await?;
    let cluster = settings.cluster;
    let connections = process.start_up(Connections::open(&cluster, Roles::EXECUTOR)).await?;
    // Runs name their conductor, but planners use it.
    let (pool, callees) = (connections.pool(), connections.callees());
    let conductors = describe_all(&cluster.conductors, pool, &callees, |described| described).await?;
    let engine = connections.engine_with(&cluster, conductors.clone(), replace);
    process.run(connections, engine, conductors, Roles::EXECUTOR).await
}
