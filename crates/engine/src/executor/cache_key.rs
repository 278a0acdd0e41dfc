//! Identifies a request for the step cache: a hash of its tenant and everything that could change its answer.

use podium_domain::content::Attachment;
use podium_domain::conversation::Message;
use podium_domain::ids::TenantId;
use podium_domain::policy::Effort;
use podium_domain::pool::{Pool, Worker};
use podium_ports::cache::CacheKey;
use podium_ports::vendor::{AnswerForm, ChatRequest, ReasoningText};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The version of the key's format; changing it invalidates all stored keys.
const KEY_FORM: u8 = 1;

/// The input of the hash. Adding or renaming a field changes the keys of all requests.
#[derive(Serialize)]
struct Keyed<'a> {
    form: u8,
    tenant: &'a TenantId,
    pool: String,
    worker: &'a str,
    vendor: &'a str,
    base_url: &'a str,
    api: &'static str,
    model: &'a str,
    features: Vec<&'static str>,
    output_bytes_max: usize,
    messages: &'a [Message],
    output_tokens_max: u32,
    temperature: Option<f32>,
    top_p: Option<f32>,
    stops: &'a [String],
    seed: Option<u32>,
    effort: Option<&'static str>,
    shows_reasoning: bool,
}

/// The key of a request of `tenant` to `worker`, whose output may have at most that many bytes.
///
/// `None` if the request does not ask for a repeatable answer (a temperature of zero, or a seed), if it asks for more than text, or
/// if it names the URL of an image or a PDF, whose content may change.
pub(super) fn cache_key(
    tenant: &TenantId,
    output_bytes_max: usize,
    pool: &Pool,
    worker: &Worker,
    request: &ChatRequest,
) -> Option<CacheKey> {
    // The request is destructured completely, so that a new field does not compile before it is considered here. The cache hint
    // and the span do not change the answer.
    let ChatRequest {
        messages,
        output_tokens_max,
        temperature,
        top_p,
        stops,
        seed,
        effort,
        reasoning,
        tools,
        answer,
        cache_hint: _,
        trace: _,
    } = request;
    let is_repeatable = seed.is_some() || temperature.is_some_and(|temperature| temperature <= 0.0);
    let names_url = || messages.iter().flat_map(Message::attachments).any(Attachment::is_at_url);
    if !is_repeatable || tools.is_some() || *answer != AnswerForm::Text || names_url() {
        return None;
    }
    let keyed = Keyed {
        form: KEY_FORM,
        tenant,
        pool: pool.version(),
        worker: worker.id.as_str(),
        vendor: worker.vendor.as_str(),
        base_url: &pool.vendor(&worker.vendor)?.base_url,
        api: worker.api.as_str(),
        model: &worker.model,
        features: worker.features.iter().map(|feature| feature.as_str()).collect(),
        output_bytes_max,
        messages,
        output_tokens_max: *output_tokens_max,
        temperature: *temperature,
        top_p: *top_p,
        stops,
        seed: *seed,
        effort: effort.map(Effort::as_str),
        shows_reasoning: *reasoning == ReasoningText::Shown,
    };
    let json = serde_json::to_vec(&keyed).ok()?;
    Some(CacheKey::from_bytes(Sha256::digest(json).into()))
}

#[cfg(test)]
mod tests {
    use podium_domain::content::{Image, Part, Pdf, PdfSource};
    use podium_domain::conversation::Role;
    use podium_ports::vendor::{CallsAtOnce, Tool, ToolChoice, ToolUse};
    use serde_json::json;

    use super::*;

    const POOL: &str = r#"
        schema = 1
        name = "keys"
        version = "1"
        vendors = [{ id = "v", api = "openai-chat", base_url = "http://127.0.0.1:1" }]
        [[workers]]
        id = "w"
        vendor = "v"
        model = "m"
        description = "a worker"
        context_tokens = 8192
        usd_per_million_tokens = { input = 1.0, output = 1.0 }
    "#;

    fn request() -> ChatRequest {
        let messages = vec![Message::new(Role::User, "why?")];
        ChatRequest { temperature: Some(0.0), ..ChatRequest::new(messages, 100) }
    }

    fn key_in(pool: &str, request: &ChatRequest) -> Option<CacheKey> {
        let (pool, tenant) = (Pool::parse(pool).unwrap(), TenantId::new("acme").unwrap());
        cache_key(&tenant, 1000, &pool, &pool.workers()[0], request)
    }

    fn key(request: &ChatRequest) -> Option<CacheKey> {
        key_in(POOL, request)
    }

    #[test]
    fn only_requests_with_a_repeatable_answer_have_a_key() {
        let (hot, seeded) = (Some(0.5), Some(7));
        assert_eq!(key(&ChatRequest { temperature: None, ..request() }), None);
        assert_eq!(key(&ChatRequest { temperature: hot, ..request() }), None);
        assert!(key(&ChatRequest { temperature: hot, seed: seeded, ..request() }).is_some());
        assert!(key(&ChatRequest { temperature: None, seed: seeded, ..request() }).is_some());
        assert!(key(&ChatRequest { temperature: Some(-0.0), ..request() }).is_some());
        let (name, description) = ("look".to_owned(), String::new());
        let tool = Tool { name, description, schema: json!({}), strict: None };
        let (tools, choice, at_once) = (vec![tool], ToolChoice::Auto, CallsAtOnce::One);
        let tools = Some(ToolUse { tools, choice, at_once });
        assert_eq!(key(&ChatRequest { tools, ..request() }), None);
        assert_eq!(key(&ChatRequest { answer: AnswerForm::JsonObject, ..request() }), None);
    }

    #[test]
    fn requests_with_the_url_of_a_file_have_no_key() {
        let asking = |part| {
            let messages = vec![Message::new(Role::User, "what?").with([part])];
            key(&ChatRequest { messages, ..request() })
        };
        let pdf = |source| Part::Pdf(Pdf { name: None, source });
        let url = || "https://example.org/a".to_owned();
        assert_eq!(asking(Part::Image(Image::Url(url()))), None);
        assert_eq!(asking(pdf(PdfSource::Url(url()))), None);
        let data = |base64: &str| asking(pdf(PdfSource::Data(base64.to_owned())));
        assert!(data("JVBERi0=").is_some());
        assert_ne!(data("JVBERi0="), data("JVBERi1x"));
    }

    #[test]
    fn every_input_of_the_answer_changes_the_key() {
        let other = || vec![Message::new(Role::User, "how?")];
        let mut keys = vec![
            key(&request()),
            key(&ChatRequest { messages: other(), ..request() }),
            key(&ChatRequest { output_tokens_max: 99, ..request() }),
            key(&ChatRequest { top_p: Some(0.5), ..request() }),
            key(&ChatRequest { stops: vec!["x".to_owned()], ..request() }),
            key(&ChatRequest { seed: Some(1), ..request() }),
            key(&ChatRequest { seed: Some(2), ..request() }),
            key(&ChatRequest { effort: Some(Effort::Low), ..request() }),
            key(&ChatRequest { reasoning: ReasoningText::Shown, ..request() }),
        ];
        for (from, to) in [
            ("version = \"1\"", "version = \"2\""),
            ("id = \"w\"", "id = \"x\""),
            ("127.0.0.1:1", "127.0.0.1:2"),
            ("model = \"m\"", "model = \"n\""),
            ("context_tokens", "features = [\"temperature\"]\ncontext_tokens"),
        ] {
            keys.push(key_in(&POOL.replace(from, to), &request()));
        }
        let pool = Pool::parse(POOL).unwrap();
        let (tenant, other) = (TenantId::new("acme").unwrap(), TenantId::new("other").unwrap());
        keys.push(cache_key(&other, 1000, &pool, &pool.workers()[0], &request()));
        keys.push(cache_key(&tenant, 999, &pool, &pool.workers()[0], &request()));
        let count = keys.len();
        assert!(keys.iter().all(Option::is_some));
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        assert_eq!(key(&request()), key(&ChatRequest { cache_hint: Some("x".to_owned()), ..request() }));
    }
}
