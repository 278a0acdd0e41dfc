//! Tests of the manifest, and of the pool that it pins.

use super::*;
use crate::pool::Pool;

fn pool(model_of_b: &str) -> Pool {
    let worker = |id: &str, model: &str| {
        format!(
            "[[workers]]\nid = \"{id}\"\nvendor = \"v\"\nmodel = \"{model}\"\ndescription = \"d\"\n\
             context_tokens = 4096\nusd_per_million_tokens = {{ input = 1.0, output = 1.0 }}\n"
        )
    };
    let workers = [worker("extra", "e"), worker("b", model_of_b), worker("a", "ma")].concat();
    let vendor = "[[vendors]]\nid = \"v\"\napi = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    Pool::parse(&format!("schema = 1\nname = \"mine\"\nversion = \"2\"\n{vendor}{workers}")).unwrap()
}

/// `printf '14:podium-slots-1,1:a,2:ma,1:b,2:mb,' | sha256sum`
const HASH: &str = "b8025d80dbd367c3c4255976735067d3b37c02cb8bd40fd47f3bee8dfb653a35";

fn good() -> String {
    format!(
        "schema = 1\nname = \"nano\"\nversion = \"1\"\n[weights]\nfile = \"nano.gguf\"\nsha256 = \"{weights}\"\n\
         [[adapters]]\nfile = \"maths.gguf\"\nsha256 = \"{adapter}\"\nscale = 0.5\n\
         [head]\nfile = \"mini.safetensors\"\nsha256 = \"{head}\"\n\
         [prompt]\nworkers = \"slots\"\ntemplate = \"chatml\"\nuser = \"{{{{question}}}}\"\n\
         [pool]\nslots = [\"a\", \"b\"]\ntrained_on = \"mine-1\"\nhash = \"{HASH}\"\n\
         [sampling]\ntemperature = 0.0\nreasoning_tokens_max = 64\nplan_tokens_max = 400\ncontext_tokens = 1024\n",
        weights = "a".repeat(64),
        adapter = "b".repeat(64),
        head = "c".repeat(64),
    )
}

#[test]
fn a_good_manifest_reads() {
    let manifest = Manifest::parse(&good()).unwrap();
    assert_eq!(manifest.id(), "nano-1");
    let files: Vec<_> = manifest.files().iter().map(|named| (named.key.clone(), named.file)).collect();
    let expected = [("weights", "nano.gguf"), ("adapters[0]", "maths.gguf"), ("head", "mini.safetensors")];
    assert_eq!(files, expected.map(|(key, file)| (key.to_owned(), file)));
}

#[test]
fn a_bad_manifest_is_refused_by_the_name_of_the_key() {
    for (from, to, key) in [
        ("nano.gguf", "../nano.gguf", "weights.file"),
        ("maths.gguf", "conductor.toml", "adapters[0].file"),
        ("maths.gguf", "nano.gguf", "adapters[0].file"),
        ("mini.safetensors", "a/b", "head.file"),
        ("cccc", "", "head.sha256"),
        ("aaaa", "AAAA", "weights.sha256"),
        ("bbbb", "", "adapters[0].sha256"),
        ("scale = 0.5", "scale = 0", "adapters[0].scale"),
        ("{{question}}", "hello", "prompt.user"),
        ("[pool]", "further = \"again\"\n[pool]", "prompt.further"),
        ("[\"a\", \"b\"]", "[]", "pool.slots"),
        ("[\"a\", \"b\"]", "[\"a\", \"a\"]", "pool.slots"),
        ("mine-1", "", "pool.trained_on"),
        ("slots\"\ntemplate", "described\"\ntemplate", "pool must be left out"),
        (HASH, "", "pool.hash"),
        ("= 1024", "= 128", "sampling"),
        ("schema = 1", "schema = 2\ncolour = \"red\"", "schema is 2, this version reads 1"),
    ] {
        let text = good();
        assert!(text.contains(from), "{from}");
        let refused = Manifest::parse(&text.replacen(from, to, 1)).expect_err(key).to_string();
        assert!(refused.contains(key), "{refused}");
    }
}

#[test]
fn everything_that_is_wrong_with_a_manifest_is_listed() {
    let text = good().replace("nano.gguf", "a/b").replace("= 1024", "= 1").replace("mine-1", "");
    let ManifestError::Invalid(problems) = Manifest::parse(&text).unwrap_err() else { panic!("{text}") };
    assert_eq!(problems.len(), 4, "{problems:#?}");
}

#[test]
fn slots_are_the_pools_workers_in_the_bundles_order() {
    let manifest = Manifest::parse(&good()).unwrap();
    let fitted = manifest.fit(&pool("mb")).unwrap();
    let ids: Vec<_> = fitted.workers().iter().map(|worker| worker.id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[test]
fn the_hash_is_made_as_it_says() {
    let slots = ["a", "b"].map(|id| WorkerId::new(id).unwrap());
    assert_eq!(slots_hash(&pool("mb"), &slots).unwrap(), HASH);
    let turned = ["b", "a"].map(|id| WorkerId::new(id).unwrap());
    assert_ne!(slots_hash(&pool("mb"), &turned).unwrap(), HASH, "the order counts");
}

#[test]
fn a_pool_with_another_model_in_a_slot_or_none_is_refused_and_both_are_named() {
    let manifest = Manifest::parse(&good()).unwrap();
    let refused = manifest.fit(&pool("mc")).unwrap_err().to_string();
    for part in ["`nano-1`", "`mine-1`", "`mine-2`", HASH] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    let manifest = Manifest::parse(&good().replace("[\"a\", \"b\"]", "[\"a\", \"c\", \"d\"]")).unwrap();
    let refused = manifest.fit(&pool("mb")).unwrap_err();
    assert_eq!(refused.problems.len(), 2, "{refused}");
    assert!(refused.to_string().contains("`d`, slot 2"), "{refused}");
}

#[test]
fn a_bundle_that_is_told_of_its_workers_fits_any_pool() {
    let text = good().replace("\"slots\"", "\"described\"");
    let pinned = text.split_once("[pool]").unwrap().1.split_once("[sampling]").unwrap().0;
    let manifest = Manifest::parse(&text.replace(&format!("[pool]{pinned}"), "")).unwrap();
    assert_eq!(manifest.fit(&pool("mb")).unwrap(), pool("mb"));
}

#[test]
fn slots_have_further_rounds_where_the_manifest_says_in_which_words() {
    let with =
        |text: &str| Manifest::parse(&text.replace("[pool]", "further = \" {{earlier}}\"\n[pool]")).unwrap();
    assert_eq!(Manifest::parse(&good()).unwrap().rounds_max(), 1);
    assert_eq!(with(&good()).rounds_max(), crate::policy::ROUNDS_MAX);
}
