//! The declaration of a setting. The settings file, the flags, the reference page and the checks of a value come from it.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::{SecretRef, values};

/// A setting: `name = value` in a settings file, `PODIUM__NAME` in the environment, `--name value` on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The values that it accepts.
    pub values: Values,
    /// The unit of its numbers; empty if they have none.
    pub unit: &'static str,
    /// Its value if no source sets it.
    pub unset: Unset,
    /// Its meaning, in sentences that are true in every program that has the key.
    pub help: &'static str,
}

/// The values that a key accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Whole numbers.
    Number {
        /// The least one.
        min: u64,
        /// The greatest one.
        max: u64,
    },
    /// `true` or `false`. The flag alone means `true`.
    Switch,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Values of this form, such as `HOST:PORT`.
    Form(&'static str),
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { min, max } => write!(f, "{min} to {max}"),
            Self::Switch => f.write_str("true or false"),
            Self::Words([others @ .., last]) if !others.is_empty() => {
                write!(f, "{} or {last}", others.join(", "))
            }
            Self::Words(words) => f.write_str(&words.concat()),
            Self::Form(form) => f.write_str(form),
        }
    }
}

/// The value of a key that no source sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unset {
    /// This value.
    Default(&'static str),
    /// The program does this instead.
    Instead {
        /// The behaviour of the program, as a fragment.
        what: &'static str,
        /// A value for the settings file.
        example: &'static str,
    },
    /// The program does not start.
    Refused {
        /// A value for the settings file.
        example: &'static str,
    },
}

impl Key {
    /// The same key with this default.
    #[must_use]
    pub const fn with_default(self, default: &'static str) -> Self {
        Self { unset: Unset::Default(default), ..self }
    }

    /// The same key without default: if it is unset, the program does `what`.
    #[must_use]
    pub const fn optional(self, example: &'static str, what: &'static str) -> Self {
        Self { unset: Unset::Instead { what, example }, ..self }
    }

    /// The same key with this help, for a program in which it means something else.
    #[must_use]
    pub const fn with_help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// Its default, if it has one.
    pub const fn default(&self) -> Option<&'static str> {
        match self.unset {
            Unset::Default(default) => Some(default),
            Unset::Instead { .. } | Unset::Refused { .. } => None,
        }
    }

    /// The values with their unit, such as `1000 to 600000 ms`.
    pub fn accepted(&self) -> String {
        let Self { values, unit, .. } = self;
        if unit.is_empty() { values.to_string() } else { format!("{values} {unit}") }
    }

    /// The problem of a value that is not accepted, as it follows the key's name in a sentence.
    pub fn must_be(&self, value: &str) -> String {
        format!("is `{value}`, it must be {}", self.accepted())
    }
}

/// A key and the parser of its values.
#[derive(Clone, Copy, Debug)]
pub struct Setting<T> {
    /// The key.
    pub key: Key,
    pub(super) parse: fn(&Key, &str) -> Result<T, String>,
}

impl<T> Setting<T> {
    /// A required setting. The parser's error follows the key's name in a sentence.
    pub const fn parsed(
        name: &'static str,
        values: Values,
        parse: fn(&Key, &str) -> Result<T, String>,
        help: &'static str,
    ) -> Self {
        let key = Key { name, values, unit: "", unset: Unset::Refused { example: "" }, help };
        Self { key, parse }
    }

    /// A setting of words. The parser may assume one of them.
    pub const fn words(
        name: &'static str,
        words: &'static [&'static str],
        parse: fn(&Key, &str) -> Result<T, String>,
        help: &'static str,
    ) -> Self {
        Self::parsed(name, Values::Words(words), parse, help)
    }

    const fn numeric(
        name: &'static str,
        range: &RangeInclusive<u64>,
        parse: fn(&Key, &str) -> Result<T, String>,
        help: &'static str,
    ) -> Self {
        Self::parsed(name, Values::Number { min: *range.start(), max: *range.end() }, parse, help)
    }

    /// The same setting with this unit.
    #[must_use]
    pub const fn unit(self, unit: &'static str) -> Self {
        Self { key: Key { unit, ..self.key }, ..self }
    }

    /// The same setting with this default.
    #[must_use]
    pub const fn default(self, default: &'static str) -> Self {
        Self { key: self.key.with_default(default), ..self }
    }

    /// The same setting without default: if it is unset, the program does `what`.
    #[must_use]
    pub const fn optional(self, example: &'static str, what: &'static str) -> Self {
        Self { key: self.key.optional(example, what), ..self }
    }

    /// The same setting, required.
    #[must_use]
    pub const fn required(self, example: &'static str) -> Self {
        Self { key: Key { unset: Unset::Refused { example }, ..self.key }, ..self }
    }

    /// Parses a value. The error follows the key's name in a sentence.
    pub fn value(&self, text: &str) -> Result<T, String> {
        match self.key.values {
            Values::Words(words) if !words.contains(&text) => Err(self.key.must_be(text)),
            _ => (self.parse)(&self.key, text),
        }
    }
}

impl Setting<u64> {
    /// A whole number.
    pub const fn number(name: &'static str, range: &RangeInclusive<u64>, help: &'static str) -> Self {
        Self::numeric(name, range, values::number, help)
    }
}

impl Setting<usize> {
    /// A whole number of things in memory.
    pub const fn count(name: &'static str, range: &RangeInclusive<u64>, help: &'static str) -> Self {
        let parse = |key: &Key, text: &str| {
            usize::try_from(values::number(key, text)?).map_err(|_| key.must_be(text))
        };
        Self::numeric(name, range, parse, help)
    }
}

impl Setting<Duration> {
    /// A whole number of milliseconds.
    pub const fn milliseconds(name: &'static str, range: &RangeInclusive<u64>, help: &'static str) -> Self {
        let parse = |key: &Key, text: &str| values::number(key, text).map(Duration::from_millis);
        Self::numeric(name, range, parse, help).unit("ms")
    }
}

impl Setting<bool> {
    /// `true` or `false`.
    pub const fn switch(name: &'static str, help: &'static str) -> Self {
        let parse = |key: &Key, text: &str| text.parse().map_err(|_| key.must_be(text));
        Self::parsed(name, Values::Switch, parse, help)
    }
}

impl Setting<SocketAddr> {
    /// An address to listen on.
    pub const fn address(name: &'static str, help: &'static str) -> Self {
        let parse = |_: &Key, text: &str| {
            text.parse()
                .map_err(|_| format!("is `{text}`, it must be an address and a port such as 127.0.0.1:8080"))
        };
        Self::parsed(name, Values::Form("IP:PORT"), parse, help)
    }
}

impl Setting<SecretRef> {
    /// The place of a secret.
    pub const fn secret(name: &'static str, help: &'static str) -> Self {
        Self::parsed(name, Values::Form("env:NAME or file:PATH"), |_, text| SecretRef::read(text), help)
    }
}

impl Setting<PathBuf> {
    /// A path that is not empty.
    pub const fn path(name: &'static str, form: &'static str, help: &'static str) -> Self {
        Self::parsed(name, Values::Form(form), |_, text| values::path(text), help)
    }
}

/// The keys of one subject.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The subject, as a heading.
    pub title: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}
