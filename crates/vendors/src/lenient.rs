//! Reads numbers and fields of answers in any form that servers send. An answer that was paid for is never discarded because
//! a number in it is null, negative or a string.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A number of tokens: an integer, a float, or either as a string. Null, negative numbers, NaN and everything else are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens(Option<u64>);

impl Tokens {
    /// The number; 0 if it is unknown.
    pub(crate) fn count(self) -> u64 {
        self.0.unwrap_or(0)
    }

    /// The number. If it is unknown: `total` minus `others`, at least 0.
    pub(crate) fn or_rest_of(self, total: Self, others: u64) -> u64 {
        self.0.unwrap_or_else(|| total.count().saturating_sub(others))
    }

    /// The number, if it is known.
    pub(crate) fn known(self) -> Option<u64> {
        self.0
    }
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let known = match Value::deserialize(deserializer)? {
            Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
            Value::String(text) => {
                let text = text.trim();
                text.parse().ok().or_else(|| text.parse().ok().and_then(whole))
            }
            _ => None,
        };
        Ok(Self(known))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the sign is checked, `as` saturates"
)]
fn whole(number: f64) -> Option<u64> {
    (number >= 0.0).then_some(number as u64)
}

/// Reads a field. Null and a value of an unexpected type count as missing.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// Reads a field. Null counts as missing.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_tokens_is_read_in_any_form() {
        for (json, known) in [
            ("12", Some(12)),
            ("12.9", Some(12)),
            ("\"12\"", Some(12)),
            ("\" 12.5 \"", Some(12)),
            ("1e30", Some(u64::MAX)),
            ("-3", None),
            ("-0.5", None),
            ("\"-3\"", None),
            ("null", None),
            ("true", None),
            ("\"many\"", None),
            ("\"NaN\"", None),
            ("[1]", None),
            ("{\"tokens\":1}", None),
        ] {
            assert_eq!(serde_json::from_str::<Tokens>(json).unwrap(), Tokens(known), "{json}");
        }
    }

    #[test]
    fn an_unknown_number_is_what_the_total_leaves_for_it() {
        let (unknown, total) = (Tokens(None), Tokens(Some(32)));
        assert_eq!((unknown.or_rest_of(total, 20), Tokens(Some(3)).or_rest_of(total, 20)), (12, 3));
        assert_eq!((unknown.or_rest_of(total, 40), unknown.or_rest_of(unknown, 20)), (0, 0));
    }
}
