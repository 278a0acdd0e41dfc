//! `LoRA` adapters on the shipped conductor. They are untrained: the tests check only that they have an effect.

use std::error::Error;
use std::path::Path;

use podium_domain::ids::RunId;
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::run::PlanResult;
use podium_domain::time::Timestamp;
use podium_llama::bundle::{Bundle, BundleError, MANIFEST_FILE, pack_in_place};
use podium_llama::engine::{Completion, Engine, EngineOptions, HiddenStates, LoadError, Request};
use podium_llama::grammar::{MayKeepAnswer, PlanShape};
use podium_llama::{AdapterError, AdapterFile, LlamaConductor, LlamaOptions, OpenError, QuestionReader};
use podium_ports::conductor::{Asker, Conductor, PlanRequest};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::adapter_file::{Adapter, Change, Value};
use crate::reading::{SUM, nano, values};
use crate::support::*;

/// An engine on nano's weights, with an optional adapter.
fn engine_with(adapter: Option<(&Path, f32)>) -> Engine {
    let adapter = adapter.map(|(path, scale)| AdapterFile { path: path.to_owned(), scale });
    let (weights, hidden_states) = (nano().join("nano.gguf"), HiddenStates::Readable);
    load(EngineOptions { weights, adapter, hidden_states, context_tokens: 1024, ..options() }).unwrap()
}

const BEGINNING: &str = "Take the number of days between 3 March 2024 and 17 May 2025, ";

/// Greedy plans for some questions; `beginning` marks what they have in common.
async fn plans(engine: &Engine, beginning: &str) -> Vec<Completion> {
    let mut plans = Vec::new();
    for ending in ["multiply it by 12", "halve it", "write the result in words", "add 1"] {
        let question = format!("{BEGINNING}{ending}.");
        let shape = PlanShape::new(0..7, 5, MayKeepAnswer::No).unwrap().with_subtasks_copied_from(&question);
        let prompt = prompt(&question).beginning_like(&prompt(beginning));
        plans.push(completion(engine, Request { prompt, shape, ..greedy("") }).await);
    }
    plans
}

fn texts(plans: &[Completion]) -> Vec<String> {
    plans.iter().map(|plan| format!("{}{}", plan.reasoning, plan.plan)).collect()
}

fn distance(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt()
}

#[tokio::test]
async fn an_adapter_has_an_effect_that_depends_on_its_scale() {
    let folder = TempDir::new().unwrap();
    let some = Adapter::of_nano(Change::Some).write(&folder, "some.gguf");
    let (base, half, whole) =
        (engine_with(None), engine_with(Some((&some, 0.5))), engine_with(Some((&some, 1.0))));
    let plain = values(&base, SUM).await;
    let (of_half, of_whole) = (values(&half, SUM).await, values(&whole, SUM).await);
    let distances = [distance(&plain, &of_half), distance(&plain, &of_whole)];
    eprintln!("{distances:?}");
    assert!(distances[0] > 0.1 && distances[1] > 1.2 * distances[0], "{distances:?}");
    let written = texts(&plans(&base, BEGINNING).await);
    let changed = plans(&whole, BEGINNING).await;
    assert_ne!(texts(&changed), written);
    // Shared beginnings are computed with the adapter, too, and it does not affect another engine with the same weights.
    assert!(changed[1..].iter().all(|plan| plan.cached_tokens >= 16), "{changed:?}");
    assert_eq!(values(&base, SUM).await, plain);
    assert_eq!(texts(&plans(&base, BEGINNING).await), written);
}

#[tokio::test]
async fn shared_beginnings_are_computed_with_the_adapter() {
    let folder = TempDir::new().unwrap();
    let some = Adapter::of_nano(Change::Some).write(&folder, "some.gguf");
    let engine = engine_with(Some((&some, 1.0)));
    let shared = plans(&engine, BEGINNING).await;
    for (completion, shared) in plans(&engine, "").await.iter().zip(&shared) {
        assert_eq!((completion.cached_tokens, &completion.plan), (0, &shared.plan));
    }
}

#[tokio::test]
async fn a_zero_adapter_changes_no_bit() {
    let folder = TempDir::new().unwrap();
    let zero = Adapter::of_nano(Change::Zero).write(&folder, "zero.gguf");
    let some = Adapter::of_nano(Change::Some).write(&folder, "some.gguf");
    let base = engine_with(None);
    let (plain, written) = (values(&base, SUM).await, plans(&base, BEGINNING).await);
    for adapter in [(&*zero, 1.0), (&*some, 0.0)] {
        let engine = engine_with(Some(adapter));
        assert_eq!(values(&engine, SUM).await, plain, "{adapter:?}");
        assert_eq!(plans(&engine, BEGINNING).await, written, "{adapter:?}");
    }
}

/// An error with all its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The error for an adapter on the tiny model.
fn refused(path: &Path, scale: f32) -> String {
    let adapter = Some(AdapterFile { path: path.to_owned(), scale });
    match load(EngineOptions { adapter, ..options() }) {
        Err(error @ LoadError::Adapter { .. }) => {
            let text = chain(&error);
            assert!(text.contains(path.to_str().unwrap()), "{text}");
            text
        }
        other => panic!("{path:?}: {other:?}"),
    }
}

#[test]
fn an_adapter_of_other_weights_is_rejected_with_the_difference() {
    let folder = TempDir::new().unwrap();
    let tiny = || Adapter::of_tiny(Change::Some);
    let q = "blk.0.attn_q.weight.lora_a";
    let renamed = |to: &'static str| tiny().with_tensor(q, |tensor| to.clone_into(&mut tensor.name));
    let shaped = |shape: &'static [u64]| tiny().with_tensor(q, |tensor| tensor.shape = shape.to_vec());
    let embedding = Adapter {
        tensors: tiny()
            .tensors
            .into_iter()
            .take(2)
            .zip(["lora_a", "lora_b"])
            .map(|(mut tensor, half)| {
                tensor.name = format!("token_embd.weight.{half}");
                tensor
            })
            .collect(),
        ..tiny()
    };
    let text = |key: &'static str, text: &'static str| tiny().with(key, Some(Value::Text(text)));
    for (adapter, part) in [
        (
            Adapter::of_nano(Change::Some),
            "`blk.0.attn_q.weight` does not fit: it is of shape [192, 2] by [2, 192], the weights' is [64, 64]",
        ),
        (shaped(&[64, 1, 2]), "[64, 1, 2] by [2, 64]"),
        (shaped(&[2, 64]), "[2, 64] by [2, 64]"),
        (tiny().with_tensor(q, |tensor| tensor.kind = 26), "its numbers are of type 26"),
        (renamed("blk.0.attn_q.weight.lora_c"), "neither a lora_a nor a lora_b"),
        (renamed("blk.0.attn_k.weight.lora_a"), "its other half is missing"),
        (
            renamed("blk.7.attn_q.weight.lora_a").with_tensor("blk.0.attn_q.weight.lora_b", |tensor| {
                "blk.7.attn_q.weight.lora_b".clone_into(&mut tensor.name);
            }),
            "`blk.7.attn_q.weight` does not fit: the weights have no such tensor",
        ),
        (renamed("blk.0.attn_norm.weight.lora_a"), "only the output layer and the layer tensors attn_q"),
        (embedding, "`token_embd.weight` does not fit: only the output layer"),
        (Adapter { tensors: Vec::new(), ..tiny() }, "it has no tensors"),
        (text("general.architecture", "llama"), "general.architecture is `llama`, it must be `qwen2`"),
        (text("general.type", "model"), "general.type is `model`, it must be `adapter`"),
        (tiny().with("general.type", Some(Value::Number(1))), "general.type is missing or not a short text"),
        (tiny().with("adapter.type", None), "adapter.type is missing"),
        (text("adapter.lora.alpha", "16"), "adapter.lora.alpha is of another type"),
        (tiny().with("adapter.lora.alpha", Some(Value::Float(f32::NAN))), "at alpha NaN"),
        (
            tiny().with("adapter.alora.invocation_tokens", Some(Value::Numbers(&[1, 2]))),
            "adapter.alora.invocation_tokens is present",
        ),
    ] {
        let text = refused(&adapter.write(&folder, "other.gguf"), 1.0);
        assert!(text.contains(part), "{part} in {text}");
    }
    let none = tiny().with_tensor(q, |tensor| tensor.numbers[3] = f32::NAN).write(&folder, "none.gguf");
    let text = refused(&none, 1.0);
    assert!(text.contains(&format!("its `{q}` has a number that is not finite, at 3")), "{text}");
    let fits = tiny().write(&folder, "fits.gguf");
    assert!(refused(&fits, f32::INFINITY).contains("scale is inf"));
    let adapter = Some(AdapterFile { path: fits, scale: 1.0 });
    load(EngineOptions { adapter, ..options() }).unwrap();
}

#[test]
fn a_file_that_is_not_an_adapter_is_rejected_by_name() {
    let folder = TempDir::new().unwrap();
    let damaged = folder.path().join("damaged.gguf");
    let good = Adapter::of_tiny(Change::Some).bytes();
    for bytes in [&b""[..], b"no adapter", &good[..200], &good[..good.len() / 2], &good[..good.len() - 64]] {
        std::fs::write(&damaged, bytes).unwrap();
        let text = refused(&damaged, 1.0);
        assert!(!text.contains("null result"), "{text}");
    }
    assert!(refused(&tiny_weights(), 1.0).contains("must be `adapter`"), "weights are not an adapter");
    assert!(refused(Path::new("/nowhere/a.gguf"), 1.0).contains("No such file"));
    assert!(refused(folder.path(), 1.0).contains("not a file"));
}

/// A bundle with nano's weights and the adapter at this scale.
fn bundle(adapter: &Adapter, scale: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::copy(nano().join("nano.gguf"), folder.path().join("nano.gguf")).unwrap();
    adapter.write(&folder, "a.gguf");
    let manifest = std::fs::read_to_string(nano().join(MANIFEST_FILE)).unwrap();
    let mut manifest: toml_edit::DocumentMut = manifest.parse().unwrap();
    manifest["version"] = toml_edit::value("2");
    // Its head was trained without an adapter.
    manifest.remove("head");
    let adapter = format!("\n[[adapters]]\nfile = \"a.gguf\"\nsha256 = \"\"\nscale = {scale}\n");
    std::fs::write(folder.path().join(MANIFEST_FILE), manifest.to_string() + &adapter).unwrap();
    pack_in_place(folder.path(), Some(&demo())).unwrap();
    folder
}

fn open(folder: &Path) -> Result<LlamaConductor, OpenError> {
    let bundle = Bundle::verify(folder).unwrap();
    LlamaConductor::open(&bundle, &demo(), LlamaOptions::default())
}

async fn plan(conductor: &LlamaConductor, question: &str) -> PlanResult {
    let request = PlanRequest {
        asker: Asker::nobody(RunId::least_at(Timestamp::default())),
        question: question.to_owned(),
        policy: Policy::new(Tier::Ultra, Effort::Medium),
        earlier: None,
        seed: 0,
        asked_at: Timestamp::default(),
        time_max: std::time::Duration::from_mins(2),
    };
    conductor.plan(&request, &|_| {}, &CancellationToken::new()).await.unwrap().result
}

#[tokio::test]
async fn bundles_with_and_without_an_adapter_coexist() {
    let folder = bundle(&Adapter::of_nano(Change::Some), "1.0");
    let alone = open(&nano()).unwrap();
    let question = format!("{BEGINNING}multiply it by 12, and write the result in words.");
    let expected = plan(&alone, &question).await;
    alone.shut_down().await;
    let (base, changed) = (open(&nano()).unwrap(), open(folder.path()).unwrap());
    assert_eq!((base.id(), changed.id()), ("nano-1", "nano-2"));
    let (first, other) = tokio::join!(plan(&base, &question), plan(&changed, &question));
    assert_eq!(first, expected, "the other bundle's adapter has no effect on it");
    assert_ne!(other, expected);
    base.shut_down().await;
    changed.shut_down().await;
}

#[tokio::test]
async fn the_hidden_states_source_includes_the_adapter() {
    let folder = bundle(&Adapter::of_nano(Change::Some), "0.5");
    let (reader, base) =
        (QuestionReader::open(folder.path()).unwrap(), QuestionReader::open(&nano()).unwrap());
    let (with, without) = (reader.read(SUM).await.unwrap(), base.read(SUM).await.unwrap());
    let half = engine_with(Some((&folder.path().join("a.gguf"), 0.5)));
    assert_eq!(with, values(&half, SUM).await, "at the bundle's scale");
    assert_ne!(with, without);
    assert_ne!(reader.source(), base.source(), "their mini heads are not interchangeable");
    assert!(reader.source().adapter.as_ref().is_some_and(|adapter| adapter.ends_with("*0.5")));
    reader.shut_down().await;
    base.shut_down().await;
}

#[test]
fn a_bundle_with_a_wrong_adapter_is_rejected_by_name() {
    let folder = bundle(&Adapter::of_tiny(Change::Some), "1.0");
    let error = open(folder.path()).unwrap_err();
    assert!(
        matches!(
            &error,
            OpenError::Load { source: LoadError::Adapter { source: AdapterError::Tensor { .. }, .. }, .. }
        ),
        "{error:?}"
    );
    let text = chain(&error);
    assert!(text.contains("`nano-2`") && text.contains("a.gguf") && text.contains("[192, 192]"), "{text}");
    let path = folder.path().join("a.gguf");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let BundleError::Files { problems, .. } = Bundle::open(folder.path()).unwrap_err() else {
        panic!("the checksum must differ");
    };
    assert!(problems[0].contains("`a.gguf` (adapters[0]) has SHA-256"), "{problems:?}");
}
