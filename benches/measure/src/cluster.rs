//! The parts of the benchmarks' clusters: private servers, and one binary under the names of the programs.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result};
use podium_harness::{Nats, Postgres, Redis, Service};

use crate::{Servers, count_statements};

/// A setting of a program: its key and its value.
pub type Setting = (&'static str, String);

/// Private servers on loopback, which end when the value is dropped.
pub struct Backbone {
    database: String,
    nats: Nats,
    redis: Redis,
    _postgres: Postgres,
}

impl Backbone {
    /// Starts the servers. With `is_counted`, Postgres counts statements by their text.
    pub async fn start(is_counted: bool) -> Result<Self> {
        let mut postgres = Postgres::start().await?;
        let database = postgres.database().await?;
        if is_counted {
            count_statements(&mut postgres, &database).await?;
        }
        let (nats, redis) = (Nats::start().await?, Redis::start().await?);
        Ok(Self { database, nats, redis, _postgres: postgres })
    }

    /// URL of the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The settings by which every program finds the servers.
    pub fn settings(&self) -> Vec<Setting> {
        vec![
            ("postgres", self.database.clone()),
            ("nats", self.nats.url()),
            ("redis", self.redis.url()),
            ("log", "warn".to_owned()),
        ]
    }

    /// The servers whose work is counted.
    pub fn servers(&self) -> Servers {
        let (nats_monitor, redis) = (self.nats.monitor(), self.redis.url());
        Servers { database: self.database.clone(), nats_monitor, redis }
    }
}

/// Links the names of programs in `folder` to `binary`, which looks at the name that it is called by.
pub fn name_programs(folder: &Path, binary: &Path, names: &[&str]) -> Result<()> {
    names.iter().try_for_each(|name| symlink(binary, folder.join(name)).context("naming the programs"))
}

/// Starts a planner or an executor.
pub async fn start_worker(program: &Path, settings: &[Setting]) -> Result<Service> {
    Service::start(program, |[health]: [SocketAddr; 1]| {
        arguments(settings.iter().chain(&[("listen", health.to_string())]))
    })
    .await
}

/// Starts a gateway. Its first address serves HTTP.
pub async fn start_gateway(program: &Path, settings: &[Setting]) -> Result<Service> {
    Service::start(program, |[http, grpc]: [SocketAddr; 2]| {
        let own = [("listen", http.to_string()), ("grpc_listen", grpc.to_string())];
        arguments(settings.iter().chain(&own))
    })
    .await
}

fn arguments<'s>(settings: impl Iterator<Item = &'s Setting>) -> Vec<String> {
    settings.flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]).collect()
}
