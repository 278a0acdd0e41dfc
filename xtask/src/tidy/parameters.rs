//! Refuses tuple patterns as parameters of functions: the values need a named type, or separate parameters.

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "tuple-parameter";

/// Packages that still have such functions. Only remove entries: a listed package without any gets a note.
const NOT_CLEAN: &[&str] = &[
    "crates/conductor/",
    "crates/demo-workers/",
    "crates/redis/",
    "crates/llama/",
    "crates/queue-nats/",
    "crates/vendors/",
    "services/vendor-sim/",
];

/// Checks the functions of all source folders. Closures may take tuples.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut clean = NOT_CLEAN.to_vec();
    for (path, text) in tree.texts_with(&["rs"]).filter(|(path, _)| path.contains("/src/")) {
        let found = tuple_functions(text);
        match NOT_CLEAN.iter().find(|package| path.starts_with(**package)) {
            Some(package) if !found.is_empty() => clean.retain(|other| other != package),
            Some(_) => {}
            None => findings.extend(found.into_iter().map(|(name, line)| {
                let message =
                    format!("`{name}` takes a tuple pattern: use a named type, or separate parameters");
                Finding::broken(RULE, path, message).at_line(line)
            })),
        }
    }
    let is_here = |package: &&str| tree.paths().any(|path| path.starts_with(*package));
    findings.extend(clean.into_iter().filter(is_here).map(|package| {
        Finding::note(
            RULE,
            package,
            "it is clean: remove it from `NOT_CLEAN` in xtask/src/tidy/parameters.rs",
        )
    }));
    findings
}

/// The functions with a tuple pattern among their parameters, and their lines.
fn tuple_functions(text: &str) -> Vec<(&str, usize)> {
    let declared = text.match_indices("fn ").filter_map(|(at, word)| {
        let is_word = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = &text[at + word.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').filter(|end| is_word && *end > 0)?;
        let (name, rest) = rest.split_at(end);
        let is_tuple = parameters(rest).iter().any(|parameter| parameter.trim_start().starts_with('('));
        is_tuple.then(|| (name, text[..at].matches('\n').count() + 1))
    });
    declared.collect()
}

/// The parameters in a text that begins after the name of a function.
fn parameters(text: &str) -> Vec<&str> {
    let Some(list) = after_generics(text).strip_prefix('(') else { return Vec::new() };
    let (mut depth, mut start, mut found, mut before) = (0_usize, 0, Vec::new(), ' ');
    for (at, c) in list.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' if depth == 0 => {
                found.push(&list[start..at]);
                return found;
            }
            ')' | ']' | '}' => depth -= 1,
            // The arrow of a function type is not a closing bracket.
            '>' if before != '-' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    Vec::new()
}

/// The text after a list of generic parameters, if it begins with one.
fn after_generics(text: &str) -> &str {
    if !text.starts_with('<') {
        return text;
    }
    let (mut depth, mut before) = (0_usize, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
        before = c;
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A constant, so that this file follows the rule.
    const PATTERN: &str = "(x, y): (u8, u8)";

    #[test]
    fn a_tuple_pattern_is_found_in_any_position() {
        let text = format!(
            "fn a({PATTERN}) {{}}\nfn b<F: Fn(u8) -> u8>(\n    f: F,\n    {PATTERN},\n) {{}}\n\
             fn c(pair: (u8, u8), f: impl Fn((u8, u8)) -> Vec<u8>, Point {{ x, y }}: Point) {{}}\n\
             const D: fn((u8, u8)) = e;\nlet f = |{PATTERN}| x;\n"
        );
        assert_eq!(tuple_functions(&text), [("a", 1), ("b", 2)]);
    }

    #[test]
    fn a_listed_package_is_not_checked_and_gets_a_note_if_clean() {
        let bad = &*format!("//! A file.\nfn a({PATTERN}) {{}}\n");
        let listed = |at: usize| format!("{}src/a.rs", NOT_CLEAN[at]);
        let (first, second) = (listed(0), listed(1));
        let tree = Tree::of([
            ("crates/other/src/a.rs", bad),
            ("crates/other/tests/a.rs", bad),
            (first.as_str(), bad),
            (second.as_str(), "//! A file.\n"),
        ]);
        let found: Vec<_> = check(&tree).iter().map(|found| (found.path.clone(), found.line)).collect();
        assert_eq!(found, [("crates/other/src/a.rs".to_owned(), 2), (NOT_CLEAN[1].to_owned(), 0)]);
    }
}
