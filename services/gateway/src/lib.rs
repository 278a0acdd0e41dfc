//! The gateway: the cluster's API server. It accepts runs, streams them to clients and cancels them; others plan and execute.
#![deny(missing_docs)]

mod settings;

use std::error::Error;
use std::process::ExitCode;

use podium_api::openai::unix_seconds;
use podium_cluster::{
    Certificates, ClientCertificate, ClusterError, ClusterSettings, Connections, GATEWAY, Program, Role,
    apply_pool, engine_failure, first_signal, instance, main_with_inspection as run_program,
    stop_or_second_signal,
};
use podium_engine::Work;
use podium_planning::describe_all;
use podium_ports::conductor_profile::{ConductorProfile, ConductorProfiles};
use podium_server::{Authenticator, CellIdentity, CellRouter, CellTls, Listeners};
use podium_setup::{Changes, Signals, VERSION};
use podium_telemetry::{MetricsPage, Page, Process};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use settings::keys;
use settings::{Settings, check};

const PROGRAM: Program = Program {
    name: GATEWAY,
    version: VERSION,
    about: "The gateway of a Podium cluster: serves the OpenAI-compatible HTTP API and gRPC, accepts runs and streams their \
            answers.",
    role: Role::Gateway,
};

/// Runs the process.
pub fn main() -> ExitCode {
    let inspect = |settings: &Settings| Ok(settings.warning().map(|warning| format!("warning: {warning}")));
    run_program(&PROGRAM, &keys(), check, inspect, serve)
}

/// Connects and listens, then serves clients until a signal.
async fn serve(settings: Settings, mut changes: Changes<Settings>) -> Result<(), ClusterError> {
    let warning = settings.warning();
    let cluster = &settings.cluster;
    cluster.start_log(PROGRAM.name, PROGRAM.version);
    let system = |what| move |source| ClusterError::System { what, source };
    let mut signals = Signals::new().map_err(system("cannot receive signals"))?;
    // The listeners are bound before anything is connected, so that a port in use is reported at once.
    let listeners = Listeners::bind(settings.listen, settings.grpc_listen).await.map_err(listener_failed)?;
    let listeners = listeners.with_tls(settings.tls.clone()).map_err(listener_failed)?;
    let (http, grpc) = listeners.addresses().map_err(system("cannot read a listener's address"))?;
    let process = Process { name: PROGRAM.name, version: PROGRAM.version, instance: &instance() };
    let metrics_page = MetricsPage::of(settings.metrics_listen, settings.health_listen).await?;
    let telemetry = podium_telemetry::start(&cluster.telemetry, &process, metrics_page)?;
    let metrics = telemetry.page().map(Page::router).unwrap_or_default();
    let listeners = listeners.with_health(settings.health_listen, metrics).await.map_err(listener_failed)?;
    let connections = signals.or_end(Connections::open(cluster, Role::Gateway)).await?;
    let mut connections = connections.with_traces(telemetry.traces());
    let engine = connections.engine(cluster, conductors(cluster, &connections)?);
    let auth = Authenticator::new(connections.accounts(), connections.clock(), settings.keys_required);
    let tls = cell_tls(cluster.cell_certificates.clone());
    let cells = cluster.cells.clone().map(|cells| CellRouter::new(cluster.cell, cells, &tls)).transpose();
    let listeners = listeners.in_cells(cells.map_err(listener_failed)?);
    let started_at = unix_seconds(connections.clock().now());
    let mut servers =
        listeners.open(&engine, &auth, connections.objects(), settings.limits.clone(), started_at);
    let (conductor, pool) = (engine.conductor_ids().join(", "), engine.pool().version());
    info!(%http, %grpc, cell = %cluster.cell, conductor, pool, "listening");
    if let Some(warning) = warning {
        warn!("{warning}");
    }
    let (stopping, mut loops) = (CancellationToken::new(), JoinSet::new());
    loops.spawn({
        let (engine, stopping) = (engine.clone(), stopping.clone());
        async move { engine.work(Work::default(), stopping).await }
    });
    let rebuild = async |connections: &Connections| {
        Ok((connections.parts(cluster, conductors(cluster, connections)?), Work::default()))
    };
    let outcome = loop {
        let failure = async {
            tokio::select! {
                error = servers.broke_down() => listener_failed(error),
                ended = loops.join_next() => engine_failure(ended),
                error = connections.failure() => error,
            }
        };
        tokio::select! {
            outcome = first_signal(&mut signals, failure) => break outcome,
            now = changes.next() => {
                apply_pool(&mut connections, &engine, &now.cluster.pool, &rebuild).await;
            }
        }
    };
    let stop = async {
        servers.close(settings.drain_delay, cluster.drain).await;
        stopping.cancel();
        while loops.join_next().await.is_some() {}
        connections.close().await;
        telemetry.shut_down().await;
    };
    stop_or_second_signal(&mut signals, stop).await;
    outcome
}

fn cell_tls(Certificates { root, client }: Certificates) -> CellTls {
    let identity = client.map(|ClientCertificate { certificate, key }| CellIdentity { certificate, key });
    CellTls { root_certificates: root, identity }
}

/// The conductors, for the accepting of runs.
fn conductors(
    cluster: &ClusterSettings,
    connections: &Connections,
) -> Result<ConductorProfiles, ClusterError> {
    let conductors = describe_all(&cluster.conductors, connections.pool())?;
    Ok(if cluster.plan_at_once { conductors } else { conductors.map(ConductorProfile::without_plans) })
}

fn listener_failed(error: impl Error + Send + Sync + 'static) -> ClusterError {
    ClusterError::Listener(Box::new(error))
}
