//! Opens the store with the password that the settings reference.

use podium_engine::Options;
use podium_ports::store::StoreError;
pub(crate) use podium_store_postgres::Store;
use podium_store_postgres::{Options as StoreOptions, Sessions};

use crate::connection_hints::{Server, hint};
use crate::error::ClusterError;
use crate::server_urls::{with_certificates, with_password};
use crate::settings::{Pooler, PostgresSettings};

/// Opens the store and, if the settings allow it, applies pending migrations.
pub(crate) async fn open_store(
    settings: &PostgresSettings,
    options: &Options,
) -> Result<Store, ClusterError> {
    let address = with_password(&settings.url, "postgres_password", settings.password.as_ref())?;
    let address = with_certificates(&address, &settings.certificates);
    let store_options = StoreOptions {
        dispatch_grace: options.dispatch_grace,
        connections_max: settings.connections,
        sessions: match settings.pooler {
            Pooler::None => Sessions::Own,
            Pooler::Transaction => Sessions::Lent,
        },
        migrate: settings.migrate,
        ..StoreOptions::default()
    };
    Store::open(&address, store_options).await.map_err(|source| ClusterError::Server {
        server: "Postgres",
        hint: hint(Server::Postgres, &source),
        source: Box::new(source),
    })
}

/// Postgres failed after it had accepted the connection.
pub(crate) fn unusable(source: StoreError) -> ClusterError {
    ClusterError::Server { server: "Postgres", hint: "", source: Box::new(source) }
}
