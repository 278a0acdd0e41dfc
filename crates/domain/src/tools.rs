//! The tools that a client offers, and how they may be called. The client executes the calls, not Podium.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::answer::{SCHEMA_DEPTH_MAX, is_within};

/// Most tools of a request, as in `OpenAI`'s API.
pub const TOOLS_MAX: usize = 128;
/// Most characters of a tool's name: Anthropic's limit, and twice `OpenAI`'s.
pub const TOOL_NAME_CHARS_MAX: usize = 128;
/// Most bytes of all tools of a request: names, descriptions and schemas.
pub const TOOLS_BYTES_MAX: usize = 512 << 10;

/// The tools of a request, and how they may be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    /// At least one and at most [`TOOLS_MAX`], with different names.
    pub tools: Vec<Tool>,
    /// Whether a tool must be called, and which.
    #[serde(default, skip_serializing_if = "ToolChoice::is_auto")]
    pub choice: ToolChoice,
    /// How many calls one answer may contain.
    #[serde(default, skip_serializing_if = "CallsAtOnce::is_several")]
    pub at_once: CallsAtOnce,
}

/// A tool that a worker may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// 1 to [`TOOL_NAME_CHARS_MAX`] letters, digits, `_` and `-`.
    pub name: String,
    /// Tells the model what the tool does; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The JSON schema of its arguments, which are an object.
    pub schema: Value,
    /// Whether the arguments must follow the schema exactly, at vendors that can enforce it. `None`: the vendor's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

impl Tool {
    /// The schema of a tool without parameters.
    pub fn no_parameters() -> Value {
        json!({ "type": "object", "properties": {} })
    }

    fn bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.schema.to_string().len()
    }
}

/// Which tool must be called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The worker decides.
    #[default]
    Auto,
    /// None; the tools are listed because earlier turns called them.
    None,
    /// At least one.
    Required,
    /// The tool with that name.
    Named(String),
}

impl ToolChoice {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }

    /// Whether the answer must contain a call.
    pub const fn is_forced(&self) -> bool {
        matches!(self, Self::Required | Self::Named(_))
    }
}

/// How many calls one answer may contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallsAtOnce {
    /// Any number.
    #[default]
    Several,
    /// At most one.
    One,
}

impl CallsAtOnce {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_several(&self) -> bool {
        *self == Self::Several
    }
}

/// Why the tools of a request are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolsError {
    /// No tool, or more than [`TOOLS_MAX`].
    #[error("tools has {count} entries, it must have 1 to {TOOLS_MAX}")]
    Count {
        /// The number of tools.
        count: usize,
    },
    /// A name has an invalid length or character.
    #[error(
        "the name of tool {index} must have 1 to {TOOL_NAME_CHARS_MAX} characters, each a letter, a digit, `_` or `-`"
    )]
    Name {
        /// The position of the tool, from 0.
        index: usize,
    },
    /// Two tools have the same name.
    #[error("tool {index} has the name `{name}` of an earlier tool; names must differ")]
    SameName {
        /// The position of the second tool, from 0.
        index: usize,
        /// The name.
        name: String,
    },
    /// A schema is not an object.
    #[error("the parameters of tool {index} must be a JSON schema, which is an object")]
    NoObject {
        /// The position of the tool, from 0.
        index: usize,
    },
    /// A schema nests deeper than [`SCHEMA_DEPTH_MAX`].
    #[error("the parameters of tool {index} nest deeper than the limit of {SCHEMA_DEPTH_MAX}")]
    TooDeep {
        /// The position of the tool, from 0.
        index: usize,
    },
    /// More than [`TOOLS_BYTES_MAX`].
    #[error("tools hold {bytes} bytes, the limit is {TOOLS_BYTES_MAX}")]
    TooLong {
        /// The number of bytes.
        bytes: usize,
    },
    /// The choice names a tool that is not offered.
    #[error("tool_choice names `{name}`, which is not in tools")]
    UnknownChoice {
        /// The name.
        name: String,
    },
}

impl ToolsError {
    /// The position of the invalid tool, from 0; `None` if the error concerns all of them or the choice.
    pub const fn index(&self) -> Option<usize> {
        match self {
            Self::Name { index }
            | Self::SameName { index, .. }
            | Self::NoObject { index }
            | Self::TooDeep { index } => Some(*index),
            Self::Count { .. } | Self::TooLong { .. } | Self::UnknownChoice { .. } => None,
        }
    }
}

impl ToolUse {
    /// Checks every bound.
    pub fn check(&self) -> Result<(), ToolsError> {
        if !(1..=TOOLS_MAX).contains(&self.tools.len()) {
            return Err(ToolsError::Count { count: self.tools.len() });
        }
        let mut names = BTreeSet::new();
        for (index, tool) in self.tools.iter().enumerate() {
            if !is_name(&tool.name) {
                return Err(ToolsError::Name { index });
            }
            if !names.insert(tool.name.as_str()) {
                return Err(ToolsError::SameName { index, name: tool.name.clone() });
            }
            if !tool.schema.is_object() {
                return Err(ToolsError::NoObject { index });
            }
            // Checked before the schema is written, because writing recurses as deep as the schema.
            if !is_within(&tool.schema, SCHEMA_DEPTH_MAX) {
                return Err(ToolsError::TooDeep { index });
            }
        }
        let bytes = self.bytes();
        if bytes > TOOLS_BYTES_MAX {
            return Err(ToolsError::TooLong { bytes });
        }
        match &self.choice {
            ToolChoice::Named(name) if !names.contains(name.as_str()) => {
                Err(ToolsError::UnknownChoice { name: name.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The size of all tools in bytes, which is part of each prompt that offers them.
    pub fn bytes(&self) -> usize {
        self.tools.iter().map(Tool::bytes).sum()
    }

    /// Whether an answer may contain calls.
    pub fn may_call(&self) -> bool {
        self.choice != ToolChoice::None
    }
}

/// Whether the text is a valid name of a tool.
pub fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=TOOL_NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Tool {
        Tool {
            name: name.to_owned(),
            description: String::new(),
            schema: Tool::no_parameters(),
            strict: None,
        }
    }

    fn offering(tools: Vec<Tool>) -> ToolUse {
        ToolUse { tools, choice: ToolChoice::Auto, at_once: CallsAtOnce::Several }
    }

    #[test]
    fn invalid_tools_are_refused_with_their_position() {
        let named = |name: &str| offering(vec![tool("a"), tool(name)]).check();
        assert_eq!(named("look_up-2"), Ok(()));
        assert_eq!(named(&"n".repeat(128)), Ok(()));
        for name in ["", "a b", "é", "x.y", &"n".repeat(129)] {
            assert_eq!(named(name), Err(ToolsError::Name { index: 1 }), "{name}");
        }
        assert_eq!(named("a"), Err(ToolsError::SameName { index: 1, name: "a".to_owned() }));
        assert_eq!(offering(Vec::new()).check(), Err(ToolsError::Count { count: 0 }));
        let many = (0..129).map(|number| tool(&format!("t{number}"))).collect();
        assert_eq!(offering(many).check(), Err(ToolsError::Count { count: 129 }));
        let list = Tool { schema: json!([]), ..tool("a") };
        assert_eq!(offering(vec![list]).check(), Err(ToolsError::NoObject { index: 0 }));
        let deep = (0..65).fold(json!(1), |inner, _| json!({ "a": inner }));
        let deep = Tool { schema: deep, ..tool("a") };
        assert_eq!(offering(vec![deep]).check(), Err(ToolsError::TooDeep { index: 0 }));
        let long = Tool { description: "x".repeat(TOOLS_BYTES_MAX), ..tool("a") };
        assert!(matches!(offering(vec![long]).check(), Err(ToolsError::TooLong { .. })));
    }

    #[test]
    fn a_choice_names_an_offered_tool() {
        let choosing = |name: &str| ToolUse {
            choice: ToolChoice::Named(name.to_owned()),
            ..offering(vec![tool("a"), tool("b")])
        };
        assert_eq!(choosing("b").check(), Ok(()));
        assert_eq!(choosing("c").check(), Err(ToolsError::UnknownChoice { name: "c".to_owned() }));
    }

    #[test]
    fn the_stored_form_leaves_defaults_out() {
        let stored = r#"{"tools":[{"name":"a","schema":{"type":"object","properties":{}}}]}"#;
        let tools = offering(vec![tool("a")]);
        assert_eq!(serde_json::to_string(&tools).unwrap(), stored);
        assert_eq!(serde_json::from_str::<ToolUse>(stored).unwrap(), tools);
        let choice = ToolChoice::Named("a".to_owned());
        let strict = vec![Tool { strict: Some(true), ..tool("a") }];
        let forced = ToolUse { tools: strict, choice, at_once: CallsAtOnce::One };
        let stored = serde_json::to_string(&forced).unwrap();
        assert_eq!(serde_json::from_str::<ToolUse>(&stored).unwrap(), forced);
    }
}
