//! Stored outputs of workers, reused when the same worker gets an identical request: same text, same parameters.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::conversation::Message;
use podium_domain::ids::TenantId;
use podium_domain::pool::{Pool, Worker};
use podium_domain::run::FinishReason;
use podium_domain::usage::Usage;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::BoxError;
use crate::vendor::{AnswerForm, ChatRequest, ReasoningText};

/// The version of the key's form; changing it invalidates all stored keys.
const KEY_FORM: u8 = 1;

/// Stores outputs for a limited time.
///
/// It may drop any entry at any time. Its calls end soon, and a caller that gets an error continues without the cache. Concurrent
/// identical requests are not joined: each one that finds no entry calls its worker.
#[async_trait]
pub trait StepCache: Send + Sync {
    /// The stored output of a request, if there is one.
    async fn look_up(&self, key: &CacheKey) -> Result<Option<CachedOutput>, CacheError>;

    /// Stores the output of a request, unless it is longer than [`CacheOptions::entry_bytes_max`].
    async fn keep(&self, key: &CacheKey, output: &CachedOutput) -> Result<(), CacheError>;
}

/// The answer of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedOutput {
    /// The text of the answer.
    pub output: String,
    /// Why the worker stopped.
    pub finish: FinishReason,
    /// The tokens that the original call used.
    pub usage: Usage,
}

/// The size of the cache, and the lifetime of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// How long an output is stored.
    pub ttl: Duration,
    /// Most stored outputs; beyond it, the oldest is dropped.
    pub entries_max: usize,
    /// Most bytes of a stored output; longer ones are not stored.
    pub entry_bytes_max: usize,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { ttl: Duration::from_hours(1), entries_max: 4096, entry_bytes_max: 64 << 10 }
    }
}

/// The cache failed or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the step cache failed")]
pub struct CacheError(#[source] pub BoxError);

/// Identifies a request: a SHA-256 over its tenant and everything that could change its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey([u8; 32]);

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

impl CacheKey {
    /// The key of a request of `tenant` to `worker`, whose output may have at most that many bytes.
    ///
    /// `None` if the request does not ask for a repeatable answer (a temperature of zero, or a seed), or if it contains more than
    /// text.
    pub fn of(
        (tenant, output_bytes_max): (&TenantId, usize),
        (pool, worker): (&Pool, &Worker),
        request: &ChatRequest,
    ) -> Option<Self> {
        // Destructured completely, so that a new field of the request does not compile before it is considered here. The cache hint
        // changes no answer.
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
        } = request;
        let is_repeatable = seed.is_some() || temperature.is_some_and(|temperature| temperature <= 0.0);
        if !is_repeatable || tools.is_some() || *answer != AnswerForm::Text {
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
            effort: effort.map(podium_domain::policy::Effort::as_str),
            shows_reasoning: *reasoning == ReasoningText::Shown,
        };
        let json = serde_json::to_vec(&keyed).ok()?;
        Some(Self(Sha256::digest(json).into()))
    }

    /// A key from raw bytes, for tests of the stores behind it.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use podium_domain::conversation::Role;
    use podium_domain::policy::Effort;
    use serde_json::json;

    use super::*;
    use crate::vendor::{CallsAtOnce, Tool, ToolChoice, ToolUse};

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
        CacheKey::of((&tenant, 1000), (&pool, &pool.workers()[0]), request)
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
        let tool = Tool { name: "look".to_owned(), description: String::new(), schema: json!({}) };
        let (tools, choice, at_once) = (vec![tool], ToolChoice::Auto, CallsAtOnce::One);
        let tools = Some(ToolUse { tools, choice, at_once });
        assert_eq!(key(&ChatRequest { tools, ..request() }), None);
        assert_eq!(key(&ChatRequest { answer: AnswerForm::JsonObject, ..request() }), None);
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
        keys.push(CacheKey::of((&other, 1000), (&pool, &pool.workers()[0]), &request()));
        keys.push(CacheKey::of((&tenant, 999), (&pool, &pool.workers()[0]), &request()));
        let count = keys.len();
        assert!(keys.iter().all(Option::is_some));
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        assert_eq!(key(&request()), key(&ChatRequest { cache_hint: Some("x".to_owned()), ..request() }));
    }

    #[test]
    fn a_key_is_displayed_in_hexadecimal() {
        assert_eq!(CacheKey::from_bytes([0xab; 32]).to_string(), "ab".repeat(32));
    }
}
