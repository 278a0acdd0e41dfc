//! The step cache that many executors share through Redis.
//!
//! An output is a string that runs out by itself; its key is the hash of the request, so nothing of a prompt is in it. A sorted
//! set of all of them bounds their number. Each output is stored by one Lua script.
//!
//! All keys of a prefix have one hash tag: the cache lives on one node of a Redis Cluster.
//!
//! **When Redis is away**, late or full, there is no cache: every call ends within [`RedisOptions::answer_max`] with an error,
//! and for [`RedisOptions::away_for`] after it at once, without asking. What Redis evicts or loses is asked of workers again.
//!
//! Credentials are in the URL only. No error and no `Debug` shows it: of what Redis answers, an error names the code alone.
#![deny(missing_docs)]

mod link;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_ports::cache::{CacheError, CacheKey, CacheOptions, CachedOutput, StepCache};
use podium_ports::clock::Clock;
use redis::{IntoConnectionInfo, Script};

use crate::link::Link;

/// The form of what is stored, as a part of each key: another form is never read as this one.
const FORM: u8 = 1;

/// How the cache is shared. Processes that share it have the same options.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// What every key begins with: 1 to 64 of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`, `/`. Processes with different ones do not share.
    pub prefix: String,
    /// How long Redis has to answer, connecting included. Steps wait for it.
    pub answer_max: Duration,
    /// For how long Redis is not asked after it failed.
    pub away_for: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: "podium:cache".to_owned(),
            answer_max: Duration::from_millis(500),
            away_for: Duration::from_secs(1),
        }
    }
}

/// The cache could not be made. Nothing was connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The URL cannot be used. It is not repeated: it may hold a password.
    #[error(
        "the URL must be `redis://`, `rediss://` or `unix://` with a host or a path, and what Redis needs besides"
    )]
    Url,
    /// The prefix cannot be used.
    #[error("option `prefix` must be 1 to 64 of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`, `/`")]
    Prefix,
}

/// An output in Redis does not read, or a script gave what it never gives.
#[derive(Debug, thiserror::Error)]
#[error("what Redis holds of an output does not read")]
struct Unreadable;

/// A step cache in Redis. Clones share a connection.
#[derive(Clone)]
pub struct RedisCache {
    shared: Arc<Shared>,
}

struct Shared {
    link: Link,
    options: CacheOptions,
    /// With the hash tag that all keys have in common.
    prefix: String,
    keep: Script,
}

impl RedisCache {
    /// Connects to nothing yet. `server` is a URL with credentials; or the same with certificates, from a `redis::Client`.
    pub fn open(
        server: impl IntoConnectionInfo,
        redis: &RedisOptions,
        options: CacheOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        if !is_a_prefix(&redis.prefix) {
            return Err(OpenError::Prefix);
        }
        let link = Link::open(server, (redis.answer_max, redis.away_for), clock)?;
        let shared = Shared {
            link,
            options,
            prefix: format!("{{{}}}:{FORM}", redis.prefix),
            keep: Script::new(include_str!("script/keep.lua")),
        };
        Ok(Self { shared: Arc::new(shared) })
    }
}

impl Shared {
    fn output_key(&self, key: &CacheKey) -> String {
        format!("{}:{key}", self.prefix)
    }

    fn index_key(&self) -> String {
        format!("{}:index", self.prefix)
    }
}

#[async_trait]
impl StepCache for RedisCache {
    async fn look_up(&self, key: &CacheKey) -> Result<Option<CachedOutput>, CacheError> {
        let found = self.shared.link.get(&self.shared.output_key(key)).await?;
        found.map(|found| serde_json::from_slice(&found).map_err(|_| unreadable())).transpose()
    }

    async fn keep(&self, key: &CacheKey, output: &CachedOutput) -> Result<(), CacheError> {
        let shared = &self.shared;
        if output.output.len() > shared.options.entry_bytes_max {
            return Ok(());
        }
        let written = serde_json::to_vec(output).map_err(|_| unreadable())?;
        let mut call = shared.keep.prepare_invoke();
        call.key(shared.output_key(key)).key(shared.index_key());
        call.arg(written).arg(milliseconds(shared.options.ttl)).arg(shared.options.entries_max);
        shared.link.invoke(&call).await
    }
}

impl fmt::Debug for RedisCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The link holds the URL.
        f.debug_struct("RedisCache").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

fn unreadable() -> CacheError {
    CacheError(Unreadable.into())
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn is_a_prefix(text: &str) -> bool {
    // No braces, which would be another hash tag.
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte);
    (1..=podium_domain::ids::NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed)
}
