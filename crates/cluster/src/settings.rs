//! How the processes of a cluster are set up. The keys here are those of all of them; a service may add its own.

use std::path::PathBuf;
use std::time::Duration;

use podium_domain::pool::Pool;
use podium_ports::cache::CacheOptions;
use podium_ports::conductor::LocalLimits;
use podium_setup::LogFormat;
use podium_setup::conductor::{ConductorChoice, ConductorChoices};
use podium_setup::settings::{Checker, Key, hardware, step_cache, values};
use podium_telemetry::TelemetrySettings;

mod certificates;
mod servers;
mod urls;

pub use certificates::{Certificates, ClientCertificate};
pub use servers::{Away, NatsSettings, NatsUser, Pooler, PostgresSettings, RedisSettings};
use servers::{nats, postgres, redis};

const SLOTS_MAX: u64 = 4096;
const LEASE_MS: std::ops::RangeInclusive<u64> = 1_000..=600_000;
/// From what NTP keeps to a day.
const CLOCK_SKEW_MS: std::ops::RangeInclusive<u64> = 100..=86_400_000;

/// The keys that every process of a cluster has, and their defaults.
pub const KEYS: &[Key] = &[
    // The truth: postgres://USER@HOST:PORT/DATABASE, without a password; several HOST:PORT with commas, of which the one is used
    // that takes writes. `?sslmode=verify-full` checks who the server is.
    ("postgres", None),
    // `env:NAME` or `file:PATH`.
    ("postgres_password", None),
    // A PEM file with the certificate of whoever signed the server's one; with it, sslmode is verify-full unless given.
    ("postgres_root_certificates", None),
    // PEM files with a certificate and its key, for servers that ask clients for one.
    ("postgres_client_certificate", None),
    ("postgres_client_key", None),
    // What is between this process and Postgres: `none`, or `transaction` for a pooler that lends a session for a transaction at a
    // time, such as PgBouncer 1.21 or newer.
    ("postgres_pooler", Some("none")),
    // Most connections of this process to Postgres. Times the number of processes, it must stay below the server's max_connections.
    ("postgres_connections", Some("8")),
    // Whether this process applies pending migrations as it starts: `auto`, or `never` where `podium migrate` does it, and the role
    // of this process may not create tables.
    ("postgres_migrate", Some("auto")),
    // The queue and the live stream: nats://HOST:PORT, tls://HOST:PORT encrypted; several with commas. One of a user with a
    // password: nats://USER@HOST:PORT.
    ("nats", Some("nats://127.0.0.1:4222")),
    // `env:NAME` or `file:PATH`: a user's password; or, in its place, a token, or the seed of an nkey.
    ("nats_password", None),
    ("nats_token", None),
    ("nats_nkey", None),
    // A file with a user's credentials (.creds), in their place.
    ("nats_credentials", None),
    // A PEM file with the certificate of whoever signed the servers' ones, if the system does not know it.
    ("nats_root_certificates", None),
    // PEM files with a certificate and its key, for servers that ask clients for one.
    ("nats_client_certificate", None),
    ("nats_client_key", None),
    // Copies of each stream that NATS keeps: 1, 3 or 5.
    ("nats_replicas", Some("1")),
    // Messages of a lane that NATS holds, the rest waits in Postgres: about twice the slots of all processes that serve it.
    ("lane_messages_max", Some("256")),
    // Limits that all share who call models, executors and planners: redis://HOST:PORT or redis://USER@HOST:PORT, rediss:// with
    // TLS.
    ("redis", Some("redis://127.0.0.1:6379")),
    // `env:NAME` or `file:PATH`.
    ("redis_password", None),
    // A PEM file with the certificate of whoever signed the server's one, if the system does not know it.
    ("redis_root_certificates", None),
    // PEM files with a certificate and its key, for servers that ask clients for one.
    ("redis_client_certificate", None),
    ("redis_client_key", None),
    // Limits while Redis is unreachable. `local`: each process goes on with its part of every limit, one divided by the number of
    // processes that Redis last knew of. `local:SHARE`: a fixed part, over 0 to 1. `hold`: no worker is called.
    ("redis_away", Some("local")),
    // The pool file.
    ("pool", None),
    // `llama:FOLDER`, `worker:WORKER`, `model:FILE#WORKER`, `remote:URL#MODEL`, `fixed:FILE`, `direct` or `direct:WORKER`. A
    // gateway only reads its name and abilities.
    ("conductor", None),
    // Who is to follow, as `conductor`, and its share of the runs that name no conductor, 0 to 1. Both are loaded.
    ("conductor_next", None),
    ("conductor_next_share", Some("0")),
    // Whether gateways plan at once where no model is needed (`fixed`, `direct`), or leave that to planners as well.
    ("plan_at_once", Some("true")),
    // Plans made at the same time, for each tier.
    ("plan_slots", Some("4")),
    // Plans that a model in the planner writes at the same time, in one batch: 1 to 64. Its memory for text grows with them.
    ("plan_sequences", Some("8")),
    // Plans that may wait while the conductor's model has as many as it takes.
    ("plans_waiting_max", Some("256")),
    // Layers of a model in the planner that GPUs compute: `all`, or a number; the processor computes the rest.
    ("gpu_layers", Some("0")),
    // Which GPUs: `all`, or numbers such as `0,1`; and how it is spread over them: `layer`, `row`, or `none` (the first has all).
    ("gpus", Some("all")),
    ("gpu_split", Some("layer")),
    // Whether a promised GPU that is not there is an error, which is the default; else the processor computes instead.
    ("gpu_required", None),
    // How it keeps the text so far: `f16`, `bf16`, `q8_0` or `q4_0`.
    ("kv_cache", Some("f16")),
    // Steps run at the same time, for each vendor and tier.
    ("step_slots", Some("32")),
    // Whether steps may be answered with what the same request got before (temperature 0 or a seed, same tenant): `off` or `exact`.
    ("step_cache", Some("off")),
    // Milliseconds that an output is kept for it.
    ("step_cache_ttl_ms", Some("3600000")),
    // Outputs that are kept; beyond, the oldest goes.
    ("step_cache_entries_max", Some("4096")),
    // Bytes of an output that is kept.
    ("step_cache_entry_bytes_max", Some("65536")),
    // Milliseconds that a claim holds without a sign of life. A process gives one every quarter of it.
    ("lease_ms", Some("4000")),
    // Milliseconds that the machine's clock may be off from Postgres' one. Beyond, the process is not ready and takes no work.
    ("clock_skew_ms_max", Some("30000")),
    // How long runs are kept after their end: days or hours such as `30d` or `12h`, or `forever`. Each process removes what is
    // older, so all of them should be told the same.
    ("runs_kept", Some("30d")),
    // Milliseconds that work under way may still take once the process is told to stop.
    ("drain_ms", Some("20000")),
    // The OpenTelemetry collector that metrics are delivered to over gRPC: http://HOST:PORT, https:// with TLS. Default: what
    // OTEL_EXPORTER_OTLP_ENDPOINT names, else none.
    ("otlp_endpoint", None),
    // Milliseconds between two deliveries. Default: OTEL_METRIC_EXPORT_INTERVAL, else a minute.
    ("otlp_every_ms", None),
    // What is logged: a level, or a list such as `info,podium_engine=debug`.
    ("log", Some("info")),
    // `text` or `json`.
    ("log_format", Some("text")),
];

/// Where a health door listens, which also shows metrics, at `/metrics`; for the processes that have no other door.
pub const HEALTH_KEYS: &[Key] = &[("listen", Some("127.0.0.1:8082")), ("allow_remote", Some("false"))];

/// What every process of a cluster is told.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Postgres.
    pub postgres: PostgresSettings,
    /// NATS.
    pub nats: NatsSettings,
    /// Redis.
    pub redis: RedisSettings,
    /// The pool file.
    pub pool: PathBuf,
    /// Who plans.
    pub conductors: ConductorChoices,
    /// Whether gateways plan where no model is needed.
    pub plan_at_once: bool,
    /// Plans made at the same time, for each tier.
    pub plan_slots: usize,
    /// What a model in the planner may take.
    pub local: LocalLimits,
    /// Steps run at the same time, for each vendor and tier.
    pub step_slots: usize,
    /// How much the step cache remembers, which executors share through Redis; none: there is none.
    pub step_cache: Option<CacheOptions>,
    /// How long a claim holds without a sign of life.
    pub lease: Duration,
    /// How far the machine's clock may be off from the database's.
    pub clock_skew_max: Duration,
    /// How long runs are kept after their end; none: for ever.
    pub runs_kept: Option<Duration>,
    /// How long work under way may still take at the end.
    pub drain: Duration,
    /// Where metrics are delivered.
    pub telemetry: TelemetrySettings,
    /// What is logged.
    pub log: String,
    /// How it is logged.
    pub log_format: LogFormat,
}

impl ClusterSettings {
    /// Reads the shared keys; what is wrong is left with the checker.
    pub fn read(checker: &mut Checker) -> Option<Self> {
        let postgres = postgres(checker);
        let nats = nats(checker);
        let redis = redis(checker);
        let pool = checker.read("pool", pool);
        let conductors = ConductorChoices::read(checker, conductor);
        let plan_at_once = checker.read("plan_at_once", values::yes_or_no);
        let plan_slots = checker.read("plan_slots", slots);
        let sequences_max = checker.read("plan_sequences", values::plan_sequences);
        let waiting_max = checker.read("plans_waiting_max", values::plans_waiting_max);
        let hardware = hardware(checker);
        let step_slots = checker.read("step_slots", slots);
        let step_cache = step_cache(checker);
        let lease = checker.read("lease_ms", |text| values::number(text, *LEASE_MS.start(), *LEASE_MS.end()));
        let skew = checker.read("clock_skew_ms_max", |text| {
            values::number(text, *CLOCK_SKEW_MS.start(), *CLOCK_SKEW_MS.end())
        });
        let runs_kept = checker.read("runs_kept", values::runs_kept);
        let drain = checker.read("drain_ms", values::drain);
        let telemetry = TelemetrySettings::read(checker);
        let log = checker.read("log", values::log_filter);
        let log_format = checker.read("log_format", values::log_format);
        Some(Self {
            postgres: postgres?,
            nats: nats?,
            redis: redis?,
            pool: pool?,
            conductors: conductors?,
            plan_at_once: plan_at_once?,
            plan_slots: plan_slots?,
            local: LocalLimits {
                sequences_max: sequences_max?,
                waiting_max: waiting_max?,
                hardware: hardware?,
            },
            step_slots: step_slots?,
            step_cache: step_cache?,
            lease: Duration::from_millis(lease?),
            clock_skew_max: Duration::from_millis(skew?),
            runs_kept: runs_kept?,
            drain: drain?,
            telemetry,
            log: log?,
            log_format: log_format?,
        })
    }
}

fn slots(text: &str) -> Result<usize, String> {
    let slots = values::number(text, 1, SLOTS_MAX)?;
    usize::try_from(slots).map_err(|e| e.to_string())
}

/// Who plans. `auto` depends on what a process finds where it runs, so the processes of a cluster might disagree.
fn conductor(text: &str) -> Result<ConductorChoice, String> {
    match values::conductor(text)? {
        ConductorChoice::Auto => Err("is `auto`, which a cluster does not have: say who plans".to_owned()),
        choice => Ok(choice),
    }
}

/// A pool file that reads and is right, so that a wrong one is listed with everything else.
fn pool(text: &str) -> Result<PathBuf, String> {
    let path = values::path(text)?;
    let file =
        std::fs::read_to_string(&path).map_err(|e| format!("is `{text}`, which cannot be read: {e}"))?;
    Pool::parse(&file).map_err(|e| format!("is `{text}`, which cannot be used: {e}"))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use podium_setup::settings::Sources;

    use super::*;

    fn read(flags: &[(&'static str, &str)]) -> Result<ClusterSettings, Vec<String>> {
        let mut sources = Sources::new(KEYS);
        for (key, value) in flags {
            sources.flag(key, Some(value));
        }
        let mut checker = sources.into_checker();
        let settings = ClusterSettings::read(&mut checker);
        checker.finish(settings).map_err(|e| e.0)
    }

    #[test]
    fn everything_that_is_wrong_is_listed_at_once_and_no_secret_is_repeated() {
        let problems = read(&[
            ("postgres", "postgres://podium:hunter2@db/podium"),
            ("nats", "hunter2"),
            ("redis_password", "hunter2"),
            ("redis_away", "local:2"),
            ("lease_ms", "5"),
            ("conductor", "auto"),
            ("conductor_next", "auto"),
            ("conductor_next_share", "1.5"),
        ])
        .unwrap_err();
        // The pool is missing, too.
        assert_eq!(problems.len(), 9, "{problems:#?}");
        assert!(!problems.concat().contains("hunter2"), "{problems:#?}");
    }

    /// What is said of one wrong value, beside the keys that are missing.
    fn problem(flags: &[(&'static str, &str)]) -> String {
        let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pools/demo.toml");
        let mut all = vec![("postgres", "postgres://db/podium"), ("conductor", "direct"), ("pool", pool)];
        all.extend(flags);
        let problems = read(&all).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        problems.concat()
    }

    #[test]
    fn no_secret_goes_through_by_another_way_and_none_is_repeated() {
        for (key, value) in [
            ("postgres", "postgres://podium@db/podium?password=hunter2"),
            ("postgres", "postgres://podium@db/podium?sslpassword=hunter2"),
            ("postgres", "postgres://db/podium?options=-c%20hunter2"),
            ("postgres", "postgres://po@d:hunter2@db/podium"),
            ("nats", "nats://hunter2@nats:4222"),
            ("nats", "nats://podium:hunter2@nats:4222"),
            ("nats_token", "hunter2"),
            ("nats_nkey", "hunter2"),
            ("redis", "redis://:hunter2@redis:6379"),
            ("redis", "redis://redis:6379/?password=hunter2"),
            ("redis", "rediss://redis:6379/#insecure"),
        ] {
            let problem = problem(&[(key, value)]);
            assert!(problem.starts_with(key) && !problem.contains("hunter2"), "{value}: {problem}");
        }
    }

    #[test]
    fn certificates_are_read_when_settings_are_and_are_for_encrypted_connections() {
        let authority = podium_harness::Authority::new().unwrap();
        let identity = authority.issue("client", &[]).unwrap();
        let text = |path: &std::path::Path| path.display().to_string();
        let (root, certificate, key) =
            (text(&authority.root()), text(&identity.certificate), text(&identity.key));
        for (flags, says) in [
            (vec![("nats_root_certificates", "/nowhere.pem")], "cannot be read"),
            (vec![("nats_root_certificates", key.as_str())], "holds no certificate"),
            (vec![("redis", "rediss://r"), ("redis_client_certificate", &certificate)], "redis_client_key"),
            (
                vec![("nats_client_certificate", &certificate), ("nats_client_key", &certificate)],
                "holds no private key",
            ),
            (vec![("redis", "redis://r"), ("redis_root_certificates", &root)], "rediss://"),
            (
                vec![
                    ("postgres", "postgres://db/podium?sslmode=require"),
                    ("postgres_root_certificates", &root),
                ],
                "verify-full",
            ),
            (vec![("nats_token", "env:A"), ("nats_nkey", "env:B")], "nats_token"),
            (vec![("nats_password", "env:A")], "names no user"),
        ] {
            let problem = problem(&flags);
            assert!(problem.contains(says), "{flags:?}: {problem}");
        }
    }

    #[test]
    fn a_right_setup_reads() {
        let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pools/demo.toml");
        let flags = [
            ("postgres", "postgres://podium@127.0.0.1:5432/podium"),
            ("postgres_password", "env:PGPASSWORD"),
            ("nats", "nats://podium@a:4222, nats://podium@b:4222"),
            ("nats_password", "env:NATS_PASSWORD"),
            ("conductor", "direct"),
            ("pool", pool),
        ];
        let away = |text| read(&[&flags[..], &[("redis_away", text)]].concat()).unwrap().redis.away;
        assert_eq!(away("hold"), Away::Hold);
        assert_eq!(away("local:0.25"), Away::Local(Some(0.25)));
        let settings = read(&flags).unwrap();
        assert_eq!(settings.nats.servers, ["nats://a:4222", "nats://b:4222"]);
        assert!(matches!(settings.nats.user, NatsUser::Password { user, .. } if user == "podium"));
        assert_eq!(settings.redis.away, Away::Local(None), "each process has its part of the limits");
    }
}
