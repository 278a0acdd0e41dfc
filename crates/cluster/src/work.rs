//! Planners and executors: the engine's loops, and a listener for health and metrics.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use podium_bundle::hardware::GpuError;
use podium_engine::{LoopEnded, Parts, Roles};
use podium_planning::{OpenBundle, Place};
use podium_ports::conductor::Conductors;
use podium_bundle::hardware::GpuError;
use podium_setup::Signals;
use podium_setup::settings::listeners::{HEALTH_LISTEN, HEALTH_LISTENER};
use podium_setup::settings::{Group, ProgramKeys, SettingsError, Sources};
use podium_telemetry::{MetricsPage, Process};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::error::ClusterError;
use crate::health::Phase;
use crate::settings::{ClusterSettings, EXECUTOR, EXECUTOR_GROUPS, PLANNER, PLANNER_GROUPS, program_keys};
use crate::{Backbone, first_signal, health, instance, stop_or_second_signal};

/// What a planner or an executor is told.
#[derive(Clone, Debug)]
pub struct WorkSettings {
    /// What every process is told.
    pub cluster: ClusterSettings,
    /// Address of the health server.
    pub listen: SocketAddr,
}

/// The keys of a planner.
pub fn planner_keys() -> ProgramKeys {
    worker_keys(PLANNER, &PLANNER_GROUPS, "127.0.0.1:8082")
}

/// The keys of an executor.
pub fn executor_keys() -> ProgramKeys {
    worker_keys(EXECUTOR, &EXECUTOR_GROUPS, "127.0.0.1:8083")
}

fn worker_keys(program: &'static str, own: &[Group], listen: &'static str) -> ProgramKeys {
    let own = [&[HEALTH_LISTENER], own].concat();
    program_keys(program, &own).replace(HEALTH_LISTEN.key.with_default(listen))
}

/// Checks the settings of a planner or an executor.
pub fn check_work(sources: Sources, work: Work) -> Result<WorkSettings, SettingsError> {
    let mut checker = sources.into_checker();
    let [listen] = checker.listen([&HEALTH_LISTEN]);
    let cluster = ClusterSettings::read(&mut checker, work.program(), work.place());
    let settings = cluster.zip(listen).map(|(cluster, listen)| WorkSettings { cluster, listen });
    checker.finish(settings)
}

/// What a process works at.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// It asks the conductor; how it loads a model that runs here, if it can.
    Plan(Option<OpenBundle>),
    /// It calls workers.
    Execute,
    /// It calls workers, on other parts than the settings say: for measurements and tests.
    ExecuteWith(fn(Parts) -> Parts),
}

impl Work {
    const fn program(self) -> &'static str {
        match self {
            Self::Plan(_) => PLANNER,
            Self::Execute | Self::ExecuteWith(_) => EXECUTOR,
        }
    }

    /// Where its conductors plan.
    const fn place(self) -> Place {
        match self {
            Self::Plan(open_bundle) => Place::Here(open_bundle),
            Self::Execute | Self::ExecuteWith(_) => Place::Elsewhere,
        }
    }

    const fn roles(self) -> Roles {
        match self {
            Self::Plan(_) => Roles::PLANNER,
            Self::Execute | Self::ExecuteWith(_) => Roles::EXECUTOR,
        }
    }
}

/// Works until a signal; then work under way is finished within the drain time, or handed back.
pub async fn work_until_signal(settings: WorkSettings, work: Work) -> Result<(), ClusterError> {
    let WorkSettings { cluster, listen } = settings;
    let roles = work.roles();
    cluster.start_log(work.program(), env!("CARGO_PKG_VERSION"));
    let system = |what| move |source| ClusterError::System { what, source };
    let mut signals = Signals::new().map_err(system("signals cannot be listened for"))?;
    let listener =
        TcpListener::bind(listen).await.map_err(system("cannot bind the health server's address"))?;
    let address = listener.local_addr().map_err(system("cannot read the health server's address"))?;
    let (stopping, ended) = (CancellationToken::new(), CancellationToken::new());
    let (phases, phase) = watch::channel(Phase::Starting);
    let mut servers = JoinSet::new();
    let process = Process { name: work.program(), version: env!("CARGO_PKG_VERSION"), instance: &instance() };
    let telemetry = podium_telemetry::start(&cluster.telemetry, &process, MetricsPage::ByCaller)?;
    let page = telemetry.page().cloned();
    servers.spawn(health::serve(listener, phase, (stopping.clone(), ended.clone()), page));
    let mut backbone = signals.or_end(Backbone::connect(&cluster, roles)).await?;
    let conductors = match signals.or_end(conductors_for(&cluster, &backbone, work)).await {
        Err(ClusterError::Conductor(error)) if GpuError::among(&error).is_some() => {
            backbone.close().await;
            info!(health = %address, "the health server listens");
            return stay_unready(&error, &phases, &mut signals, &mut servers).await;
        }
        conductors => conductors?,
    };
    let replaced = match work {
        Work::ExecuteWith(replaced) => replaced,
        Work::Plan(_) | Work::Execute => std::convert::identity,
    };
    let engine = backbone.engine_with(&cluster, conductors.clone(), replaced);
    phases.send_replace(Phase::Working(backbone.readiness(&engine)));
    let mut loops = JoinSet::new();
    loops.spawn({
        let (engine, stopping) = (engine.clone(), stopping.clone());
        async move { engine.work(roles, stopping).await }
    });
    let conductor: Vec<_> = engine.conductor_ids().collect();
    info!(health = %address, conductor = conductor.join(", "), pool = engine.pool().version(), "working");
    let breakdown = async {
        tokio::select! {
            ended = loops.join_next() => broke_down(ended),
            error = backbone.broke_down() => error,
            error = closed(&mut servers) => error,
        }
    };
    let outcome = first_signal(&mut signals, breakdown).await;
    let stop = async {
        stopping.cancel();
        while loops.join_next().await.is_some() {}
        for conductor in conductors.all() {
            conductor.shut_down().await;
        }
        backbone.close().await;
        telemetry.shut_down().await;
        ended.cancel();
    };
    stop_or_second_signal(&mut signals, stop).await;
    outcome
}

/// Why the engine's work ended although nobody stopped it.
pub fn broke_down(ended: Option<Result<Result<(), LoopEnded>, JoinError>>) -> ClusterError {
    ClusterError::BrokeDown(match ended {
        Some(Err(panic)) => panic.into(),
        Some(Ok(Err(ended))) => ended.into(),
        Some(Ok(Ok(()))) | None => "the engine's work ended by itself".into(),
    })
}

/// Waits until the health server ends, which it should not, and returns the error.
async fn closed(servers: &mut JoinSet<io::Result<()>>) -> ClusterError {
    ClusterError::Listener(match servers.join_next().await {
        None | Some(Ok(Ok(()))) => "it closed by itself".into(),
        Some(Ok(Err(error))) => error.into(),
        Some(Err(panic)) => panic.into(),
    })
}

/// Without the GPU that was promised nothing can be planned here, before the machine or the settings are others. The process
/// lives on and says so: to be started again and again would help nobody.
async fn stay_unready(
    error: &(dyn Error + 'static),
    phases: &watch::Sender<Phase>,
    signals: &mut Signals,
    servers: &mut JoinSet<io::Result<()>>,
) -> Result<(), ClusterError> {
    error!(error, "not ready, and nothing will change that here");
    let mut why = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        why = format!("{why}: {error}");
        cause = error.source();
    }
    phases.send_replace(Phase::Refused(why));
    first_signal(signals, closed(servers)).await
}

async fn conductors_for(
    settings: &ClusterSettings,
    backbone: &Backbone,
    work: Work,
) -> Result<Conductors, ClusterError> {
    let (choices, pool, callees) = (&settings.conductors, backbone.pool(), backbone.callees());
    let Work::Plan(open_bundle) = work else {
        return Ok(podium_planning::describe_all(choices, pool, &callees, |described| described).await?);
    };
    let chosen = podium_planning::choose_all(choices, pool, &callees, open_bundle, settings.local).await?;
    chosen.notices.iter().for_each(|notice| warn!("{notice}"));
    Ok(chosen.conductors)
}
