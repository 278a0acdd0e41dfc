//! Opens a database file: its permissions and its connections.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use podium_store_format::schema::UnusableSchema;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::connections::Connections;
use crate::migrate::migrate;
use crate::{Durability, Options, Store};

/// How long a writer waits for a writer of another process.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// Prepared statements that a connection keeps: more than there are.
const STATEMENTS_MAX: usize = 64;

/// Most tries to connect while another process changes the file's mode: together as long as [`BUSY_MAX`].
const OPEN_TRIES_MAX: u32 = 500;
const OPEN_PAUSE: Duration = Duration::from_millis(10);

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file can be neither opened nor created.
    #[error("database file `{}` cannot be opened", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file is not a database, or another process has locked it.
    #[error("database `{}` cannot be used", path.display())]
    Connect {
        /// The path of the file.
        path: PathBuf,
        /// The error of the database.
        #[source]
        source: rusqlite::Error,
    },
    /// This version cannot work with the tables.
    #[error("this version cannot use database `{}`", path.display())]
    Unusable {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: UnusableSchema,
    },
    /// A migration failed and was rolled back.
    #[error("database `{}` could not be migrated", path.display())]
    Migrate {
        /// The path of the file.
        path: PathBuf,
        /// The error of the migration.
        #[source]
        source: rusqlite::Error,
    },
    /// The operating system starts no threads for the connections.
    #[error("threads for database `{}` cannot be started", path.display())]
    Threads {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl Store {
    /// Opens the database, creates it if it does not exist, and applies pending migrations. Only the owner can read a new file,
    /// because it contains conversations.
    pub async fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        let at = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || Self::open_blocking(&at, options)).await;
        let path = || path.to_owned();
        opened.unwrap_or_else(|source| Err(OpenError::Threads { path: path(), source: source.into() }))
    }

    fn open_blocking(path: &Path, options: Options) -> Result<Self, OpenError> {
        let at = || path.to_owned();
        make_private(path).map_err(|source| OpenError::File { path: at(), source })?;
        let connect =
            || connect(path, options.durability).map_err(|source| OpenError::Connect { path: at(), source });
        let mut writer = connect()?;
        let migrated = migrate(&mut writer).map_err(|source| OpenError::Migrate { path: at(), source })?;
        migrated.map_err(|source| OpenError::Unusable { path: at(), source })?;
        let mut readers = Vec::new();
        for _ in 0..options.readers.max(1) {
            let reader = connect()?;
            let read_only = reader.pragma_update(None, "query_only", true);
            read_only.map_err(|source| OpenError::Connect { path: at(), source })?;
            readers.push(reader);
        }
        let start = |name, connections| {
            let started = Connections::start(name, connections);
            started.map(Arc::new).map_err(|source| OpenError::Threads { path: at(), source })
        };
        let (writer, readers) = (start("sqlite-writer", vec![writer])?, start("sqlite-reader", readers)?);
        Ok(Self { writer, readers, dispatch_grace: options.dispatch_grace })
    }

    /// Waits for running statements and closes the connections. Without it nothing is lost, but the file may be left as after a
    /// crash.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// Creates the file if it does not exist. `SQLite` gives the same permissions to the files next to it.
fn make_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Connects. Changing a new file to WAL ignores the busy timeout: a process that opens the file at the same moment is refused at
/// once and must try again.
fn connect(path: &Path, durability: Durability) -> Result<Connection, rusqlite::Error> {
    for _ in 0..OPEN_TRIES_MAX {
        match try_connect(path, durability) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                thread::sleep(OPEN_PAUSE);
            }
            outcome => return outcome,
        }
    }
    try_connect(path, durability)
}

fn try_connect(path: &Path, durability: Durability) -> Result<Connection, rusqlite::Error> {
    // Without the flag for URIs: a path that begins with `file:` is a path.
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_MAX)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Plans must not depend on arguments: SQLite would prepare a statement with `LIMIT ?` again for each execution.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // Under WAL, NORMAL may lose the last commits on a power failure; they record what was paid for.
    let synchronous = match durability {
        Durability::Synced => "full",
        Durability::Unsynced => "off",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::row::execute;

    async fn open(path: &Path) -> Result<Store, OpenError> {
        Store::open(path, Options::default()).await
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn only_its_owner_can_read_a_new_database() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let _store = open(&folder.path().join("podium.db")).await.unwrap();
        let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(Result::unwrap).collect();
        assert!(files.len() >= 2, "the log is next to it: {files:?}");
        for file in files {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
        }
    }

    #[tokio::test]
    async fn commits_are_synced_and_readers_cannot_write() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder.path().join("podium.db")).await.unwrap();
        let pragmas = |connection: &Connection| {
            let number =
                |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
            let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
            Ok((mode, number("synchronous"), number("foreign_keys")))
        };
        let (writer, reader) = (store.write(pragmas).await.unwrap(), store.read(pragmas).await.unwrap());
        assert_eq!(writer, ("wal".to_owned(), 2, 1), "2 is FULL");
        assert_eq!(reader, writer);
        store.read(|connection| execute(connection, "DELETE FROM runs", [])).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_store_that_is_thrown_away_does_not_sync() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { durability: Durability::Unsynced, ..Options::default() };
        let store = Store::open(&folder.path().join("podium.db"), options).await.unwrap();
        let synchronous = |connection: &Connection| {
            Ok(connection.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0)).unwrap())
        };
        assert_eq!(store.write(synchronous).await.unwrap(), 0, "0 is OFF");
    }

    #[tokio::test]
    async fn several_processes_can_open_a_new_database_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("podium.db");
        let (a, b, c) = tokio::join!(open(&path), open(&path), open(&path));
        for store in [a, b, c, open(&path).await] {
            store.unwrap().close().await;
        }
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_database_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("podium.db");
        fs::write(&path, "this is a letter and not a database, as anybody can see who reads it").unwrap();
        assert!(matches!(open(&path).await, Err(OpenError::Connect { .. })));
        assert!(matches!(open(folder.path()).await, Err(OpenError::File { .. })));
    }

    #[tokio::test]
    async fn a_newer_database_is_used_down_to_its_floor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("podium.db");
        let store = open(&path).await.unwrap();
        let newer = "INSERT INTO _sqlx_migrations VALUES (9999, 'newer', CURRENT_TIMESTAMP, TRUE, x'00', 0)";
        store.write(|connection| execute(connection, newer, [])).await.unwrap();
        store.close().await;
        let store = open(&path).await.unwrap();
        let raise = "UPDATE schema_floor SET version = 9999";
        store.write(|connection| execute(connection, raise, [])).await.unwrap();
        store.close().await;
        let refused = open(&path).await.unwrap_err();
        assert!(matches!(refused, OpenError::Unusable { .. }), "{refused:?}");
    }
}
