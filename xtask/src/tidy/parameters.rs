//! Refuses tuples as parameters of functions: the values need a named type, or separate parameters.

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "tuple-parameter";

/// Checks all functions, those of tests too. Closures may take tuples.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts_with(&["rs"]) {
        findings.extend(tuple_functions(text).into_iter().map(|(name, line)| {
            let message = format!("`{name}` takes a tuple: use a named type, or separate parameters");
            Finding::broken(RULE, path, message).at_line(line)
        }));
    }
    findings
}

/// The functions with a tuple among their parameters, and their lines.
fn tuple_functions(text: &str) -> Vec<(&str, usize)> {
    let declared = text.match_indices("fn ").filter_map(|(at, word)| {
        let is_word = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = &text[at + word.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').filter(|end| is_word && *end > 0)?;
        let (name, rest) = rest.split_at(end);
        parameters(rest)
            .iter()
            .any(|parameter| is_tuple(parameter))
            .then(|| (name, text[..at].matches('\n').count() + 1))
    });
    declared.collect()
}

/// Whether a parameter has a tuple as its pattern or its type. The unit type does not count, nor does a type in brackets.
fn is_tuple(parameter: &str) -> bool {
    let (pattern, kind) = parameter.split_once(':').unwrap_or((parameter, ""));
    let kind = kind.trim_start().trim_start_matches('&').trim_start();
    let kind = kind.strip_prefix("mut ").unwrap_or(kind);
    pattern.trim_start().starts_with('(') || parameters(kind).len() > 1
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

    /// Constants, so that this file follows the rule.
    const PATTERN: &str = "(x, y): (u8, u8)";
    const TYPE: &str = "pair: &mut (u8, u8)";

    #[test]
    fn a_tuple_is_found_in_any_position_as_pattern_or_type() {
        let text = format!(
            "fn a({PATTERN}) {{}}\nfn b<F: Fn(u8) -> u8>(\n    f: F,\n    {PATTERN},\n) {{}}\n\
             fn c(f: impl Fn((u8, u8)) -> Vec<(u8, u8)>, Point {{ x, y }}: Point, e: &(dyn E + 'a), u: ()) {{}}\n\
             fn d({TYPE}) {{}}\nconst E: fn((u8, u8)) = f;\nlet g = |{PATTERN}| x;\n"
        );
        assert_eq!(tuple_functions(&text), [("a", 1), ("b", 2), ("d", 7)]);
    }

    #[test]
    fn functions_of_tests_are_checked() {
        let bad = format!("//! A file.\nfn a({PATTERN}) {{}}\n");
        let tree = Tree::of([("crates/one/src/a.rs", "//! A file.\n"), ("crates/one/tests/a.rs", &bad)]);
        let found: Vec<_> = check(&tree).iter().map(|found| (found.path.clone(), found.line)).collect();
        assert_eq!(found, [("crates/one/tests/a.rs".to_owned(), 2)]);
    }
}
