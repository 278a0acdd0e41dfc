//! The committed code is the code that `proto/` generates.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::path::Path;

const GENERATED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/generated/podium.v1.rs");
const PROTO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");

fn generate(out: &Path) -> String {
    let descriptors = protox::compile(["podium/v1/podium.proto"], [PROTO]).unwrap();
    tonic_prost_build::configure().build_server(false).out_dir(out).compile_fds(descriptors).unwrap();
    std::fs::read_to_string(out.join("podium.v1.rs")).unwrap()
}

/// With the variable `UPDATE_GENERATED`, writes the file instead.
#[test]
fn the_generated_code_matches_the_protocol() {
    let out = tempfile::tempdir().unwrap();
    let generated = generate(out.path());
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(GENERATED, generated).unwrap();
        return;
    }
    let is_current = std::fs::read_to_string(GENERATED).unwrap() == generated;
    assert!(is_current, "clients/rust/src/generated is out of date; run `scripts/generate-clients`");
}
