//! `scripts/cluster`, which `make cluster` and `make cluster-stop` call.

use std::path::Path;
use std::process::{Command, Output};

const BINARY: &str = env!("CARGO_BIN_EXE_podium-local-cluster");

/// Calls the script with a home folder of its own, so that it does not meet a cluster of `make cluster`.
fn script(home: &Path, arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/cluster");
    Command::new(script).args(arguments).env("HOME", home).output().unwrap()
}

#[test]
fn the_script_starts_one_cluster_and_ends_it() {
    let home = tempfile::tempdir().unwrap();
    let started = script(home.path(), &["start", BINARY, "--executors", "1"]);
    let started_twice = script(home.path(), &["start", BINARY]);
    let stopped = script(home.path(), &["stop"]);

    assert!(started.status.success(), "{started:?}");
    let printed = String::from_utf8(started.stdout).unwrap();
    for part in ["gateway", "Postgres", "Ask:", "make cluster-stop ends it"] {
        assert!(printed.contains(part), "`{part}` is missing: {printed}");
    }
    assert!(!started_twice.status.success(), "{started_twice:?}");
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(String::from_utf8(stopped.stdout).unwrap().contains("the cluster has ended"));
}
