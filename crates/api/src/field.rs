//! Reads one JSON value, with errors that name its path and the expected value.

use serde_json::{Map, Value};

use crate::{ApiError, ErrorCode};

/// Most characters of a value that an error repeats.
const SHOWN_CHARS_MAX: usize = 60;

/// A value and its path, such as `messages[2].content`.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    pub(crate) path: String,
    pub(crate) value: &'a Value,
}

impl<'a> Field<'a> {
    pub(crate) fn new(path: impl Into<String>, value: &'a Value) -> Self {
        Self { path: path.into(), value }
    }

    pub(crate) fn string(&self) -> Result<&'a str, ApiError> {
        self.value.as_str().ok_or_else(|| self.must_be("a string"))
    }

    /// A string of at most `bytes_max`.
    pub(crate) fn string_within(&self, bytes_max: usize) -> Result<&'a str, ApiError> {
        let text = self.string()?;
        if text.len() > bytes_max {
            let message = format!("`{}` has {} bytes, the limit is {bytes_max}", self.path, text.len());
            return Err(ApiError::on_field(ErrorCode::InvalidValue, &self.path, message));
        }
        Ok(text)
    }

    pub(crate) fn boolean(&self) -> Result<bool, ApiError> {
        self.value.as_bool().ok_or_else(|| self.must_be("true or false"))
    }

    /// A whole number from `min` to `max`.
    pub(crate) fn integer(&self, min: u32, max: u32) -> Result<u32, ApiError> {
        self.long_integer(min.into(), max.into()).map(|number| u32::try_from(number).unwrap_or(max))
    }

    /// A whole number of up to 64 bits from `min` to `max`.
    pub(crate) fn long_integer(&self, min: u64, max: u64) -> Result<u64, ApiError> {
        let within = self.value.as_u64().filter(|number| (min..=max).contains(number));
        within.ok_or_else(|| self.must_be(&format!("a whole number from {min} to {max}")))
    }

    pub(crate) fn number(&self, min: f64, max: f64) -> Result<f64, ApiError> {
        let within = self.value.as_f64().filter(|number| (min..=max).contains(number));
        within.ok_or_else(|| self.must_be(&format!("a number from {min} to {max}")))
    }

    /// A number from 0 to `max`, in the precision that models use.
    pub(crate) fn fraction(&self, max: f32) -> Result<f32, ApiError> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is within bounds, and no model needs more precision"
        )]
        self.number(0.0, max.into()).map(|number| number as f32)
    }

    /// A seed of 32 bits. A longer whole number is always mapped to the same seed.
    pub(crate) fn seed(&self) -> Result<u32, ApiError> {
        let signed = || self.value.as_i64().map(i64::cast_unsigned);
        let bits = self.value.as_u64().or_else(signed).ok_or_else(|| self.must_be("a whole number"))?;
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let (high, low) = ((bits >> 32) as u32, bits as u32);
        Ok(high ^ low)
    }

    /// The elements of an array, in order. An element's path is built when the element is read.
    pub(crate) fn array(&self) -> Result<impl ExactSizeIterator<Item = Field<'a>>, ApiError> {
        let values = self.value.as_array().ok_or_else(|| self.must_be("an array"))?;
        let at = |(index, value)| Field::new(format!("{}[{index}]", self.path), value);
        Ok(values.iter().enumerate().map(at))
    }

    /// The elements of an array that may have at most `max`.
    pub(crate) fn array_of(&self, max: usize) -> Result<impl ExactSizeIterator<Item = Field<'a>>, ApiError> {
        let elements = self.array()?;
        if elements.len() > max {
            let message = format!("`{}` has {} entries, the limit is {max}", self.path, elements.len());
            return Err(ApiError::on_field(ErrorCode::InvalidValue, &self.path, message));
        }
        Ok(elements)
    }

    pub(crate) fn object(&self) -> Result<&'a Map<String, Value>, ApiError> {
        self.value.as_object().ok_or_else(|| self.must_be("an object"))
    }

    /// The member `key` of an object. A null counts as missing.
    pub(crate) fn member(&self, object: &'a Map<String, Value>, key: &str) -> Option<Field<'a>> {
        let value = object.get(key).filter(|value| !value.is_null())?;
        Some(Field::new(format!("{}.{key}", self.path), value))
    }

    /// The member `key` of an object, which must not be missing.
    pub(crate) fn required(&self, object: &'a Map<String, Value>, key: &str) -> Result<Field<'a>, ApiError> {
        self.member(object, key).ok_or_else(|| missing(&format!("{}.{key}", self.path)))
    }

    /// Rejects members with other names than these.
    pub(crate) fn only(&self, object: &Map<String, Value>, names: &[&str]) -> Result<(), ApiError> {
        #[cfg(test)]
        known_members::note(&self.path, names);
        match object.keys().find(|name| !names.contains(&name.as_str())) {
            Some(name) => Err(unknown(&format!("{}.{name}", self.path))),
            None => Ok(()),
        }
    }

    /// A string that is one of these names.
    pub(crate) fn one_of(&self, names: &[&str]) -> Result<&'a str, ApiError> {
        let name = self.value.as_str().filter(|name| names.contains(name));
        name.ok_or_else(|| {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            self.must_be(&format!("one of {}", names.join(", ")))
        })
    }

    /// The error for a value that is not `expected`.
    pub(crate) fn must_be(&self, expected: &str) -> ApiError {
        let message = format!("`{}` must be {expected} (got {})", self.path, shown(self.value));
        ApiError::on_field(ErrorCode::InvalidValue, &self.path, message)
    }

    /// The error for a value that the API has and Podium does not support.
    pub(crate) fn unsupported(&self, what_works: &str) -> ApiError {
        let message = format!("`{}` is not supported here: {what_works}", self.path);
        ApiError::on_field(ErrorCode::UnsupportedParameter, &self.path, message)
    }
}

/// The error for an unknown name.
pub(crate) fn unknown(path: &str) -> ApiError {
    let shown: String = path.chars().take(SHOWN_CHARS_MAX).collect();
    ApiError::on_field(ErrorCode::UnknownParameter, &*shown, format!("unknown parameter `{shown}`"))
}

/// The error for a missing value.
pub(crate) fn missing(path: &str) -> ApiError {
    ApiError::on_field(ErrorCode::MissingParameter, path, format!("`{path}` is missing"))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
        // The quotes distinguish it from a number.
        Value::String(text) if text.chars().count() <= SHOWN_CHARS_MAX => format!("`{value}`"),
        Value::String(_) => "a long string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The members that parsers know, by the paths of their objects. Tests compare them with the document.
#[cfg(test)]
pub(crate) mod known_members {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};

    type Known = BTreeMap<String, BTreeSet<String>>;

    thread_local! {
        static KNOWN: RefCell<Known> = const { RefCell::new(Known::new()) };
    }

    pub(super) fn note(path: &str, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        KNOWN.with_borrow_mut(|known| known.insert(path.to_owned(), names));
    }

    pub(crate) fn clear() {
        KNOWN.take();
    }

    pub(crate) fn take() -> Known {
        KNOWN.take()
    }
}
