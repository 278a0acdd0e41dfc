//! The tools of a request that its client does not know as plain functions. Workers know functions only.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::tools::NAME_CHARS_MAX;

/// The digits that tell long names apart.
const HASH_CHARS: usize = 12;

/// How the client of a request knows the tools that workers know as functions. It is stored with the run. Processes of other versions
/// read it, so a new field needs a default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ToolForms {
    /// By the names that workers know. Plain functions are not listed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    forms: BTreeMap<String, ToolForm>,
    /// The descriptions of the namespaces.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    namespaces: BTreeMap<String, String>,
    /// The types of tools that workers are not offered.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    left_out: BTreeSet<String>,
}

/// A tool as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToolForm {
    /// The name within its namespace.
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) kind: ToolKind,
}

/// The kind of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolKind {
    /// Its argument is a JSON object.
    Function,
    /// Its argument is a text. `format` is the parameter of that name.
    Custom {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<Value>,
    },
    /// The client's search for further tools.
    Search,
}

impl ToolForms {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The form of the tool that workers know by this name; `None` for a plain function.
    pub(crate) fn of(&self, offered: &str) -> Option<&ToolForm> {
        self.forms.get(offered)
    }

    pub(crate) fn insert(&mut self, offered: &str, form: ToolForm) {
        self.forms.insert(offered.to_owned(), form);
    }

    /// Adds the forms of `other` for tools without one, as far as `is_free` admits their names.
    pub(crate) fn add_missing(&mut self, other: Self, is_free: impl Fn(&str) -> bool) {
        for (offered, form) in other.forms {
            if is_free(&offered) {
                self.forms.entry(offered).or_insert(form);
            }
        }
    }

    /// The names that workers know for the tools with this name, or for all tools of a namespace.
    pub(crate) fn named(&self, is_named: impl Fn(&ToolForm) -> bool) -> Vec<&str> {
        self.forms.iter().filter(|(_, form)| is_named(form)).map(|(offered, _)| offered.as_str()).collect()
    }

    pub(crate) fn describe_namespace(&mut self, name: &str, description: &str) {
        self.namespaces.insert(name.to_owned(), description.to_owned());
    }

    pub(crate) fn description_of_namespace(&self, name: &str) -> &str {
        self.namespaces.get(name).map_or("", String::as_str)
    }

    /// Notes that a tool is not offered, because Podium does not run tools of this type.
    pub(crate) fn leave_out(&mut self, kind: &str) {
        self.left_out.insert(kind.to_owned());
    }

    pub(crate) const fn left_out(&self) -> &BTreeSet<String> {
        &self.left_out
    }
}

/// The name by which workers know a tool. A name that is too long for vendors ends with a hash of the whole.
pub(crate) fn offered_name(namespace: Option<&str>, name: &str) -> String {
    let Some(namespace) = namespace else { return name.to_owned() };
    let mut whole = format!("{namespace}__{name}");
    if whole.len() <= NAME_CHARS_MAX {
        return whole;
    }
    let hash = Sha256::digest(&whole);
    whole.truncate(whole.floor_char_boundary(NAME_CHARS_MAX - HASH_CHARS - 1));
    whole.push('_');
    for byte in &hash[..HASH_CHARS / 2] {
        let _ = write!(whole, "{byte:02x}");
    }
    whole
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_namespaces_fit_the_limit_of_vendors() {
        assert_eq!(offered_name(None, "look"), "look");
        assert_eq!(offered_name(Some("crm"), "look"), "crm__look");
        let long = offered_name(Some(&"n".repeat(64)), "look");
        assert_eq!(long.len(), NAME_CHARS_MAX);
        assert!(podium_domain::tools::is_name(&long), "{long}");
        assert_ne!(long, offered_name(Some(&"n".repeat(64)), "find"));
    }

    #[test]
    fn forms_keep_their_stored_form() {
        let mut forms = ToolForms::default();
        let custom = ToolKind::Custom { format: Some(json!({"type": "text"})) };
        forms.insert("patch", ToolForm { name: "patch".into(), namespace: None, kind: custom });
        let kind = ToolKind::Function;
        forms.insert("crm__look", ToolForm { name: "look".into(), namespace: Some("crm".into()), kind });
        forms.describe_namespace("crm", "Customers.");
        forms.leave_out("web_search");
        let stored = json!({
            "forms": {
                "patch": {"name": "patch", "kind": {"custom": {"format": {"type": "text"}}}},
                "crm__look": {"name": "look", "namespace": "crm", "kind": "function"},
            },
            "namespaces": {"crm": "Customers."},
            "left_out": ["web_search"],
        });
        assert_eq!(serde_json::to_value(&forms).unwrap(), stored);
        assert_eq!(serde_json::from_value::<ToolForms>(stored).unwrap(), forms);
        assert_eq!(serde_json::from_value::<ToolForms>(json!({})).unwrap(), ToolForms::default());
    }
}
