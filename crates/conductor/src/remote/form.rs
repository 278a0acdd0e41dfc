//! Output constraints that make a model write a valid plan. The output is still parsed and checked like any other text: an
//! endpoint may accept a constraint and ignore it.

use std::fmt::Write as _;

use podium_domain::conversation::Message;
use podium_domain::policy::Policy;
use podium_domain::pool::{Feature, Pool, Worker};
use podium_ports::vendor::{AnswerForm, JsonSchema};
use serde::Deserialize;
use serde_json::json;

/// How the model is made to write the three lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanForm {
    /// By the prompt alone.
    Prompted,
    /// With a regular expression: worker numbers, list lengths and access lists are valid; free text may precede them.
    Regex,
    /// With a JSON schema: all members exist and the worker numbers are valid.
    Json,
}

impl PlanForm {
    /// The strictest constraint that the model's endpoint supports.
    pub(super) fn of(model: &Worker) -> Self {
        if model.takes(Feature::Regex) {
            Self::Regex
        } else if model.takes(Feature::JsonSchema) {
            Self::Json
        } else {
            Self::Prompted
        }
    }

    /// The response format of the request.
    pub(super) fn answer(self, pool: &Pool, policy: &Policy, may_keep_answer: bool) -> AnswerForm {
        match self {
            Self::Prompted => AnswerForm::Text,
            Self::Regex => {
                AnswerForm::Regex(regex(&allowed(pool, policy), policy.steps_max, may_keep_answer))
            }
            Self::Json => json_form(&allowed(pool, policy)),
        }
    }

    /// Appends instructions for the JSON form to the last turn.
    pub(super) fn describe(self, turns: &mut [Message]) {
        if self == Self::Json
            && let Some(last) = turns.last_mut()
        {
            last.text.push_str(
                "\n\nWrite it as one JSON object with the members reasoning (a string), model_id, subtasks and access_list, in \
                 this order; in access_list write the numbers of all earlier steps in place of \"all\".",
            );
        }
    }
}

/// The reasoning in a plan of the JSON form; `None` for other texts.
pub(super) fn json_reasoning(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Reasoned {
        reasoning: String,
    }
    let reasoned: Reasoned = serde_json::from_str(text.trim()).ok()?;
    Some(reasoned.reasoning)
}

/// Positions of the workers that a plan may use.
fn allowed(pool: &Pool, policy: &Policy) -> Vec<usize> {
    let workers = pool.workers().iter().enumerate();
    workers.filter(|(_, worker)| policy.allows(&worker.id)).map(|(position, _)| position).collect()
}

/// Uses only what every vendor's schemas support, so lengths are not bounded. Members are written in this order.
fn json_form(allowed: &[usize]) -> AnswerForm {
    let list = |items| json!({ "type": "array", "items": items });
    let schema = json!({
        "type": "object",
        "properties": {
            "reasoning": { "type": "string" },
            "model_id": list(json!({ "type": "integer", "enum": allowed })),
            "subtasks": list(json!({ "type": "string" })),
            "access_list": list(list(json!({ "type": "integer" }))),
        },
        "required": ["reasoning", "model_id", "subtasks", "access_list"],
        "additionalProperties": false,
    });
    AnswerForm::JsonSchema(JsonSchema { name: "workflow".to_owned(), schema, strict: true })
}

/// Free text without brackets, then the three lists, for each allowed length.
fn regex(allowed: &[usize], steps_max: u16, may_keep_answer: bool) -> String {
    let numbers = |numbers: &[usize]| {
        let numbers: Vec<_> = numbers.iter().map(usize::to_string).collect();
        format!("({})", numbers.join("|"))
    };
    let model = numbers(allowed);
    let subtask = r#""([^"\\\n]|\\["\\n])+""#;
    let access = |index: usize| {
        if index == 0 {
            return r"\[\]".to_owned();
        }
        let earlier: Vec<usize> = (0..index).collect();
        let seen = numbers(&earlier);
        format!(r#"(\[\]|\["all"\]|\[{seen}(, {seen}){{0,{}}}\])"#, index - 1)
    };
    let of_length = |length: usize| {
        let models = vec![model.as_str(); length].join(", ");
        let subtasks = vec![subtask; length].join(", ");
        let access: Vec<_> = (0..length).map(access).collect();
        let access = access.join(", ");
        format!(r"model_id = \[{models}\]\nsubtasks = \[{subtasks}\]\naccess_list = \[{access}\]")
    };
    let shortest = usize::from(!may_keep_answer);
    let lengths: Vec<_> = (shortest..=usize::from(steps_max)).map(of_length).collect();
    let mut regex = String::from(r"[^\[\]]*");
    let _ = write!(regex, "({})", lengths.join("|"));
    regex
}
