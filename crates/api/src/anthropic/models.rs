//! The list of models in Anthropic's format.

use serde::Serialize;

/// A model in the list of models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Model {
    r#type: &'static str,
    id: String,
    display_name: String,
    /// RFC 3339.
    created_at: String,
    lifecycle: &'static str,
}

impl Model {
    /// A model. `created_at` is in RFC 3339.
    pub fn new(id: impl Into<String>, created_at: impl Into<String>) -> Self {
        let (id, created_at) = (id.into(), created_at.into());
        Self { r#type: "model", display_name: id.clone(), id, created_at, lifecycle: "active" }
    }
}

/// A page of the list of models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelPage {
    data: Vec<Model>,
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

impl ModelPage {
    /// All models.
    pub fn of_all(data: Vec<Model>) -> Self {
        let id = |model: Option<&Model>| model.map(|model| model.id.clone());
        Self { has_more: false, first_id: id(data.first()), last_id: id(data.last()), data }
    }
}
