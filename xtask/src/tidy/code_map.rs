//! Checks the code map of ARCHITECTURE.md: it lists every crate and top folder, and every listed path exists.
//!
//! An entry is a list item that begins with a path in backticks: "- `crates/domain`: its purpose".

use std::collections::BTreeSet;

use super::Finding;
use super::workspace::Workspace;
use crate::tree::Tree;

const RULE: &str = "code-map";
const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Code map";

/// Compares the map with the workspace and the tree.
pub(super) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let Some(text) = tree.text(PAGE) else {
        return vec![Finding::broken(RULE, PAGE, "it is missing")];
    };
    let mut findings = Vec::new();
    let mut mapped = BTreeSet::new();
    for (line, path) in entries(text) {
        if !tree.exists(path) {
            let message = format!("`{path}` is on the map and not in the tree");
            findings.push(Finding::broken(RULE, PAGE, message).at_line(line));
        }
        if !mapped.insert(path) {
            let message = format!("`{path}` is on the map twice");
            findings.push(Finding::broken(RULE, PAGE, message).at_line(line));
        }
    }
    let members: BTreeSet<_> = workspace.members.keys().map(String::as_str).collect();
    // A top folder needs no entry if each of its crates has one.
    let tops = top_folders(tree);
    let tops = tops.iter().filter(|top| !mapped.iter().any(|path| path.split('/').next() == Some(top)));
    for folder in members.iter().filter(|folder| !mapped.contains(*folder)).chain(tops) {
        findings.push(Finding::broken(RULE, PAGE, format!("`{folder}` is not on the map")));
    }
    findings
}

/// The folders at the root, except hidden ones.
fn top_folders(tree: &Tree) -> BTreeSet<&str> {
    let folders = tree.paths().filter_map(|path| path.split_once('/')).map(|(folder, _)| folder);
    folders.filter(|folder| !folder.starts_with('.')).collect()
}

/// Line number and path of each entry.
fn entries(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let inside = numbered
        .skip_while(|(_, line)| line.trim_end() != HEADING)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("## "));
    inside.filter_map(|(number, line)| {
        let (path, _) = line.trim_start().strip_prefix("- `")?.split_once('`')?;
        Some((number, path.trim_end_matches('/')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(page: &str) -> Vec<String> {
        let tree = Tree::of([
            ("Cargo.toml", "[workspace]\nmembers = ['crates/a', 'crates/b']\n"),
            ("crates/a/Cargo.toml", "[package]\nname = 'a'\n"),
            ("crates/b/Cargo.toml", "[package]\nname = 'b'\n"),
            (PAGE, page),
        ]);
        let workspace = Workspace::parse(&tree).unwrap();
        check(&tree, &workspace).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_complete_map_passes() {
        let page =
            "# A\n## Code map\n- `crates/a`: one.\n- `crates/b/`: two.\n## Other\n- `gone`: not the map.\n";
        assert_eq!(findings(page), Vec::<String>::new());
    }

    #[test]
    fn a_missing_crate_and_a_stale_entry_are_reported() {
        let page = "# A\n## Code map\n- `crates/a`: one.\n- `crates/c`: gone.\n";
        assert_eq!(
            findings(page),
            [
                "ARCHITECTURE.md:4: [code-map] `crates/c` is on the map and not in the tree",
                "ARCHITECTURE.md: [code-map] `crates/b` is not on the map",
            ]
        );
    }

    #[test]
    fn a_top_folder_without_an_entry_is_reported_unless_hidden() {
        let tree = Tree::of([
            ("Cargo.toml", "[workspace]\nmembers = []\n"),
            (".ci/run", ""),
            ("pools/demo.toml", ""),
            ("docs/a.md", ""),
            (PAGE, "# A\n## Code map\n- `docs`: pages.\n"),
        ]);
        let found = check(&tree, &Workspace::parse(&tree).unwrap());
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["ARCHITECTURE.md: [code-map] `pools` is not on the map"]);
    }

    #[test]
    fn a_page_without_the_heading_has_no_entries() {
        assert_eq!(
            findings("# A\n- `crates/a`: one.\n- `crates/b`: two.\n"),
            [
                "ARCHITECTURE.md: [code-map] `crates/a` is not on the map",
                "ARCHITECTURE.md: [code-map] `crates/b` is not on the map",
                "ARCHITECTURE.md: [code-map] `crates` is not on the map",
            ]
        );
    }
}
