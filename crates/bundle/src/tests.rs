//! Valid, damaged and packed bundles.

use std::error::Error;

use podium_domain::pool::Pool;
use tempfile::TempDir;

use super::*;

/// `printf 'weights' | sha256sum`
const WEIGHTS: &str = "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c";
/// `printf 'adapter' | sha256sum`
const ADAPTER: &str = "ae1eae1d76e5b7c865c4122ce366a08025842566d2d96c75cc13e6353a73db0d";

fn manifest(weights: &str, adapter: &str) -> String {
    format!(
        "# A bundle of tests.\nschema = 1\nname = \"tiny\"\nversion = \"1\"\n\
         [weights]\nfile = \"w.gguf\"\nsha256 = \"{weights}\" # of w.gguf\n\
         [[adapters]]\nfile = \"a.gguf\"\nsha256 = \"{adapter}\"\n\
         [prompt]\nworkers = \"slots\"\ntemplate = \"chatml\"\nuser = \"{{{{question}}}}\"\n\
         [pool]\nslots = [\"a\"]\ntrained_on = \"p-0\"\nhash = \"{zero}\"\n\
         [sampling]\ntemperature = 0.0\nreasoning_tokens_max = 32\nplan_tokens_max = 400\ncontext_tokens = 1024\n",
        zero = "0".repeat(64)
    )
}

fn folder(manifest: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in
        [(MANIFEST_FILE, manifest), ("w.gguf", "weights"), ("a.gguf", "adapter"), ("README.md", "read")]
    {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn whole() -> TempDir {
    folder(&manifest(WEIGHTS, ADAPTER))
}

fn pool() -> Pool {
    Pool::parse(
        "schema = 1\nname = \"p\"\nversion = \"1\"\n\
         [[vendors]]\nid = \"v\"\napi = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         [[workers]]\nid = \"a\"\nvendor = \"v\"\nmodel = \"m\"\ndescription = \"d\"\ncontext_tokens = 4096\n\
         usd_per_million_tokens = { input = 1.0, output = 1.0 }\n",
    )
    .unwrap()
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

fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let names = names_in(folder).unwrap();
    names.into_iter().map(|name| (name.clone(), fs::read(folder.join(name)).unwrap())).collect()
}

#[test]
fn a_valid_bundle_opens_and_is_verified() {
    let folder = whole();
    let bundle = Bundle::open(folder.path()).unwrap();
    assert_eq!((bundle.manifest().id().as_str(), bundle.sha256().len()), ("tiny-1", 64));
    assert_eq!(bundle.weights(), folder.path().join("w.gguf"));
    assert_eq!(Bundle::verify(folder.path()).unwrap(), bundle);
}

#[test]
fn each_wrong_missing_and_extra_file_is_named() {
    let folder = whole();
    fs::write(folder.path().join("w.gguf"), "other weights").unwrap();
    fs::remove_file(folder.path().join("a.gguf")).unwrap();
    fs::write(folder.path().join("junk.bin"), "junk").unwrap();
    fs::create_dir(folder.path().join("more")).unwrap();
    let BundleError::Files { problems, .. } = Bundle::verify(folder.path()).unwrap_err() else {
        panic!("the files must not match");
    };
    assert_eq!(problems.len(), 4, "{problems:#?}");
    for (problem, parts) in problems.iter().zip([
        &["`w.gguf` (weights)", WEIGHTS][..],
        &["`a.gguf` (adapters[0])", "No such file"],
        &["`junk.bin`", "does not name it"],
        &["`more`"],
    ]) {
        for part in parts {
            assert!(problem.contains(part), "{part} in {problem}");
        }
    }
    let opened = Bundle::open(folder.path()).unwrap_err().to_string();
    assert!(opened.contains("w.gguf") && !opened.contains("junk.bin"), "{opened}");
}

#[test]
fn a_missing_invalid_or_too_long_manifest_is_rejected_by_name() {
    let text = chain(&Bundle::open(Path::new("/nowhere")).unwrap_err());
    assert!(text.contains("/nowhere/conductor.toml") && text.contains("No such file"), "{text}");
    let folder = folder(&manifest(WEIGHTS, ADAPTER).replace("w.gguf", "../w.gguf"));
    let text = chain(&Bundle::open(folder.path()).unwrap_err());
    assert!(text.contains(MANIFEST_FILE) && text.contains("weights.file"), "{text}");
    let size = usize::try_from(MANIFEST_BYTES_MAX).unwrap() + 1;
    fs::write(folder.path().join(MANIFEST_FILE), "#".repeat(size)).unwrap();
    assert!(matches!(Bundle::open(folder.path()), Err(BundleError::ManifestTooLong { .. })));
}

#[test]
fn packing_fills_in_checksums_and_pool_and_keeps_the_rest() {
    let folder = folder(&manifest("", ""));
    assert!(Bundle::read(folder.path()).is_err(), "checksums are missing");
    pack_in_place(folder.path(), Some(&pool())).unwrap();
    let text = fs::read_to_string(folder.path().join(MANIFEST_FILE)).unwrap();
    for part in ["# A bundle of tests.\n", &format!("\"{WEIGHTS}\" # of w.gguf"), ADAPTER, "\"p-1\""] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let bundle = Bundle::verify(folder.path()).unwrap();
    assert_eq!(bundle.manifest().fit(&pool()).unwrap().workers().len(), 1);
    pack_in_place(folder.path(), Some(&pool())).unwrap();
    assert_eq!(
        fs::read_to_string(folder.path().join(MANIFEST_FILE)).unwrap(),
        text,
        "packing again changes nothing"
    );
}

#[test]
fn a_copy_has_the_same_bytes_each_time_and_replaces_nothing() {
    let (folder, to) = (folder(&manifest("", "")), tempfile::tempdir().unwrap());
    let (first, second) = (to.path().join("first"), to.path().join("second"));
    pack_copy(folder.path(), &first, None).unwrap();
    pack_copy(folder.path(), &second, None).unwrap();
    assert_eq!(contents(&first), contents(&second));
    let names: Vec<_> = contents(&first).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["README.md", "a.gguf", MANIFEST_FILE, "w.gguf"]);
    Bundle::verify(&first).unwrap();
    assert!(Bundle::read(folder.path()).is_err(), "the source is unchanged");
    let refused = pack_copy(folder.path(), &first, None).unwrap_err();
    assert!(matches!(refused, BundleError::Exists { .. }), "{refused}");
}

#[test]
fn packing_problems_are_listed_and_nothing_is_written() {
    let (folder, to) = (folder(&manifest("", "")), tempfile::tempdir().unwrap());
    fs::remove_file(folder.path().join("a.gguf")).unwrap();
    fs::remove_file(folder.path().join("w.gguf")).unwrap();
    let refused = pack_copy(folder.path(), &to.path().join("copy"), None).unwrap_err().to_string();
    assert!(refused.contains("w.gguf") && refused.contains("a.gguf"), "{refused}");
    assert_eq!(names_in(to.path()).unwrap(), Vec::<String>::new());
}
