//! Checks the machine: free disk space and open files.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use super::Findings;

/// Below this, a server with many clients runs out of file descriptors.
const DESCRIPTORS_FEW: u64 = 4096;
/// Below this, not even a few hundred clients fit.
const DESCRIPTORS_TOO_FEW: u64 = 512;
const GIB: u64 = 1 << 30;
/// Below this much free space there is a warning.
const DISK_LOW: u64 = 2 * GIB;
/// Below this much free space there is an error.
const DISK_FULL: u64 = GIB / 8;

/// Checks the limit of open files, and the free space of the file system of each folder that the process writes to.
pub fn check_machine(findings: &mut Findings, written: &[PathBuf]) {
    let limit = getrlimit(Resource::Nofile).current;
    check_descriptors(findings, limit);
    for folder in written {
        match free_bytes(folder) {
            Ok(free) => check_disk(findings, folder, free),
            Err(error) => findings.error(
                "disk",
                format!("the free space of {} is unknown: {error}", folder.display()),
                "create the folder, or let this user read it",
            ),
        }
    }
}

fn check_descriptors(findings: &mut Findings, limit: Option<u64>) {
    const PART: &str = "files";
    let advice = "raise it: `ulimit -n 65536`, LimitNOFILE in systemd, or the container's ulimits";
    match limit {
        None => findings.ok(PART, "no limit of open files"),
        Some(limit) if limit < DESCRIPTORS_TOO_FEW => {
            findings.error(PART, format!("at most {limit} open files"), advice);
        }
        Some(limit) if limit < DESCRIPTORS_FEW => {
            findings.warning(PART, format!("at most {limit} open files"), advice);
        }
        Some(limit) => findings.ok(PART, format!("at most {limit} open files")),
    }
}

/// The free space of the file system that has `path`, or would have it.
fn free_bytes(path: &Path) -> Result<u64, rustix::io::Errno> {
    // The last ancestor of a relative path is empty, which does not exist.
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("."));
    let system = rustix::fs::statvfs(existing)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

fn check_disk(findings: &mut Findings, folder: &Path, free: u64) {
    const PART: &str = "disk";
    let found = format!("{}.{} GiB are free for {}", free / GIB, free % GIB * 10 / GIB, folder.display());
    if free < DISK_FULL {
        findings.error(PART, found, "free space: a store whose disk is full refuses every request");
    } else if free < DISK_LOW {
        findings.warning(PART, found, "free space, or keep runs for a shorter time (`runs_kept`)");
    } else {
        findings.ok(PART, found);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    fn severity(check: impl FnOnce(&mut Findings)) -> Severity {
        let mut findings = Findings::default();
        check(&mut findings);
        findings.worst()
    }

    #[test]
    fn few_open_files_and_little_space_are_reported() {
        let descriptors = |limit| severity(|findings| check_descriptors(findings, limit));
        assert_eq!(descriptors(None), Severity::Ok);
        assert_eq!(descriptors(Some(65_536)), Severity::Ok);
        assert_eq!(descriptors(Some(1024)), Severity::Warning);
        assert_eq!(descriptors(Some(256)), Severity::Error);
        let disk = |free| severity(|findings| check_disk(findings, Path::new("/data"), free));
        assert_eq!(disk(10 * GIB), Severity::Ok);
        assert_eq!(disk(GIB), Severity::Warning);
        assert_eq!(disk(1 << 20), Severity::Error);
    }

    #[test]
    fn the_space_of_a_missing_folder_is_that_of_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_bytes(&folder.path().join("not/there")).unwrap() > 0);
        assert!(free_bytes(Path::new("relative")).unwrap() > 0);
    }
}
