//! Checks pages: each has one title, and the glossary explains the project's words.

use super::Finding;
use super::links::prose;
use crate::tree::Tree;

const GLOSSARY: &str = "docs/glossary.md";

/// Words with one meaning in this project.
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

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts_with(&["md"]) {
        let titles = prose(text).filter(|(_, line)| line.starts_with("# ")).count();
        if titles != 1 {
            findings.push(Finding::broken("one-title", path, format!("it has {titles} `# ` titles")));
        }
    }
    findings.extend(glossary(tree));
    findings
}

/// Each word has an entry: a list item that begins with the word in bold.
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
    fn a_page_has_one_title_outside_of_code() {
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
    fn a_word_without_an_entry_is_reported() {
        let complete = full_glossary();
        assert_eq!(check(&Tree::of([(GLOSSARY, &complete)])), []);
        let without = complete.replace("- **lease**: a meaning.\n", "");
        let found = check(&Tree::of([(GLOSSARY, &without)]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "docs/glossary.md: [glossary] `lease` has no entry");
    }
}
