//! Checks that links from a page to another file of the repository have a target. Links to the network are not checked.

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "local-link";

/// Checks inline links and link definitions of every Markdown file.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts_with(&["md"]) {
        for (number, line) in prose(text) {
            for target in targets(line) {
                let Some(file) = local(target) else { continue };
                if !resolve(path, file).is_some_and(|file| tree.exists(&file)) {
                    let message = format!("link target `{target}` does not exist");
                    findings.push(Finding::broken(RULE, path, message).at_line(number));
                }
            }
        }
    }
    findings
}

/// The lines of a page outside fenced code, counted from one.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, None) => return Some((index + 1, line)),
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
        }
        None
    })
}

/// The targets of the links on one line: `[text](target)` and `[label]: target`.
fn targets(line: &str) -> Vec<&str> {
    let mut rest = line;
    let mut targets = Vec::new();
    if let Some((_, target)) = line.strip_prefix('[').and_then(|line| line.split_once("]: ")) {
        targets.push(target);
    }
    while let Some((_, after)) = rest.split_once("](") {
        let Some((target, beyond)) = after.split_once(')') else {
            break;
        };
        targets.push(target);
        rest = beyond;
    }
    // A title may follow the target: `(file.md "Title")`.
    targets.into_iter().filter_map(|target| target.split_whitespace().next()).collect()
}

/// The file part of a target that is in this repository.
fn local(target: &str) -> Option<&str> {
    let target = target.trim_start_matches('<').trim_end_matches('>');
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    let file = target.split('#').next().unwrap_or_default();
    (!elsewhere && !file.is_empty()).then_some(file)
}

/// Resolves `file`, a link in the page at `page`, to a path from the root; `None` if it is outside the repository.
fn resolve(page: &str, file: &str) -> Option<String> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = if file.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().filter(|part| !part.is_empty())?;
            }
            part => parts.push(part),
        }
    }
    parts.retain(|part| !part.is_empty());
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(page: &str) -> Vec<String> {
        let tree = Tree::of([("docs/adr/0001-a.md", page), ("docs/glossary.md", ""), ("README.md", "")]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_to_files_folders_sections_and_the_network_pass() {
        let page = "[a](../glossary.md) and [b](../glossary.md#run), [c](..), [d](/README.md), [e](#here)\n\
                    [f](https://example.com/x) [g](mailto:a@example.com) [h](../../README.md \"Title\")\n\
                    [label]: ../glossary.md\n\
                    ```md\n[i](nowhere.md)\n```\n";
        assert_eq!(findings(page), Vec::<String>::new());
    }

    #[test]
    fn a_broken_link_is_reported_with_its_line() {
        assert_eq!(
            findings("# A\n[a](glossary.md) [b](../glossary.md)\n"),
            ["docs/adr/0001-a.md:2: [local-link] link target `glossary.md` does not exist"]
        );
        assert_eq!(findings("[label]: gone.md\n").len(), 1);
    }

    #[test]
    fn a_link_out_of_the_repository_is_reported() {
        assert_eq!(findings("[a](../../../other/x.md)\n").len(), 1);
    }
}
