//! `podium serve`: both APIs and the engine in one process, until a signal.

use std::process::ExitCode;

use podium_api::openai::unix_seconds;
use podium_planning::{ConductorChoice, demo_bundle};
use podium_ports::clock::Clock as _;
use podium_ports::server::TlsFiles;
use podium_server::{Listeners, Servers};
use podium_setup::settings::listeners::keyless_warning;
use podium_setup::{Changes, Signals, SystemClock, VERSION};
use podium_telemetry::{MetricsPage, Page, Process, Telemetry};
use tracing::{error, info, warn};

use crate::assemble::{ENGINE_DRAIN_TENTHS, Embedded};
use crate::error::{Error, run_failed};
use crate::settings::{PoolChoice, Settings, instance};
use crate::{OPEN_BUNDLE, cli, pool};

/// The exit code after a second signal, as shells count an interrupt.
const INTERRUPTED: i32 = 130;

/// Reports that the settings are valid, with the warnings of a start.
pub(crate) fn report(settings: &Settings) -> Result<ExitCode, Error> {
    let pool = pool::read(&settings.pool)?;
    cli::print_line(&format!(
        "the settings are valid: pool {}, conductor {}",
        pool.version(),
        settings.conductors
    ))?;
    warnings(settings).iter().try_for_each(|warning| cli::print_line(&format!("warning: {warning}")))?;
    Ok(ExitCode::SUCCESS)
}

/// The reason why the demonstration's workers have no conductor, unless the settings choose other workers or a conductor.
fn without_demo_conductor(settings: &Settings) -> Option<String> {
    if settings.pool != PoolChoice::Demo || settings.conductors.current != ConductorChoice::Auto {
        return None;
    }
    demo_bundle(&pool::read(&settings.pool).ok()?, OPEN_BUNDLE).err()
}

/// Warnings about settings that are valid but rarely intended.
fn warnings(settings: &Settings) -> Vec<String> {
    let is_open = !settings.keys_required && !settings.tls.as_ref().is_some_and(TlsFiles::identify_clients);
    let keyless = keyless_warning([settings.listen, settings.grpc_listen], !is_open);
    let wrong = without_demo_conductor(settings).map(|problem| {
        format!(
            "answers will be wrong: no model plans, and each question goes unchanged to one simulated worker that can do one \
             kind of task; {problem}, or name your own workers with --pool"
        )
    });
    wrong.into_iter().chain(keyless.map(str::to_owned)).collect()
}

/// Serves until a signal.
pub(crate) async fn serve(settings: Settings, mut changes: Changes<Settings>) -> Result<ExitCode, Error> {
    settings.start_log("info");
    let system = |what| move |source| Error::System { what, source };
    let mut signals = Signals::new().map_err(system("cannot receive signals"))?;
    // The listeners are bound before a model is loaded, so that a port in use is reported at once.
    let listeners =
        Listeners::bind(settings.listen, settings.grpc_listen).await?.with_tls(settings.tls.clone())?;
    let (http, grpc) = listeners.addresses().map_err(system("cannot read a listener's address"))?;
    let process = Process { name: "podium", version: VERSION, instance: &instance() };
    let metrics_page = MetricsPage::of(settings.metrics_listen, settings.health_listen).await?;
    let telemetry = podium_telemetry::start(&settings.telemetry, &process, metrics_page)?;
    let metrics = telemetry.page().map(Page::router).unwrap_or_default();
    let listeners = listeners.with_health(settings.health_listen, metrics).await?;
    let mut embedded =
        signals.or_end(Embedded::start(&settings, pool::Pace::Instant, telemetry.traces())).await?;
    let engine = embedded.engine().clone();
    engine.ready().await?;
    embedded.notices().iter().for_each(|notice| warn!("{notice}"));
    for warning in warnings(&settings) {
        warn!("{warning}");
    }
    let access = embedded.access(settings.keys_required);
    let started = unix_seconds(SystemClock.now());
    let mut servers = listeners.open(&engine, &access, embedded.objects(), settings.limits.clone(), started);
    let (conductor, pool) = (engine.conductor_ids().join(", "), engine.pool().version());
    info!(%http, %grpc, conductor, pool, "listening");
    drop(engine);
    let outcome = loop {
        tokio::select! {
            name = signals.next() => {
                info!(signal = name, "stopping");
                break Ok(ExitCode::SUCCESS);
            }
            error = embedded.broke_down() => {
                error!(error = &*error as &dyn std::error::Error, "the engine failed");
                break Ok(run_failed());
            }
            error = servers.broke_down() => break Err(error.into()),
            now = changes.next() => {
                let before = embedded.engine().pool();
                if let Err(error) = embedded.use_pool(&settings, &now.pool).await {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, before = before.version(), "the changed pool cannot be used: the earlier one stays");
                }
            }
        }
    };
    tokio::select! {
        () = stop(embedded, servers, &settings, telemetry) => info!("stopped"),
        name = signals.next() => {
            warn!(signal = name, "ending at once; runs under way continue after the next start");
            std::process::exit(INTERRUPTED);
        }
    }
    outcome
}

/// Stops the servers, then the engine. Unfinished work continues after the next start.
async fn stop(embedded: Embedded, servers: Servers, settings: &Settings, telemetry: Telemetry) {
    let drain = settings.drain;
    servers.close(settings.drain_delay, drain.saturating_sub(drain * ENGINE_DRAIN_TENTHS / 10)).await;
    embedded.stop().await;
    telemetry.shut_down().await;
}
