//! Where Postgres, NATS and Redis are, and who this process is to them.

use std::path::PathBuf;

use podium_queue_nats::Storage;
use podium_setup::settings::{Checker, SecretRef, values};
use podium_store_postgres::Migrate;

use super::certificates::Certificates;
use super::urls;

const LANE_MESSAGES_MAX: u64 = 100_000;

/// Where Postgres is.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// Without a password; its hosts may be several.
    pub url: String,
    /// Where the password is, if one is needed.
    pub password: Option<SecretRef>,
    /// Whom to trust, and as whom to show oneself.
    pub certificates: Certificates,
    /// What is in between.
    pub pooler: Pooler,
    /// Most connections of this process.
    pub connections: u32,
    /// Whether this process applies pending migrations.
    pub migrate: Migrate,
}

/// What is between a process and Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooler {
    /// Nothing that matters: a connection is a session.
    None,
    /// Something that lends a session for a transaction at a time.
    Transaction,
}

/// Where NATS is.
#[derive(Clone, Debug)]
pub struct NatsSettings {
    /// Servers of one cluster, without users.
    pub servers: Vec<String>,
    /// Who this process is to them.
    pub user: NatsUser,
    /// Whom to trust, and as whom to show oneself.
    pub certificates: Certificates,
    /// Copies of each stream.
    pub replicas: usize,
    /// Where NATS keeps the messages.
    pub storage: Storage,
    /// Most messages of a lane.
    pub lane_messages_max: usize,
}

/// Who a process is to NATS, and where its secret is.
#[derive(Clone, Debug)]
pub enum NatsUser {
    /// Nobody in particular, or whom its certificate names.
    Anybody,
    /// A user with a password.
    Password {
        /// Its name.
        user: String,
        /// Its password.
        password: SecretRef,
    },
    /// Whoever has the token.
    Token(SecretRef),
    /// Whoever has the seed of this key.
    NKey(SecretRef),
    /// The user of a file with credentials.
    Credentials(PathBuf),
}

/// Where Redis is.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// The server of the step cache, and of the limits unless `limits` names others. Without a password.
    pub url: String,
    /// The servers of the limits, each vendor on one of them. At least one.
    pub limits: Vec<String>,
    /// Where the password is, if one is needed.
    pub password: Option<SecretRef>,
    /// Whom to trust, and as whom to show oneself.
    pub certificates: Certificates,
    /// Limits while it is unreachable.
    pub away: Away,
}

/// Limits while Redis is unreachable. There is no setting without limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Away {
    /// No worker is called.
    Hold,
    /// Each process keeps to a share of every limit: a fixed one, over 0 and at most 1; or, with none, one divided by the number
    /// of processes that Redis last knew of.
    Local(Option<f64>),
}

pub(super) fn postgres(checker: &mut Checker) -> Option<PostgresSettings> {
    let url = checker.read("postgres", urls::postgres);
    let password = checker.read_if_given("postgres_password", SecretRef::read);
    let certificates = Certificates::read(checker, "postgres");
    let pooler = checker.read("postgres_pooler", |text| match text {
        "none" => Ok(Pooler::None),
        "transaction" => Ok(Pooler::Transaction),
        _ => Err(format!("is `{text}`, it must be none or transaction")),
    });
    let connections = checker.read("postgres_connections", |text| values::number(text, 2, 1000));
    let migrate = checker.read("postgres_migrate", |text| match text {
        "auto" => Ok(Migrate::Auto),
        "never" => Ok(Migrate::Never),
        _ => Err(format!("is `{text}`, it must be auto or never")),
    });
    let ((url, checks), certificates) = (url?, certificates?);
    if certificates.root.is_some() && checks == Some(false) {
        let what = "is given, but the sslmode in `postgres` checks nobody's certificate; verify-full does";
        checker.problem("postgres_root_certificates", what);
    }
    let connections = u32::try_from(connections?).ok()?;
    Some(PostgresSettings { url, password, certificates, pooler: pooler?, connections, migrate: migrate? })
}

pub(super) fn nats(checker: &mut Checker) -> Option<NatsSettings> {
    let servers = checker.read("nats", urls::nats);
    let user = match (&servers, nats_secret(checker)) {
        (Some((_, user)), Some(key)) => nats_user(checker, user.as_deref(), key),
        _ => None,
    };
    let certificates = Certificates::read(checker, "nats");
    let replicas = checker.read("nats_replicas", |text| match text {
        "1" | "3" | "5" => values::number(text, 1, 5),
        _ => Err(format!("is `{text}`, it must be 1, 3 or 5")),
    });
    let storage = checker.read("nats_storage", |text| match text {
        "file" => Ok(Storage::File),
        "memory" => Ok(Storage::Memory),
        _ => Err(format!("is `{text}`, it must be file or memory")),
    });
    let lane_messages_max =
        checker.read("lane_messages_max", |text| values::number(text, 1, LANE_MESSAGES_MAX));
    Some(NatsSettings {
        servers: servers?.0,
        user: user?,
        certificates: certificates?,
        replicas: usize::try_from(replicas?).ok()?,
        storage: storage?,
        lane_messages_max: usize::try_from(lane_messages_max?).ok()?,
    })
}

/// The key that says where the secret is, of which at most one is given; empty if none is.
fn nats_secret(checker: &mut Checker) -> Option<&'static str> {
    let ways = ["nats_password", "nats_token", "nats_nkey", "nats_credentials"];
    let given: Vec<_> = ways.into_iter().filter(|key| checker.written(key).is_some()).collect();
    if let [first, second, ..] = given[..] {
        checker.problem(first, &format!("and {second} are both given: a process is one user"));
        return None;
    }
    Some(given.first().copied().unwrap_or_default())
}

/// Who the process is, by the user in the address and by the key that says where the secret is.
fn nats_user(checker: &mut Checker, named: Option<&str>, key: &str) -> Option<NatsUser> {
    match (key, named) {
        ("nats_password", Some(user)) => {
            let password = checker.read("nats_password", SecretRef::read)?;
            Some(NatsUser::Password { user: user.to_owned(), password })
        }
        ("nats_password", None) => {
            checker.problem("nats_password", "is given, but `nats` names no user: nats://USER@HOST:PORT");
            None
        }
        (_, Some(_)) => {
            // It may be a token.
            checker.problem("nats", "names a user without nats_password; a token belongs into nats_token");
            None
        }
        ("nats_token", None) => checker.read("nats_token", SecretRef::read).map(NatsUser::Token),
        ("nats_nkey", None) => checker.read("nats_nkey", SecretRef::read).map(NatsUser::NKey),
        ("", None) => Some(NatsUser::Anybody),
        (credentials_key, None) => checker.read(credentials_key, credentials).map(NatsUser::Credentials),
    }
}

fn credentials(text: &str) -> Result<PathBuf, String> {
    let path = values::path(text)?;
    let read = std::fs::File::open(&path);
    // What was given is not repeated: it may be the credentials themselves.
    read.map_err(|error| format!("names a file that cannot be read: {error}"))?;
    Ok(path)
}

pub(super) fn redis(checker: &mut Checker) -> Option<RedisSettings> {
    let url = checker.read("redis", urls::redis);
    let limits = checker.read_if_given("redis_limits", urls::several_redis);
    let password = checker.read_if_given("redis_password", SecretRef::read);
    let certificates = Certificates::read(checker, "redis");
    let away = checker.read("redis_away", away);
    let (url, certificates) = (url?, certificates?);
    let given = limits.map(|limits| ("redis_limits", limits));
    let (key, limits) = given.unwrap_or_else(|| ("redis", vec![url.clone()]));
    for (key, (_, is_encrypted)) in
        [("redis", &url)].into_iter().chain(limits.iter().map(|server| (key, server)))
    {
        if certificates.are_given() && !is_encrypted {
            checker.problem(key, "is redis://, but certificates are given: rediss:// is encrypted");
            break;
        }
    }
    let limits = limits.into_iter().map(|(url, _)| url).collect();
    Some(RedisSettings { url: url.0, limits, password, certificates, away: away? })
}

fn away(text: &str) -> Result<Away, String> {
    let wrong =
        || format!("is `{text}`: must be hold, local, or local:SHARE with a share over 0 and at most 1");
    match text.split_once(':') {
        None if text == "hold" => Ok(Away::Hold),
        None if text == "local" => Ok(Away::Local(None)),
        Some(("local", share)) => {
            let share = share.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
            share.map(|share| Away::Local(Some(share))).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}
