//! The store, opened with the password that the settings point at.

use podium_engine::Options;
use podium_store_postgres::Options as StoreOptions;
pub(crate) use podium_store_postgres::Store;

use crate::address::with_password;
use crate::error::ClusterError;
use crate::settings::PostgresSettings;

/// Opens the store and brings its tables up to date.
pub(crate) async fn connect(settings: &PostgresSettings, options: &Options) -> Result<Store, ClusterError> {
    let address = with_password(&settings.url, "postgres_password", settings.password.as_ref())?;
    let store_options = StoreOptions {
        dispatch_grace: options.dispatch_grace,
        connections_max: settings.connections,
        ..StoreOptions::default()
    };
    Store::open(&address, store_options)
        .await
        .map_err(|source| ClusterError::Server { server: "Postgres", source: Box::new(source) })
}
