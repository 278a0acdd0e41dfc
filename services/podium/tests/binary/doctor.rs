//! `podium doctor` of the server in one process.

use std::path::Path;

use serde_json::Value;

use crate::support::{Folder, run, stderr, stdout};

const NANO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/nano");

fn doctor(folder: &Folder, more: &[&str]) -> (Option<i32>, Value) {
    let data = folder.path("data");
    let output = run(&[&["doctor", "--json", "--data", data.to_str().unwrap()], more].concat());
    let report =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)));
    (output.status.code(), report)
}

/// The severity of a part's first finding that contains a text.
fn found(report: &Value, part: &str, says: &str) -> Option<String> {
    let findings = report["findings"].as_array().unwrap();
    let is_it =
        |finding: &&Value| finding["part"] == part && finding["found"].as_str().unwrap().contains(says);
    Some(findings.iter().find(is_it)?["severity"].as_str()?.to_owned())
}

#[test]
fn a_fresh_installation_has_no_error() {
    let folder = Folder::new();
    let (code, report) = doctor(&folder, &[]);
    assert_eq!((code, report["program"].as_str()), (Some(0), Some("podium")), "{report}");
    assert_eq!(found(&report, "data", "no database yet").as_deref(), Some("ok"), "{report}");
    assert_eq!(found(&report, "pool", "demo-1").as_deref(), Some("ok"), "{report}");
    let version = report["version"].as_str().unwrap();
    assert!(version.starts_with(env!("CARGO_PKG_VERSION")), "{version}");
}

#[test]
fn invalid_settings_and_damaged_data_are_errors() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("data")).unwrap();
    folder.write("data/podium.db", &"this is not a database ".repeat(100));
    let (code, report) = doctor(&folder, &[]);
    assert_eq!((code, found(&report, "data", "").as_deref()), (Some(1), Some("error")), "{report}");
    let (code, report) = doctor(&folder, &["--conductor", "nonsense:"]);
    assert_eq!(
        (code, found(&report, "settings", "conductor").as_deref()),
        (Some(1), Some("error")),
        "{report}"
    );
}

#[test]
fn a_damaged_bundle_is_found_by_its_checksums() {
    let folder = Folder::new();
    let bundle = folder.path("nano");
    std::fs::create_dir(&bundle).unwrap();
    for file in ["conductor.toml", "head.safetensors", "nano.gguf"] {
        std::fs::copy(Path::new(NANO).join(file), bundle.join(file)).unwrap();
    }
    let conductor = format!("llama:{}", bundle.display());
    let config = folder.write("podium.toml", &format!("conductor = \"{conductor}\"\n"));
    let config = config.to_str().unwrap();
    std::fs::write(bundle.join("head.safetensors"), "damaged").unwrap();
    let (code, report) = doctor(&folder, &["--config", config]);
    assert_eq!(code, Some(1), "{report}");
    // A build without llama.cpp already refuses the setting.
    let part = if cfg!(feature = "llama") { "model" } else { "settings" };
    assert_eq!(found(&report, part, "").as_deref(), Some("error"), "{report}");
}

#[test]
fn a_process_without_its_program_is_named() {
    let output = run(&["doctor", "planner", "--", "--config", "/nowhere.toml"]);
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("podium-planner cannot be started") || said.contains("/nowhere.toml"), "{said}");
}
