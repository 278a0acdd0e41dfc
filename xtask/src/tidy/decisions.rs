//! Checks decision records: each has a unique number, a title that states the decision, a status, a date and a row in the index.

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "decision-record";
const INDEX: &str = "docs/adr/README.md";

/// First words of titles that do not state a decision.
const NO_DECISION: &[&str] = &["How", "On", "What", "When", "Where", "Who", "Whoever", "Why"];

/// The states of a record.
const STATES: &[&str] = &["accepted", "proposed", "rejected", "superseded"];

/// Sections of every record.
const SECTIONS: &[&str] = &["## Context", "## Decision", "## Consequences"];

/// Checks `docs/adr/NNNN-what-was-decided.md`. Gaps in the numbers are allowed: a number may be reserved and not used.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let index = tree.text(INDEX).unwrap_or_default();
    let mut last = 0;
    for path in tree.paths() {
        let Some(stem) = path.strip_prefix("docs/adr/").and_then(|name| name.strip_suffix(".md")) else {
            continue;
        };
        if stem == "README" {
            continue;
        }
        let number = stem.split_once('-').filter(|(digits, _)| digits.len() == 4);
        let Some(number) = number.and_then(|(digits, _)| digits.parse::<u32>().ok()) else {
            findings.push(Finding::broken(RULE, path, "it is not named `NNNN-what-was-decided.md`"));
            continue;
        };
        if number == last {
            findings.push(Finding::broken(RULE, path, format!("the number {number:04} is used twice")));
        }
        last = number;
        let text = tree.text(path).unwrap_or_default();
        findings.extend(problems(text, number, &format!("{stem}.md"), index).into_iter().map(|problem| {
            match problem {
                Problem::Record(message) => Finding::broken(RULE, path, message).at_line(1),
                Problem::Index(message) => Finding::broken(RULE, INDEX, message),
            }
        }));
    }
    findings
}

/// A problem of the record, or of its row in the index.
enum Problem {
    Record(String),
    Index(String),
}

fn problems(text: &str, number: u32, file: &str, index: &str) -> Vec<Problem> {
    let opening = format!("# {number:04}: ");
    let Some(title) = text.lines().next().and_then(|line| line.strip_prefix(&opening)) else {
        return vec![Problem::Record(format!("it does not open with `{opening}`"))];
    };
    let mut problems = Vec::new();
    let first = title.split_whitespace().next().unwrap_or_default();
    if NO_DECISION.contains(&first) || title.ends_with(['.', '?']) || title.split_whitespace().count() < 3 {
        let message =
            format!("the title \"{title}\" states no decision: name who does what, without a final period");
        problems.push(Problem::Record(message));
    }
    if let Some(status) = status(text) {
        problems.extend(row(index, number, file, title, status).map(Problem::Index));
    } else {
        let states = STATES.join(", ");
        let message =
            format!("it has no line `**Status:** STATE, DATE.`; states: {states}; dates: 2026-11-23");
        problems.push(Problem::Record(message));
    }
    let missing = SECTIONS.iter().filter(|section| !text.lines().any(|line| line.starts_with(**section)));
    problems.extend(missing.map(|section| Problem::Record(format!("it has no section `{section}`"))));
    problems
}

/// The status of a record, which names a state and a date.
fn status(text: &str) -> Option<&str> {
    let line = text.lines().take(6).find_map(|line| line.strip_prefix("**Status:** "))?;
    let has_date = line.split(|c: char| !(c.is_ascii_digit() || c == '-')).any(is_date);
    (STATES.iter().any(|state| line.starts_with(state)) && has_date).then_some(line)
}

fn is_date(word: &str) -> bool {
    let parts: Vec<_> = word.split('-').map(str::len).collect();
    parts == [4, 2, 2]
}

/// The problem of the record's row in the index, if it has one.
fn row(index: &str, number: u32, file: &str, title: &str, status: &str) -> Option<String> {
    let Some(row) = index.lines().find(|line| line.starts_with(&format!("| [{number:04}]({file}) |"))) else {
        return Some(format!("it has no row that begins with `| [{number:04}]({file}) |`"));
    };
    let state = status.split([' ', ',', ';', '.']).next().unwrap_or_default();
    let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
    match cells.as_slice() {
        [_, shown, shown_state, date]
            if *shown == title && shown_state.starts_with(state) && is_date(date) =>
        {
            None
        }
        _ => Some(format!("the row of {number:04} is not `| number | {title} | {state}… | DATE |`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "# 0001: The store keeps time\n\n**Status:** accepted, 2026-11-23.\n\n\
                          ## Context\n\n## Decision\n\n## Consequences\n";
    const ROW: &str = "| [0001](0001-a.md) | The store keeps time | accepted; amended by [0002](0002-a.md) | 2026-11-23 |\n";

    fn findings<const N: usize>(pages: [(&str, &str); N]) -> Vec<String> {
        check(&Tree::of(pages)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn complete_records_pass() {
        let second = RECORD.replace("0001", "0002");
        let index = format!("{ROW}{}", ROW.replace("0001", "0002"));
        let pages = [("docs/adr/0001-a.md", RECORD), ("docs/adr/0002-a.md", &second), (INDEX, &index)];
        assert_eq!(findings(pages), Vec::<String>::new());
    }

    #[test]
    fn a_number_is_used_once() {
        let index = format!("{ROW}{}", ROW.replace("0001-a", "0001-b"));
        assert_eq!(
            findings([("docs/adr/0001-a.md", RECORD), ("docs/adr/0001-b.md", RECORD), (INDEX, &index)]),
            ["docs/adr/0001-b.md: [decision-record] the number 0001 is used twice"]
        );
        assert_eq!(
            findings([("docs/adr/0001-a.md", "# A\n"), ("docs/adr/notes.md", "# Notes\n")]),
            [
                "docs/adr/0001-a.md:1: [decision-record] it does not open with `# 0001: `",
                "docs/adr/notes.md: [decision-record] it is not named `NNNN-what-was-decided.md`",
            ]
        );
    }

    #[test]
    fn a_title_states_a_decision() {
        for title in ["Who keeps time", "Timekeeping", "The store keeps time.", "How to keep time"] {
            let record = RECORD.replace("The store keeps time", title);
            let index = ROW.replace("The store keeps time", title);
            let found = findings([("docs/adr/0001-a.md", &record), (INDEX, &index)]);
            assert!(found.len() == 1 && found[0].contains("states no decision"), "{found:?}");
        }
    }

    #[test]
    fn a_record_has_a_status_a_date_and_its_sections() {
        for (part, complaint) in [
            ("accepted, ", "no line `**Status:**"),
            ("2026-11-23", "no line `**Status:**"),
            ("## Context", "no section"),
        ] {
            let record = RECORD.replace(part, "");
            let found = findings([("docs/adr/0001-a.md", &record), (INDEX, ROW)]);
            assert!(found.len() == 1 && found[0].contains(complaint), "{found:?}");
        }
    }

    #[test]
    fn the_index_has_a_row_with_the_same_title_and_state() {
        for (index, complaint) in [
            ("", "has no row"),
            (&ROW.replace("keeps", "kept"), "is not `| number | The store keeps time"),
            (&ROW.replace("accepted", "superseded"), "| accepted… |"),
            (&ROW.replace("2026-11-23", "today"), "| DATE |"),
        ] {
            let found = findings([("docs/adr/0001-a.md", RECORD), (INDEX, index)]);
            assert!(
                found.len() == 1 && found[0].starts_with(INDEX) && found[0].contains(complaint),
                "{found:?}"
            );
        }
    }
}
