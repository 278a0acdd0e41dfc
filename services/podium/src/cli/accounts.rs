//! The store of keys and budgets: the data folder of this machine, or a cluster's Postgres.

use std::sync::Arc;

use clap::Args;
use podium_domain::ids::TenantId;
use podium_ports::accounts::Accounts;

use super::DataArgs;
use crate::data_dir::DataDir;
use crate::error::Error;

#[derive(Debug, Args)]
pub(super) struct AccountsArgs {
    /// A cluster's database, such as `postgres://podium@db:5432/podium`, instead of the data folder. PGPASSWORD holds its password.
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    postgres: Option<String>,
    #[command(flatten)]
    setup: DataArgs,
}

impl AccountsArgs {
    /// Opens the accounts. A server on the same store applies a change within seconds.
    pub(super) async fn open(&self) -> Result<Arc<dyn Accounts>, Error> {
        let settings = self.setup.settings()?;
        settings.start_log("warn");
        if let Some(url) = &self.postgres {
            let options = podium_store_postgres::Options::default();
            let store = podium_store_postgres::Store::open(url, options).await;
            return Ok(Arc::new(store.map_err(|e| Error::OpenPostgres(Box::new(e)))?));
        }
        let path = DataDir::shared_database(&settings.data)?;
        let store = podium_store_sqlite::Store::open(&path, podium_store_sqlite::Options::default()).await;
        Ok(Arc::new(store.map_err(|e| Error::Open { path, source: Box::new(e) })?))
    }
}

/// Parses a tenant's name.
pub(super) fn tenant(name: &str) -> Result<TenantId, String> {
    TenantId::new(name).map_err(|e| e.to_string())
}
