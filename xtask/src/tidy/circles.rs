//! Refuses circles of imports among more than two files of a crate: such files can only be understood together.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "import-circle";

/// Crates that have a larger circle. Every other crate is checked; a crate whose circles are gone must leave the list.
const WITH_CIRCLES: &[&str] = &[
    "benches/llama/src/",
    "clients/rust/src/",
    "crates/demo-workers/src/",
    "crates/domain/src/",
    "crates/llama/src/",
    "crates/queue-nats/src/",
    "crates/redis/src/",
    "crates/server/src/",
    "services/podium/src/",
    "services/vendor-sim/src/",
    "tests/simulation/src/",
];

/// The path of a module within its crate; empty for the crate itself.
type Module<'a> = Vec<&'a str>;

/// Checks the crates. Files with tests only are left out.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let folders: BTreeSet<_> = tree.texts_with(&["rs"]).filter_map(|(path, _)| source_folder(path)).collect();
    let findings = folders.iter().flat_map(|folder| {
        let circles = of_crate(tree, folder);
        match (WITH_CIRCLES.contains(folder), circles.is_empty()) {
            (false, _) => circles,
            (true, false) => Vec::new(),
            (true, true) => {
                let message = "no circle is left: remove it from `WITH_CIRCLES` of circles.rs";
                vec![Finding::broken(RULE, folder, message.to_owned())]
            }
        }
    });
    findings.collect()
}

/// The folder of a crate's modules, with a final slash.
fn source_folder(path: &str) -> Option<&str> {
    const SOURCES: &str = "/src/";
    path.find(SOURCES).map(|at| &path[..at + SOURCES.len()])
}

fn of_crate(tree: &Tree, folder: &str) -> Vec<Finding> {
    let mut paths = BTreeMap::new();
    for (path, text) in tree.texts_with(&["rs"]) {
        if let Some(module) = path.strip_prefix(folder).map(module_of).filter(|module| !is_test(module)) {
            paths.insert(module, (path, text));
        }
    }
    let known: BTreeSet<_> = paths.keys().cloned().collect();
    let imports: BTreeMap<_, _> =
        paths.iter().map(|(module, file)| (module, imports(module, file.1, &known))).collect();
    let reached: BTreeMap<_, _> = imports.keys().map(|module| (*module, reach(module, &imports))).collect();
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for (module, others) in &reached {
        let circle: Vec<_> = others.iter().filter(|other| reached[*other].contains(*module)).collect();
        if circle.len() > 2 && seen.insert(circle.clone()) {
            let names: Vec<_> = circle.iter().map(|other| paths[**other].0).collect();
            let message =
                format!("{} files import each other in a circle: {}", names.len(), names.join(", "));
            findings.push(Finding::broken(RULE, names[0], message));
        }
    }
    findings
}

fn module_of(path: &str) -> Module<'_> {
    let mut parts: Vec<_> = path.trim_end_matches(".rs").split('/').collect();
    if matches!(parts.last(), Some(&("lib" | "main" | "mod"))) {
        parts.pop();
    }
    parts
}

fn is_test(module: &[&str]) -> bool {
    module.iter().any(|part| *part == "tests" || part.ends_with("_tests"))
}

/// All modules that a module reaches through imports, itself only if it is part of a circle.
fn reach<'m, 'a>(
    from: &'m Module<'a>,
    imports: &BTreeMap<&'m Module<'a>, BTreeSet<Module<'a>>>,
) -> BTreeSet<&'m Module<'a>> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        for import in &imports[next] {
            let (import, _) = imports.get_key_value(import).expect("imports are known modules");
            if reached.insert(*import) {
                open.push(*import);
            }
        }
    }
    reached
}

/// The other modules of the crate that a file imports from.
fn imports<'a>(module: &[&str], text: &str, known: &BTreeSet<Module<'a>>) -> BTreeSet<Module<'a>> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let statements = code.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line))
    });
    let used = statements.filter_map(|(start, line)| {
        let before_use = line.trim_start().strip_prefix("use ")?;
        code[start + line.len() - before_use.len()..].split(';').next()
    });
    let paths = used.flat_map(|tree| expanded(&tree.split_whitespace().collect::<Vec<_>>().join(" ")));
    let targets = paths.filter_map(|path| target(module, &path, known));
    targets.filter(|target| target != module).collect()
}

/// The single paths of a tree such as `crate::a::{b, c::d}`.
fn expanded(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(expanded).map(|part| format!("{}{part}", prefix.trim_start())).collect()
}

/// The module of this crate that a path leads into.
fn target<'a>(module: &[&str], path: &str, known: &BTreeSet<Module<'a>>) -> Option<Module<'a>> {
    let mut parts = path.split("::").peekable();
    let mut base: Vec<&str> = match *parts.peek()? {
        "crate" => Vec::new(),
        "super" | "self" => module.to_vec(),
        first => [module, &[first]].concat(),
    };
    match *parts.peek()? {
        "super" => {
            while parts.next_if_eq(&"super").is_some() {
                base.pop();
            }
        }
        first => {
            parts.next();
            // A path without such a beginning names another crate, unless it begins with a module below this one.
            if !matches!(first, "crate" | "self") && !known.contains(&base) {
                return None;
            }
        }
    }
    base.extend(parts);
    loop {
        // Not `get`, because the parts of `base` do not live as long as the known ones.
        if let Some(found) = known.iter().find(|module| **module == base) {
            return Some(found.clone());
        }
        base.pop()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings<const N: usize>(files: [(&str, &str); N]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_circle_of_three_files_is_reported_once() {
        let found = findings([
            ("crates/engine/src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
            (
                "crates/engine/src/a.rs",
                "use std::fmt;\n\nuse crate::{\n    b::{B, One as Two},\n    c::inner::C,\n};\n",
            ),
            ("crates/engine/src/b.rs", "use super::c::inner::C;\n"),
            ("crates/engine/src/c/mod.rs", "mod inner;\n"),
            ("crates/engine/src/c/inner.rs", "use super::super::a::A;\n"),
        ]);
        let circle = "crates/engine/src/a.rs, crates/engine/src/b.rs, crates/engine/src/c/inner.rs";
        let expected = format!(
            "crates/engine/src/a.rs: [import-circle] 3 files import each other in a circle: {circle}"
        );
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_listed_crate_may_have_circles_and_must_have_one() {
        let circle = [
            ("crates/domain/src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("crates/domain/src/a.rs", "use crate::b::B;\n"),
            ("crates/domain/src/b.rs", "use crate::c::C;\n"),
            ("crates/domain/src/c.rs", "use crate::a::A;\n"),
        ];
        assert_eq!(findings(circle), Vec::<String>::new());
        let found = findings([("crates/domain/src/lib.rs", "mod a;\n"), ("crates/domain/src/a.rs", "")]);
        assert!(found.len() == 1 && found[0].contains("no circle is left"), "{found:?}");
    }

    #[test]
    fn two_files_tests_and_other_crates_may_form_circles() {
        let found = findings([
            ("crates/engine/src/lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\n"),
            ("crates/engine/src/a.rs", "use crate::b::B;\n"),
            (
                "crates/engine/src/b.rs",
                "use crate::a::A;\n\n#[cfg(test)]\nmod tests {\n    use crate::c::C;\n}\n",
            ),
            ("crates/engine/src/c.rs", "use crate::a::A;\n"),
            ("crates/engine/src/c/tests.rs", "use crate::c::C;\n"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }
}
