//! The texts of a run as attributes of its spans, for the tenants that the settings name: messages in the form of OpenTelemetry's
//! conventions (version 1.41), and `input.value` and `output.value` for Phoenix and Langfuse.

use std::collections::BTreeSet;

use opentelemetry::KeyValue;
use podium_domain::content::ToolCall;
use podium_domain::conversation::Message;
use podium_domain::ids::TenantId;
use podium_domain::run::{Attempt, AttemptOutcome, Round, Run, StepRef, StepRun, ToolTurn};
use serde_json::{Value, json};

/// The tenants whose traces have content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentOf {
    /// All.
    AllTenants,
    /// These.
    Tenants(BTreeSet<TenantId>),
}

/// The tenants whose traces have content, and the bound of each text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentCapture {
    /// The tenants.
    pub of: ContentOf,
    /// Most bytes of one text. A longer one is cut, and says so.
    pub text_bytes_max: usize,
}

impl ContentCapture {
    /// The texts of a tenant's runs, if its traces have any.
    pub(crate) fn texts_of(&self, tenant: &TenantId) -> Option<Texts> {
        let is_named = match &self.of {
            ContentOf::AllTenants => true,
            ContentOf::Tenants(tenants) => tenants.contains(tenant),
        };
        is_named.then_some(Texts { bytes_max: self.text_bytes_max })
    }
}

/// Writes texts into attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texts {
    bytes_max: usize,
}

impl Texts {
    /// The question and the answer of a run.
    pub(crate) fn of_run(self, run: &Run) -> Vec<KeyValue> {
        let question = run.spec().request.conversation.question();
        self.values(&question, run.answer())
    }

    /// The plan of a round, if the attempt made it.
    pub(crate) fn of_plan(self, round: &Round, attempt: &Attempt) -> Vec<KeyValue> {
        let Some(plan) = round.plan().filter(|_| attempt.outcome == AttemptOutcome::Accepted) else {
            return Vec::new();
        };
        let steps = plan.steps().iter().map(|step| {
            let sees: Vec<_> = step.access.as_slice().iter().map(|seen| seen.get()).collect();
            json!({"worker": step.worker.as_str(), "subtask": self.cut(&step.subtask), "sees": sees})
        });
        let plan = Value::Array(steps.collect()).to_string();
        vec![KeyValue::new("output.value", plan), KeyValue::new("output.mime_type", "application/json")]
    }

    /// The subtask and the output of a step.
    pub(crate) fn of_step(self, run: &Run, place: StepRef, step: &StepRun) -> Vec<KeyValue> {
        let subtask = run.step(place.round, place.step).map_or("", |step| step.subtask.as_str());
        self.values(subtask, step.output.as_deref())
    }

    /// The messages of an attempt: the subtask, and the text and the calls that it gave.
    pub(crate) fn of_attempt(
        self,
        run: &Run,
        place: StepRef,
        step: &StepRun,
        attempt: &Attempt,
    ) -> Vec<KeyValue> {
        let subtask = run.step(place.round, place.step).map_or("", |step| step.subtask.as_str());
        let asked = json!([{"role": "user", "parts": [self.text(subtask)]}]);
        let mut attributes = vec![KeyValue::new("gen_ai.input.messages", asked.to_string())];
        let turn = step.turns.iter().find(|turn| turn.claim == attempt.claim);
        let given = match turn {
            Some(turn) => Some(self.answer(&turn.text, &turn.calls, "tool_call")),
            None if attempt.outcome == AttemptOutcome::Accepted => {
                step.output.as_deref().map(|output| self.answer(output, &step.calls, "stop"))
            }
            None => None,
        };
        attributes.extend(given.map(|given| KeyValue::new("gen_ai.output.messages", given.to_string())));
        attributes
    }

    /// The arguments of a tool call, and its result. Results name a call by the id that the client got.
    pub(crate) fn of_call(self, turn: &ToolTurn, call: &ToolCall, client_id: &str) -> Vec<KeyValue> {
        let mut attributes = vec![KeyValue::new("gen_ai.tool.call.arguments", self.cut(&call.arguments))];
        let result =
            turn.results.iter().flat_map(Message::results).find(|result| result.call_id == client_id);
        attributes
            .extend(result.map(|result| KeyValue::new("gen_ai.tool.call.result", self.cut(&result.output))));
        attributes
    }

    fn values(self, input: &str, output: Option<&str>) -> Vec<KeyValue> {
        let mut attributes = vec![
            KeyValue::new("input.value", self.cut(input)),
            KeyValue::new("input.mime_type", "text/plain"),
        ];
        if let Some(output) = output {
            attributes.push(KeyValue::new("output.value", self.cut(output)));
            attributes.push(KeyValue::new("output.mime_type", "text/plain"));
        }
        attributes
    }

    fn answer(self, text: &str, calls: &[ToolCall], finish_reason: &str) -> Value {
        let mut parts: Vec<_> = (!text.is_empty()).then(|| self.text(text)).into_iter().collect();
        parts.extend(calls.iter().map(|call| {
            json!({"type": "tool_call", "id": call.id, "name": call.name, "arguments": self.cut(&call.arguments)})
        }));
        json!([{"role": "assistant", "parts": parts, "finish_reason": finish_reason}])
    }

    fn text(self, text: &str) -> Value {
        json!({"type": "text", "content": self.cut(text)})
    }

    /// The text, or its beginning with the number of bytes that are missing.
    fn cut(self, text: &str) -> String {
        if text.len() <= self.bytes_max {
            return text.to_owned();
        }
        let kept = &text[..text.floor_char_boundary(self.bytes_max)];
        format!("{kept}… ({} bytes left out)", text.len() - kept.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let texts = Texts { bytes_max: 4 };
        assert_eq!(texts.cut("four"), "four");
        assert_eq!(texts.cut("abcäöü"), "abc… (6 bytes left out)");
    }

    #[test]
    fn only_the_named_tenants_have_content() {
        let tenant = |name| TenantId::new(name).unwrap();
        let some = ContentCapture { of: ContentOf::Tenants([tenant("acme")].into()), text_bytes_max: 100 };
        assert!(some.texts_of(&tenant("acme")).is_some() && some.texts_of(&tenant("other")).is_none());
        let all = ContentCapture { of: ContentOf::AllTenants, text_bytes_max: 100 };
        assert!(all.texts_of(&tenant("other")).is_some());
    }
}
