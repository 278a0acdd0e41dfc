//! How the processes of a cluster are set up. The keys here are those of all of them; a service may add its own.

use std::path::PathBuf;
use std::time::Duration;

use podium_domain::pool::Pool;
use podium_ports::cache::CacheOptions;
use podium_ports::conductor::LocalLimits;
use podium_setup::LogFormat;
use podium_setup::conductor::{ConductorChoice, ConductorChoices};
use podium_setup::settings::{Checker, Key, SecretRef, hardware, step_cache, values};
use podium_telemetry::TelemetrySettings;

const SLOTS_MAX: u64 = 4096;
const LANE_MESSAGES_MAX: u64 = 100_000;
const LEASE_MS: std::ops::RangeInclusive<u64> = 1_000..=600_000;

/// The keys that every process of a cluster has, and their defaults.
pub const KEYS: &[Key] = &[
    // The truth: postgres://USER@HOST:PORT/DATABASE, without a password.
    ("postgres", None),
    // `env:NAME` or `file:PATH`.
    ("postgres_password", None),
    // Connections to Postgres that this process may hold.
    ("postgres_connections", Some("16")),
    // The queue and the live stream: nats://HOST:PORT, several with commas; nats://USER@HOST:PORT with nats_password.
    ("nats", Some("nats://127.0.0.1:4222")),
    ("nats_password", None),
    // A file with a user's credentials, in place of a password.
    ("nats_credentials", None),
    // A file with the certificate of whoever signed the servers' ones, if the system does not know it.
    ("nats_root_certificates", None),
    // Copies of each stream that NATS keeps: 1, 3 or 5.
    ("nats_replicas", Some("1")),
    // Messages of a lane that NATS holds, the rest waits in Postgres: about twice the slots of all processes that serve it.
    ("lane_messages_max", Some("256")),
    // Limits that all share who call models, executors and planners: redis://HOST:PORT, rediss:// with TLS.
    ("redis", Some("redis://127.0.0.1:6379")),
    ("redis_password", None),
    // What holds while Redis is away: `hold` (nobody is called) or `local:SHARE` (each process keeps to that share, 0 to 1).
    ("redis_away", Some("local:0.5")),
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
    // Milliseconds that a claim holds without a sign of life.
    ("lease_ms", Some("15000")),
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

/// Where Postgres is.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// Without a password.
    pub url: String,
    /// Where the password is, if one is needed.
    pub password: Option<SecretRef>,
    /// Most connections of this process.
    pub connections: u32,
}

/// Where NATS is.
#[derive(Clone, Debug)]
pub struct NatsSettings {
    /// Servers of one cluster, without passwords.
    pub servers: Vec<String>,
    /// Where the password of the servers' user is, if one is needed.
    pub password: Option<SecretRef>,
    /// A file with a user's credentials.
    pub credentials: Option<PathBuf>,
    /// A file with the certificate of whoever signed the servers' ones.
    pub root_certificates: Option<PathBuf>,
    /// Copies of each stream.
    pub replicas: usize,
    /// Most messages of a lane.
    pub lane_messages_max: usize,
}

/// Where Redis is.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// Without a password.
    pub url: String,
    /// Where the password is, if one is needed.
    pub password: Option<SecretRef>,
    /// What holds while it is away.
    pub away: Away,
}

/// What holds while Redis is away. Never nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Away {
    /// Nobody is called.
    Hold,
    /// Each executor keeps to this share of every limit, over 0 and at most 1.
    Local(f64),
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
            runs_kept: runs_kept?,
            drain: drain?,
            telemetry,
            log: log?,
            log_format: log_format?,
        })
    }
}

fn postgres(checker: &mut Checker) -> Option<PostgresSettings> {
    let url = checker.read("postgres", |text| url(text, &["postgres", "postgresql"]));
    let password = checker.read_if_given("postgres_password", SecretRef::read);
    let connections = checker.read("postgres_connections", |text| values::number(text, 2, 1000));
    Some(PostgresSettings { url: url?, password, connections: u32::try_from(connections?).ok()? })
}

fn nats(checker: &mut Checker) -> Option<NatsSettings> {
    let servers = checker.read("nats", |text| {
        text.split(',').map(|server| url(server.trim(), &["nats", "tls"])).collect::<Result<Vec<_>, _>>()
    });
    let password = checker.read_if_given("nats_password", SecretRef::read);
    let credentials = checker.read_if_given("nats_credentials", values::path);
    let root_certificates = checker.read_if_given("nats_root_certificates", values::path);
    let replicas = checker.read("nats_replicas", |text| match text {
        "1" | "3" | "5" => values::number(text, 1, 5),
        _ => Err(format!("is `{text}`, it must be 1, 3 or 5")),
    });
    let lane_messages_max =
        checker.read("lane_messages_max", |text| values::number(text, 1, LANE_MESSAGES_MAX));
    Some(NatsSettings {
        servers: servers?,
        password,
        credentials,
        root_certificates,
        replicas: usize::try_from(replicas?).ok()?,
        lane_messages_max: usize::try_from(lane_messages_max?).ok()?,
    })
}

fn redis(checker: &mut Checker) -> Option<RedisSettings> {
    let url = checker.read("redis", |text| url(text, &["redis", "rediss"]));
    let password = checker.read_if_given("redis_password", SecretRef::read);
    let away = checker.read("redis_away", away);
    Some(RedisSettings { url: url?, password, away: away? })
}

/// A URL of one of these schemes, without a password: settings may be printed.
fn url(text: &str, schemes: &[&str]) -> Result<String, String> {
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(&format!("{scheme}://")));
    let rest = rest.filter(|rest| !rest.is_empty());
    // What is wrong may hold a password, so it is not repeated.
    let rest =
        rest.ok_or_else(|| format!("must be a URL that begins with {}://", schemes.join(":// or ")))?;
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => {
            Err("must not hold a password; the key that ends with _password says where it is".to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

fn away(text: &str) -> Result<Away, String> {
    let wrong = || format!("is `{text}`, it must be hold, or local:SHARE with a share over 0 and at most 1");
    match text.split_once(':') {
        None if text == "hold" => Ok(Away::Hold),
        Some(("local", share)) => {
            let share = share.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
            share.map(Away::Local).ok_or_else(wrong)
        }
        _ => Err(wrong()),
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

    #[test]
    fn a_right_setup_reads() {
        let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pools/demo.toml");
        let flags = [
            ("postgres", "postgres://podium@127.0.0.1:5432/podium"),
            ("postgres_password", "env:PGPASSWORD"),
            ("nats", "nats://a:4222, nats://b:4222"),
            ("redis_away", "hold"),
            ("conductor", "direct"),
            ("pool", pool),
        ];
        let settings = read(&flags).unwrap();
        assert_eq!(settings.nats.servers, ["nats://a:4222", "nats://b:4222"]);
        assert_eq!(settings.redis.away, Away::Hold);
    }
}
