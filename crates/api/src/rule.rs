//! How Podium treats the parameters of the vendors' APIs.

use serde_json::{Map, Value};

use crate::ApiError;
use crate::field::Field;

/// How Podium treats a parameter.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    /// It is parsed and used.
    Read,
    /// It is checked and then ignored: it changes nothing that a client could rely on.
    Ignored(fn(&Field<'_>) -> Result<(), ApiError>),
    /// It is accepted if its value requests nothing, and rejected with this advice otherwise.
    Unsupported {
        /// Whether a value requests nothing.
        requests_nothing: fn(&Value) -> bool,
        /// The advice: the value that works.
        advice: &'static str,
    },
}

impl Rule {
    /// Whether the parameter must be parsed. Otherwise its value is checked here.
    pub(crate) fn is_read(self, field: &Field<'_>) -> Result<bool, ApiError> {
        match self {
            Self::Read => Ok(true),
            Self::Ignored(check) => check(field).map(|()| false),
            Self::Unsupported { requests_nothing, .. } if requests_nothing(field.value) => Ok(false),
            Self::Unsupported { advice, .. } => Err(field.unsupported(advice)),
        }
    }
}

/// Whether a value is an empty array or object.
pub(crate) fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}
