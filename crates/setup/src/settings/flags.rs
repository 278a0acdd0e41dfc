//! A command-line flag for each key.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::key::{Key, Unset, Values};
use super::{ProgramKeys, Sources};

/// Which keys are flags of a command.
pub trait FlagKeys {
    /// The program with its keys.
    fn keys() -> ProgramKeys;

    /// Whether the command has a flag for this key.
    fn has(key: &str) -> bool;
}

/// The flags that were given, of the keys that `K` names.
#[derive(Clone, Debug)]
pub struct Flags<K> {
    given: BTreeMap<&'static str, String>,
    keys: PhantomData<K>,
}

impl<K> Default for Flags<K> {
    fn default() -> Self {
        Self { given: BTreeMap::new(), keys: PhantomData }
    }
}

impl<K> Flags<K> {
    /// The value of a flag, if it was given.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.given.get(key).map(String::as_str)
    }

    /// The same with this flag.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: String) -> Self {
        self.given.insert(key, value);
        self
    }

    /// Adds the values to the sources.
    pub fn read_into(&self, sources: &mut Sources) {
        self.given.iter().for_each(|(key, value)| sources.flag(key, Some(value)));
    }
}

impl<K: FlagKeys> FromArgMatches for Flags<K> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let keys = K::keys();
        self.given.extend(given(matches, keys.used().filter(|key| K::has(key.name))));
        Ok(())
    }
}

impl<K: FlagKeys> Args for Flags<K> {
    fn augment_args(command: Command) -> Command {
        with_flags(command, &K::keys(), K::has)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The command with a flag for each key that the program uses.
pub fn with_all_flags(command: Command, keys: &ProgramKeys) -> Command {
    with_flags(command, keys, |_| true)
}

/// Adds the values of flags to the sources.
pub fn read_flags(matches: &ArgMatches, keys: &ProgramKeys, sources: &mut Sources) {
    given(matches, keys.used()).for_each(|(key, value)| sources.flag(key, Some(&value)));
}

fn with_flags(command: Command, keys: &ProgramKeys, has: impl Fn(&str) -> bool) -> Command {
    let subjects = keys.subjects().iter();
    let flags = subjects.flat_map(|subject| subject.keys.iter().map(|key| (subject.title, key)));
    let flags = flags.filter(|(_, key)| has(key.name));
    command.args(flags.map(|(title, key)| flag(key).help_heading(title)))
}

fn given<'a>(
    matches: &'a ArgMatches,
    keys: impl Iterator<Item = &'a Key>,
) -> impl Iterator<Item = (&'static str, String)> {
    keys.filter_map(|key| Some((key.name, matches.get_one::<String>(key.name)?.clone())))
}

fn flag(key: &Key) -> Arg {
    let name = key.name.replace('_', "-");
    let about = About { key };
    let flag = Arg::new(key.name).long(name).value_name(value_name(&key.values));
    let flag = flag.help(about.brief()).long_help(about.to_string());
    match key.values {
        Values::Switch => flag.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => flag,
    }
}

fn value_name(values: &Values) -> String {
    match values {
        Values::Number { .. } => "NUMBER".to_owned(),
        Values::Switch => "true|false".to_owned(),
        Values::Words(words) => words.join("|"),
        Values::Form(form) => {
            let alternatives = form.replace(" or ", "|");
            if alternatives.contains(' ') { "VALUE".to_owned() } else { alternatives }
        }
    }
}

/// Whether the name of a flag's value says everything about it.
fn is_named_by_its_values(values: &Values) -> bool {
    match values {
        Values::Number { .. } => false,
        Values::Switch | Values::Words(_) => true,
        Values::Form(_) => value_name(values) != "VALUE",
    }
}

/// What `--help` says about a key.
struct About<'a> {
    key: &'a Key,
}

impl About<'_> {
    /// Its first sentence, for `-h`.
    fn brief(&self) -> String {
        let help = self.key.help;
        let end = help.find(". ").map_or(help.len(), |dot| dot + 1);
        let brief = help[..end].trim_end_matches('.');
        self.key.default().map_or_else(|| brief.to_owned(), |default| format!("{brief} [default: {default}]"))
    }
}

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.key.help)?;
        if !is_named_by_its_values(&self.key.values) {
            write!(f, "[values: {}] ", self.key.accepted())?;
        }
        match self.key.unset {
            Unset::Default(default) => write!(f, "[default: {default}]"),
            Unset::Instead { what, .. } => write!(f, "[unset: {what}]"),
            Unset::Refused { .. } => f.write_str("[required]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Group, Setting};
    use super::*;

    const SLOTS: Setting<u64> =
        Setting::number("call_slots", &(1..=9), "Most calls. The rest waits.").unit("calls").default("4");
    const REMOTE: Setting<bool> = Setting::switch("remote", "Allow other machines.").default("false");
    const GROUP: Group = Group { title: "Worker", keys: &[SLOTS.key, REMOTE.key] };

    fn keys() -> ProgramKeys {
        ProgramKeys::new("worker", &[GROUP])
    }

    fn values(arguments: &[&str]) -> [Option<u64>; 2] {
        let matches = with_all_flags(Command::new("worker"), &keys()).get_matches_from(arguments);
        let mut sources = Sources::new(&keys());
        read_flags(&matches, &keys(), &mut sources);
        let mut checker = sources.into_checker();
        [checker.read(&SLOTS), checker.read(&REMOTE).map(u64::from)]
    }

    #[test]
    fn each_key_has_a_flag() {
        assert_eq!(values(&["worker"]), [Some(4), Some(0)]);
        assert_eq!(values(&["worker", "--call-slots", "7", "--remote"]), [Some(7), Some(1)]);
        assert_eq!(values(&["worker", "--remote=false", "--call-slots=x"]), [None, Some(0)]);
    }

    #[test]
    fn the_help_gives_values_and_defaults_by_subject() {
        let mut command = with_all_flags(Command::new("worker"), &keys());
        command.clone().debug_assert();
        let short = command.render_help().to_string();
        assert!(short.contains("Most calls [default: 4]") && !short.contains("The rest"), "{short}");
        let long = command.render_long_help().to_string();
        for part in
            ["Worker:", "The rest waits.", "[values: 1 to 9 calls] [default: 4]", "--remote[=<true|false>]"]
        {
            assert!(long.contains(part), "{part}\n{long}");
        }
    }
}
