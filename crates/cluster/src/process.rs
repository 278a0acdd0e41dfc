//! A process without API: its signals, its listener for health and metrics, and its end.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use podium_engine::{Engine, Parts, Work};
use podium_planning::Place;
use podium_ports::causes::with_causes;
use podium_ports::conductor::Conductors;
use podium_ports::run_traces::RunTraces;
use podium_setup::settings::listeners::{HEALTH_LISTEN, HEALTH_LISTENER};
use podium_setup::settings::{Group, ProgramKeys, SettingsError, Sources};
use podium_setup::{Changes, Signals};
use podium_telemetry::{MetricsPage, Process as Instance, Telemetry};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::command_line::{HasCluster, Program};
use crate::connections::Connections;
use crate::error::ClusterError;
use crate::health::{self, Lifetime, Phase};
use crate::instance;
use crate::pool_change::apply_pool;
use crate::settings::{ClusterSettings, program_keys};
use crate::shutdown::{engine_failure, first_signal, stop_or_second_signal};

/// The settings of a process without API.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The settings of every process.
    pub cluster: ClusterSettings,
    /// The address for health and metrics.
    pub listen: SocketAddr,
}

impl HasCluster for ProcessSettings {
    fn cluster(&self) -> &ClusterSettings {
        &self.cluster
    }
}

impl ProcessSettings {
    /// The keys of a program that listens on `listen` by default, with those of its `own` groups.
    pub fn keys(program: &'static str, own: &[Group], listen: &'static str) -> ProgramKeys {
        let own = [&[HEALTH_LISTENER], own].concat();
        program_keys(program, &own).replace(HEALTH_LISTEN.key.with_default(listen))
    }

    /// Checks the settings of `program`, whose conductors plan at `place`.
    pub fn check(sources: Sources, program: &str, place: Place) -> Result<Self, SettingsError> {
        let mut checker = sources.into_checker();
        let [listen] = checker.listen([&HEALTH_LISTEN]);
        let cluster = ClusterSettings::read(&mut checker, program, place);
        let settings = cluster.zip(listen).map(|(cluster, listen)| Self { cluster, listen });
        checker.finish(settings)
    }
}

/// A process that listens for health checks and is not ready yet.
pub struct Process {
    signals: Signals,
    address: SocketAddr,
    listeners: JoinSet<io::Result<()>>,
    phases: watch::Sender<Phase>,
    lifetime: Lifetime,
    telemetry: Telemetry,
}

impl Process {
    /// Starts the log, the listener and the telemetry. Must be called inside a tokio runtime.
    pub async fn start(program: &Program, settings: &ProcessSettings) -> Result<Self, ClusterError> {
        let ProcessSettings { cluster, listen } = settings;
        cluster.start_log(program.name, program.version);
        let system = |what| move |source| ClusterError::System { what, source };
        let signals = Signals::new().map_err(system("cannot receive signals"))?;
        let listener = TcpListener::bind(listen)
            .await
            .map_err(system("cannot listen on the address of the key `listen`"))?;
        let address = listener.local_addr().map_err(system("cannot read the listener's address"))?;
        let this = Instance { name: program.name, version: program.version, instance: &instance() };
        let telemetry = podium_telemetry::start(&cluster.telemetry, &this, MetricsPage::ByCaller)?;
        let (phases, phase) = watch::channel(Phase::Starting);
        let lifetime = Lifetime { stopping: CancellationToken::new(), ended: CancellationToken::new() };
        let mut listeners = JoinSet::new();
        listeners.spawn(health::serve(listener, phase, lifetime.clone(), telemetry.page().cloned()));
        Ok(Self { signals, address, listeners, phases, lifetime, telemetry })
    }

    /// Where traces of ended runs go, if anywhere.
    pub fn traces(&self) -> Option<Arc<dyn RunTraces>> {
        self.telemetry.traces()
    }

    /// Waits for a part of the start-up. A signal ends the process at once: nothing depends on it yet.
    pub fn start_up<T>(&mut self, part: impl Future<Output = T>) -> impl Future<Output = T> {
        self.signals.or_end(part)
    }

    /// Runs the engine's loops for this work until a signal or a failure, and applies pools that change meanwhile, with parts by
    /// `rebuild`. Then work under way is finished within the drain time, or handed back, and everything is closed.
    pub async fn run(
        mut self,
        mut connections: Connections,
        engine: Engine,
        work: Work,
        mut changes: Changes<ProcessSettings>,
        rebuild: impl AsyncFn(&Connections) -> Result<(Parts, Work), ClusterError>,
    ) -> Result<(), ClusterError> {
        self.phases.send_replace(Phase::Working(connections.readiness(&engine)));
        let (conductor, pool) = (engine.conductor_ids().join(", "), engine.pool().version());
        info!(health = %self.address, conductor, pool, "working");
        let mut loops = JoinSet::new();
        let (working, conductors) = (engine.clone(), work.plan.clone());
        let stopping = self.lifetime.stopping.clone();
        loops.spawn(async move { working.work(work, stopping).await });
        let outcome = loop {
            let failure = async {
                tokio::select! {
                    ended = loops.join_next() => engine_failure(ended),
                    error = connections.failure() => error,
                    error = listener_failure(&mut self.listeners) => error,
                }
            };
            tokio::select! {
                outcome = first_signal(&mut self.signals, failure) => break outcome,
                now = changes.next() => {
                    apply_pool(&mut connections, &engine, &now.cluster.pool, &rebuild).await;
                }
            }
        };
        let stop = async {
            self.lifetime.stopping.cancel();
            while loops.join_next().await.is_some() {}
            // Conductors for other pools share the models of these.
            for conductor in conductors.iter().flat_map(Conductors::all) {
                conductor.shut_down().await;
            }
            connections.close().await;
            self.telemetry.shut_down().await;
            self.lifetime.ended.cancel();
        };
        stop_or_second_signal(&mut self.signals, stop).await;
        outcome
    }

    /// Stays alive and unready, and reports the error until a signal. For an error that only a change of the machine or of the
    /// settings can repair, so that restarts would be useless.
    pub async fn stay_unready(mut self, error: &(dyn Error + 'static)) -> Result<(), ClusterError> {
        info!(health = %self.address, "health checks are answered");
        error!(error, "not ready until the machine or the settings change");
        self.phases.send_replace(Phase::Refused(with_causes(error)));
        first_signal(&mut self.signals, listener_failure(&mut self.listeners)).await
    }
}

/// Waits until the listener ends, and gives the reason.
async fn listener_failure(listeners: &mut JoinSet<io::Result<()>>) -> ClusterError {
    ClusterError::Listener(match listeners.join_next().await {
        None | Some(Ok(Ok(()))) => "it ended without an error".into(),
        Some(Ok(Err(error))) => error.into(),
        Some(Err(panic)) => panic.into(),
    })
}
