//! The executor: calls workers for the steps of each run. It keeps no state; any number may run, and each may be killed.
#![deny(missing_docs)]

use std::process::ExitCode;

use podium_cluster::{
    ClusterError, Connections, EXECUTOR, EXECUTOR_GROUPS, Process, ProcessSettings, Program, Role,
    main as run_program, options,
};
use podium_engine::{Engine, Parts, Work};
use podium_planning::{Place, describe_all};
use podium_setup::settings::ProgramKeys;
use podium_setup::{Changes, VERSION};

const PROGRAM: Program = Program {
    name: EXECUTOR,
    version: VERSION,
    about: "An executor of a Podium cluster: calls the vendors' models for the steps of each run.",
    role: Role::Executor,
};

/// The ports and the work of an executor.
pub struct ExecutorParts {
    /// The ports of every process.
    pub parts: Parts,
    /// The calls of workers.
    pub work: Work,
}

/// The executor's keys.
pub fn keys() -> ProgramKeys {
    ProcessSettings::keys(EXECUTOR, &EXECUTOR_GROUPS, "127.0.0.1:8083")
}

/// Runs the process.
pub fn main() -> ExitCode {
    main_with(PROGRAM, |parts| parts)
}

/// Runs the process as `program`, with some adapters replaced by `replace`: for measurements and tests.
pub fn main_with(program: Program, replace: fn(ExecutorParts) -> ExecutorParts) -> ExitCode {
    let check = |sources| ProcessSettings::check(sources, program.name, Place::Elsewhere);
    run_program(&program, &keys(), check, |settings, changes| serve(program, settings, changes, replace))
}

/// Connects, then runs the loops that fetch and execute steps, until a signal.
async fn serve(
    program: Program,
    settings: ProcessSettings,
    changes: Changes<ProcessSettings>,
    replace: fn(ExecutorParts) -> ExecutorParts,
) -> Result<(), ClusterError> {
    let mut process = Process::start(&program, &settings).await?;
    let cluster = settings.cluster;
    let connections = process.start_up(Connections::open(&cluster, Role::Executor)).await?;
    let connections = connections.with_traces(process.traces());
    let build = |connections: &Connections| -> Result<(Parts, Work), ClusterError> {
        // Runs name their conductor, but planners use it.
        let conductors = describe_all(&cluster.conductors, connections.pool())?;
        let parts = connections.parts(&cluster, conductors);
        let work = Work { plan: None, execute: connections.call_parts() };
        let ExecutorParts { parts, work } = replace(ExecutorParts { parts, work });
        Ok((parts, work))
    };
    let (parts, work) = build(&connections)?;
    let engine = Engine::new(parts, options(&cluster));
    let rebuild = async |connections: &Connections| build(connections);
    process.run(connections, engine, work, changes, rebuild).await
}
