//! A backup of a Postgres server: a base backup, and the log since then as the server writes it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::Postgres;
use crate::program::output_of;
use crate::server::{Launch, Server, Signal};
use crate::template;

/// The name under which the server knows the receiver of its log.
const RECEIVER: &str = "podium_archive";

/// A folder outside the server's with its log, and with a base backup once one was made.
#[derive(Debug)]
pub struct Archive {
    // Declared first, so that it ends before its folder is removed.
    receiver: Option<Server>,
    folder: TempDir,
    /// The number of databases that the server had made.
    databases: u32,
}

impl Postgres {
    /// Begins to archive the log, with `pg_receivewal`. From then on the server acknowledges a commit only when the archive has it.
    pub async fn archive(&self) -> Result<Archive> {
        let folder = tempfile::Builder::new().prefix("podium-archive-").tempdir()?;
        template::make_folder(folder.path(), self.user)?;
        let log = folder.path().join("wal");
        template::make_folder(&log, self.user)?;
        let connection =
            format!("host=127.0.0.1 port={} user=postgres application_name={RECEIVER}", self.port.number());
        let receiver = Server::spawn(&Launch {
            folder: folder.path(),
            program: &self.bin.join("pg_receivewal"),
            arguments: [
                "--synchronous",
                "--no-password",
                "--directory",
                &path(&log)?,
                "--dbname",
                &connection,
            ]
            .map(str::to_owned)
            .into(),
            environment: Vec::new(),
            user: self.user,
            last_signal: Signal::Kill,
        })?;
        self.wait_for_followers(RECEIVER).await?;
        // It commits once the receiver has connected.
        self.execute("postgres", "CREATE TABLE archived (id int); DROP TABLE archived").await?;
        let databases = self.databases.load(Ordering::Relaxed);
        Ok(Archive { receiver: Some(receiver), folder, databases })
    }

    /// Adds a base backup to the archive while the server works.
    pub async fn back_up(&self, archive: &Archive) -> Result<()> {
        let mut copy = template::as_user(&self.bin.join("pg_basebackup"), self.user);
        copy.args([
            "--host=127.0.0.1",
            "--username=postgres",
            "--no-password",
            "--checkpoint=fast",
            "--no-sync",
        ]);
        copy.args(["--wal-method=none", "--port", &self.port.number(), "--pgdata"]);
        output_of(copy.arg(archive.base())).await?;
        Ok(())
    }

    /// Starts another server, in another folder and on another port, from the base backup and the log of an archive. Returns when it
    /// accepts writes. It waits for no archive of its own.
    pub async fn restore(mut archive: Archive) -> Result<Self> {
        if let Some(receiver) = archive.receiver.take() {
            receiver.end(Signal::Terminate).await?;
        }
        let mut restored = Self::prepare(super::Fsync::On).await?;
        let data = restored.data();
        let mut copy = template::as_user("cp".as_ref(), restored.user);
        output_of(copy.arg("-a").arg(archive.base()).arg(&data)).await?;
        template::put(b"", &data.join("recovery.signal"), restored.user)?;
        let log = path(&archive.log())?;
        // The segment that was being written has another name.
        let fetch = format!("cp '{log}/%f' '%p' || cp '{log}/%f.partial' '%p'");
        restored.settings = vec![format!("restore_command={fetch}"), "synchronous_standby_names=".to_owned()];
        restored.databases = AtomicU32::new(archive.databases);
        restored.launch().await?;
        Ok(restored)
    }
}

impl Archive {
    fn base(&self) -> PathBuf {
        self.folder.path().join("base")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("wal")
    }
}

fn path(path: &Path) -> Result<String> {
    Ok(path.to_str().context("the path of the archive is not UTF-8")?.to_owned())
}
