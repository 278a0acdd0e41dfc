//! The settings of a cluster's processes. A service adds its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use podium_bundle::LocalLimits;
use podium_domain::cells::{CellId, Cells};
use podium_domain::pool::Pool;
use podium_planning::{
    CONDUCTORS, ConductorChoices, HARDWARE, LOCAL_MODEL, NAMED_CONDUCTOR, PLAN_SLOTS, Place, local_limits,
    plan_slots_for,
};
use podium_ports::cache::CacheOptions;
use podium_ports::causes::with_causes;
use podium_setup::settings::engine::{DRAIN, LIFETIME, RUNS_KEPT, STEP_SLOTS, STEPS};
use podium_setup::settings::log::{LOG, LOG_FORMAT, LOGGING};
use podium_setup::settings::step_cache::{STEP_CACHE_KEYS, step_cache};
use podium_setup::settings::{Checker, Group, ProgramKeys, Setting, Values, values};
use podium_setup::{Followed, Identity, LogFormat};
use podium_telemetry::{TELEMETRY, TelemetrySettings};
use podium_vendors::{EnvironmentKeys, HttpVendors};
use tracing::info;

use crate::instance;

mod certificates;
mod nats;
mod postgres;
mod redis;
pub(crate) mod urls;

use certificates::{CertificateSettings, certificate_setting, key_setting, root_setting};
pub use certificates::{Certificates, ClientCertificate};
use nats::NATS;
pub use nats::{NatsSettings, NatsUser};
use postgres::POSTGRES;
pub use postgres::{Pooler, PostgresSettings};
use redis::REDIS;
pub use redis::{Away, RedisSettings};

/// The gateway's name as a program.
pub const GATEWAY: &str = "podium-gateway";
/// The planner's name as a program.
pub const PLANNER: &str = "podium-planner";
/// The executor's name as a program.
pub const EXECUTOR: &str = "podium-executor";

const POOL_FILE: Setting<PoolFile> = Setting::parsed(
    "pool",
    Values::Form("FILE"),
    |_, text| pool(text),
    "The pool file, which lists vendors and workers. All processes need the same file, and follow its changes.",
)
.required("/etc/podium/pool.toml");

const PLAN_AT_ONCE: Setting<bool> = Setting::switch(
    "plan_at_once",
    "Whether gateways plan runs themselves if no model is needed (fixed, direct), instead of leaving them to planners.",
)
.default("true");

const LEASE: Setting<Duration> = Setting::milliseconds(
    "lease_ms",
    &(1_000..=600_000),
    "Length of a process' lease: without a heartbeat for this time, other processes take over its tasks. A process sends a \
     heartbeat every quarter of it. All processes need the same value.",
)
.default("4000");

/// The bounds reach from the accuracy of NTP to a day.
const CLOCK_SKEW_MAX: Setting<Duration> = Setting::milliseconds(
    "clock_skew_ms_max",
    &(100..=86_400_000),
    "Most that the machine's clock may differ from Postgres' clock. Beyond that the process is not ready and takes no work.",
)
.default("30000");

const CELL: Setting<CellId> = Setting::parsed(
    "cell",
    Values::Form("0 to 4095"),
    |_, text| text.parse::<CellId>().map_err(|e| format!("is `{text}`: {e}")),
    "The number of this cell, which is part of the ids of its runs. All gateways on one database need the same number, and it \
     must never change.",
)
.default("0");

const CELLS: Setting<Cells> = Setting::parsed(
    "cells",
    Values::Form("FILE"),
    |_, text| cells_file(text),
    "A file that lists all cells with their gateways and the tenants that they serve. All gateways of all cells need the same \
     file.",
)
.optional("/etc/podium/cells.toml", "there is one cell");

const CELL_CERTIFICATES: CertificateSettings = CertificateSettings {
    root: root_setting(
        "cells_root_certificates",
        "A PEM file with the authority of the certificates of other cells' gateways, for `https://` addresses.",
    )
    .optional("/etc/podium/cells-ca.pem", "the system's authorities"),
    certificate: certificate_setting("cells_client_certificate")
        .optional("/etc/podium/cells-client.pem", "no certificate"),
    key: key_setting("cells_client_key").optional("/etc/podium/cells-client.key", "no key"),
};

/// The settings that only gateways use, next to those of their listeners.
pub const GATEWAY_GROUPS: [Group; 2] = [
    Group { title: "Planning", keys: &[PLAN_AT_ONCE.key] },
    Group {
        title: "Cells",
        keys: &[
            CELL.key,
            CELLS.key,
            CELL_CERTIFICATES.root.key,
            CELL_CERTIFICATES.certificate.key,
            CELL_CERTIFICATES.key.key,
        ],
    },
];

/// The settings that only planners use.
pub const PLANNER_GROUPS: [Group; 3] = [LOCAL_MODEL, HARDWARE, REDIS];

/// The settings that only executors use.
pub const EXECUTOR_GROUPS: [Group; 3] = [STEPS, STEP_CACHE_KEYS, REDIS];

/// The settings of all processes.
const SHARED_GROUPS: [Group; 8] = [
    POSTGRES,
    NATS,
    Group { title: "Workers", keys: &[POOL_FILE.key] },
    CONDUCTORS,
    Group { title: "Claims and clocks", keys: &[LEASE.key, CLOCK_SKEW_MAX.key] },
    LIFETIME,
    TELEMETRY,
    LOGGING,
];

/// The keys of a program: those of all processes, and those of its `own` groups. Keys of the other programs are accepted, so that
/// all can share a file.
pub fn program_keys(program: &'static str, own: &[Group]) -> ProgramKeys {
    ProgramKeys::new(program, &[own, &SHARED_GROUPS].concat())
        .replace(NAMED_CONDUCTOR.key)
        .accepting(&GATEWAY_GROUPS)
        .accepting(&PLANNER_GROUPS)
        .accepting(&EXECUTOR_GROUPS)
}

/// A pool and its file.
#[derive(Clone, Debug)]
struct PoolFile {
    path: PathBuf,
    pool: Arc<Pool>,
}

/// The settings of every process of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Postgres.
    pub postgres: PostgresSettings,
    /// NATS.
    pub nats: NatsSettings,
    /// Redis.
    pub redis: RedisSettings,
    /// The pool of workers.
    pub pool: Arc<Pool>,
    /// The file of the pool.
    pub pool_file: PathBuf,
    /// The conductors.
    pub conductors: ConductorChoices,
    /// Whether gateways plan if no model is needed.
    pub plan_at_once: bool,
    /// Most concurrent plans, for each tier.
    pub plan_slots: usize,
    /// The bounds of a model in the planner.
    pub local: LocalLimits,
    /// Most concurrent steps, for each vendor and tier.
    pub step_slots: usize,
    /// The bounds of the step cache, which executors share through Redis; `None` if it is off.
    pub step_cache: Option<CacheOptions>,
    /// How long claims hold without a heartbeat of their process.
    pub lease: Duration,
    /// How far the machine's clock may be off from the database's.
    pub clock_skew_max: Duration,
    /// How long runs are kept after their end; `None` means forever.
    pub runs_kept: Option<Duration>,
    /// Time for work under way at shutdown.
    pub drain: Duration,
    /// The cell that this process belongs to.
    pub cell: CellId,
    /// All cells; `None` if there is only this one.
    pub cells: Option<Cells>,
    /// The certificates for TLS with other cells.
    pub cell_certificates: Certificates,
    /// Where metrics are delivered.
    pub telemetry: TelemetrySettings,
    /// The log filter.
    pub log: String,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The keys that are set and that this process does not use, each with its source.
    pub unused: Vec<String>,
}

impl ClusterSettings {
    /// Reads the shared settings for `program`, whose conductors plan at `place`. Problems are added to the checker.
    pub fn read(checker: &mut Checker, program: &str, place: Place) -> Option<Self> {
        let postgres = PostgresSettings::read(checker);
        let nats = NatsSettings::read(checker);
        let redis = RedisSettings::read(checker);
        let pool_file = checker.read(&POOL_FILE);
        let pool = pool_file.as_ref().map(|file| &file.pool);
        let conductors = ConductorChoices::read(checker, &NAMED_CONDUCTOR);
        if let (Some(pool), Some(conductors)) = (pool, &conductors) {
            conductors.check(checker, pool, place);
        }
        let plan_at_once = checker.read(&PLAN_AT_ONCE);
        let plan_slots = checker.read_if_given(&PLAN_SLOTS);
        let local = local_limits(checker);
        let plan_slots = plan_slots.or_else(|| {
            let has_a_model = conductors.as_ref()?.need_a_model_here();
            let sequences = local.as_ref().filter(|_| has_a_model).map(|local| local.sequences_max);
            Some(plan_slots_for(sequences))
        });
        let step_slots = checker.read(&STEP_SLOTS);
        let step_cache = step_cache(checker);
        let lease = checker.read(&LEASE);
        let clock_skew_max = checker.read(&CLOCK_SKEW_MAX);
        let runs_kept = checker.read(&RUNS_KEPT);
        let drain = checker.read(&DRAIN);
        let (cell, cells) = match program {
            GATEWAY => cells(checker),
            _ => (Some(CellId::default()), None),
        };
        let cell_certificates = match program {
            GATEWAY => Certificates::read(checker, &CELL_CERTIFICATES),
            _ => Some(Certificates::default()),
        };
        let telemetry = TelemetrySettings::read(checker);
        let log = checker.read(&LOG);
        let log_format = checker.read(&LOG_FORMAT);
        Some(Self {
            postgres: postgres?,
            nats: nats?,
            redis: redis?,
            pool: Arc::clone(pool?),
            pool_file: pool_file.as_ref()?.path.clone(),
            conductors: conductors?,
            plan_at_once: plan_at_once?,
            plan_slots: plan_slots?,
            local: local?,
            step_slots: step_slots?,
            step_cache: step_cache?,
            lease: lease?,
            clock_skew_max: clock_skew_max?,
            runs_kept: runs_kept?,
            drain: drain?,
            cell: cell?,
            cells,
            cell_certificates: cell_certificates?,
            telemetry,
            log: log?,
            log_format: log_format?,
            unused: checker.unused(),
        })
    }

    /// The settings that a running process follows.
    pub fn followed(&self) -> Followed {
        Followed { files: vec![self.pool_file.clone()], log: self.log.clone() }
    }

    /// Starts the log of `program`.
    pub fn start_log(&self, program: &str, version: &str) {
        let identity = Identity { service: program, version, instance: &instance() };
        podium_setup::start_log(&self.log, self.log_format, &identity);
        if !self.unused.is_empty() {
            info!(keys = self.unused.join(", "), "{program} does not use some of the keys that are set");
        }
    }
}

/// The number of this cell, and all cells, which must include it.
fn cells(checker: &mut Checker) -> (Option<CellId>, Option<Cells>) {
    let (cell, cells) = (checker.read(&CELL), checker.read_if_given(&CELLS));
    if let (Some(cell), Some(cells)) = (cell, &cells)
        && cells.get(cell).is_none()
    {
        let what = format!("does not list cell {cell}, to which this gateway belongs by the key `cell`");
        checker.problem(CELLS.key.name, &what);
    }
    (cell, cells)
}

fn cells_file(text: &str) -> Result<Cells, String> {
    Cells::parse(&read_file(text)?).map_err(|e| format!("is `{text}`, which is invalid: {e}"))
}

/// A pool file, read and checked, so that its problems are listed with all others.
fn pool(text: &str) -> Result<PoolFile, String> {
    let pool = Pool::parse(&read_file(text)?).map_err(|e| format!("is `{text}`, which is invalid: {e}"))?;
    HttpVendors::new(&pool, &EnvironmentKeys)
        .map_err(|e| format!("is `{text}`, whose vendors cannot be used: {}", with_causes(&e)))?;
    Ok(PoolFile { path: values::path(text)?, pool: Arc::new(pool) })
}

fn read_file(text: &str) -> Result<String, String> {
    let path = values::path(text)?;
    std::fs::read_to_string(&path).map_err(|e| format!("is `{text}`, which cannot be read: {e}"))
}

#[cfg(test)]
mod tests {
    use podium_setup::settings::Sources;

    use super::*;

    fn read(flags: &[(&'static str, &str)]) -> Result<ClusterSettings, Vec<String>> {
        let mut sources = Sources::new(&program_keys(GATEWAY, &GATEWAY_GROUPS));
        for (key, value) in flags {
            sources.flag(key, Some(value));
        }
        let mut checker = sources.into_checker();
        let settings = ClusterSettings::read(&mut checker, GATEWAY, Place::Elsewhere);
        checker.finish(settings).map_err(|e| e.0)
    }

    #[test]
    fn all_problems_are_listed_without_secrets() {
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
    fn the_file_of_cells_must_list_this_cell() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cells.toml");
        let file = "schema = 1\n[[cells]]\nnumber = 3\nhttp = [\"http://a:1\"]\ngrpc = [\"http://a:2\"]\n";
        std::fs::write(&path, file).unwrap();
        let path = path.to_str().unwrap();
        assert!(problem(&[("cells", path)]).contains("does not list cell 0"));
        assert!(problem(&[("cell", "4096")]).contains("0 to 4095"));
        assert!(problem(&[("cells", "/no/cells.toml")]).contains("cannot be read"));
    }

    /// The problem of one invalid value, with all required keys set.
    fn problem(flags: &[(&'static str, &str)]) -> String {
        let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pools/demo.toml");
        let mut all = vec![("postgres", "postgres://db/podium"), ("conductor", "direct"), ("pool", pool)];
        all.extend(flags);
        let problems = read(&all).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        problems.concat()
    }

    #[test]
    fn a_secret_in_a_wrong_place_is_rejected_and_not_repeated() {
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
    fn certificates_are_checked_and_need_encrypted_connections() {
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
    fn valid_settings_are_accepted() {
        let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pools/demo.toml");
        let secret = format!("file:{pool}");
        let flags = [
            ("postgres", "postgres://podium@127.0.0.1:5432/podium"),
            ("postgres_password", &secret),
            ("nats", "nats://podium@a:4222, nats://podium@b:4222"),
            ("nats_password", &secret),
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

    #[test]
    fn a_conductor_that_a_start_would_reject_is_rejected() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pools/demo.toml");
        for (conductor, says) in [
            ("worker:nobody", "no worker `nobody`"),
            ("direct:nobody", "no worker `nobody`"),
            ("fixed:/nope.yaml", "/nope.yaml"),
            (&format!("fixed:{file}"), "demo.toml"),
            ("llama:/nope", "/nope"),
            ("model:/nope.toml#x", "/nope.toml"),
            (&format!("model:{file}#nobody"), "no worker `nobody`"),
        ] {
            let problem = problem(&[("conductor", conductor)]);
            assert!(
                problem.starts_with("conductor (from") && problem.contains(says),
                "{conductor}: {problem}"
            );
        }
        let problem = problem(&[("conductor_next", "direct")]);
        assert!(problem.starts_with("conductor_next (from"), "{problem}");
    }

    #[test]
    fn a_share_needs_a_next_conductor() {
        let problem = problem(&[("conductor_next_share", "0.1")]);
        assert!(problem.contains("conductor_next is not set"), "{problem}");
    }

    #[test]
    fn secrets_ports_and_log_levels_are_checked() {
        for (key, value) in [
            ("postgres_password", "env:PODIUM_TEST_NO_SUCH_VARIABLE"),
            ("redis_password", "file:/nope"),
            ("postgres", "postgres://db:99999/podium"),
            ("log", "infoo"),
        ] {
            let problem = problem(&[(key, value)]);
            assert!(problem.starts_with(key), "{value}: {problem}");
        }
    }

    #[test]
    fn a_typo_gets_a_suggestion_and_a_broken_file_no_missing_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("podium.toml");
        let problems = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let mut sources = Sources::new(&program_keys(GATEWAY, &GATEWAY_GROUPS));
            sources.read_file(&path);
            let mut checker = sources.into_checker();
            let settings = ClusterSettings::read(&mut checker, GATEWAY, Place::Elsewhere);
            checker.finish(settings).unwrap_err().0
        };
        let broken = problems("postgres = ");
        assert!(broken.len() == 1 && broken[0].contains("invalid TOML"), "{broken:#?}");
        let typo = problems("postgers_password = 'env:A'");
        assert!(
            typo[0].ends_with("unknown key `postgers_password`; did you mean `postgres_password`?"),
            "{typo:#?}"
        );
        let strange = problems("colour = 'red'");
        assert!(strange[0].ends_with("--print-keys lists all keys"), "{strange:#?}");
    }

    #[test]
    fn keys_of_other_processes_are_accepted_and_reported() {
        let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pools/demo.toml");
        let flags = [
            ("postgres", "postgres://db/podium"),
            ("conductor", "direct"),
            ("pool", pool),
            ("gpu_layers", "all"),
            ("log", "warn"),
        ];
        assert_eq!(read(&flags).unwrap().unused, ["gpu_layers (from --gpu-layers)"]);
    }
}
