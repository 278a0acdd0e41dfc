//! The store that operators work on: the data folder of this machine, or a cluster's Postgres.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use podium_domain::ids::TenantId;
use podium_ports::accounts::Accounts;
use podium_ports::clock::Clock;
use podium_ports::operations::{Operations, OperatorAction};
use podium_ports::store::RunStore;
use podium_setup::{AnchoredClock, SystemClock};

use super::DataArgs;
use crate::data_dir::DataDir;
use crate::error::Error;

/// Most characters of an operator's name in the record.
const OPERATOR_CHARS_MAX: usize = 200;

#[derive(Debug, Args)]
pub(super) struct AccountsArgs {
    /// A cluster's database, such as `postgres://podium@db:5432/podium`, instead of the data folder. PGPASSWORD holds its password.
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    postgres: Option<String>,
    #[command(flatten)]
    setup: DataArgs,
}

/// A store in the views that operators need.
pub(super) struct OperatorStore {
    /// Keys and budgets.
    pub(super) accounts: Arc<dyn Accounts>,
    /// The work of all tenants.
    pub(super) operations: Arc<dyn Operations>,
    /// The runs.
    pub(super) runs: Arc<dyn RunStore>,
    /// The time of its runs: the database's in a cluster.
    pub(super) clock: Arc<dyn Clock>,
}

impl AccountsArgs {
    /// Opens the accounts. A server on the same store applies a change within seconds.
    pub(super) async fn open(&self) -> Result<Arc<dyn Accounts>, Error> {
        Ok(self.open_all().await?.accounts)
    }

    /// Opens the store. A server may use it at the same time.
    pub(super) async fn open_all(&self) -> Result<OperatorStore, Error> {
        let settings = self.setup.settings()?;
        settings.start_log("warn");
        if let Some(url) = &self.postgres {
            let options = podium_store_postgres::Options::default();
            let store = podium_store_postgres::Store::open(url, options).await;
            let store = store.map_err(|e| Error::OpenPostgres(Box::new(e)))?;
            // The command runs once, so the machine's clock is only replaced, not judged.
            let clock = AnchoredClock::new(Duration::MAX);
            let reading = store.read_clock().await?;
            clock.note(reading.asked_at, reading.answered_at, reading.shown);
            return Ok(OperatorStore::of(store, Arc::new(clock)));
        }
        let path = DataDir::shared_database(&settings.data)?;
        let store = podium_store_sqlite::Store::open(&path, podium_store_sqlite::Options::default()).await;
        let store = store.map_err(|e| Error::Open { path, source: Box::new(e) })?;
        Ok(OperatorStore::of(store, Arc::new(SystemClock)))
    }
}

impl OperatorStore {
    fn of(store: impl Accounts + Operations + RunStore + Clone + 'static, clock: Arc<dyn Clock>) -> Self {
        Self {
            accounts: Arc::new(store.clone()),
            operations: Arc::new(store.clone()),
            runs: Arc::new(store),
            clock,
        }
    }

    /// Records an action. It must be called before the action, so that none is missing from the record.
    pub(super) async fn record(&self, action: &str, subject: &str, details: String) -> Result<(), Error> {
        let (action, subject) = (action.to_owned(), subject.to_owned());
        let action = OperatorAction { at: self.clock.now(), operator: operator(), action, subject, details };
        Ok(self.operations.record_action(&action).await?)
    }
}

/// The user and the machine, as the environment names them.
fn operator() -> String {
    let variable = |names: [&str; 2]| names.iter().find_map(|name| std::env::var(name).ok());
    let user = variable(["PODIUM_OPERATOR", "USER"]).unwrap_or_else(|| "unknown".to_owned());
    let name = match variable(["HOSTNAME", "HOST"]) {
        Some(host) => format!("{user}@{host}"),
        None => user,
    };
    name.chars().filter(|c| !c.is_control()).take(OPERATOR_CHARS_MAX).collect()
}

/// Parses a tenant's name.
pub(super) fn tenant(name: &str) -> Result<TenantId, String> {
    TenantId::new(name).map_err(|e| e.to_string())
}
