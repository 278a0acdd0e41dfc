//! A checked request for a run, from either API.

use std::collections::BTreeSet;

use podium_domain::answer::{AnswerForm, JsonSchema};
use podium_domain::content::{Image, Part, Pdf};
use podium_domain::conversation::{Conversation, ConversationError, MESSAGES_MAX, Message, PARTS_MAX, Role};
use podium_domain::ids::{RequestId, WorkerId};
use podium_domain::money::Cost;
use podium_domain::policy::{
    BrokenAnswer, Effort, FailedStep, Policy, PoolRule, StepCaching, StepTools, Tier, WorkersAllowed,
};
use podium_domain::pool::WORKERS_MAX;
use podium_domain::request::RunRequest;
use podium_domain::sampling::Sampling;
use podium_domain::stops::Stops;

use crate::image::{of_bytes, of_url};
use crate::tools::{call_part, result_part, tools};
use crate::v1;
use crate::{ApiError, ErrorCode, ModelName, Problems, pdf};

/// A request for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRun {
    /// The client's own name for the request.
    pub request_id: Option<RequestId>,
    /// The model.
    pub model: ModelName,
    /// The question, and the parameters of its answer.
    pub request: RunRequest,
}

impl TryFrom<v1::CreateRunRequest> for NewRun {
    type Error = ApiError;

    /// Checks every field and reports the first dozen problems at once. The numbers of messages and parts are checked before
    /// any of them is parsed.
    fn try_from(request: v1::CreateRunRequest) -> Result<Self, ApiError> {
        Self::after(|_| Ok(Vec::new()), request)
    }
}

impl NewRun {
    /// As the conversion of a request without a conversation: `earlier` returns the messages that stand before those of the request,
    /// which it gets.
    pub fn after(
        earlier: impl FnOnce(&[Message]) -> Result<Vec<Message>, ApiError>,
        request: v1::CreateRunRequest,
    ) -> Result<Self, ApiError> {
        let mut problems = Problems::default();
        let model = model(&request.model)?;
        let request_id = request_id(request.request_id, &mut problems);
        let conversation = match messages(request.messages, &mut problems) {
            Some(sent) => {
                let mut all = earlier(&sent)?;
                all.extend(sent);
                Conversation::new(all).map_err(|e| problems.add("messages", e.to_string())).ok()
            }
            None => None,
        };
        let effort = effort(request.effort, &mut problems);
        let policy = policy(model.tier(), effort, request.policy.unwrap_or_default(), &mut problems);
        if request.answer_tokens_max == Some(0) {
            problems.add("answer_tokens_max", "answer_tokens_max must be at least 1 (got 0)");
        }
        let sampling = sampling(request.sampling.unwrap_or_default(), &mut problems);
        let answer = answer(request.response_format, &mut problems);
        let (choice, parallel) = (request.tool_choice, request.parallel_tool_calls);
        let tools = tools(request.tools, choice, parallel, &mut problems);
        let stops = Stops::new(request.stop).map_err(|e| problems.add("stop", e.to_string()));
        match (conversation, stops, problems.is_empty()) {
            (Some(conversation), Ok(stops), true) => {
                let (answer_tokens_max, shows_reasoning) =
                    (request.answer_tokens_max, request.show_reasoning);
                let plain = RunRequest::new(conversation, policy);
                let request = RunRequest {
                    answer_tokens_max,
                    sampling,
                    answer,
                    stops,
                    tools,
                    shows_reasoning,
                    ..plain
                };
                Ok(Self { request_id, model, request })
            }
            _ => Err(ApiError::on_fields(problems)),
        }
    }
}

fn model(name: &str) -> Result<ModelName, ApiError> {
    if name.is_empty() {
        return Ok(ModelName::of_tier(Tier::Ultra));
    }
    name.parse().map_err(|e: crate::UnknownModel| {
        ApiError::on_field(ErrorCode::ModelNotFound, "model", e.to_string())
    })
}

fn request_id(id: String, problems: &mut Problems) -> Option<RequestId> {
    if id.is_empty() {
        return None;
    }
    RequestId::new(id).map_err(|e| problems.add("request_id", e.to_string())).ok()
}

/// The messages of a conversation that a client stores.
pub fn stored_messages(sent: Vec<v1::Message>) -> Result<Vec<Message>, ApiError> {
    let mut problems = Problems::default();
    messages(sent, &mut problems).ok_or_else(|| ApiError::on_fields(problems))
}

fn messages(messages: Vec<v1::Message>, problems: &mut Problems) -> Option<Vec<Message>> {
    if let Err(e) = counts(&messages) {
        problems.add("messages", e.to_string());
        return None;
    }
    let known = problems.len();
    let mut read = Vec::with_capacity(messages.len());
    for (index, message) in messages.into_iter().enumerate() {
        let role = match message.role() {
            v1::Role::System => Role::System,
            v1::Role::User => Role::User,
            v1::Role::Assistant => Role::Assistant,
            v1::Role::Unspecified => {
                let field = format!("messages[{index}].role");
                problems.add(&field, format!("{field} must be system, user or assistant"));
                if problems.is_full() {
                    return None;
                }
                continue;
            }
        };
        let mut parts = Vec::with_capacity(message.parts.len());
        for (position, sent) in message.parts.into_iter().enumerate() {
            match part(role, sent) {
                Ok(part) => parts.push(part),
                Err(must_be) => {
                    let field = format!("messages[{index}].parts[{position}]");
                    problems.add(&field, format!("{field} must be {must_be}"));
                    if problems.is_full() {
                        return None;
                    }
                }
            }
        }
        read.push(Message::new(role, message.text).with(parts));
    }
    (problems.len() == known).then_some(read)
}

/// The message with the results of a run's tool calls.
pub fn tool_results(results: Vec<v1::ToolResult>) -> Result<Message, ApiError> {
    let mut problems = Problems::default();
    if results.len() > PARTS_MAX {
        let many = format!("results has {} entries, the limit is {PARTS_MAX}", results.len());
        problems.add("results", many);
        return Err(ApiError::on_fields(problems));
    }
    let mut parts = Vec::with_capacity(results.len());
    for (index, result) in results.into_iter().enumerate() {
        match result_part(result, image, file) {
            Ok(part) => parts.push(part),
            Err(must_be) => {
                let field = format!("results[{index}]");
                problems.add(&field, format!("{field} must be {must_be}"));
            }
        }
    }
    if problems.is_empty() {
        Ok(Message::new(Role::User, "").with(parts))
    } else {
        Err(ApiError::on_fields(problems))
    }
}

/// Checks the numbers of messages and parts.
fn counts(messages: &[v1::Message]) -> Result<(), ConversationError> {
    if messages.len() > MESSAGES_MAX {
        return Err(ConversationError::TooMany { count: messages.len() });
    }
    match messages.iter().map(|message| message.parts.len()).find(|count| *count > PARTS_MAX) {
        Some(count) => Err(ConversationError::TooManyParts { count }),
        None => Ok(()),
    }
}

/// A part of a message; an error says what it must be.
fn part(role: Role, part: v1::Part) -> Result<Part, String> {
    match part.part {
        Some(v1::part::Part::Text(text)) => Ok(Part::Text(text)),
        Some(v1::part::Part::Image(_) | v1::part::Part::File(_)) if role != Role::User => {
            Err("text: only user messages may have images and files".to_owned())
        }
        Some(v1::part::Part::Image(sent)) => image(sent).map(Part::Image),
        Some(v1::part::Part::File(sent)) => file(sent).map(Part::Pdf),
        Some(v1::part::Part::ToolCall(call)) if role == Role::Assistant => call_part(call),
        Some(v1::part::Part::ToolCall(_)) => {
            Err("text: only assistant messages may have tool calls".to_owned())
        }
        Some(v1::part::Part::ToolResult(result)) if role == Role::User => result_part(result, image, file),
        Some(v1::part::Part::ToolResult(_)) => {
            Err("text: only user messages may have tool results".to_owned())
        }
        None => Err("text, an image, a file, a tool call or a tool result".to_owned()),
    }
}

fn image(image: v1::Image) -> Result<Image, String> {
    match image.image {
        Some(v1::image::Image::Url(url)) => of_url(&url),
        Some(v1::image::Image::Data(v1::ImageData { media_type, data })) => of_bytes(&media_type, &data),
        None => Err("an image with a url or data".to_owned()),
    }
}

fn file(v1::File { name, source }: v1::File) -> Result<Pdf, String> {
    let name = pdf::name_of(&name).map_err(|must_be| format!("a file whose name has {must_be}"))?;
    match source {
        Some(v1::file::Source::Url(url)) => pdf::of_address(&url, name),
        Some(v1::file::Source::Data(v1::FileData { media_type, data })) => {
            pdf::of_bytes(&media_type, &data, name)
        }
        None => Err("a file with a url or data".to_owned()),
    }
}

fn answer(wanted: Option<v1::ResponseFormat>, problems: &mut Problems) -> AnswerForm {
    use v1::response_format::Format;
    let Some(wanted) = wanted else { return AnswerForm::Text };
    let form = match wanted.format {
        Some(Format::JsonObject(v1::JsonObject {})) => AnswerForm::JsonObject,
        Some(Format::JsonSchema(v1::JsonSchema { name, schema, strict })) => {
            // Invalid JSON becomes null, which the check below rejects because it is not an object.
            let schema = serde_json::from_str(&schema).unwrap_or_default();
            AnswerForm::JsonSchema(JsonSchema { name, schema, strict })
        }
        None => {
            problems.add("response_format", "response_format must be json_object or json_schema");
            return AnswerForm::Text;
        }
    };
    if let Err(e) = form.check() {
        problems.add(&format!("response_format.{}", e.field()), e.to_string());
    }
    form
}

fn effort(effort: i32, problems: &mut Problems) -> Effort {
    match v1::Effort::try_from(effort) {
        Ok(v1::Effort::Unspecified | v1::Effort::Medium) => Effort::Medium,
        Ok(v1::Effort::Low) => Effort::Low,
        Ok(v1::Effort::High) => Effort::High,
        Ok(v1::Effort::Xhigh) => Effort::XHigh,
        Ok(v1::Effort::None) => Effort::None,
        Ok(v1::Effort::Minimal) => Effort::Minimal,
        Ok(v1::Effort::Max) => Effort::Max,
        Err(_) => {
            let names = Effort::ALL.map(Effort::as_str).join(", ");
            problems.add("effort", format!("effort must be one of {names} (got {effort})"));
            Effort::Medium
        }
    }
}

fn policy(tier: Tier, effort: Effort, wanted: v1::Policy, problems: &mut Problems) -> Policy {
    let mut policy = Policy::new(tier, effort);
    // A number that does not fit 16 bits is far out of bounds; the check below rejects it.
    let narrow = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    policy.steps_max = wanted.steps_max.map_or(policy.steps_max, narrow);
    policy.rounds_max = wanted.rounds_max.map_or(policy.rounds_max, narrow);
    policy.attempts_max = wanted.attempts_max.unwrap_or(policy.attempts_max);
    policy.deadline_ms = wanted.deadline_ms.unwrap_or(policy.deadline_ms);
    policy.cost_max = wanted.cost_max_nano_usd.map(Cost::from_nano_usd);
    let bytes = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    policy.output_bytes_max = wanted.output_bytes_max.map_or(policy.output_bytes_max, bytes);
    match v1::Fallback::try_from(wanted.fallback) {
        Ok(v1::Fallback::Unspecified) => {}
        Ok(v1::Fallback::None) => policy.fallback = PoolRule::None,
        Ok(v1::Fallback::Pool) => policy.fallback = PoolRule::Pool,
        Err(_) => {
            let fallback = wanted.fallback;
            problems.add("policy.fallback", format!("fallback must be none or pool (got {fallback})"));
        }
    }
    match v1::BrokenAnswer::try_from(wanted.broken_answer) {
        Ok(v1::BrokenAnswer::Unspecified) => {}
        Ok(v1::BrokenAnswer::Elsewhere) => policy.broken_answer = BrokenAnswer::Elsewhere,
        Ok(v1::BrokenAnswer::Again) => policy.broken_answer = BrokenAnswer::Again,
        Err(_) => {
            let broken = wanted.broken_answer;
            let must_be = format!("broken_answer must be elsewhere or again (got {broken})");
            problems.add("policy.broken_answer", must_be);
        }
    }
    match v1::FailedStep::try_from(wanted.failed_step) {
        Ok(v1::FailedStep::Unspecified) => {}
        Ok(v1::FailedStep::Replan) => policy.failed_step = FailedStep::Replan,
        Ok(v1::FailedStep::Continue) => policy.failed_step = FailedStep::Continue,
        Ok(v1::FailedStep::Fail) => policy.failed_step = FailedStep::Fail,
        Err(_) => {
            let failed = wanted.failed_step;
            let must_be = format!("failed_step must be replan, continue or fail (got {failed})");
            problems.add("policy.failed_step", must_be);
        }
    }
    match v1::StepCaching::try_from(wanted.step_cache) {
        Ok(v1::StepCaching::Unspecified) => {}
        Ok(v1::StepCaching::Off) => policy.step_cache = StepCaching::Off,
        Ok(v1::StepCaching::Exact) => policy.step_cache = StepCaching::Exact,
        Err(_) => {
            let caching = wanted.step_cache;
            problems.add("policy.step_cache", format!("step_cache must be off or exact (got {caching})"));
        }
    }
    match v1::StepTools::try_from(wanted.tools) {
        Ok(v1::StepTools::Unspecified) => {}
        Ok(v1::StepTools::All) => policy.tools = StepTools::All,
        Ok(v1::StepTools::Last) => policy.tools = StepTools::Last,
        Err(_) => {
            let tools = wanted.tools;
            problems.add("policy.tools", format!("tools must be all or last (got {tools})"));
        }
    }
    policy.turns_max = wanted.turns_max.map_or(policy.turns_max, narrow);
    policy.suspended_ms_max = wanted.suspended_ms_max.unwrap_or(policy.suspended_ms_max);
    policy.shows_steps = wanted.show_steps.unwrap_or(policy.shows_steps);
    if let Err(e) = policy.check() {
        problems.add(&format!("policy.{}", e.field), e.to_string());
    }
    if let Some(allowed) = workers_allowed(wanted.workers_allowed, problems) {
        policy.workers_allowed = allowed;
    }
    policy
}

/// The permitted workers that a request names. None if it names no worker, too many, or an invalid name.
fn workers_allowed(names: Vec<String>, problems: &mut Problems) -> Option<WorkersAllowed> {
    let workers = names.len();
    if workers > WORKERS_MAX {
        let message = format!("policy.workers_allowed has {workers} names, the limit is {WORKERS_MAX}");
        problems.add("policy.workers_allowed", message);
    } else if workers > 0 {
        match names.into_iter().map(WorkerId::new).collect::<Result<BTreeSet<_>, _>>() {
            Ok(ids) => return Some(WorkersAllowed::Only(ids)),
            Err(e) => problems.add("policy.workers_allowed", e.to_string()),
        }
    }
    None
}

fn sampling(wanted: v1::Sampling, problems: &mut Problems) -> Sampling {
    let v1::Sampling { temperature, top_p, seed } = wanted;
    let sampling = Sampling { temperature, top_p, seed };
    if let Err(e) = sampling.check() {
        problems.add(&format!("sampling.{}", e.field), e.to_string());
    }
    sampling
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(text: &str) -> v1::CreateRunRequest {
        let message =
            v1::Message { role: v1::Role::User.into(), text: text.to_owned(), ..Default::default() };
        v1::CreateRunRequest { messages: vec![message], ..Default::default() }
    }

    #[test]
    fn a_bare_question_gets_the_defaults_of_ultra() {
        let new_run = NewRun::try_from(asking("why?")).unwrap();
        assert_eq!(new_run.model, ModelName::of_tier(Tier::Ultra));
        assert_eq!(new_run.request.policy, Policy::new(Tier::Ultra, Effort::Medium));
        assert_eq!(new_run.request.conversation.question(), "why?");
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let mut request = asking(" ");
        request.request_id = "has a blank".to_owned();
        request.effort = 99;
        request.answer_tokens_max = Some(0);
        request.sampling = Some(v1::Sampling { temperature: Some(2.5), ..Default::default() });
        request.policy = Some(v1::Policy {
            steps_max: Some(100_000),
            fallback: 9,
            broken_answer: 9,
            failed_step: 9,
            step_cache: 9,
            workers_allowed: vec!["no such name!".to_owned()],
            ..Default::default()
        });
        let error = NewRun::try_from(request).unwrap_err();
        let fields: Vec<_> = error.fields.iter().map(|f| f.field.as_str()).collect();
        let expected = [
            "request_id",
            "messages",
            "effort",
            "policy.fallback",
            "policy.broken_answer",
            "policy.failed_step",
            "policy.step_cache",
            "policy.steps_max",
            "policy.workers_allowed",
            "answer_tokens_max",
            "sampling.temperature",
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn an_empty_stop_sequence_is_rejected() {
        let request = v1::CreateRunRequest { stop: vec![String::new()], ..asking("why?") };
        assert_eq!(NewRun::try_from(request).unwrap_err().fields[0].field, "stop");
    }

    #[test]
    fn too_many_messages_are_rejected_before_parsing() {
        let mut request = asking("why?");
        request.messages = vec![v1::Message::default(); 2_000_000];
        let error = NewRun::try_from(request).unwrap_err();
        assert_eq!(error.message, "messages has 2000000 entries, the limit is 1000");
        let mut request = asking("why?");
        request.messages[0].parts = vec![v1::Part::default(); 300_000];
        let error = NewRun::try_from(request).unwrap_err();
        assert_eq!(error.message, "a message has 300000 parts, the limit is 256");
        let mut request = asking("why?");
        let workers_allowed = vec!["!".to_owned(); 300_000];
        request.policy = Some(v1::Policy { workers_allowed, ..Default::default() });
        assert!(NewRun::try_from(request).unwrap_err().message.contains("300000 names, the limit is"));
    }

    #[test]
    fn a_request_with_many_wrong_messages_lists_a_dozen_problems() {
        let mut request = asking("why?");
        request.messages = vec![v1::Message::default(); 1000];
        let error = NewRun::try_from(request).unwrap_err();
        assert_eq!(error.fields.len(), 12);
        assert!(error.message.ends_with("; and more") && error.message.len() < 2048, "{}", error.message);
    }

    #[test]
    fn an_error_names_the_message_without_a_role() {
        let mut request = asking("why?");
        request.messages.insert(0, v1::Message { text: "?".to_owned(), ..Default::default() });
        let error = NewRun::try_from(request).unwrap_err();
        assert_eq!(error.param(), Some("messages[0].role"));
    }

    #[test]
    fn a_requests_bounds_replace_those_of_the_effort() {
        let mut request = asking("why?");
        request.policy = Some(v1::Policy {
            steps_max: Some(3),
            deadline_ms: Some(1000),
            fallback: v1::Fallback::None.into(),
            broken_answer: v1::BrokenAnswer::Again.into(),
            failed_step: v1::FailedStep::Continue.into(),
            step_cache: v1::StepCaching::Off.into(),
            cost_max_nano_usd: Some(5),
            workers_allowed: vec!["a".to_owned()],
            ..Default::default()
        });
        let policy = NewRun::try_from(request).unwrap().request.policy;
        assert_eq!((policy.steps_max, policy.deadline_ms), (3, 1000));
        assert_eq!(policy.fallback, PoolRule::None);
        assert_eq!(policy.step_cache, StepCaching::Off);
        assert_eq!(policy.broken_answer, BrokenAnswer::Again);
        assert_eq!(policy.failed_step, FailedStep::Continue);
        assert_eq!(v1::Policy::from(&policy).failed_step(), v1::FailedStep::Continue);
        assert_eq!(v1::Policy::from(&policy).broken_answer(), v1::BrokenAnswer::Again);
        assert_eq!(policy.cost_max, Some(Cost::from_nano_usd(5)));
        assert_eq!(policy.workers_allowed, WorkersAllowed::Only([WorkerId::new("a").unwrap()].into()));
    }

    fn with_parts(role: v1::Role, parts: Vec<Option<v1::part::Part>>) -> v1::CreateRunRequest {
        let parts = parts.into_iter().map(|part| v1::Part { part }).collect();
        let mut request = asking("What is this?");
        request.messages.insert(0, v1::Message { role: role.into(), text: "Look:".to_owned(), parts });
        request
    }

    fn image(image: v1::image::Image) -> v1::part::Part {
        v1::part::Part::Image(v1::Image { image: Some(image) })
    }

    fn data(media_type: &str, data: &[u8]) -> v1::image::Image {
        v1::image::Image::Data(v1::ImageData { media_type: media_type.to_owned(), data: data.to_vec() })
    }

    #[test]
    fn images_and_texts_convert_in_both_directions() {
        let url = v1::image::Image::Url("https://example.org/a.png".to_owned());
        let words = Some(v1::part::Part::Text("and".to_owned()));
        let request =
            with_parts(v1::Role::User, vec![Some(image(url)), words, Some(image(data("image/png", b"PNG")))]);
        let sent = request.messages.clone();
        let conversation = NewRun::try_from(request).unwrap().request.conversation;
        assert_eq!(conversation.attachments().count(), 2);
        assert_eq!(conversation.messages().iter().map(v1::Message::from).collect::<Vec<_>>(), sent);
    }

    #[test]
    fn an_error_names_the_invalid_part_of_a_message() {
        let file = v1::image::Image::Url("file:///etc/passwd".to_owned());
        let wrong = vec![Some(image(file)), None, Some(image(data("image/bmp", b"BM")))];
        let error = NewRun::try_from(with_parts(v1::Role::User, wrong)).unwrap_err();
        let fields: Vec<_> = error.fields.iter().map(|f| f.field.as_str()).collect();
        assert_eq!(fields, ["messages[0].parts[0]", "messages[0].parts[1]", "messages[0].parts[2]"]);
        let theirs = with_parts(v1::Role::Assistant, vec![Some(image(data("image/png", b"PNG")))]);
        assert!(NewRun::try_from(theirs).unwrap_err().message.contains("only user messages may have images"));
    }

    fn file(name: &str, source: v1::file::Source) -> v1::part::Part {
        v1::part::Part::File(v1::File { name: name.to_owned(), source: Some(source) })
    }

    fn file_data(media_type: &str, data: &[u8]) -> v1::file::Source {
        v1::file::Source::Data(v1::FileData { media_type: media_type.to_owned(), data: data.to_vec() })
    }

    #[test]
    fn files_convert_in_both_directions() {
        let url = || v1::file::Source::Url("https://example.org/a.pdf".to_owned());
        let parts = [file("", url()), file("a.pdf", file_data("application/pdf", b"%PDF-"))];
        let request = with_parts(v1::Role::User, parts.map(Some).into());
        let sent = request.messages.clone();
        let conversation = NewRun::try_from(request).unwrap().request.conversation;
        assert_eq!(conversation.attachments().count(), 2);
        assert_eq!(conversation.messages().iter().map(v1::Message::from).collect::<Vec<_>>(), sent);
        let v1::part::Part::File(file) = file("b", url()) else { unreachable!() };
        let result = v1::ToolResult { call_id: "c".to_owned(), files: vec![file], ..Default::default() };
        let read = tool_results(vec![result.clone()]).unwrap();
        let shown = v1::Message::from(&read).parts.remove(0).part;
        assert_eq!(shown, Some(v1::part::Part::ToolResult(result)));
    }

    #[test]
    fn an_error_says_what_a_file_must_be() {
        for (source, said) in [
            (Some(file("a", file_data("text/plain", b"a"))), "a file of type application/pdf"),
            (Some(file("a", file_data("application/pdf", b""))), "a file that is not empty"),
            (Some(file("a", v1::file::Source::Url("file:///a".to_owned()))), "a URL that begins with"),
            (Some(file("a\nb", file_data("application/pdf", b"%PDF-"))), "a file whose name has at most 500"),
            (Some(v1::part::Part::File(v1::File::default())), "a file with a url or data"),
        ] {
            let error = NewRun::try_from(with_parts(v1::Role::User, vec![source])).unwrap_err();
            assert_eq!(error.param(), Some("messages[0].parts[0]"));
            assert!(error.message.contains(said), "{error}");
        }
        let theirs = Some(file("a", file_data("application/pdf", b"%PDF-")));
        let error = NewRun::try_from(with_parts(v1::Role::Assistant, vec![theirs])).unwrap_err();
        assert!(error.message.contains("only user messages may have images and files"), "{error}");
    }

    #[test]
    fn the_response_format_is_parsed_and_checked() {
        use v1::response_format::Format;
        let wanting = |format| v1::CreateRunRequest {
            response_format: Some(v1::ResponseFormat { format }),
            ..asking("why?")
        };
        let form = |format| NewRun::try_from(wanting(Some(format))).map(|new_run| new_run.request.answer);
        let schema = |name: &str, schema: &str| {
            Format::JsonSchema(v1::JsonSchema {
                name: name.to_owned(),
                schema: schema.to_owned(),
                strict: true,
            })
        };
        assert_eq!(form(Format::JsonObject(v1::JsonObject {})).unwrap(), AnswerForm::JsonObject);
        let read = form(schema("s", r#"{"type":"object"}"#)).unwrap();
        let expected =
            JsonSchema { name: "s".into(), schema: serde_json::json!({"type": "object"}), strict: true };
        assert_eq!(read, AnswerForm::JsonSchema(expected));
        for (format, field) in [
            (None, "response_format"),
            (Some(schema("", "{}")), "response_format.json_schema.name"),
            (Some(schema("s", "{")), "response_format.json_schema.schema"),
            (Some(schema("s", "[]")), "response_format.json_schema.schema"),
        ] {
            assert_eq!(NewRun::try_from(wanting(format)).unwrap_err().param(), Some(field));
        }
    }
}
