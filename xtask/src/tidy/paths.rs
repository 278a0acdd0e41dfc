//! Refuses absolute paths of a developer's machine: they do not exist elsewhere.

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "machine-path";

/// Folders with private paths.
const PRIVATE: &[&str] = &["/work/", "/root/", "/home/", "/Users/"];

/// The file that may name them.
const EXEMPT: &str = "xtask/src/tidy/paths.rs";

/// Checks every line of every text file.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| *path != EXEMPT) {
        for (index, line) in text.lines().enumerate() {
            if let Some(private) = PRIVATE.iter().find(|private| begins_a_path(line, private)) {
                let message = format!("a path under `{private}` exists only on one machine");
                findings.push(Finding::broken(RULE, path, message).at_line(index + 1));
            }
        }
    }
    findings
}

/// Whether `line` has an absolute path that begins with `private`. `https://host/home/` and `../work/` are not such paths.
fn begins_a_path(line: &str, private: &str) -> bool {
    line.match_indices(private).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| {
            !(c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '}' | ')' | '~' | '*'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_one_machine_is_reported_with_its_line() {
        let tree = Tree::of([("a.md", "Fine.\nSee `/home/ada/podium`.\n"), ("b.sh", "cd /work/x\n")]);
        let found: Vec<_> = check(&tree).iter().map(|f| (f.path.clone(), f.line)).collect();
        assert_eq!(found, [("a.md".to_owned(), 2), ("b.sh".to_owned(), 1)]);
    }

    #[test]
    fn part_of_a_longer_path_or_of_an_address_passes() {
        let text = "https://example.com/home/page\n../work/x\n$HOME/.cache\n${D}/root/usr\n/rooted\n";
        assert_eq!(check(&Tree::of([("a.md", text)])), []);
    }
}
