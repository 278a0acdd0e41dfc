//! Checks the pages that lead into the code: each function that they name is in the file that they link.

use std::path::Path;

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "walk";
const PAGES: &[&str] = &["ARCHITECTURE.md", "docs/guide/internals.md"];
/// The prefix of a link from a page's folder to the root.
const TO_ROOT: &str = "../../";

/// Checks that each `` `name()` `` is a function of the Rust file that its line links next.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in PAGES {
        for (index, line) in tree.text(page).unwrap_or_default().lines().enumerate() {
            for (name, file) in functions(line) {
                let found = tree.text(file).is_some_and(|text| is_in(text, name));
                if !found {
                    let message = format!("`{file}` has no function `{name}`");
                    findings.push(Finding::broken(RULE, page, message).at_line(index + 1));
                }
            }
        }
    }
    findings
}

/// The functions that a line names, each with the Rust file of the next link.
fn functions(line: &str) -> Vec<(&str, &str)> {
    let spans = line.match_indices("()`").filter_map(|(end, mark)| {
        let name = line[..end].rsplit('`').next()?;
        let (_, target) = line[end + mark.len()..].split_once("](")?;
        let (target, _) = target.split_once(')')?;
        let file = target.strip_prefix(TO_ROOT).unwrap_or(target);
        (Path::new(file).extension()? == "rs").then_some((name, file))
    });
    spans.collect()
}

fn is_in(text: &str, name: &str) -> bool {
    text.contains(&format!("fn {name}(")) || text.contains(&format!("fn {name}<"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_function_is_reported() {
        let page = "# Internals\n\n`one()` or `two()` in [a.rs](../../a.rs), `three()` in [b.rs](../../b.rs).\n\
                    `any()` without a link, and `four()` in [a page](../pools.md).\n";
        let tree = Tree::of([
            ("docs/guide/internals.md", page),
            ("ARCHITECTURE.md", "# Map\n\n`two()` or `four()` in [a.rs](a.rs).\n"),
            ("a.rs", "async fn one<T>() {}\nfn two() {}\n"),
            ("b.rs", "fn threefold() {}"),
        ]);
        let found: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "ARCHITECTURE.md:3: [walk] `a.rs` has no function `four`",
                "docs/guide/internals.md:3: [walk] `b.rs` has no function `three`",
            ]
        );
    }
}
