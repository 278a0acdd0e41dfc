//! Commands for bundles, with the shipped bundle.

use std::path::Path;

use crate::support::{Folder, run, stderr, stdout};

const NANO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/nano");

/// A copy of the shipped bundle, to be damaged.
fn copied(folder: &Folder) -> String {
    let copy = folder.path("copy").display().to_string();
    let packed = run(&["bundle", "pack", NANO, "--output", &copy, "--pool", "demo"]);
    assert!(packed.status.success(), "{}", stderr(&packed));
    copy
}

/// A GGUF file with one tensor of two numbers, the second of which is this one.
fn adapter_with(number: f32) -> Vec<u8> {
    let name = "blk.0.attn_q.weight.lora_a";
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend([1_u64, 0, name.len() as u64].map(u64::to_le_bytes).concat());
    file.extend(name.as_bytes());
    // One dimension, its length, the type F32, and where its numbers begin.
    file.extend([&1_u32.to_le_bytes()[..], &2_u64.to_le_bytes(), &[0; 4 + 8]].concat());
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend([1.0, number].map(f32::to_le_bytes).concat());
    file
}

#[test]
fn the_shipped_bundle_is_complete_and_runs_on_the_demos_pool() {
    let verified = run(&["bundle", "verify", NANO, "--pool", "demo"]);
    assert!(verified.status.success(), "{}", stderr(&verified));
    assert!(stdout(&verified).contains("it runs on pool demo-1"), "{}", stdout(&verified));
    let inspected = stdout(&run(&["bundle", "inspect", NANO]));
    for part in [
        "bundle nano-1 (schema 1)",
        "nano.gguf, 5.0 MB, ",
        "7 anonymous slots, trained on pool demo-1",
        "6 sim-generalist",
        "pool hash",
        "chatml, subtasks in the question's words",
        "| {{question}}",
        "temperature 0, at most 96 tokens of reasoning and 400 of plan",
    ] {
        assert!(inspected.contains(part), "{part} in {inspected}");
    }
}

#[test]
fn a_packed_copy_equals_the_shipped_bundle_byte_for_byte() {
    let folder = Folder::new();
    let copy = copied(&folder);
    for name in ["conductor.toml", "nano.gguf", "README.md"] {
        let read = |folder: &str| std::fs::read(Path::new(folder).join(name)).unwrap();
        assert!(read(NANO) == read(&copy), "{name}");
    }
    let again = run(&["bundle", "pack", NANO, "--output", &copy]);
    assert_eq!(again.status.code(), Some(2), "nothing is replaced");
}

#[test]
fn all_problems_of_a_bundle_are_listed() {
    let folder = Folder::new();
    let copy = copied(&folder);
    std::fs::write(Path::new(&copy).join("nano.gguf"), "other weights").unwrap();
    std::fs::write(Path::new(&copy).join("extra.gguf"), "an adapter that nobody named").unwrap();
    let verified = run(&["bundle", "verify", &copy]);
    let said = stderr(&verified);
    assert_eq!(verified.status.code(), Some(2), "{said}");
    assert!(
        said.matches("\n  - ").count() == 2 && said.contains("nano.gguf") && said.contains("extra.gguf"),
        "{said}"
    );
}

#[test]
fn a_bundle_rejects_a_pool_with_another_model_in_a_slot() {
    let folder = Folder::new();
    let demo = include_str!("../../../../pools/demo.toml");
    let other = demo.replace("model = \"sim-dates\"", "model = \"sim-dates-2\"");
    assert_ne!(demo, other, "the pool has that worker");
    let pool = folder.write("pool.toml", &other).display().to_string();
    let verified = run(&["bundle", "verify", NANO, "--pool", &pool]);
    let said = stderr(&verified);
    assert_eq!(verified.status.code(), Some(2), "{said}");
    assert!(
        said.contains("bundle `nano-1` was trained for pool `demo-1`") && said.contains("hash"),
        "{said}"
    );
}

#[test]
fn adapters_and_worked_examples_are_packed_checked_and_shown() {
    let folder = Folder::new();
    let copy = copied(&folder);
    let (path, adapter) = (Path::new(&copy).join("conductor.toml"), Path::new(&copy).join("a.gguf"));
    let manifest = std::fs::read_to_string(&path).unwrap();
    let manifest = manifest.replace("\"{{question}}\"", "\"{{examples}} {{question}}\"");
    let more = "\n[[adapters]]\nfile = \"a.gguf\"\nsha256 = \"\"\nscale = 0.5\n\
         [[examples]]\nquestion = \"Who?\"\nplan = 'model_id = [5] subtasks = [\"Who?\"] access_list = [[]]'\n";
    std::fs::write(&path, manifest + more).unwrap();
    std::fs::write(&adapter, adapter_with(2.0)).unwrap();
    let packed = run(&["bundle", "pack", &copy]);
    assert!(packed.status.success(), "{}", stderr(&packed));
    let verified = run(&["bundle", "verify", &copy, "--pool", "demo"]);
    assert!(stdout(&verified).contains("is complete: 3 files"), "{}{}", stdout(&verified), stderr(&verified));
    let inspected = stdout(&run(&["bundle", "inspect", &copy]));
    for part in [
        "adapters[0]  a.gguf, 0.0 MB, ",
        "adapters[0] is applied 0.5 times",
        "| {{examples}} {{question}}",
        "examples[0]  | Question: Who?\n               | model_id = [5]",
    ] {
        assert!(inspected.contains(part), "{part} in {inspected}");
    }
    let of_manifest = |text: &str| text.lines().find(|line| line.contains("manifest")).map(str::to_owned);
    let before = of_manifest(&inspected);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("[5]", "[4]")).unwrap();
    let after = of_manifest(&stdout(&run(&["bundle", "inspect", &copy])));
    assert!(before.is_some() && before != after, "an example is part of the bundle's checksum");
    std::fs::write(&adapter, "other numbers").unwrap();
    let said = stderr(&run(&["bundle", "verify", &copy]));
    assert!(
        said.matches("\n  - ").count() == 1 && said.contains("`a.gguf` (adapters[0]) has SHA-256"),
        "{said}"
    );
}

#[test]
fn nan_or_infinity_in_an_adapter_or_mini_head_is_rejected_by_name() {
    let folder = Folder::new();
    let copy = copied(&folder);
    let path = |name: &str| Path::new(&copy).join(name);
    let refused = || {
        let packed = run(&["bundle", "pack", &copy]);
        assert!(packed.status.success(), "the checksums are right: {}", stderr(&packed));
        let verified = run(&["bundle", "verify", &copy]);
        assert_eq!(verified.status.code(), Some(2), "{}", stderr(&verified));
        stderr(&verified)
    };
    let head = std::fs::read(path("head.safetensors")).unwrap();
    let (numbers, _) = head.split_at(head.len() - 4);
    std::fs::write(path("head.safetensors"), [numbers, &f32::NAN.to_le_bytes()].concat()).unwrap();
    let said = refused();
    assert!(said.contains("head.safetensors` is refused") && said.contains("not finite at row 6"), "{said}");

    std::fs::write(path("head.safetensors"), head).unwrap();
    let manifest = std::fs::read_to_string(path("conductor.toml")).unwrap();
    let more = "\n[[adapters]]\nfile = \"a.gguf\"\nsha256 = \"\"\n";
    std::fs::write(path("conductor.toml"), manifest + more).unwrap();
    std::fs::write(path("a.gguf"), adapter_with(f32::INFINITY)).unwrap();
    let said = refused();
    let part = "`a.gguf` (adapters[0]) is refused: `blk.0.attn_q.weight.lora_a` has a number that is not finite, at 1";
    assert!(said.contains(part), "{said}");
    std::fs::write(path("a.gguf"), "no adapter at all").unwrap();
    assert!(refused().contains("`a.gguf` (adapters[0]) is refused: it is no GGUF file"));
}
