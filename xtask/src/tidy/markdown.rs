//! Rules on pages: one title each, decision records numbered without a gap, every word of the glossary explained.

use super::Finding;
use super::links::prose;
use crate::tree::Tree;

const GLOSSARY: &str = "docs/glossary.md";

/// The words that have one meaning in this project.
const WORDS: &[&str] = &[
    "run",
    "round",
    "plan",
    "step",
    "attempt",
    "access list",
    "worker",
    "vendor",
    "pool",
    "conductor",
    "tier",
    "executor",
    "output",
    "lease",
];

/// All rules of this module.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts_with(&["md"]) {
        let titles = prose(text).filter(|(_, line)| line.starts_with("# ")).count();
        if titles != 1 {
            findings.push(Finding::broken("one-title", path, format!("it has {titles} `# ` titles")));
        }
    }
    findings.extend(decision_records(tree));
    findings.extend(glossary(tree));
    findings
}

/// `docs/adr/NNNN-what-was-decided.md`, counted from 0001, each titled with its number.
fn decision_records(tree: &Tree) -> Vec<Finding> {
    const RULE: &str = "decision-record";
    let mut findings = Vec::new();
    let mut last = 0;
    for path in tree.paths() {
        let Some(stem) = path.strip_prefix("docs/adr/").and_then(|name| name.strip_suffix(".md")) else {
            continue;
        };
        if stem == "README" {
            continue;
        }
        let expected = last + 1;
        let number = stem.split_once('-').filter(|(digits, _)| digits.len() == 4);
        let Some(number) = number.and_then(|(digits, _)| digits.parse::<u32>().ok()) else {
            findings.push(Finding::broken(RULE, path, "it is not named `NNNN-what-was-decided.md`"));
            continue;
        };
        if number != expected {
            findings.push(Finding::broken(RULE, path, format!("the next number is {expected:04}")));
        }
        let title = format!("# {number:04}: ");
        if tree.text(path).is_some_and(|text| !text.starts_with(&title)) {
            findings.push(Finding::broken(RULE, path, format!("it does not open with `{title}`")));
        }
        last = number;
    }
    findings
}

/// Each word has an entry: a list item that opens with the word in bold.
fn glossary(tree: &Tree) -> Vec<Finding> {
    let text = tree.text(GLOSSARY).unwrap_or_default();
    let explained = |word: &&&str| text.lines().any(|line| line.starts_with(&format!("- **{word}**: ")));
    let missing = WORDS.iter().filter(|word| !explained(word));
    missing.map(|word| Finding::broken("glossary", GLOSSARY, format!("`{word}` has no entry"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full_glossary() -> String {
        let entries: Vec<_> = WORDS.iter().map(|word| format!("- **{word}**: a meaning.\n")).collect();
        format!("# Glossary\n\n{}", entries.concat())
    }

    fn findings<const N: usize>(pages: [(&str, &str); N]) -> Vec<String> {
        let tree = Tree::of(pages);
        let found = check(&tree);
        found.iter().filter(|f| f.rule != "glossary").map(ToString::to_string).collect()
    }

    #[test]
    fn a_page_has_one_title_and_code_does_not_count() {
        let pages = [
            ("good.md", "# Good\n\n```sh\n# a comment\n```\n"),
            ("none.md", "Text.\n"),
            ("two.md", "# One\n# Two\n"),
        ];
        assert_eq!(
            findings(pages),
            ["none.md: [one-title] it has 0 `# ` titles", "two.md: [one-title] it has 2 `# ` titles"]
        );
    }

    #[test]
    fn decision_records_are_numbered_without_a_gap() {
        assert_eq!(
            findings([("docs/adr/0001-a.md", "# 0001: A\n"), ("docs/adr/0002-b.md", "# 0002: B\n")]),
            Vec::<String>::new()
        );
        assert_eq!(
            findings([("docs/adr/0001-a.md", "# 0001: A\n"), ("docs/adr/0003-b.md", "# 0003: B\n")]),
            ["docs/adr/0003-b.md: [decision-record] the next number is 0002"]
        );
        assert_eq!(
            findings([("docs/adr/0001-a.md", "# A\n"), ("docs/adr/notes.md", "# Notes\n")]),
            [
                "docs/adr/0001-a.md: [decision-record] it does not open with `# 0001: `",
                "docs/adr/notes.md: [decision-record] it is not named `NNNN-what-was-decided.md`",
            ]
        );
    }

    #[test]
    fn a_word_without_an_entry_is_named() {
        let complete = full_glossary();
        assert_eq!(check(&Tree::of([(GLOSSARY, &complete)])), []);
        let without = complete.replace("- **lease**: a meaning.\n", "");
        let found = check(&Tree::of([(GLOSSARY, &without)]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "docs/glossary.md: [glossary] `lease` has no entry");
    }
}
