//! A sentence encoder under llama.cpp against vectors that numpy computed, and a mini head over it.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use podium_head::neighbours::{Memory, NeighboursHead};
use podium_head::{Choices, Head, Identity};
use podium_llama::engine::{EngineError, LoadError};
use podium_llama::{Encoder, QuestionReader};

use crate::reading::nano;

pub(crate) fn tiny_bert() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny-bert.gguf")
}

fn encoder() -> Encoder {
    Encoder::load(&tiny_bert(), NonZeroUsize::MIN, Some(NonZeroUsize::MIN)).unwrap()
}

#[tokio::test]
async fn vectors_equal_those_that_numpy_computes() {
    let encoder = encoder();
    let expected = std::fs::read_to_string(tiny_bert().with_extension("json")).unwrap();
    let expected: Vec<serde_json::Value> = serde_json::from_str(&expected).unwrap();
    assert_eq!(expected.len(), 4);
    for record in expected {
        let text = record["text"].as_str().unwrap();
        let read = encoder.read(text).await.unwrap();
        assert_eq!(Some(read.prompt_tokens as u64), record["tokens"].as_u64(), "{text:?}");
        let values = record["vector"].as_array().unwrap();
        assert_eq!(read.values.len(), values.len());
        for (ours, theirs) in read.values.iter().zip(values) {
            // llama.cpp computes GELU with 16 bits.
            assert!((f64::from(*ours) - theirs.as_f64().unwrap()).abs() < 2e-3, "{text:?}: {ours} {theirs}");
        }
        let length: f32 = read.values.iter().map(|value| value * value).sum();
        assert!((length - 1.0).abs() < 1e-5, "{text:?}: {length}");
    }
    encoder.shut_down().await;
    let ended = encoder.read("what").await;
    assert!(matches!(ended, Err(EngineError::Ended)), "{ended:?}");
}

#[tokio::test]
async fn a_vector_does_not_depend_on_the_texts_before_it() {
    let encoder = encoder();
    let first = encoder.read("what is 17").await.unwrap();
    let other = encoder.read("write 5280 in words").await.unwrap();
    assert_ne!(first.values, other.values);
    assert_eq!(encoder.read("what is 17").await.unwrap(), first);
    encoder.shut_down().await;
}

#[tokio::test]
async fn an_encoder_rejects_more_texts_than_may_wait() {
    let encoder = encoder();
    let reads = futures::future::join_all((0..40).map(|_| encoder.read("what is 17 plus 4?"))).await;
    let overloaded = |read: &Result<_, _>| matches!(read, Err(EngineError::Overloaded { waiting_max: 1 }));
    assert!(reads.iter().any(Result::is_ok) && reads.iter().any(overloaded), "{reads:?}");
    encoder.shut_down().await;
    encoder.read("what").await.unwrap_err();
}

#[test]
fn weights_that_are_no_encoder_are_rejected() {
    let load = |file: &Path| Encoder::load(file, NonZeroUsize::MIN, None).map(drop).unwrap_err();
    let qwen = load(&nano().join("nano.gguf"));
    assert!(matches!(&qwen, LoadError::Unsupported { key: "general.architecture", .. }), "{qwen}");
    assert!(qwen.to_string().contains("qwen2") && qwen.to_string().contains("bert"), "{qwen}");
    let missing = load(Path::new("missing.gguf"));
    assert!(matches!(missing, LoadError::Unreadable { .. }), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    let changed = |from: &[u8], to: &[u8]| {
        let mut bytes = std::fs::read(tiny_bert()).unwrap();
        let at = bytes.windows(from.len()).position(|part| part == from).unwrap();
        bytes[at..at + from.len()].copy_from_slice(to);
        let path = folder.path().join("changed.gguf");
        std::fs::write(&path, bytes).unwrap();
        load(&path).to_string()
    };
    let unpooled = changed(b"bert.pooling_type", b"bert.pooling_kind");
    assert!(unpooled.contains("pooling_type `none`"), "{unpooled}");
    // A number of type 4 (32 bits), 1.
    let ranked = changed(b"bert.pooling_type\x04\0\0\0\x01", b"bert.pooling_type\x04\0\0\0\x04");
    assert!(ranked.contains("pooling_type `4`"), "{ranked}");
}

/// Writes nano's bundle with this head and the encoder.
fn bundle(folder: &Path, head: &Head, encoder: Option<&Path>) {
    std::fs::copy(nano().join("nano.gguf"), folder.join("nano.gguf")).unwrap();
    std::fs::write(folder.join("head.safetensors"), head.to_bytes().unwrap()).unwrap();
    let manifest = std::fs::read_to_string(nano().join(podium_llama::bundle::MANIFEST_FILE)).unwrap();
    let mut manifest: toml_edit::DocumentMut = manifest.parse().unwrap();
    manifest["head"]["file"] = toml_edit::value("head.safetensors");
    manifest["head"]["sha256"] = toml_edit::value("");
    if let Some(encoder) = encoder {
        std::fs::copy(encoder, folder.join("encoder.gguf")).unwrap();
        manifest["encoder"] = toml_edit::table();
        manifest["encoder"]["file"] = toml_edit::value("encoder.gguf");
        manifest["encoder"]["sha256"] = toml_edit::value("");
    }
    std::fs::write(folder.join(podium_llama::bundle::MANIFEST_FILE), manifest.to_string()).unwrap();
    podium_llama::bundle::pack_in_place(folder, Some(&crate::support::demo())).unwrap();
}

#[tokio::test]
async fn a_mini_head_over_an_encoder_chooses_the_worker() {
    use crate::reading::{SUM, mini, plan, slots};

    const WORDS: &str = "Write 5280 in words.";
    let reader = QuestionReader::open_encoder(&tiny_bert()).unwrap();
    let memory = |state, values: [f32; 2]| Memory { state, values: values.map(Some).to_vec() };
    let known = [
        ("sum".to_owned(), memory(reader.read(SUM).await.unwrap(), [1.0, 0.0])),
        ("words".to_owned(), memory(reader.read(WORDS).await.unwrap(), [0.0, 1.0])),
    ];
    let slots = slots()[..2].to_vec();
    let pool_sha256 = podium_domain::pool::slots_hash(&crate::support::demo(), &slots).unwrap();
    let identity = Identity {
        choices: Choices::Workers,
        slots: slots.clone(),
        pool_sha256,
        source: reader.source().clone(),
    };
    reader.shut_down().await;
    let head = Head::Neighbours(NeighboursHead::new(identity, 1, 0.0, known.into()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    bundle(folder.path(), &head, Some(&tiny_bert()));
    let opened = podium_llama::bundle::Bundle::open(folder.path()).unwrap();
    let options = podium_llama::LlamaOptions { threads: Some(NonZeroUsize::MIN), ..Default::default() };
    let conductor = podium_llama::LlamaConductor::open(&opened, &crate::support::demo(), options).unwrap();
    for (question, slot) in [(SUM, 0), (WORDS, 1), (SUM, 0)] {
        let (worker, outcome) = plan(&conductor, question, mini()).await;
        assert_eq!(worker, slots[slot].as_str(), "{question}");
        assert!(outcome.usage.completion_tokens == 0 && outcome.usage.prompt_tokens > 5, "{outcome:?}");
    }
    podium_ports::conductor::Conductor::shut_down(&conductor).await;
    // Without the encoder the same head would read the conductor's hidden states.
    std::fs::remove_file(folder.path().join("encoder.gguf")).unwrap();
    bundle(folder.path(), &head, None);
    let opened = podium_llama::bundle::Bundle::open(folder.path()).unwrap();
    let refused = podium_llama::LlamaConductor::open(&opened, &crate::support::demo(), options).unwrap_err();
    assert!(matches!(refused, podium_llama::OpenError::Head { .. }), "{refused}");
}
