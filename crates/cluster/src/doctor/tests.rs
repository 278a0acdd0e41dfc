//! Real servers, with one fault after the other.

use std::path::Path;

use podium_harness::{Fsync, Nats, Postgres, Redis};
use podium_planning::Place;
use podium_setup::doctor::{Findings, Severity};
use podium_setup::settings::Sources;

use super::*;
use crate::settings::{EXECUTOR, EXECUTOR_GROUPS, program_keys};

/// A pool without keys and dates, with one worker that is free.
const POOL: &str = r#"
schema = 1
name = "mine"
version = "1"
[[vendors]]
id = "acme"
api = "openai-chat"
base_url = "https://acme.invalid/v1"
api_key_env = "PODIUM_TEST_NO_SUCH_KEY"
[[workers]]
id = "free"
vendor = "acme"
model = "free"
description = "Answers."
context_tokens = 8192
output_tokens_max = 1024
usd_per_million_tokens = { input = 0.0, output = 0.0 }
limits = { in_flight_max = 1, call_ms_max = 30_000 }
"#;

struct Servers {
    postgres: Postgres,
    nats: Nats,
    redis: Redis,
    address: String,
    folder: tempfile::TempDir,
}

impl Servers {
    async fn start() -> Self {
        let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
        let address = postgres.database().await.unwrap();
        let (nats, redis) = (Nats::start().await.unwrap(), Redis::start().await.unwrap());
        Self { postgres, nats, redis, address, folder: tempfile::tempdir().unwrap() }
    }

    fn settings(&self, more: &[(&'static str, &str)]) -> ClusterSettings {
        let pool = self.folder.path().join("pool.toml");
        std::fs::write(&pool, POOL).unwrap();
        let (nats, redis) = (self.nats.url(), self.redis.url());
        let own = [
            ("postgres", self.address.as_str()),
            ("nats", &nats),
            ("redis", &redis),
            ("pool", pool.to_str().unwrap()),
            ("conductor", "direct"),
        ];
        let mut sources = Sources::new(&program_keys(EXECUTOR, &EXECUTOR_GROUPS));
        own.iter().chain(more).for_each(|(key, value)| sources.flag(key, Some(value)));
        let mut checker = sources.into_checker();
        let settings = ClusterSettings::read(&mut checker, EXECUTOR, Place::Elsewhere);
        checker.finish(settings).unwrap()
    }

    async fn diagnose(&self, more: &[(&'static str, &str)]) -> Findings {
        diagnose(&self.settings(more), Role::Executor, Ok(None)).await
    }

    async fn migrate(&self) {
        podium_store_postgres::Store::migrate(&self.address, podium_store_postgres::Options::default())
            .await
            .unwrap();
    }
}

/// The findings of a part that contain a text.
fn found(findings: &Findings, part: &str, says: &str) -> Vec<Severity> {
    let of_part =
        findings.all().iter().filter(|finding| finding.part == part && finding.found.contains(says));
    of_part.map(|finding| finding.severity).collect()
}

#[tokio::test]
async fn a_cluster_with_pending_migrations_and_a_poor_pool_gets_warnings() {
    let servers = Servers::start().await;
    let findings = servers.diagnose(&[]).await;
    assert_eq!(findings.worst(), Severity::Warning, "{findings}");
    for (part, says) in [
        ("schema", "lacks migrations 1,"),
        ("postgres", "fsync"),
        ("keys", "PODIUM_TEST_NO_SUCH_KEY"),
        ("prices", "cost nothing with `free`"),
        ("prices", "`free` have no date"),
    ] {
        assert_eq!(found(&findings, part, says), [Severity::Warning], "{part} {says}: {findings}");
    }
    for (part, says) in [
        ("nats", "nats-server 2."),
        ("redis", "Redis 7"),
        ("clock", "the wall clock"),
        ("streams", "0 of 6 lanes"),
    ] {
        assert_eq!(found(&findings, part, says).first(), Some(&Severity::Ok), "{part} {says}: {findings}");
    }
    let refused = servers.diagnose(&[("postgres_migrate", "never")]).await;
    assert_eq!(found(&refused, "schema", "lacks"), [Severity::Error], "{refused}");
    servers.migrate().await;
    let migrated = servers.diagnose(&[("postgres_migrate", "never")]).await;
    assert_eq!(found(&migrated, "schema", "all migrations"), [Severity::Ok], "{migrated}");
}

#[tokio::test]
async fn a_newer_schema_and_a_lack_of_connections_are_errors() {
    let servers = Servers::start().await;
    servers.migrate().await;
    servers.postgres.execute("podium_1", "UPDATE schema_floor SET version = 999").await.unwrap();
    let findings = servers.diagnose(&[]).await;
    assert_eq!(found(&findings, "postgres", "requires migration 999"), [Severity::Error], "{findings}");
    servers.postgres.execute("podium_1", "UPDATE schema_floor SET version = 1").await.unwrap();
    let greedy = servers.diagnose(&[("postgres_connections", "1000")]).await;
    assert_eq!(found(&greedy, "connections", "at most 0 processes fit"), [Severity::Warning], "{greedy}");
}

#[tokio::test]
async fn streams_that_differ_from_the_settings_are_reported() {
    let servers = Servers::start().await;
    let settings = servers.settings(&[]);
    let (connection, options) = crate::connections::nats_options(&settings).unwrap();
    let queue = podium_queue_nats::NatsQueue::connect(&connection, options).await.unwrap();
    let lane = podium_ports::queue::Lane::plans()[0].clone();
    let fetch = podium_ports::queue::StepQueue::fetch(&queue, &lane, 1, std::time::Duration::from_millis(10));
    fetch.await.unwrap();
    let same = servers.diagnose(&[]).await;
    assert_eq!(found(&same, "streams", "1 of 6 lanes"), [Severity::Ok], "{same}");
    assert_eq!(found(&same, "streams", "instead of"), [], "{same}");
    let other = servers.diagnose(&[("nats_storage", "memory")]).await;
    assert_eq!(found(&other, "streams", "storage file instead of memory"), [Severity::Warning], "{other}");
}

#[tokio::test]
async fn unreachable_servers_are_errors_and_do_not_hide_each_other() {
    let mut servers = Servers::start().await;
    servers.postgres.kill().await.unwrap();
    servers.nats.kill().await;
    servers.redis.kill().await;
    let findings = servers.diagnose(&[]).await;
    for part in ["postgres", "nats", "redis"] {
        assert_eq!(found(&findings, part, ""), [Severity::Error], "{part}: {findings}");
    }
    assert!(findings.all().iter().any(|finding| finding.part == "files"), "{findings}");
    let advised = |part: &str| findings.all().iter().find(|finding| finding.part == part)?.advice.clone();
    assert!(advised("nats").unwrap().contains("start nats-server"), "{findings}");
    let gateway = diagnose(&servers.settings(&[]), Role::Gateway, Ok(Some("open to all".to_owned()))).await;
    assert_eq!(found(&gateway, "redis", ""), [], "a gateway does not use Redis: {gateway}");
    assert_eq!(found(&gateway, "settings", "open to all"), [Severity::Warning], "{gateway}");
}

#[tokio::test]
async fn a_wrong_password_is_reported_without_being_shown() {
    let servers = Servers::start().await;
    let secret = servers.folder.path().join("secret");
    std::fs::write(&secret, "hunter2").unwrap();
    let secret = format!("file:{}", secret.display());
    let findings = servers.diagnose(&[("redis_password", &secret)]).await;
    assert_eq!(found(&findings, "redis", ""), [Severity::Error], "{findings}");
    assert!(!findings.to_string().contains("hunter2") && !findings.json("x", "1").contains("hunter2"));
}

#[test]
fn a_damaged_model_and_a_missing_gpu_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let nano = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/nano"));
    for entry in std::fs::read_dir(nano).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pools/demo.toml");
    let bundle = format!("llama:{}", folder.path().display());
    let mut sources = Sources::new(&program_keys(EXECUTOR, &EXECUTOR_GROUPS));
    for (key, value) in [("postgres", "postgres://db/podium"), ("pool", pool), ("conductor", &bundle)] {
        sources.flag(key, Some(value));
    }
    let mut checker = sources.into_checker();
    let settings = ClusterSettings::read(&mut checker, EXECUTOR, Place::Elsewhere);
    let settings = checker.finish(settings).unwrap();
    let models = |inspected| {
        let mut findings = Findings::default();
        check_models(&mut findings, &settings, inspected);
        findings
    };
    let whole = models(Ok(Some("CPU\n8 threads".to_owned())));
    assert_eq!(found(&whole, "model", "match their checksums"), [Severity::Ok], "{whole}");
    assert_eq!(found(&whole, "hardware", "CPU; 8 threads"), [Severity::Ok], "{whole}");
    let weights = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let weights = weights.filter(|path| path.extension().is_some_and(|end| end == "gguf")).max().unwrap();
    let mut bytes = std::fs::read(&weights).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let damaged = models(Err("no GPU is visible".into()));
    assert_eq!(found(&damaged, "model", ""), [Severity::Error], "{damaged}");
    assert_eq!(found(&damaged, "hardware", "no GPU is visible"), [Severity::Error], "{damaged}");
}

#[test]
fn each_problem_of_the_settings_is_a_finding() {
    let error = SettingsError(vec!["lease_ms is 5".to_owned(), "pool is missing".to_owned()]);
    let findings = of_invalid_settings(&error);
    assert_eq!(findings.all().len(), 2);
    assert_eq!(findings.worst(), Severity::Error);
}
