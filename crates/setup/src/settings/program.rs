//! The keys of a program, and the settings file that explains them.

use std::fmt::Write as _;

use super::key::{Group, Key, Unset};

/// Width of comments in a settings file.
const COMMENT_COLUMNS: usize = 100;

/// The keys of a program, in groups.
#[derive(Clone, Debug)]
pub struct ProgramKeys {
    /// The program, as a user calls it.
    pub program: &'static str,
    groups: Vec<Subject>,
    /// Keys of other programs, which may share a settings file with this one.
    accepted: Vec<Key>,
}

#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) title: &'static str,
    pub(super) keys: Vec<Key>,
}

impl ProgramKeys {
    /// The keys of these groups.
    pub fn new(program: &'static str, groups: &[Group]) -> Self {
        let subjects = groups.iter().map(|group| Subject { title: group.title, keys: group.keys.to_vec() });
        Self { program, groups: subjects.collect(), accepted: Vec::new() }
    }

    /// The same with this key in place of the one with its name.
    ///
    /// # Panics
    ///
    /// Panics if no group has a key with this name.
    #[must_use]
    pub fn replace(mut self, key: Key) -> Self {
        let found = self.groups.iter_mut().flat_map(|group| &mut group.keys);
        let found = found.filter(|old| old.name == key.name).map(|old| *old = key).count();
        assert_eq!(found, 1, "{} has one key {}", self.program, key.name);
        self
    }

    /// Accepts the other keys of these groups, too. The program does not use them.
    #[must_use]
    pub fn accepting(mut self, groups: &[Group]) -> Self {
        let others = groups.iter().flat_map(|group| group.keys);
        let others: Vec<_> = others.filter(|key| !self.uses(key.name)).copied().collect();
        self.accepted.extend(others);
        self
    }

    /// The keys that the program uses.
    pub fn used(&self) -> impl Iterator<Item = &Key> {
        self.groups.iter().flat_map(|group| &group.keys)
    }

    pub(super) fn subjects(&self) -> &[Subject] {
        &self.groups
    }

    pub(super) fn accepted(&self) -> &[Key] {
        &self.accepted
    }

    fn uses(&self, name: &str) -> bool {
        self.used().any(|key| key.name == name)
    }

    /// A settings file with the defaults of the keys that the program uses, each with a comment.
    pub fn settings_file(&self) -> String {
        let program = self.program;
        let mut text = format!("# Settings of {program}, as `{program} --print-keys` prints them.\n");
        comment(
            &mut text,
            "The environment variable PODIUM__KEY, with the key's name in capitals, replaces a value of this file; the flag \
             --key VALUE replaces both.",
        );
        for Subject { title, keys } in &self.groups {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n## {title}\n");
            for key in keys {
                describe(&mut text, key);
            }
        }
        text
    }
}

fn describe(text: &mut String, key: &Key) {
    text.push('\n');
    comment(text, key.help);
    let accepted = key.accepted();
    let (unset, line) = match key.unset {
        Unset::Default(default) => (String::new(), format!("{} = {}", key.name, literal(default))),
        Unset::Instead { what, example } => {
            (format!(" Unset: {what}."), format!("# {} = {}", key.name, literal(example)))
        }
        Unset::Refused { example } => {
            (" Required.".to_owned(), format!("# {} = {}", key.name, literal(example)))
        }
    };
    comment(text, &format!("Values: {accepted}.{unset}"));
    text.push_str(&line);
    text.push('\n');
}

fn comment(text: &mut String, words: &str) {
    let mut columns = 0;
    for word in words.split_whitespace() {
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
    use super::super::{Setting, Sources, Values};
    use super::*;

    const STORE: Setting<String> = Setting::parsed(
        "store",
        Values::Form("postgres://HOST/DATABASE"),
        |_, text| Ok(text.to_owned()),
        "The address of the store.",
    )
    .required("postgres://db/podium");
    const SLOTS: Setting<u64> =
        Setting::number("slots", &(1..=4096), "Most concurrent calls.").unit("calls").default("16");
    const REMOTE: Setting<bool> = Setting::switch("remote", "Allow other machines.").default("false");
    const ACCOUNTS: Setting<u64> = Setting::number("accounts", &(1..=9), "Most accounts.").default("2");
    const WORKER: Group = Group { title: "Worker", keys: &[STORE.key, SLOTS.key, REMOTE.key] };
    const SERVER: Group = Group { title: "Server", keys: &[STORE.key, ACCOUNTS.key] };

    fn keys() -> ProgramKeys {
        ProgramKeys::new("worker", &[WORKER]).replace(SLOTS.key.with_default("32")).accepting(&[SERVER])
    }

    #[test]
    fn the_settings_file_explains_each_key_and_can_be_read() {
        let text = keys().settings_file();
        for line in [
            "## Worker",
            "# The address of the store.",
            "# Values: postgres://HOST/DATABASE. Required.",
            "# store = \"postgres://db/podium\"",
            "# Values: 1 to 4096 calls.",
            "slots = 32",
            "remote = false",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("accounts"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.toml");
        std::fs::write(&file, text.replace("# store =", "store =")).unwrap();
        let mut sources = Sources::new(&keys());
        sources.read_file(&file);
        let mut checker = sources.into_checker();
        assert_eq!(checker.read(&SLOTS), Some(32));
        assert_eq!(checker.read(&STORE).as_deref(), Some("postgres://db/podium"));
        assert!(checker.finish(Some(())).is_ok());
    }

    #[test]
    fn long_explanations_are_wrapped() {
        let mut text = String::new();
        comment(&mut text, &"word ".repeat(60));
        assert!(text.lines().all(|line| line.starts_with("# ") && line.len() <= 102), "{text}");
        assert_eq!(text.matches("word").count(), 60);
    }

    #[test]
    #[should_panic(expected = "worker has one key accounts")]
    fn only_a_key_of_the_program_can_be_replaced() {
        let _ = keys().replace(ACCOUNTS.key);
    }
}
