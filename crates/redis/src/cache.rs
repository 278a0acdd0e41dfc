//! A step cache that executors share through Redis.
//!
//! An output is a string that expires. Its key is the hash of the request, so it reveals nothing of a prompt. A sorted set
//! of all keys bounds their number. A Lua script stores each output.
//!
//! All keys of a prefix have the same hash tag, so the cache is on one node of a Redis Cluster.
//!
//! **If Redis is unreachable**, slow or full, the cache is bypassed: every call ends within [`RedisOptions::answer_max`]
//! with an error, and for [`RedisOptions::away_for`] after that calls fail at once. Evicted or lost outputs are requested
//! from workers again.

mod link;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_ports::cache::{CacheError, CacheKey, CacheOptions, CachedOutput, StepCache};
use podium_ports::clock::Clock;
use redis::{IntoConnectionInfo, Script};

use self::link::Link;
use crate::connection::{InvalidUrl, is_key_prefix};

/// Version of the stored form. It is part of each key, so other versions are never decoded as this one.
const FORM: u8 = 1;

/// Options of the cache. Processes that share it must have the same ones.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// Prefix of every key: 1 to 64 of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`, `/`. Processes with different prefixes share nothing.
    pub prefix: String,
    /// Time limit of a call to Redis, connecting included. Steps wait for it.
    pub answer_max: Duration,
    /// How long Redis is not called after a failure.
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

/// The options are invalid. No connection was attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The URL is invalid. It is not repeated because it may contain a password.
    #[error("{InvalidUrl}")]
    Url,
    /// The prefix is invalid.
    #[error("option `prefix` must be 1 to 64 of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`, `/`")]
    Prefix,
}

/// A cached output, or a script's result, cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("a cached output in Redis cannot be decoded")]
struct Unreadable;

/// A step cache in Redis. Clones share a connection.
#[derive(Clone)]
pub struct RedisCache {
    shared: Arc<Shared>,
}

struct Shared {
    link: Link,
    options: CacheOptions,
    /// Includes the hash tag that all keys share.
    prefix: String,
    keep: Script,
}

impl RedisCache {
    /// Creates the cache without connecting. `server` is a URL with credentials, or a `redis::Client` with certificates.
    pub fn open(
        server: impl IntoConnectionInfo,
        redis: &RedisOptions,
        options: CacheOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        if !is_key_prefix(&redis.prefix) {
            return Err(OpenError::Prefix);
        }
        let link = Link::open(server, redis, clock).map_err(|InvalidUrl| OpenError::Url)?;
        let shared = Shared {
            link,
            options,
            prefix: format!("{{{}}}:{FORM}", redis.prefix),
            keep: Script::new(include_str!("cache/script/keep.lua")),
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
        // The link contains the URL.
        f.debug_struct("RedisCache").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

fn unreadable() -> CacheError {
    CacheError(Unreadable.into())
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}
