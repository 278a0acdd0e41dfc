//! Refuses names of files and folders that do not describe their content.

use std::collections::BTreeSet;

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "name";

/// Names that fit any content.
const SAYS_NOTHING: &[&str] = &["common", "core", "helper", "helpers", "misc", "util", "utils"];

/// Checks each part of each path to a source file.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for (path, _) in tree.texts_with(&["rs", "py", "toml", "ts", "sh"]) {
        let mut end = 0;
        for part in path.split('/') {
            end += part.len();
            let (here, stem) = (&path[..end], part.split('.').next().unwrap_or_default());
            if SAYS_NOTHING.contains(&stem) && seen.insert(here) {
                findings.push(Finding::broken(RULE, here, format!("`{stem}` does not describe its content")));
            }
            end += 1;
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_any_content_is_refused_once() {
        let tree = Tree::of([
            ("crates/common/Cargo.toml", ""),
            ("crates/common/src/lib.rs", "//! A.\n"),
            ("crates/store/src/utils.rs", "//! B.\n"),
            ("crates/store/src/core_dump.rs", "//! C.\n"),
        ]);
        let found: Vec<_> = check(&tree).iter().map(|f| f.path.clone()).collect();
        assert_eq!(found, ["crates/common", "crates/store/src/utils.rs"]);
    }
}
