//! The pools that ship with the project are valid, and each worker can be called in its wire format, here with a simulator.

use std::path::{Path, PathBuf};
use std::process::Output;

use podium_vendor_sim::{Options, VendorSim};
use toml::{Table, Value};

use crate::support::{Folder, podium, run, stderr, stdout};

fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pools");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn read(file: &Path) -> Table {
    std::fs::read_to_string(file).unwrap().parse().unwrap()
}

fn entries<'t>(pool: &'t Table, name: &str) -> Vec<&'t Table> {
    pool[name].as_array().unwrap().iter().map(|entry| entry.as_table().unwrap()).collect()
}

fn ids(pool: &Table) -> Vec<String> {
    entries(pool, "workers").into_iter().map(|worker| worker["id"].as_str().unwrap().to_owned()).collect()
}

/// The pool with the simulator behind each of its vendors, and a simulated model behind each of its workers.
fn simulated(mut pool: Table, root: &str) -> Table {
    for vendor in pool["vendors"].as_array_mut().unwrap() {
        let path =
            if vendor.get("api").and_then(Value::as_str) == Some("gemini") { "/v1beta" } else { "/v1" };
        vendor["base_url"] = format!("{root}{path}").into();
    }
    for worker in pool["workers"].as_array_mut().unwrap() {
        worker["model"] = "sim-arithmetic".into();
    }
    pool
}

/// Checks and calls a pool with a key in each variable that it names.
fn call(file: &Path, pool: &Table) -> Output {
    let mut command = podium(&["pool", "check", file.to_str().unwrap(), "--call"]);
    for vendor in entries(pool, "vendors") {
        if let Some(variable) = vendor.get("api_key_env").and_then(Value::as_str) {
            command.env(variable, "sk-simulated");
        }
    }
    command.output().unwrap()
}

#[test]
fn each_shipped_pool_is_valid() {
    let names: Vec<_> = shipped().iter().map(|file| file.file_stem().unwrap().to_owned()).collect();
    assert_eq!(names, ["conductor-paper", "demo", "example-real", "frontier", "gym-described", "gym"]);
    for file in shipped() {
        let output = run(&["pool", "check", file.to_str().unwrap()]);
        assert!(output.status.success(), "{}: {}", file.display(), stderr(&output));
        let (said, ids) = (stdout(&output), ids(&read(&file)));
        assert_eq!(said.lines().count(), 1 + ids.len(), "{said}");
        for id in ids {
            assert!(said.contains(&format!("\n  {id}  ")), "{id} in {said}");
        }
    }
}

#[tokio::test]
async fn each_worker_of_each_shipped_pool_is_called_in_its_wire_format() {
    let options = Options { api_key: Some("sk-simulated".to_owned()), ..Options::loopback(7) };
    let with_keys = VendorSim::start(options).await.unwrap();
    let without = VendorSim::start(Options::loopback(7)).await.unwrap();
    let folder = Folder::new();
    for file in shipped() {
        let shipped = read(&file);
        let needs_keys =
            entries(&shipped, "vendors").into_iter().all(|vendor| vendor.contains_key("api_key_env"));
        let sim = if needs_keys { &with_keys } else { &without };
        let pool = simulated(shipped, &format!("http://{}", sim.addr()));
        let written = folder.write("pool.toml", &pool.to_string());
        let output = tokio::task::spawn_blocking({
            let pool = pool.clone();
            move || call(&written, &pool)
        });
        let output = output.await.unwrap();
        assert!(output.status.success(), "{}: {}{}", file.display(), stdout(&output), stderr(&output));
        assert_eq!(stdout(&output).matches("  works: ").count(), ids(&pool).len(), "{}", stdout(&output));
    }
}
