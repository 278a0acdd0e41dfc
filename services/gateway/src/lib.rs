//! The gateway: the cluster's API server. It accepts runs, streams them to clients and cancels them; others plan and execute.
#![deny(missing_docs)]

mod settings;

use std::process::ExitCode;

use podium_api::openai::unix_seconds;
use podium_cluster::{
    Backbone, ClusterError, GATEWAY, Program, broke_down, first_signal, instance,
    main_with_inspection as process, stop_or_second_signal,
};
use podium_engine::Roles;
use podium_planning::Elsewhere;
use podium_server::{Authenticator, CellRouter, Listeners};
use podium_setup::Signals;
use podium_telemetry::{MetricsPage, Process};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use settings::keys;
use settings::{Settings, check};

const PROGRAM: Program = Program {
    name: GATEWAY,
    version: env!("CARGO_PKG_VERSION"),
    about: "The gateway of a Podium cluster: serves the OpenAI-compatible HTTP API and gRPC, accepts runs and streams their \
            answers.",
};

/// Runs the process.
pub fn main() -> ExitCode {
    let inspect = |settings: &Settings| Ok(settings.warning().map(|warning| format!("warning: {warning}")));
    process(&PROGRAM, &keys(), check, inspect, serve)
}

async fn serve(settings: Settings) -> Result<(), ClusterError> {
    let warning = settings.warning();
    let Settings { cluster, listen, grpc_listen, metrics_listen, keys_required, limits } = settings;
    cluster.start_log(PROGRAM.name, PROGRAM.version);
    let system = |what| move |source| ClusterError::System { what, source };
    let mut signals = Signals::new().map_err(system("signals cannot be listened for"))?;
    // Both ports are taken before anything is connected to: a port in use is found out at once.
    let listeners =
        Listeners::bind(listen, grpc_listen).await.map_err(|e| ClusterError::Listener(Box::new(e)))?;
    let (http, grpc) = listeners.addresses().map_err(system("cannot read the servers' addresses"))?;
    let process = Process { name: PROGRAM.name, version: PROGRAM.version, instance: &instance() };
    let metrics_page = MetricsPage::bind(metrics_listen).await?;
    let telemetry = podium_telemetry::start(&cluster.telemetry, &process, metrics_page)?;
    let mut backbone = signals.or_end(Backbone::connect(&cluster, Roles::NONE)).await?;
    let here = if cluster.plan_at_once { |described| described } else { Elsewhere::without_plans };
    let (choices, pool, callees) = (&cluster.conductors, backbone.pool(), backbone.callees());
    let engine =
        backbone.engine(&cluster, podium_planning::describe_all(choices, pool, &callees, here).await?);
    let auth = Authenticator::new(backbone.accounts(), backbone.clock(), keys_required);
    let cells = cluster.cells.clone().map(|cells| CellRouter::new(cluster.cell, cells)).transpose();
    let listeners = match cells.map_err(|e| ClusterError::Listener(Box::new(e)))? {
        None => listeners,
        Some(cells) => listeners.in_cells(cells),
    };
    let mut servers = listeners.open(&engine, &auth, limits, unix_seconds(backbone.clock().now()));
    let conductor: Vec<_> = engine.conductor_ids().collect();
    info!(%http, %grpc, cell = %cluster.cell, conductor = conductor.join(", "), pool = engine.pool().version(), "listening");
    if let Some(warning) = warning {
        warn!("{warning}");
    }
    let (stopping, mut loops) = (CancellationToken::new(), JoinSet::new());
    loops.spawn({
        let stopping = stopping.clone();
        async move { engine.work(Roles::NONE, stopping).await }
    });
    let breakdown = async {
        tokio::select! {
            error = servers.broke_down() => ClusterError::Listener(Box::new(error)),
            ended = loops.join_next() => broke_down(ended),
            error = backbone.broke_down() => error,
        }
    };
    let outcome = first_signal(&mut signals, breakdown).await;
    let stop = async {
        servers.close(cluster.drain).await;
        stopping.cancel();
        while loops.join_next().await.is_some() {}
        backbone.close().await;
        telemetry.shut_down().await;
    };
    stop_or_second_signal(&mut signals, stop).await;
    outcome
}
