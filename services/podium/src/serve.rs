//! `podium serve`: both doors and the engine in one process, until told to stop.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use podium_api::openai::unix_seconds;
use podium_ports::clock::Clock as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{error, info, warn};

use crate::assemble::{ENGINE_DRAIN_TENTHS, Embedded};
use crate::clock::SystemClock;
use crate::error::{Error, run_failed};
use crate::http::Closing;
use crate::settings::{ConductorChoice, Settings};
use crate::{cli, grpc, http, logging, pool};

/// How long the doors may take to end requests that were cut.
const CUT_WAIT: Duration = Duration::from_secs(1);
/// The exit code after a second signal, as shells count an interrupt.
const INTERRUPTED: i32 = 130;

/// Checks what can be checked without starting anything.
pub(crate) fn check(settings: &Settings) -> Result<ExitCode, Error> {
    let pool = pool::read(&settings.pool)?;
    if let ConductorChoice::Llama(folder) = &settings.conductor
        && cfg!(not(feature = "llama"))
    {
        return Err(Error::NoLlama { name: format!("llama:{}", folder.display()) });
    }
    cli::print_line(&format!(
        "the configuration is right: pool {}, conductor {}",
        pool.version(),
        settings.conductor
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Serves until a signal.
pub(crate) async fn serve(settings: Settings) -> Result<ExitCode, Error> {
    logging::start(&settings, "info");
    let mut signals = Signals::new()?;
    // Both ports are taken before a model is loaded: a port in use is found out at once.
    let (http_listener, http_address) = bind(settings.listen, "HTTP").await?;
    let (grpc_listener, grpc_address) = bind(settings.grpc_listen, "gRPC").await?;
    let mut embedded = Embedded::start(&settings, pool::Pace::Instant).await?;
    let engine = embedded.engine().clone();
    engine.ready().await?;
    embedded.notices().iter().for_each(|notice| warn!("{notice}"));
    let closing = Closing::default();
    let mut doors = JoinSet::new();
    let started = unix_seconds(SystemClock.now());
    let http = http::serve(http_listener, engine.clone(), started, closing.clone());
    doors.spawn(async move { http.await.map_err(Error::Http) });
    let grpc = grpc::serve(grpc_listener, engine.clone(), closing.stopping.clone());
    doors.spawn(async move { grpc.await.map_err(Error::from) });
    info!(
        http = %http_address,
        grpc = %grpc_address,
        conductor = engine.conductor_id(),
        pool = engine.pool().version(),
        "listening"
    );
    drop(engine);
    let outcome = tokio::select! {
        name = signals.next() => {
            info!(signal = name, "stopping");
            Ok(ExitCode::SUCCESS)
        }
        () = embedded.broke_down() => {
            error!("the engine broke down");
            Ok(run_failed())
        }
        Some(door) = doors.join_next() => door_ended(door),
    };
    let stop = stop(embedded, doors, &closing, settings.drain);
    tokio::select! {
        () = stop => info!("stopped"),
        name = signals.next() => {
            warn!(signal = name, "ending at once; runs under way go on after the next start");
            std::process::exit(INTERRUPTED);
        }
    }
    outcome
}

async fn bind(address: SocketAddr, door: &'static str) -> Result<(TcpListener, SocketAddr), Error> {
    let refused = |source| Error::Listen { address, door, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

fn door_ended(door: Result<Result<(), Error>, tokio::task::JoinError>) -> Result<ExitCode, Error> {
    match door {
        Ok(Ok(())) => error!("a door closed by itself"),
        Ok(Err(error)) => return Err(error),
        Err(panic) => error!(error = %panic, "a door broke down"),
    }
    Ok(run_failed())
}

/// Requests first, then the engine's own work; whatever is not done in time goes on after the next start.
async fn stop(embedded: Embedded, mut doors: JoinSet<Result<(), Error>>, closing: &Closing, drain: Duration) {
    closing.stopping.cancel();
    let doors_drain = drain.saturating_sub(drain * ENGINE_DRAIN_TENTHS / 10);
    let mut all_closed = async || while doors.join_next().await.is_some() {};
    if timeout(doors_drain, all_closed()).await.is_err() {
        info!("the drain time of the doors is over: requests under way are cut");
        closing.cut.cancel();
        let _ = timeout(CUT_WAIT, all_closed()).await;
    }
    // A connection that will not end does not hold the engine back.
    doors.abort_all();
    embedded.stop().await;
}

/// The signals that ask a process to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let listen = |kind| {
            signal(kind).map_err(|source| Error::System { what: "signals cannot be listened for", source })
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupt",
            _ = self.terminate.recv() => "terminate",
        }
    }
}
