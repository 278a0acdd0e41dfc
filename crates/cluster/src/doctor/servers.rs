//! Checks the servers: Postgres, NATS and Redis.

use std::time::Duration;

use podium_ports::causes::with_causes;
use podium_ports::clock::Clock as _;
use podium_ports::queue::Lane;
use podium_queue_nats::{AtStart, NatsQueue, QueueFacts};
use podium_setup::AnchoredClock;
use podium_setup::doctor::Findings;
use podium_store_postgres::DatabaseFacts;
use redis::{AsyncConnectionConfig, Client, InfoDict, RedisResult};
use tokio::time::Instant;

use crate::connections::nats_options;
use crate::open_store::inspect_store;
use crate::server_urls;
use crate::settings::urls::redis_name;
use crate::settings::{ClusterSettings, RedisSettings};

/// Above this, each commit of a step is noticeably slower.
const LATENCY_HIGH: Duration = Duration::from_millis(20);
/// The major versions of Postgres with which the project runs its tests.
const POSTGRES_TESTED: std::ops::RangeInclusive<u32> = 15..=17;
/// The oldest major version of Redis with the functions that the limiter uses.
const REDIS_MIN: u32 = 7;
/// Most time for a connection to Redis, and for each answer.
const REDIS_ANSWER_MAX: Duration = Duration::from_secs(2);

fn milliseconds(span: Duration) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1000.0)
}

fn check_latency(findings: &mut Findings, part: &'static str, latency: Duration) {
    if latency > LATENCY_HIGH {
        findings.warning(
            part,
            format!("one round trip takes {}", milliseconds(latency)),
            "run the processes near this server: every step waits for several round trips",
        );
    }
}

pub(super) async fn check_postgres(findings: &mut Findings, settings: &ClusterSettings) {
    const PART: &str = "postgres";
    let facts = match inspect_store(&settings.postgres).await {
        Ok(facts) => facts,
        Err(error) => {
            let advice = "start Postgres, or correct `postgres` and the keys that begin with postgres_";
            return findings.error(PART, with_causes(&error), advice);
        }
    };
    let size_mb = facts.bytes / 1_000_000;
    let latency = milliseconds(facts.latency());
    findings.ok(PART, format!("{}: {}, {latency}, {size_mb} MB", facts.database, facts.version));
    check_latency(findings, PART, facts.latency());
    if !POSTGRES_TESTED.contains(&facts.major) {
        let (oldest, newest) = (POSTGRES_TESTED.start(), POSTGRES_TESTED.end());
        let found = format!("version {} is outside the tested range, {oldest} to {newest}", facts.major);
        findings.warning(PART, found, format!("use Postgres {oldest} to {newest}"));
    }
    if !facts.writes_are_safe {
        findings.warning(
            PART,
            "fsync or full_page_writes is off: a crash of its machine may lose or damage runs",
            "set both to on",
        );
    }
    check_schema(findings, settings, &facts);
    check_connections(findings, settings.postgres.connections.into(), &facts);
    check_clock(findings, settings.clock_skew_max, &facts);
}

fn check_schema(findings: &mut Findings, settings: &ClusterSettings, facts: &DatabaseFacts) {
    const PART: &str = "schema";
    let newest = facts.schema;
    if facts.pending.0.is_empty() {
        return findings.ok(PART, format!("the database has all migrations, up to {newest}"));
    }
    let found = format!("the database lacks {}", facts.pending);
    let advice = "run `podium migrate --postgres URL` with a role that may create tables";
    if settings.postgres.migrate == podium_store_postgres::Migrate::Never {
        findings.error(PART, found, advice);
    } else {
        findings.warning(PART, found, format!("{advice}, or let this process apply them when it starts"));
    }
}

/// `own` is the most that this process takes.
fn check_connections(findings: &mut Findings, own: i64, facts: &DatabaseFacts) {
    const PART: &str = "connections";
    let (max, used, ours) = (facts.connections_max, facts.connections_used, facts.connections_ours);
    let found = format!(
        "{used} of {max} are in use, {ours} by Podium; with {own} each (postgres_connections), at most {} processes fit",
        max / own.max(1)
    );
    let advice = "raise max_connections of Postgres, or lower postgres_connections of the processes";
    if used >= max {
        findings.error(PART, found, advice);
    } else if used + own > max {
        findings.warning(PART, found, advice);
    } else {
        findings.ok(PART, found);
    }
}

fn check_clock(findings: &mut Findings, skew_max: Duration, facts: &DatabaseFacts) {
    const PART: &str = "clock";
    let clock = AnchoredClock::new(skew_max);
    clock.note(facts.clock.asked_at, facts.clock.answered_at, facts.clock.shown);
    let Some(skew) = clock.skew() else { return };
    let advice = "set this machine's clock by NTP; if every process says this, set that of Postgres' machine";
    if skew.is_excessive() {
        let max = skew.max.as_millis();
        findings.error(PART, format!("{skew}, more than clock_skew_ms_max ({max} ms) allows"), advice);
    } else if skew.is_notable() {
        findings.warning(PART, skew.to_string(), advice);
    } else {
        findings.ok(PART, skew.to_string());
    }
}

pub(super) async fn check_nats(findings: &mut Findings, settings: &ClusterSettings) {
    const PART: &str = "nats";
    let lanes: Vec<_> = Lane::plans().into_iter().chain(Lane::steps(&settings.pool)).collect();
    let inspected = async {
        let (mut connection, options) = nats_options(settings).map_err(|e| with_causes(&e))?;
        connection.at_start = AtStart::Fail;
        let queue = NatsQueue::connect(&connection, options).await.map_err(|e| with_causes(&e))?;
        let facts = queue.inspect(&lanes).await.map_err(|e| with_causes(&e));
        queue.close().await;
        facts
    };
    let facts = match inspected.await {
        Ok(facts) => facts,
        Err(error) => {
            let advice = "start nats-server with JetStream (`-js`), or correct `nats` and the keys that begin with nats_";
            return findings.error(PART, error, advice);
        }
    };
    let version =
        facts.version.map_or_else(|| "an unknown version".to_owned(), |version| version.to_string());
    findings.ok(PART, format!("nats-server {version}, {}", milliseconds(facts.latency)));
    check_latency(findings, PART, facts.latency);
    check_streams(findings, &facts);
}

fn check_streams(findings: &mut Findings, facts: &QueueFacts) {
    const PART: &str = "streams";
    let existing: Vec<_> = facts
        .lanes
        .iter()
        .filter_map(|lane| lane.state.as_ref().map(|state| (&lane.stream, state)))
        .collect();
    let messages: usize = existing.iter().map(|(_, state)| state.messages).sum();
    let (there, lanes) = (existing.len(), facts.lanes.len());
    // Streams are created when their lane is first used, so missing ones are no fault.
    findings.ok(PART, format!("{there} of {lanes} lanes have a stream, with {messages} messages"));
    for (stream, state) in existing {
        if !state.differences.is_empty() {
            findings.warning(
                PART,
                format!("{stream} has {}", state.differences.join(", ")),
                "give all processes the same nats_ keys; the next one that starts changes the stream",
            );
        }
        if state.messages > 0 && !state.has_consumer {
            findings.warning(
                PART,
                format!("{stream} has {} messages and no consumer", state.messages),
                "start a planner or executor that serves this lane",
            );
        }
    }
}

pub(super) async fn check_redis(findings: &mut Findings, settings: &ClusterSettings) {
    let redis = &settings.redis;
    for url in [&redis.url].into_iter().chain(redis.limits.iter().filter(|url| **url != redis.url)) {
        check_one_redis(findings, redis, url).await;
    }
}

async fn check_one_redis(findings: &mut Findings, settings: &RedisSettings, url: &str) {
    const PART: &str = "redis";
    let name = redis_name(url);
    let answered = async {
        let server = server_urls::redis(settings, url).map_err(|e| with_causes(&e))?;
        let client = Client::open(server).map_err(|_| "the address is invalid".to_owned())?;
        // The rest of an error's text may repeat a password.
        ask_redis(&client).await.map_err(|e| e.code().unwrap_or(e.category()).to_owned())
    };
    let (info, latency) = match answered.await {
        Ok(answered) => answered,
        Err(error) => {
            let advice = "start Redis, or correct `redis` and the keys that begin with redis_; meanwhile redis_away decides";
            return findings.error(PART, format!("{name}: {error}"), advice);
        }
    };
    let version: String = info.get("redis_version").unwrap_or_default();
    findings.ok(PART, format!("{name}: Redis {version}, {}", milliseconds(latency)));
    check_latency(findings, PART, latency);
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < REDIS_MIN) {
        let found = format!("{name}: version {version} is older than {REDIS_MIN}");
        findings.error(PART, found, format!("use Redis {REDIS_MIN} or newer"));
    }
    if info.get::<String>("role").is_some_and(|role| role != "master") {
        let advice = "name the primary, or an address that moves to it";
        findings.error(PART, format!("{name} is a replica, which takes no writes"), advice);
    }
    let policy: String = info.get("maxmemory_policy").unwrap_or_default();
    if info.get::<u64>("maxmemory").is_some_and(|max| max > 0) && policy == "noeviction" {
        let found = format!("{name} refuses writes once its memory is full (maxmemory with noeviction)");
        findings.warning(PART, found, "set maxmemory-policy to volatile-ttl: all of Podium's keys expire");
    }
}

async fn ask_redis(client: &Client) -> RedisResult<(InfoDict, Duration)> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(REDIS_ANSWER_MAX))
        .set_response_timeout(Some(REDIS_ANSWER_MAX));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let asked_at = Instant::now();
    redis::cmd("PING").query_async::<String>(&mut connection).await?;
    let latency = asked_at.elapsed();
    Ok((redis::cmd("INFO").query_async(&mut connection).await?, latency))
}
