//! The rules, one module each, and their report.
//!
//! A rule is a pure function from the tree to findings; it never stops at the first finding.

mod circles;
mod code_map;
mod commands;
mod decisions;
mod layers;
mod links;
mod manifests;
mod markdown;
mod migrations;
mod names;
mod parameters;
mod passages;
mod paths;
mod prose;
mod sources;
mod walk;
mod workspace;

use std::fmt;

use crate::tree::Tree;
use workspace::Workspace;

/// Whether a finding fails the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// The check passes.
    Note,
    /// The check fails.
    Broken,
}

/// A place that breaks a rule, or is close to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from one; zero if the finding is about the whole file.
    line: usize,
    rule: &'static str,
    weight: Weight,
    message: String,
}

impl Finding {
    fn broken(rule: &'static str, path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: 0, rule, weight: Weight::Broken, message: message.into() }
    }

    fn note(rule: &'static str, path: &str, message: impl Into<String>) -> Self {
        Self { weight: Weight::Note, ..Self::broken(rule, path, message) }
    }

    fn at_line(self, line: usize) -> Self {
        Self { line, ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.path)?;
        if self.line > 0 {
            write!(out, ":{}", self.line)?;
        }
        let weight = if self.weight == Weight::Note { "note, " } else { "" };
        write!(out, ": [{weight}{}] {}", self.rule, self.message)
    }
}

/// The findings of all rules, sorted by path.
#[derive(Debug)]
pub(crate) struct Report {
    findings: Vec<Finding>,
    files: usize,
}

impl Report {
    /// Whether no rule is broken; notes are allowed.
    pub(crate) fn is_clean(&self) -> bool {
        self.broken() == 0
    }

    fn broken(&self) -> usize {
        self.findings.iter().filter(|finding| finding.weight == Weight::Broken).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(out, "{finding}")?;
        }
        let (broken, notes) = (self.broken(), self.findings.len() - self.broken());
        writeln!(out, "tidy: {} files, {broken} broken, {notes} notes", self.files)
    }
}

/// Checks all rules.
pub(crate) fn check(tree: &Tree) -> Report {
    let mut findings = Vec::new();
    match Workspace::parse(tree) {
        Ok(workspace) => {
            findings.extend(layers::check(&workspace));
            findings.extend(manifests::check(tree, &workspace));
            findings.extend(code_map::check(tree, &workspace));
        }
        Err(finding) => findings.push(finding),
    }
    findings.extend(circles::check(tree));
    findings.extend(commands::check(tree));
    findings.extend(decisions::check(tree));
    findings.extend(links::check(tree));
    findings.extend(markdown::check(tree));
    findings.extend(migrations::check(tree));
    findings.extend(names::check(tree));
    findings.extend(parameters::check(tree));
    findings.extend(paths::check(tree));
    findings.extend(prose::check(tree));
    findings.extend(sources::check(tree));
    findings.extend(walk::check(tree));
    findings.sort();
    Report { findings, files: tree.paths().count() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_displays_its_file_line_and_rule() {
        let finding = Finding::broken("file-length", "a/b.rs", "1200 lines").at_line(7);
        assert_eq!(finding.to_string(), "a/b.rs:7: [file-length] 1200 lines");
        assert_eq!(
            Finding::note("file-length", "a/b.rs", "700").to_string(),
            "a/b.rs: [note, file-length] 700"
        );
    }

    #[test]
    fn a_report_with_only_notes_is_clean() {
        let note = Finding::note("file-length", "a.rs", "700 lines");
        let broken = Finding::broken("file-length", "b.rs", "1200 lines");
        assert!(Report { findings: vec![note.clone()], files: 1 }.is_clean());
        assert!(!Report { findings: vec![note, broken], files: 2 }.is_clean());
    }

    #[test]
    fn this_repository_follows_its_rules() {
        let root = crate::tree::repository_root().unwrap();
        let report = check(&Tree::read(&root).unwrap());
        assert!(report.is_clean(), "{report}");
    }
}
