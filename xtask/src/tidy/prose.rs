//! Checks that texts are in plain English: sentences do not begin with a clause as their subject, and use the trade's words.
//!
//! Pages, and comments of all files but Rust's, are checked everywhere. Rust files are checked only in the folders of `CLEAN`.

use std::collections::BTreeMap;
use std::path::Path;

use super::Finding;
use super::passages::{self, Passage};
use crate::tree::Tree;

const RULE: &str = "prose";

/// Rust folders whose comments and string literals are checked.
const CLEAN: &[&str] = &[
    "benches/early/",
    "benches/engine/",
    "benches/gateways/",
    "benches/limits/",
    "benches/llama/",
    "benches/load/",
    "benches/measure/",
    "benches/peers/",
    "benches/store/",
    "clients/rust/",
    "crates/api/",
    "crates/bundle/",
    "crates/cluster/",
    "crates/conductor/",
    "crates/demo-workers/",
    "crates/domain/",
    "crates/engine/",
    "crates/head/",
    "crates/llama/",
    "crates/memory/",
    "crates/server/",
    "crates/redis/",
    "crates/planning/",
    "crates/ports/",
    "crates/queue-nats/",
    "crates/setup/",
    "crates/store-format/",
    "crates/store-postgres/",
    "crates/store-sqlite/",
    "crates/telemetry/",
    "crates/testkit/",
    "crates/vendors/",
    "fuzz/",
    "services/executor/",
    "services/gateway/",
    "services/planner/",
    "services/podium/",
    "services/vendor-sim/",
    "tests/cluster/",
    "tests/harness/",
    "tests/simulation/",
    "xtask/",
];

/// A word or phrase that is refused, in lower case.
struct Refused {
    phrase: &'static str,
    instead: &'static str,
    /// Words before or after the phrase with which it is allowed.
    fine_after: &'static [&'static str],
    fine_before: &'static [&'static str],
}

const fn refused(phrase: &'static str, instead: &'static str) -> Refused {
    Refused { phrase, instead, fine_after: &[], fine_before: &[] }
}

impl Refused {
    const fn but_after(self, fine_after: &'static [&'static str]) -> Self {
        Self { fine_after, ..self }
    }

    const fn but_before(self, fine_before: &'static [&'static str]) -> Self {
        Self { fine_before, ..self }
    }
}

const REFUSED: &[Refused] = &[
    refused("ages later", "\"much later\""),
    refused("are none", "\"no\", or say which").but_after(&["there"]),
    refused("be had", "\"available\" or \"unavailable\""),
    refused("beside", "\"next to\", \"concurrently\" or \"in addition to\""),
    refused("bought nothing", "\"wasted\""),
    refused("dear", "\"expensive\""),
    refused("dearer", "\"more expensive\""),
    refused("dearest", "\"most expensive\""),
    refused("door", "\"API\", \"server\", \"listener\" or \"endpoint\""),
    refused("doors", "\"APIs\", \"servers\", \"listeners\" or \"endpoints\""),
    refused("form of its answer", "\"response format\""),
    refused("form of the answer", "\"response format\""),
    refused("further round", "\"follow-up round\""),
    refused("further rounds", "\"follow-up rounds\""),
    refused("in vain", "\"wasted\""),
    refused("is away", "\"is unreachable\""),
    refused("is none", "\"no\", or say which").but_after(&["there"]),
    refused("it turns", "\"it is alive\"").but_before(&["into", "off", "on", "out"]),
    refused("left alone", "\"back off\""),
    refused("long since", "\"long ago\""),
    refused("numbers that are none", "\"NaN or infinity\""),
    refused("of late", "\"recently\""),
    refused("picture", "\"image\""),
    refused("pictures", "\"images\""),
    refused("stand-in", "\"standby\" (server) or \"fallback\" (worker)"),
    refused("stand-ins", "\"standbys\" (servers) or \"fallbacks\" (workers)"),
    refused("taken back", "\"cancelled\""),
    refused("that there is not", "\"unknown\" or \"missing\""),
    refused("told of", "\"published\" or \"notified\""),
    refused("took it back", "\"cancelled it\""),
    refused("were away", "\"were unreachable\""),
    refused("was away", "\"was unreachable\""),
    refused("whoever", "the actor: the gateway, the executor, the caller"),
    refused("whomever", "the actor: the gateway, the executor, the caller"),
];

/// First words of sentences with a clause as their subject. Questions may begin with them.
const CLAUSES: &[&str] = &["Who", "Whom", "Whose", "Whoever", "What", "Whatever"];

/// Words that may not follow `Of` at the beginning of a sentence. Numbers may: "Of 60 questions, 44 were right".
const AFTER_OF: &[&str] = &[
    "a", "an", "the", "this", "that", "these", "those", "what", "whom", "each", "its", "it", "their", "such",
];

/// Checks all texts. A Rust folder that is clean but not in `CLEAN` gets a note.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut unlisted = BTreeMap::new();
    for (path, text) in tree.texts() {
        let found = in_file(path, text);
        match unlisted_folder(path) {
            Some(folder) => *unlisted.entry(folder).or_insert(true) &= found.is_empty(),
            None => findings.extend(found),
        }
    }
    let clean = unlisted.into_iter().filter(|(_, is_clean)| *is_clean);
    findings.extend(clean.map(|(folder, _)| {
        Finding::note(RULE, folder, "its Rust texts are clean: add it to `CLEAN` in xtask/src/tidy/prose.rs")
    }));
    findings
}

fn in_file(path: &str, text: &str) -> Vec<Finding> {
    let passages = readable(path, text);
    let found = passages.iter().flat_map(|passage| {
        let found = problems(&passage.text).into_iter();
        found.map(|(at, message)| Finding::broken(RULE, path, message).at_line(passage.line_at(at)))
    });
    found.collect()
}

/// The folder of a Rust file that `CLEAN` does not contain: the first two parts of its path.
fn unlisted_folder(path: &str) -> Option<&str> {
    let is_rust = Path::new(path).extension().is_some_and(|extension| extension == "rs");
    if !is_rust || CLEAN.iter().any(|folder| path.starts_with(folder)) {
        return None;
    }
    let end = path.match_indices('/').nth(1).map_or(path.len(), |(at, _)| at);
    Some(&path[..end])
}

/// The passages of a file that are checked.
fn readable(path: &str, text: &str) -> Vec<Passage> {
    // Migrations are never edited, fixtures must not change, a program prints the settings, generators write code, the checksum of a
    // manifest identifies its bundle, two rules list refused words, and models depend on the exact text of prompts.
    let kept = ["migrations/", "tests/fixtures/", "deploy/settings/", "/generated/", "/conductor.toml"];
    let files = ["crates/domain/src/prompt.rs", "xtask/src/tidy/decisions.rs", "xtask/src/tidy/prose.rs"];
    if files.contains(&path) || kept.iter().any(|name| path.contains(name)) {
        return Vec::new();
    }
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    match extension.unwrap_or_default() {
        "md" => passages::of_markdown(text),
        "proto" => passages::of_line_comments(text, "//"),
        "sql" | "lua" => passages::of_line_comments(text, "--"),
        "py" => passages::of_python(text),
        "ts" | "js" | "mjs" | "c" => passages::of_c_comments(text),
        "toml" | "yaml" | "yml" | "sh" | "cmake" => passages::of_line_comments(text, "#"),
        "rs" => passages::of_rust(text),
        "" if path == "Makefile" || path.starts_with("scripts/") => passages::of_line_comments(text, "#"),
        _ => Vec::new(),
    }
}

/// The places where a passage breaks the rule, with the messages.
fn problems(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<_> =
        sentences(text).filter_map(|(at, sentence)| Some((at, opening(sentence)?))).collect();
    let lower = text.to_ascii_lowercase();
    for refused in REFUSED {
        for at in occurrences(&lower, refused) {
            found.push((at, format!("\"{}\": write {} instead", refused.phrase, refused.instead)));
        }
    }
    found.sort();
    found
}

/// The sentences of a passage with their offsets.
fn sentences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split_inclusive(['.', '!', '?', ';', ':']).map(move |piece| {
        let start = at + piece.len() - piece.trim_start().len();
        at += piece.len();
        (start, piece.trim())
    })
}

/// The message for a sentence that begins with a clause as its subject.
fn opening(sentence: &str) -> Option<String> {
    let mut words = sentence.split_whitespace();
    let (first, second) = (words.next()?, words.next()?);
    // A heading or a cell of three words, such as "What it does", is a name.
    if sentence.ends_with('?') || words.next().is_none() || words.next().is_none() {
        return None;
    }
    if CLAUSES.contains(&first) {
        return Some(format!("the sentence opens with \"{first} {second}\": name its subject first"));
    }
    (first == "Of" && AFTER_OF.contains(&second))
        .then(|| format!("the sentence opens with \"Of {second}\": begin with its subject"))
}

/// The offsets at which a phrase occurs as whole words.
fn occurrences(lower: &str, refused: &Refused) -> Vec<usize> {
    let joined = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let whole = |at: &usize| {
        let (before, after) = (&lower[..*at], &lower[at + refused.phrase.len()..]);
        let word_before = before.split_whitespace().next_back().unwrap_or_default();
        let word_after = after.split_whitespace().next().unwrap_or_default();
        !before.ends_with(joined)
            && !after.starts_with(joined)
            && !refused.fine_after.contains(&word_before)
            && !refused.fine_before.iter().any(|word| word_after.trim_end_matches(['.', ',']) == *word)
    };
    lower.match_indices(refused.phrase).map(|(at, _)| at).filter(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings<const N: usize>(files: [(&str, &str); N]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sentence_that_begins_with_a_clause_is_reported() {
        let page = "# Title\n\nA run ends. Who is refused\nwaits for capacity.\n- What has no permit is refused.\n\
                    - Of a bundle only the manifest is read.\n";
        assert_eq!(
            findings([("a.md", page)]),
            [
                "a.md:3: [prose] the sentence opens with \"Who is\": name its subject first",
                "a.md:5: [prose] the sentence opens with \"What has\": name its subject first",
                "a.md:6: [prose] the sentence opens with \"Of a\": begin with its subject",
            ]
        );
    }

    #[test]
    fn questions_names_and_numbers_may_begin_a_sentence() {
        let page = "# What it does\n\nWho may call it, and when?\nOf 60 questions, 44 were right.\n\
                    The caller, who waits, is answered.\n| What | Who asks |\n";
        assert_eq!(findings([("a.md", page)]), Vec::<String>::new());
    }

    #[test]
    fn a_refused_phrase_is_reported_with_the_replacement() {
        let page = "The worker is\nof Late in Vain.\n";
        assert_eq!(
            findings([("a.md", page)]),
            [
                "a.md:2: [prose] \"of late\": write \"recently\" instead",
                "a.md:2: [prose] \"in vain\": write \"wasted\" instead",
            ]
        );
    }

    #[test]
    fn code_longer_words_and_usual_meanings_pass() {
        let page = "Besides, `is away` and [x](door.md) are names. If there is none, outdoors, it turns out.\n\
                    ```\nin vain\n```\n";
        assert_eq!(findings([("a.md", page)]), Vec::<String>::new());
    }

    #[test]
    fn comments_of_other_languages_are_checked() {
        let found = findings([
            ("proto/a.proto", "// The doors.\n"),
            ("deploy/a.toml", "key = \"door\"\n# A door.\n"),
            ("scripts/a", "# A door.\n"),
            ("migrations/a.sql", "-- A door.\n"),
            ("queries/a.sql", "-- A door.\n"),
            ("web/a.ts", "/**\n * A door.\n */\nlet door = 1; // a door\n// A door.\n"),
            (
                "web/a.py",
                "door = 1\n\n\ndef f():\n    \"\"\"One line.\n\n    A door.\n    \"\"\"\n    # A door.\n",
            ),
        ]);
        let places: Vec<_> = found.iter().map(|finding| finding.split(" [").next().unwrap()).collect();
        assert_eq!(
            places,
            [
                "deploy/a.toml:2:",
                "proto/a.proto:1:",
                "queries/a.sql:1:",
                "scripts/a:1:",
                "web/a.py:9:",
                "web/a.py:7:",
                "web/a.ts:2:",
                "web/a.ts:5:",
            ]
        );
    }

    #[test]
    fn rust_is_checked_in_clean_folders_only() {
        let clean = format!("{}src/a.rs", CLEAN[0]);
        let file = "//! A file.\n/// A door.\nconst A: &str = \"in vain\";\n";
        let found = findings([(clean.as_str(), file), ("crates/elsewhere/a.rs", file)]);
        assert_eq!(
            found,
            [
                format!(
                    "{clean}:2: [prose] \"door\": write \"API\", \"server\", \"listener\" or \"endpoint\" instead"
                ),
                format!("{clean}:3: [prose] \"in vain\": write \"wasted\" instead"),
            ]
        );
    }

    #[test]
    fn a_clean_folder_that_is_not_listed_gets_a_note() {
        let (good, bad) = ("//! A file.\n", "//! A door.\n");
        let found = findings([
            ("crates/one/src/a.rs", good),
            ("crates/two/src/a.rs", good),
            ("crates/two/tests/b.rs", bad),
        ]);
        assert_eq!(
            found,
            [
                "crates/one: [note, prose] its Rust texts are clean: add it to `CLEAN` in xtask/src/tidy/prose.rs"
            ]
        );
    }
}
