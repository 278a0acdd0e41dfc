//! Opens the store with the password that the settings reference.

use podium_engine::Options;
use podium_ports::store::StoreError;
pub(crate) use podium_store_postgres::Store;
use podium_store_postgres::{DatabaseFacts, OpenError, Options as StoreOptions, Sessions};

use crate::connection_hints::{Server, hint};
use crate::error::ClusterError;
use crate::server_urls::{with_certificates, with_password};
use crate::settings::{Pooler, PostgresSettings};

/// Opens the store and, if the settings allow it, applies pending migrations.
pub(crate) async fn open_store(
    settings: &PostgresSettings,
    options: &Options,
) -> Result<Store, ClusterError> {
    let address = address(settings)?;
    let store_options = StoreOptions {
        dispatch_grace: options.dispatch_grace,
        connections_max: settings.connections,
        sessions: sessions(settings),
        migrate: settings.migrate,
        ..StoreOptions::default()
    };
    Store::open(&address, store_options).await.map_err(cannot_use)
}

/// Inspects the database without changing anything.
pub(crate) async fn inspect_store(settings: &PostgresSettings) -> Result<DatabaseFacts, ClusterError> {
    let sessions = sessions(settings);
    let options = StoreOptions { sessions, connections_max: 1, ..StoreOptions::default() };
    Store::inspect(&address(settings)?, options).await.map_err(cannot_use)
}

/// The address with password and certificates, which must not be printed.
fn address(settings: &PostgresSettings) -> Result<String, ClusterError> {
    let address = with_password(&settings.url, "postgres_password", settings.password.as_ref())?;
    Ok(with_certificates(&address, &settings.certificates))
}

const fn sessions(settings: &PostgresSettings) -> Sessions {
    match settings.pooler {
        Pooler::None => Sessions::Own,
        Pooler::Transaction => Sessions::Lent,
    }
}

fn cannot_use(source: OpenError) -> ClusterError {
    let hint = hint(Server::Postgres, &source);
    ClusterError::Server { server: "Postgres", hint, source: Box::new(source) }
}

/// Postgres failed after it had accepted the connection.
pub(crate) fn unusable(source: StoreError) -> ClusterError {
    ClusterError::Server { server: "Postgres", hint: "", source: Box::new(source) }
}
