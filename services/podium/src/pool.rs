//! Reads the pool, and starts the demo's workers if it is the demo's pool.

use std::path::PathBuf;
use std::sync::Arc;

use podium_domain::pool::Pool;
use podium_vendor_sim::{Behaviour, Milliseconds, Options, Running, VendorSim};

use crate::error::Error;
use crate::settings::PoolChoice;

/// The demo's pool.
const DEMO: &str = include_str!("../../../pools/demo.toml");
/// Decides where the simulated generalist errs, so that the same questions have the same results every time.
const SIMULATION_SEED: u64 = 7;

/// How fast simulated workers answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As fast as they can.
    Instant,
    /// As slowly as models, so that a user can watch.
    Visible,
}

/// The workers of a process.
pub(crate) struct Workers {
    pool: Arc<Pool>,
    simulation: Option<Running>,
}

impl Workers {
    /// The pool without starting workers.
    pub(crate) fn unopened(pool: Pool) -> Self {
        Self { pool: Arc::new(pool), simulation: None }
    }

    /// The pool.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Whether they are the demo's, in this process.
    pub(crate) fn are_simulated(&self) -> bool {
        self.simulation.is_some()
    }

    /// Stops the simulated workers.
    pub(crate) async fn close(self) {
        if let Some(simulation) = self.simulation {
            simulation.stop().await;
        }
    }
}

/// Reads the pool. For the demo's pool, starts its workers on a free port of this machine.
pub(crate) async fn open(choice: &PoolChoice, pace: Pace) -> Result<Workers, Error> {
    if let PoolChoice::File(_) = choice {
        return Ok(Workers::unopened(read(choice)?));
    }
    let first_token_ms = match pace {
        Pace::Instant => Milliseconds::default(),
        Pace::Visible => Milliseconds { min: 250, max: 600 },
    };
    let token_ms = if pace == Pace::Visible { 60 } else { 0 };
    let behaviour = Behaviour { first_token_ms, token_ms, ..Behaviour::default() };
    let options = Options { behaviour, ..Options::loopback(SIMULATION_SEED) };
    let simulation = VendorSim::start(options).await.map_err(|e| Error::Simulation(Box::new(e)))?;
    let pool = parse(&demo_at(&simulation.base_url()), "demo".into())?;
    Ok(Workers { pool: Arc::new(pool), simulation: Some(simulation) })
}

/// Reads the pool.
pub(crate) fn read(choice: &PoolChoice) -> Result<Pool, Error> {
    match choice {
        PoolChoice::Demo => parse(DEMO, "demo".into()),
        PoolChoice::File(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|source| Error::Unreadable { path: path.clone(), source })?;
            parse(&text, path.clone())
        }
    }
}

fn parse(text: &str, path: PathBuf) -> Result<Pool, Error> {
    Pool::parse(text).map_err(|source| Error::Pool { path, source })
}

/// The demo's pool with its vendor at another address. Invalid TOML stays unchanged, so that the pool's own check reports it.
fn demo_at(base_url: &str) -> String {
    let Ok(mut file) = DEMO.parse::<toml::Table>() else { return DEMO.to_owned() };
    let vendors = file.get_mut("vendors").and_then(toml::Value::as_array_mut);
    for vendor in vendors.into_iter().flatten().filter_map(toml::Value::as_table_mut) {
        vendor.insert("base_url".to_owned(), base_url.into());
    }
    file.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_pool_moves_to_another_address_and_stays_the_same() {
        let written = read(&PoolChoice::Demo).unwrap();
        let moved = parse(&demo_at("http://127.0.0.1:7/v1"), "demo".into()).unwrap();
        assert!(moved.vendors().iter().all(|vendor| vendor.base_url == "http://127.0.0.1:7/v1"));
        assert_eq!((moved.version(), moved.workers()), (written.version(), written.workers()));
    }
}
