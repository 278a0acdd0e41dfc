//! Compares what a request needs with what the worker accepts, before anything is sent.

use podium_domain::content::{Attachment, Part};
use podium_domain::conversation::Message;
use podium_domain::pool::{Feature, Worker};
use podium_domain::required_features::BLANK_STOP;
use podium_ports::vendor::{
    AnswerForm, CallsAtOnce, ChatRequest, STOPS_MAX, TOOLS_MAX, ToolChoice, VendorError,
};

use crate::errors::ErrorBuilder;
use crate::format;

/// Rejects requests that this worker does not accept (the error names worker and feature), or that no worker accepts.
pub(crate) fn check(
    worker: &Worker,
    request: &ChatRequest,
    errors: &ErrorBuilder,
) -> Result<(), VendorError> {
    let unsupported = |what: &str| Err(ErrorBuilder::unsupported(&worker.id, what));
    if let Some(feature) = features(request).into_iter().find(|feature| !worker.takes(*feature)) {
        return unsupported(feature.as_str());
    }
    if request.effort.is_some() && !worker.takes_effort() {
        return unsupported(Feature::Effort.as_str());
    }
    if !worker.api.ends_at_blanks() && request.stops.iter().any(|stop| stop.trim().is_empty()) {
        return unsupported(BLANK_STOP);
    }
    if let Some(what) = format::of(worker.api).unsupported(worker, request) {
        return unsupported(what);
    }
    bounds(request).map_err(|message| errors.misconfigured(&message))
}

/// The features that the request needs. Hints are excluded, and so is the effort, which two features cover.
fn features(request: &ChatRequest) -> Vec<Feature> {
    let uses_tools = || {
        let mut parts = request.messages.iter().flat_map(|message| &message.parts);
        parts.any(|part| matches!(part, Part::ToolCall(_) | Part::ToolResult(_)))
    };
    let at_once = request.tools.as_ref().map(|tools| tools.at_once);
    [
        (Feature::Temperature, request.temperature.is_some()),
        (Feature::TopP, request.top_p.is_some()),
        (Feature::Stop, !request.stops.is_empty()),
        (Feature::Seed, request.seed.is_some()),
        (Feature::Tools, request.tools.is_some() || uses_tools()),
        (Feature::OneToolCall, at_once == Some(CallsAtOnce::One)),
        (Feature::JsonObject, request.answer == AnswerForm::JsonObject),
        (Feature::JsonSchema, matches!(request.answer, AnswerForm::JsonSchema(_))),
        (Feature::Regex, matches!(request.answer, AnswerForm::Regex(_))),
    ]
    .into_iter()
    .filter_map(|(feature, is_asked)| is_asked.then_some(feature))
    .chain(request.messages.iter().flat_map(Message::attachments).map(Attachment::feature))
    .collect()
}

/// Limits that hold for every worker.
fn bounds(request: &ChatRequest) -> Result<(), String> {
    if request.stops.len() > STOPS_MAX {
        return Err(format!("stops has {} entries, the limit is {STOPS_MAX}", request.stops.len()));
    }
    if let Some(tools) = &request.tools {
        let count = tools.tools.len();
        if !(1..=TOOLS_MAX).contains(&count) {
            return Err(format!("tools has {count} entries, it must have 1 to {TOOLS_MAX}"));
        }
        if let ToolChoice::Named(name) = &tools.choice
            && !tools.tools.iter().any(|tool| tool.name == *name)
        {
            return Err(format!("tool_choice names `{name}`, which is not in tools"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use podium_domain::content::{Image, Pdf, PdfSource};
    use podium_domain::conversation::Role;
    use podium_domain::ids::VendorId;
    use podium_domain::policy::Effort;
    use podium_ports::vendor::{JsonSchema, Tool, ToolUse};
    use serde_json::json;

    use super::*;

    fn worker(api: &str, features: &str) -> Worker {
        podium_testkit::a_worker(api, &format!("features = {features}"))
    }

    fn plain() -> ChatRequest {
        ChatRequest::new(vec![Message::new(Role::User, "why?")], 8192)
    }

    fn tools(choice: ToolChoice) -> ToolUse {
        let tool =
            Tool { name: "look".to_owned(), description: String::new(), schema: json!({}), strict: None };
        ToolUse { tools: vec![tool], choice, at_once: CallsAtOnce::Several }
    }

    fn checked(worker: &Worker, request: &ChatRequest) -> Result<(), String> {
        let errors = ErrorBuilder::new(VendorId::new("v").unwrap(), []);
        check(worker, request, &errors).map_err(|error| {
            assert!(!error.is_retryable());
            error.to_string()
        })
    }

    #[test]
    fn a_missing_feature_is_rejected_by_name() {
        let image = Part::Image(Image::Url("https://example.org/a.png".to_owned()));
        let schema = JsonSchema { name: "s".to_owned(), schema: json!({}), strict: true };
        let schema = AnswerForm::JsonSchema(schema);
        let one = Some(ToolUse { at_once: CallsAtOnce::One, ..tools(ToolChoice::Auto) });
        for (feature, request) in [
            ("temperature", ChatRequest { temperature: Some(0.5), ..plain() }),
            ("top_p", ChatRequest { top_p: Some(0.5), ..plain() }),
            ("stop", ChatRequest { stops: vec!["x".to_owned()], ..plain() }),
            ("seed", ChatRequest { seed: Some(1), ..plain() }),
            ("tools", ChatRequest { tools: Some(tools(ToolChoice::Auto)), ..plain() }),
            ("json_object", ChatRequest { answer: AnswerForm::JsonObject, ..plain() }),
            ("json_schema", ChatRequest { answer: schema, ..plain() }),
            ("regex", ChatRequest { answer: AnswerForm::Regex("a|b".to_owned()), ..plain() }),
            ("effort", ChatRequest { effort: Some(Effort::Low), ..plain() }),
        ] {
            let refused = checked(&worker("openai-chat", "[]"), &request).unwrap_err();
            assert_eq!(refused, format!("worker `w` does not take {feature}"));
            assert_eq!(checked(&worker("openai-chat", &format!("[\"{feature}\"]")), &request), Ok(()));
        }
        let refused = checked(&worker("openai-chat", r#"["tools"]"#), &ChatRequest { tools: one, ..plain() });
        assert_eq!(refused.unwrap_err(), "worker `w` does not take one_tool_call");
        let pdf = |source| Part::Pdf(Pdf { name: None, source });
        let data = pdf(PdfSource::Data("JVBERi0=".to_owned()));
        let url = pdf(PdfSource::Url("https://example.org/a.pdf".to_owned()));
        let checked_with = |lines: &str, part: &Part| {
            let messages = vec![Message::new(Role::User, "what?").with([part.clone()])];
            checked(&podium_testkit::a_worker("openai-chat", lines), &ChatRequest { messages, ..plain() })
        };
        let reads = "modalities = [\"text\", \"pdf\"]";
        assert_eq!(checked_with("", &image).unwrap_err(), "worker `w` does not take image");
        assert_eq!(checked_with("", &data).unwrap_err(), "worker `w` does not take pdf");
        assert_eq!(checked_with(reads, &url).unwrap_err(), "worker `w` does not take pdf by URL");
        assert_eq!(checked_with(reads, &data), Ok(()));
    }

    #[test]
    fn hints_are_never_rejected() {
        let hints = ChatRequest {
            cache_hint: Some("x".to_owned()),
            reasoning: podium_ports::vendor::ReasoningText::Shown,
            ..plain()
        };
        assert_eq!(checked(&worker("gemini", "[]"), &hints), Ok(()));
    }

    #[test]
    fn anthropic_rejects_excluded_combinations() {
        let thinker = worker("anthropic", r#"["effort", "temperature", "top_p", "tools"]"#);
        let hard = ChatRequest { effort: Some(Effort::High), ..plain() };
        assert_eq!(checked(&thinker, &hard), Ok(()));
        for (what, request) in [
            ("temperature together with effort", ChatRequest { temperature: Some(0.5), ..hard.clone() }),
            ("top_p together with effort", ChatRequest { top_p: Some(0.5), ..hard.clone() }),
            ("temperature above 1", ChatRequest { temperature: Some(1.5), ..plain() }),
            (
                "tools that have to be called together with effort",
                ChatRequest { tools: Some(tools(ToolChoice::Required)), ..hard.clone() },
            ),
        ] {
            assert_eq!(checked(&thinker, &request).unwrap_err(), format!("worker `w` does not take {what}"));
        }
        assert_eq!(checked(&thinker, &ChatRequest { temperature: Some(1.0), ..plain() }), Ok(()));
        let stopped = |text: &str| ChatRequest { stops: vec!["END".to_owned(), text.to_owned()], ..plain() };
        let plain = worker("anthropic", r#"["stop"]"#);
        assert_eq!(checked(&plain, &stopped(".")), Ok(()));
        let refused = checked(&plain, &stopped("\n")).unwrap_err();
        assert_eq!(refused, "worker `w` does not take stop that is nothing but blanks");
    }

    #[test]
    fn general_limits_are_enforced_for_every_worker() {
        let worker = worker("openai-chat", r#"["stop", "tools"]"#);
        let stops = ChatRequest { stops: vec!["x".to_owned(); 5], ..plain() };
        assert!(checked(&worker, &stops).unwrap_err().contains("stops has 5 entries, the limit is 4"));
        let none = Some(ToolUse { tools: Vec::new(), ..tools(ToolChoice::Auto) });
        let none = ChatRequest { tools: none, ..plain() };
        assert!(checked(&worker, &none).unwrap_err().contains("tools has 0 entries"));
        let other = ChatRequest { tools: Some(tools(ToolChoice::Named("other".to_owned()))), ..plain() };
        assert!(checked(&worker, &other).unwrap_err().contains("tool_choice names `other`"));
    }
}
