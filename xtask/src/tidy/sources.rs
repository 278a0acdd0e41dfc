//! Checks source files: they are short, and a Rust file begins with a description of its purpose.

use super::Finding;
use crate::tree::Tree;

/// A longer file should be split.
const LINES_WANTED_MAX: usize = 600;
/// A longer file must be split.
const LINES_MAX: usize = 1000;

/// Folders with generated files, or with input of tests.
const NOT_OURS_TO_SHAPE: &[&str] = &["generated", "fixtures", "golden", "snapshots"];
/// Ends of the names of generated files, which Python packages have next to hand-written ones.
const GENERATED: &[&str] = &["_pb2.py", "_pb2_grpc.py"];

/// Checks both rules on every hand-written source file.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts_with(&["rs", "py", "sh", "proto", "sql", "ts"]) {
        let is_generated = GENERATED.iter().any(|end| path.ends_with(end));
        if is_generated || path.split('/').any(|part| NOT_OURS_TO_SHAPE.contains(&part)) {
            continue;
        }
        findings.extend(length(path, text));
        findings.extend(opening(path, text));
    }
    findings
}

fn length(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    if lines > LINES_MAX {
        Some(Finding::broken("file-length", path, format!("{lines} lines; the limit is {LINES_MAX}")))
    } else if lines > LINES_WANTED_MAX {
        let message = format!("{lines} lines; split a file by topic above {LINES_WANTED_MAX}");
        Some(Finding::note("file-length", path, message))
    } else {
        None
    }
}

fn opening(path: &str, text: &str) -> Option<Finding> {
    let is_rust = path.rsplit_once('.').is_some_and(|(_, extension)| extension == "rs");
    // An inner attribute such as `#![no_main]` may come first.
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!["));
    let says_what_for = first.is_some_and(|line| line.starts_with("//! ") && line.len() > "//! ".len());
    (is_rust && !says_what_for).then(|| {
        Finding::broken("file-opening", path, "it does not begin with `//!` and its purpose").at_line(1)
    })
}

#[cfg(test)]
mod tests {
    use super::super::Weight::{Broken, Note};
    use super::*;

    fn rust_of(lines: usize) -> String {
        format!("//! A file.\n{}", "\n".repeat(lines - 1))
    }

    #[test]
    fn a_long_file_gets_a_note_and_a_very_long_one_fails() {
        let tree = Tree::of([
            ("a.rs", &rust_of(600)),
            ("b.rs", &rust_of(601)),
            ("c.rs", &rust_of(1000)),
            ("d.rs", &rust_of(1001)),
            ("calls_pb2_grpc.py", &rust_of(1001)),
        ]);
        let found = check(&tree);
        let found: Vec<_> = found.iter().map(|f| (f.path.as_str(), f.weight)).collect();
        assert_eq!(found, [("b.rs", Note), ("c.rs", Note), ("d.rs", Broken)]);
    }

    #[test]
    fn a_rust_file_begins_with_its_purpose() {
        let tree = Tree::of([
            ("good.rs", "//! Its purpose.\n"),
            ("fuzz.rs", "#![no_main]\n//! Its purpose.\n"),
            ("bare.rs", "use std::fmt;\n"),
            ("empty_words.rs", "//!\nfn a() {}\n"),
            ("tests/fixtures/any.rs", "fn a() {}\n"),
            ("script.py", "import sys\n"),
        ]);
        let found = check(&tree);
        let found: Vec<_> = found.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(found, ["bare.rs", "empty_words.rs"]);
    }
}
