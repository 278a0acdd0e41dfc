//! How Podium treats the parameters of the vendors' APIs.

use serde_json::{Map, Value, json};

use crate::ApiError;
use crate::field::Field;

/// A parameter of a request. The tables of parameters are also the source of the `OpenAPI` document.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) rule: Rule,
}

/// The JSON type of a parameter. All may be null, which counts as missing.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Several types.
    Any,
    Text,
    Flag,
    Integer {
        min: u32,
    },
    Number {
        min: i32,
        max: i32,
    },
    Object,
    Array,
    OneOf(&'static [&'static str]),
}

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

impl Parameter {
    pub(crate) const fn read(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, rule: Rule::Read }
    }

    pub(crate) const fn ignored(
        name: &'static str,
        kind: Kind,
        check: fn(&Field<'_>) -> Result<(), ApiError>,
    ) -> Self {
        Self { name, kind, rule: Rule::Ignored(check) }
    }

    pub(crate) const fn unsupported(
        name: &'static str,
        requests_nothing: fn(&Value) -> bool,
        advice: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Any, rule: Rule::Unsupported { requests_nothing, advice } }
    }

    /// Its JSON schema.
    pub(crate) fn schema(&self) -> Value {
        let mut schema = self.kind.schema();
        if let (Rule::Ignored(_), Some(schema)) = (self.rule, schema.as_object_mut()) {
            schema.insert("description".to_owned(), "Checked and ignored.".into());
        }
        schema
    }
}

impl Kind {
    fn schema(self) -> Value {
        match self {
            Self::Any => json!({}),
            Self::Text => json!({"type": ["string", "null"]}),
            Self::Flag => json!({"type": ["boolean", "null"]}),
            Self::Integer { min } => json!({"type": ["integer", "null"], "minimum": min}),
            Self::Number { min, max } => json!({"type": ["number", "null"], "minimum": min, "maximum": max}),
            Self::Object => json!({"type": ["object", "null"]}),
            Self::Array => json!({"type": ["array", "null"]}),
            Self::OneOf(names) => {
                let names: Vec<Value> = names.iter().map(|name| json!(name)).chain([Value::Null]).collect();
                json!({ "enum": names })
            }
        }
    }
}

/// The rule for a parameter; none if the name is unknown.
pub(crate) fn rule_of(parameters: &[Parameter], name: &str) -> Option<Rule> {
    parameters.iter().find(|parameter| parameter.name == name).map(|parameter| parameter.rule)
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

/// Checks a parameter that is ignored.
pub(crate) fn any_text(field: &Field<'_>) -> Result<(), ApiError> {
    field.string().map(drop)
}

/// As [`any_text`].
pub(crate) fn any_object(field: &Field<'_>) -> Result<(), ApiError> {
    field.object().map(drop)
}
