//! Opens a database file: its permissions and its connections.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use podium_store_format::schema::UnusableSchema;
use sqlx::SqlitePool;
use sqlx::migrate::MigrateError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use crate::migrate::migrate;
use crate::{Options, Store};

/// How long a writer waits for a writer of another process.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// How long a caller waits for a connection.
const ACQUIRE_MAX: Duration = Duration::from_secs(15);

/// Most tries to connect while another process changes the file's mode, which takes milliseconds.
const OPEN_TRIES_MAX: u32 = 500;
const SQLITE_BUSY: u32 = 5;

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
        source: sqlx::Error,
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
        source: MigrateError,
    },
}

impl Store {
    /// Opens the database, creates it if it does not exist, and applies pending migrations. Only the owner can read a new file,
    /// because it contains conversations.
    pub async fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        let at = || path.to_owned();
        make_private(path).map_err(|source| OpenError::File { path: at(), source })?;
        let connect = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            // Under WAL, NORMAL may lose the last commits on a power failure; they record what was paid for.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_MAX);
        let writer =
            pool(1, connect.clone()).await.map_err(|source| OpenError::Connect { path: at(), source })?;
        let migrated = migrate(&writer).await.map_err(|source| OpenError::Migrate { path: at(), source })?;
        migrated.map_err(|source| OpenError::Unusable { path: at(), source })?;
        let readers = pool(options.readers.max(1), connect.pragma("query_only", "on"));
        let readers = readers.await.map_err(|source| OpenError::Connect { path: at(), source })?;
        Ok(Self { writer, readers, dispatch_grace: options.dispatch_grace })
    }

    /// Waits for running statements and closes the connections. Without it nothing is lost, but the file is left as after a crash.
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
async fn pool(size: u32, connect: SqliteConnectOptions) -> Result<SqlitePool, sqlx::Error> {
    for _ in 0..OPEN_TRIES_MAX {
        match try_pool(size, connect.clone()).await {
            Err(error) if is_busy(&error) => tokio::task::yield_now().await,
            outcome => return outcome,
        }
    }
    try_pool(size, connect).await
}

fn is_busy(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    // The low byte of an extended code is the primary code.
    error.code().and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

async fn try_pool(size: u32, connect: SqliteConnectOptions) -> Result<SqlitePool, sqlx::Error> {
    SqlitePoolOptions::new()
        .max_connections(size)
        .acquire_timeout(ACQUIRE_MAX)
        // Connections are local and cheap to keep.
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(connect)
        .await
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
        let synchronous: i64 =
            sqlx::query_scalar("PRAGMA synchronous").fetch_one(&store.writer).await.unwrap();
        assert_eq!(synchronous, 2, "2 is FULL");
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&store.writer).await.unwrap();
        assert_eq!(mode, "wal");
        sqlx::query("DELETE FROM runs").execute(&store.readers).await.unwrap_err();
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
        sqlx::query(newer).execute(&store.writer).await.unwrap();
        store.close().await;
        let store = open(&path).await.unwrap();
        sqlx::query("UPDATE schema_floor SET version = 9999").execute(&store.writer).await.unwrap();
        store.close().await;
        let refused = open(&path).await.unwrap_err();
        assert!(matches!(refused, OpenError::Unusable { .. }), "{refused:?}");
    }
}
