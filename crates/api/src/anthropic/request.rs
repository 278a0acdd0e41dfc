//! Converts a request for a message into a request for a run.

use podium_domain::answer::{AnswerForm, JsonSchema};
use podium_domain::conversation::{Conversation, Message};
use podium_domain::policy::{Effort, Policy};
use podium_domain::request::RunRequest;
use podium_domain::sampling::{Sampling, TOP_P_MAX};
use podium_domain::stops::{STOPS_MAX, Stops};
use podium_domain::token_estimate::{message_tokens, text_tokens};
use serde::Serialize;
use serde_json::Value;

use super::content::{messages, path_of, system};
use super::parameters::rule;
use super::tools::ToolsDraft;
use crate::field::{Field, missing, unknown};
use crate::json;
use crate::podium_object::bound;
use crate::{ApiError, ErrorCode, ModelName, NewRun, UnknownModel};

/// The highest temperature of the Messages API.
const TEMPERATURE_MAX: f32 = 1.0;
/// The ending by which clients ask for a context of a million tokens. Podium's models have one context each.
const LONG_CONTEXT: &str = "[1m]";
/// The name of a schema, which the Messages API has no field for.
const SCHEMA_NAME: &str = "answer";
/// The budgets of thinking up to which an effort is low, medium and high.
const BUDGETS_MAX: [(u32, Effort); 3] =
    [(4_096, Effort::Low), (16_384, Effort::Medium), (32_768, Effort::High)];

/// A request for a message.
#[derive(Clone, Debug, PartialEq)]
pub struct MessagesRequest {
    /// The run. It has no request id yet, which is in a header.
    pub new_run: NewRun,
    /// Whether the answer is streamed.
    pub stream: bool,
}

/// The response to a request to count tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenCount {
    /// The estimated tokens of the prompt.
    input_tokens: u64,
    /// The model, which must be served.
    #[serde(skip)]
    pub model: ModelName,
}

impl MessagesRequest {
    /// Parses the body of a request. Reports the first problem only.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let draft = Draft::parse(body)?;
        let model = draft.model.ok_or_else(|| missing("model"))?;
        let tokens_max = draft.tokens_max.ok_or_else(|| missing("max_tokens"))?;
        let messages = draft.messages.ok_or_else(|| missing("messages"))?;
        let messages = draft.system.into_iter().chain(messages).collect();
        let conversation = Conversation::new(messages).map_err(|e| {
            let path = path_of(body, &e);
            let message = if path == "messages" { e.to_string() } else { format!("`{path}`: {e}") };
            ApiError::on_field(ErrorCode::InvalidValue, path, message)
        })?;
        let mut policy =
            Policy::new(model.tier(), draft.effort.or(draft.thinking.effort).unwrap_or_default());
        if let Some(podium) = &draft.podium {
            bound(&Field::new("podium", podium), &mut policy)?;
        }
        let Draft { sampling, answer, stops, stream, tools, .. } = draft;
        let tools = tools.finish()?;
        let (answer_tokens_max, shows_reasoning) = (Some(tokens_max), draft.thinking.is_shown);
        let plain = RunRequest::new(conversation, policy);
        let request =
            RunRequest { answer_tokens_max, sampling, answer, stops, tools, shows_reasoning, ..plain };
        Ok(Self { new_run: NewRun { request_id: None, model, request }, stream })
    }
}

impl TokenCount {
    /// Estimates the tokens of a prompt from its bytes. The body is that of a request for a message; `max_tokens` may be missing,
    /// and the last message may be of any role.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let draft = Draft::parse(body)?;
        let model = draft.model.ok_or_else(|| missing("model"))?;
        let messages = draft.messages.ok_or_else(|| missing("messages"))?;
        let messages: Vec<_> = draft.system.into_iter().chain(messages).collect();
        let schema = match &draft.answer {
            AnswerForm::JsonSchema(form) => form.schema.to_string().len(),
            _ => 0,
        };
        let tools = draft.tools.finish()?.map_or(0, |tools| tools.bytes());
        Ok(Self { input_tokens: message_tokens(&messages) + text_tokens(schema + tools), model })
    }

    /// The response body.
    pub fn to_json(&self) -> String {
        json::text_of(self)
    }
}

#[derive(Default)]
struct Draft {
    model: Option<ModelName>,
    system: Option<Message>,
    messages: Option<Vec<Message>>,
    tokens_max: Option<u32>,
    sampling: Sampling,
    answer: AnswerForm,
    stops: Stops,
    tools: ToolsDraft,
    stream: bool,
    /// The effort of `output_config`, which counts more than `thinking`.
    effort: Option<Effort>,
    /// The parameter `thinking`.
    thinking: Thinking,
    /// The object `podium`.
    podium: Option<Value>,
}

impl Draft {
    fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let body = json::parse_object(body)?;
        let mut draft = Self::default();
        for (name, value) in &body {
            let rule = rule(name).ok_or_else(|| unknown(name))?;
            let field = Field::new(name, value);
            if !value.is_null() && rule.is_read(&field)? {
                draft.read(&field)?;
            }
        }
        Ok(draft)
    }

    fn read(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        match field.path.as_str() {
            "model" => self.model = Some(model(field)?),
            "messages" => self.messages = Some(messages(field)?),
            "system" => self.system = Some(system(field)?),
            "max_tokens" => self.tokens_max = Some(field.integer(1, u32::MAX)?),
            "stop_sequences" => self.stops = stops(field)?,
            "stream" => self.stream = field.boolean()?,
            "temperature" => self.sampling.temperature = Some(field.fraction(TEMPERATURE_MAX)?),
            "top_p" => self.sampling.top_p = Some(field.fraction(TOP_P_MAX)?),
            "thinking" => self.thinking = thinking(field)?,
            "output_config" => self.read_output(field)?,
            "output_format" => self.answer = answer_form(field)?,
            "tools" => self.tools.tools(field)?,
            "tool_choice" => self.tools.choice(field)?,
            // It changes the bounds of the tier, so it is parsed once the tier is known.
            "podium" => self.podium = Some(field.value.clone()),
            other => return Err(unknown(other)),
        }
        Ok(())
    }

    fn read_output(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        let output = field.object()?;
        field.only(output, &["effort", "format", "task_budget"])?;
        if let Some(budget) = field.member(output, "task_budget") {
            return Err(budget.unsupported("set `podium.cost_max_nano_usd` instead"));
        }
        if let Some(effort) = field.member(output, "effort") {
            self.effort = Effort::from_name(effort.one_of(&Effort::ALL.map(Effort::as_str))?);
        }
        if let Some(format) = field.member(output, "format") {
            self.answer = answer_form(&format)?;
        }
        Ok(())
    }
}

/// Parses `output_config` alone.
#[cfg(test)]
pub(super) fn check_output(field: &Field<'_>) -> Result<(), ApiError> {
    Draft::default().read_output(field)
}

fn model(field: &Field<'_>) -> Result<ModelName, ApiError> {
    let name = field.string()?;
    let unknown = |e: UnknownModel| ApiError::on_field(ErrorCode::ModelNotFound, "model", e.to_string());
    name.strip_suffix(LONG_CONTEXT).unwrap_or(name).parse().map_err(unknown)
}

fn stops(field: &Field<'_>) -> Result<Stops, ApiError> {
    let texts = field.array_of(STOPS_MAX)?;
    let texts = texts.map(|text| text.string().map(str::to_owned)).collect::<Result<_, _>>()?;
    Stops::new(texts).map_err(|e| {
        ApiError::on_field(ErrorCode::InvalidValue, &*field.path, format!("`{}`: {e}", field.path))
    })
}

/// How a worker shall think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Thinking {
    /// The effort that it amounts to; none if it leaves the choice to the model.
    effort: Option<Effort>,
    /// Whether the client is shown what the worker thinks.
    is_shown: bool,
}

pub(super) fn thinking(field: &Field<'_>) -> Result<Thinking, ApiError> {
    let thinking = field.object()?;
    field.only(thinking, &["type", "budget_tokens", "display"])?;
    let is_shown = match field.member(thinking, "display") {
        Some(display) => display.one_of(&["summarized", "omitted", "updates"])? != "omitted",
        None => true,
    };
    let kind = field.required(thinking, "type")?;
    match kind.one_of(&["enabled", "disabled", "adaptive", "between_tools"])? {
        "enabled" => {
            let budget = field.required(thinking, "budget_tokens")?.integer(1, u32::MAX)?;
            let fitting = BUDGETS_MAX.into_iter().find(|(budget_max, _)| budget <= *budget_max);
            let effort = Some(fitting.map_or(Effort::XHigh, |(_, effort)| effort));
            Ok(Thinking { effort, is_shown })
        }
        "disabled" => Ok(Thinking { effort: Some(Effort::None), is_shown: false }),
        _ => Ok(Thinking { effort: None, is_shown }),
    }
}

fn answer_form(field: &Field<'_>) -> Result<AnswerForm, ApiError> {
    let format = field.object()?;
    field.only(format, &["type", "schema"])?;
    field.required(format, "type")?.one_of(&["json_schema"])?;
    let schema = field.required(format, "schema")?;
    // Not strict: some vendors accept only a few schemas strictly, and would reject others.
    let form = JsonSchema { name: SCHEMA_NAME.to_owned(), schema: schema.value.clone(), strict: false };
    let form = AnswerForm::JsonSchema(form);
    form.check().map_err(|e| {
        let message = e.to_string().replacen("json_schema.schema", &schema.path, 1);
        ApiError::on_field(ErrorCode::InvalidValue, &*schema.path, message)
    })?;
    Ok(form)
}

#[cfg(test)]
mod tests;
