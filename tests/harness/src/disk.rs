//! A small disk for one server, which a test can fill. It is a tmpfs, so only root can create one.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Mounts a disk and unmounts it at the end of standard input, which comes when the test's process ends in any way.
const HOLDER: &str = r#"
folder=$1 bytes=$2
mount -t tmpfs -o "size=$bytes" podium-harness "$folder" || exit 1
echo mounted
cat >/dev/null
umount -l "$folder"
"#;
/// The name of the file that fills the disk.
const FILLER: &str = "filler";
/// The file grows by this many bytes at a time, and finally page by page.
const PIECES: [usize; 2] = [1 << 20, 1 << 12];

/// A disk mounted at a folder; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    holder: Child,
    /// `None` after the end was requested.
    end: Option<ChildStdin>,
}

impl Disk {
    /// Mounts an empty disk over `folder`, which must be empty.
    pub(crate) fn mount(folder: &Path, bytes: u64) -> Result<Self> {
        let mut holder = Command::new("sh")
            .args(["-c", HOLDER, "podium-harness"])
            .arg(folder)
            .arg(bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Signals for the test's group, such as an interrupt, end the test; the holder ends after it.
            .process_group(0)
            .spawn()
            .context("starting `sh`")?;
        let (end, said) = (holder.stdin.take(), holder.stdout.take());
        let mut line = String::new();
        BufReader::new(said.context("the holder has no output")?).read_line(&mut line)?;
        if line.trim() != "mounted" {
            drop(end);
            let mut why = String::new();
            holder.stderr.take().context("the holder has no errors")?.read_to_string(&mut why)?;
            holder.wait()?;
            bail!("a tmpfs cannot be mounted, which only root can do: {}", why.trim());
        }
        Ok(Self { folder: folder.to_owned(), holder, end })
    }

    /// Writes until no space is left.
    pub(crate) fn fill(&self) -> Result<()> {
        let mut filler = OpenOptions::new().append(true).create(true).open(self.folder.join(FILLER))?;
        for piece in PIECES {
            let zeros = vec![0; piece];
            loop {
                match filler.write(&zeros) {
                    // The space ran out within the piece.
                    Ok(written) if written < piece => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).context("filling a disk"),
                }
            }
        }
        Ok(())
    }

    /// Frees the space that [`Self::fill`] took.
    pub(crate) fn free(&self) -> Result<()> {
        std::fs::remove_file(self.folder.join(FILLER)).context("freeing a disk")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.end.take());
        // It cannot fail unless another caller has waited for the process.
        self.holder.wait().ok();
    }
}

/// Returns why servers cannot have small disks on this machine, if they cannot.
pub fn small_disks() -> Result<()> {
    let folder = tempfile::tempdir()?;
    Disk::mount(folder.path(), 1 << 16).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_accepts_no_bytes_until_it_is_freed() {
        let folder = tempfile::tempdir().unwrap();
        let disk = match Disk::mount(folder.path(), 3 << 19) {
            Ok(disk) => disk,
            Err(error) => {
                eprintln!("left out: {error:#}");
                assert_ne!(crate::program::own_user().unwrap().0, 0, "root without a tmpfs: {error:#}");
                return;
            }
        };
        let file = folder.path().join("file");
        disk.fill().unwrap();
        let refused = std::fs::write(&file, [1; 4096]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        disk.free().unwrap();
        std::fs::write(&file, [1; 4096]).unwrap();
        drop(disk);
        assert!(!file.exists(), "the folder is the machine's again");
    }
}
