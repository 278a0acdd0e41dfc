//! Missing, damaged or unsupported bundles and weights are rejected with an error that names the problem and the file.

use std::error::Error;
use std::path::Path;

use podium_bundle::hardware::{GpuError, GpuLack, GpuLayers, Gpus, Hardware, KvCache};
use podium_llama::bundle::{Bundle, BundleError, MANIFEST_BYTES_MAX, MANIFEST_FILE};
use podium_llama::engine::{EngineOptions, LoadError};
use tempfile::TempDir;

use crate::support::*;

/// The tiny model's checksum, as printed by `sha256sum`.
const SHA256: &str = "990db97097d920aca9e580741c96bf6265b3a01076ae168f647852f06111ba72";

fn manifest(sha256: &str) -> String {
    format!(
        "schema = 1\nname = \"tiny\"\nversion = \"1\"\n[weights]\nfile = \"tiny.gguf\"\nsha256 = \"{sha256}\"\n\
         [prompt]\nworkers = \"described\"\ntemplate = \"chatml\"\nuser = \"{{{{question}}}}\"\n\
         [sampling]\ntemperature = 0.0\nreasoning_tokens_max = 32\nplan_tokens_max = 400\ncontext_tokens = 1024\n"
    )
}

fn bundle(manifest: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join(MANIFEST_FILE), manifest).unwrap();
    std::fs::copy(tiny_weights(), directory.path().join("tiny.gguf")).unwrap();
    directory
}

/// An error with all its causes.
fn chain(error: &BundleError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[test]
fn a_valid_bundle_opens() {
    let directory = bundle(&manifest(SHA256));
    let bundle = Bundle::open(directory.path()).unwrap();
    assert_eq!(bundle.manifest().id(), "tiny-1");
    assert_eq!(bundle.weights(), directory.path().join("tiny.gguf"));
}

#[test]
fn a_bundle_with_other_weights_is_rejected_with_both_checksums() {
    let directory = bundle(&manifest(&"0".repeat(64)));
    let text = chain(&Bundle::open(directory.path()).unwrap_err());
    for part in ["tiny.gguf", SHA256, &"0".repeat(64)] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_missing_file_of_a_bundle_is_named() {
    let directory = bundle(&manifest(SHA256));
    std::fs::remove_file(directory.path().join("tiny.gguf")).unwrap();
    assert!(chain(&Bundle::open(directory.path()).unwrap_err()).contains("tiny.gguf"));
    let text = chain(&Bundle::open(Path::new("/nowhere")).unwrap_err());
    assert!(text.contains("/nowhere/conductor.toml") && text.contains("No such file"), "{text}");
}

#[test]
fn an_invalid_manifest_is_reported_by_file_and_key() {
    let directory = bundle(&manifest(SHA256).replace("tiny.gguf", "../tiny.gguf"));
    let text = chain(&Bundle::open(directory.path()).unwrap_err());
    assert!(text.contains(MANIFEST_FILE) && text.contains("weights.file"), "{text}");
    let size = usize::try_from(MANIFEST_BYTES_MAX).unwrap() + 1;
    let directory = bundle(&"#".repeat(size));
    assert!(matches!(Bundle::open(directory.path()), Err(BundleError::ManifestTooLong { .. })));
}

#[test]
fn damaged_weights_are_rejected_with_the_problem() {
    let directory = TempDir::new().unwrap();
    let weights = directory.path().join("damaged.gguf");
    let good = std::fs::read(tiny_weights()).unwrap();
    let text = |bytes: &[u8]| {
        std::fs::write(&weights, bytes).unwrap();
        match load(EngineOptions { weights: weights.clone(), ..options() }) {
            Err(error @ LoadError::Refused { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    for bytes in
        [&b""[..], b"no weights", &good[..good.len() / 2], &good[..200], &[&b"GGML"[..], &good[4..]].concat()]
    {
        let text = text(bytes);
        assert!(text.contains("damaged.gguf") && !text.contains("null result"), "{text}");
    }
}

#[test]
fn missing_weights_are_rejected() {
    for path in ["/nowhere/tiny.gguf", "/"] {
        let refused = load(EngineOptions { weights: path.into(), ..options() });
        assert!(matches!(refused, Err(LoadError::Unreadable { .. })), "{refused:?}");
    }
}

#[test]
fn a_context_beyond_the_trained_length_is_rejected() {
    let text = load(EngineOptions { context_tokens: 8193, ..options() }).unwrap_err().to_string();
    assert_eq!(text, "context_tokens is 8193, the weights were trained for at most 8192");
}

#[test]
fn unsupported_weights_are_rejected_by_their_kind() {
    let mut bytes = std::fs::read(tiny_weights()).unwrap();
    let at =
        |bytes: &[u8], key: &str| bytes.windows(key.len()).position(|part| part == key.as_bytes()).unwrap();
    // The value follows the key, its type and its length.
    let value = at(&bytes, "tokenizer.ggml.model") + "tokenizer.ggml.model".len() + 12;
    bytes[value..value + 4].copy_from_slice(b"bert");
    let directory = TempDir::new().unwrap();
    let weights = directory.path().join("bert.gguf");
    std::fs::write(&weights, bytes).unwrap();
    let text = load(EngineOptions { weights, ..options() }).unwrap_err().to_string();
    assert!(text.contains("bert"), "{text}");
}

#[test]
fn a_missing_gpu_is_rejected() {
    // No machine has sixteen GPUs.
    let gpus = Gpus::of([15]).unwrap();
    let hardware = Hardware { gpu_layers: GpuLayers::All, gpus, ..Hardware::default() };
    let refused = load(EngineOptions { hardware, ..options() });
    let Err(LoadError::Gpu(lack @ GpuError::Missing { .. })) = refused else { panic!("{refused:?}") };
    // The error lists the searched places and the existing devices.
    assert!(lack.to_string().contains("CPU ("), "{lack}");
}

#[test]
fn an_optional_missing_gpu_falls_back_to_the_cpu() {
    let hardware = Hardware {
        gpu_layers: GpuLayers::All,
        gpus: Gpus::of([15]).unwrap(),
        gpu_lack: GpuLack::Borne,
        ..Hardware::default()
    };
    load(EngineOptions { hardware, ..options() }).unwrap();
}

#[tokio::test]
async fn a_smaller_cache_writes_plans_too() {
    let hardware = Hardware { kv_cache: KvCache::Bf16, ..hardware() };
    let engine = load(EngineOptions { hardware, ..options() }).unwrap();
    assert_eq!(completion(&engine, greedy("?")).await.plan, SCRIPT_PLAN);
    // A head of the tiny model has 16 values; quantised caches need blocks of 32.
    let hardware = Hardware { kv_cache: KvCache::Q8_0, ..hardware };
    let refused = load(EngineOptions { hardware, ..options() });
    assert!(matches!(refused, Err(LoadError::Context { .. })), "{refused:?}");
}
