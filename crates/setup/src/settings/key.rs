//! Setting keys, and the annotated settings file that lists them.

use std::fmt::Write as _;

/// Width of comments in the listing.
const COMMENT_COLUMNS: usize = 100;

/// A setting: `name = value` in a settings file, `PODIUM__NAME` in the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its default; `None` if it has none.
    pub default: Option<&'static str>,
    /// An example value for the listing of a key without default.
    example: &'static str,
    /// Its meaning with unit and bounds.
    pub about: &'static str,
    is_required: bool,
    /// The programs that use it; empty for all.
    used_by: &'static [&'static str],
}

impl Key {
    /// A key with a default.
    pub const fn new(name: &'static str, default: &'static str, about: &'static str) -> Self {
        Self { name, default: Some(default), example: "", about, is_required: false, used_by: &[] }
    }

    /// An optional key without default; `about` explains what happens if it is unset.
    pub const fn optional(name: &'static str, example: &'static str, about: &'static str) -> Self {
        Self { name, default: None, example, about, is_required: false, used_by: &[] }
    }

    /// A required key.
    pub const fn required(name: &'static str, example: &'static str, about: &'static str) -> Self {
        Self { name, default: None, example, about, is_required: true, used_by: &[] }
    }

    /// Restricts the key to these programs. Others accept it, so that programs can share a file, but report it as unused.
    #[must_use]
    pub const fn used_by(self, programs: &'static [&'static str]) -> Self {
        Self { used_by: programs, ..self }
    }

    /// Whether `program` uses the key.
    pub fn is_used_by(&self, program: &str) -> bool {
        self.used_by.is_empty() || self.used_by.contains(&program)
    }
}

/// A settings file with the defaults of the keys that `program` uses, each with a comment.
pub fn listing(program: &str, keys: &[Key]) -> String {
    let mut text = format!("# Settings of {program}, as `{program} --print-keys` prints them.\n");
    comment(
        &mut text,
        "The environment variable PODIUM__KEY, with the key's name in capitals, replaces a value of this file; the flag \
         --set KEY=VALUE replaces both.",
    );
    for key in keys.iter().filter(|key| key.is_used_by(program)) {
        text.push('\n');
        let users = match key.used_by {
            [] => String::new(),
            programs => format!(" Used by {}.", programs.join(", ")),
        };
        let required = if key.is_required { " Required." } else { "" };
        comment(&mut text, &format!("{}{required}{users}", key.about));
        // Writing to a string cannot fail.
        let _ = match key.default {
            Some(default) => writeln!(text, "{} = {}", key.name, literal(default)),
            None => writeln!(text, "# {} = {}", key.name, literal(key.example)),
        };
    }
    text
}

fn comment(text: &mut String, about: &str) {
    let mut columns = 0;
    for word in about.split_whitespace() {
        let width = word.chars().count() + 1;
        if columns > 0 && columns + width <= COMMENT_COLUMNS {
            text.push(' ');
            columns += width;
        } else {
            text.push_str(if columns == 0 { "# " } else { "\n# " });
            columns = width + 1;
        }
        text.push_str(word);
    }
    text.push('\n');
}

/// A value in TOML syntax.
fn literal(value: &str) -> String {
    if value.parse::<i64>().is_ok() || value.parse::<bool>().is_ok() {
        value.to_owned()
    } else {
        toml::Value::from(value).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sources;
    use super::*;

    const KEYS: &[Key] = &[
        Key::required("store", "postgres://db/podium", "Where the store is."),
        Key::new("slots", "16", "Calls at the same time, 1 to 4096.").used_by(&["worker"]),
        Key::new("filter", "info", "What is logged."),
        Key::new("remote", "false", "Whether others reach it."),
        Key::optional("page", "127.0.0.1:9464", "Where metrics are shown. Unset: nowhere.")
            .used_by(&["server"]),
    ];

    #[test]
    fn a_listing_is_a_settings_file_that_explains_each_key() {
        let text = listing("worker", KEYS);
        for line in [
            "# Where the store is. Required.",
            "# store = \"postgres://db/podium\"",
            "# Calls at the same time, 1 to 4096. Used by worker.",
            "slots = 16",
            "filter = \"info\"",
            "remote = false",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("page"), "{text}");
        let uncommented = text.replace("# store", "store");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.toml");
        std::fs::write(&file, uncommented).unwrap();
        let mut sources = Sources::new(KEYS);
        sources.read_file(&file);
        let checker = sources.into_checker();
        assert_eq!(checker.written("slots"), Some("16"));
        assert!(checker.finish(Some(())).is_ok());
    }

    #[test]
    fn long_explanations_are_wrapped() {
        let mut text = String::new();
        comment(&mut text, &"word ".repeat(60));
        assert!(text.lines().all(|line| line.starts_with("# ") && line.len() <= 102), "{text}");
        assert_eq!(text.matches("word").count(), 60);
    }
}
