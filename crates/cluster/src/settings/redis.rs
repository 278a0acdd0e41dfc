//! The settings of the connections to Redis.

use podium_setup::settings::{Checker, Group, Key, SecretRef, Setting, Values};

use super::certificates::{
    CertificateSettings, Certificates, certificate_setting, key_setting, root_setting,
};
use super::urls::{self, RedisUrl};

const SERVER: Setting<RedisUrl> = Setting::parsed(
    "redis",
    Values::Form("redis://USER@HOST:PORT or rediss://USER@HOST:PORT"),
    |_, text| urls::redis(text),
    "The Redis server that holds the vendors' limits and the step cache; rediss:// encrypts. The user may be left out.",
)
.default("redis://127.0.0.1:6379");

const LIMITS: Setting<Vec<RedisUrl>> = Setting::parsed(
    "redis_limits",
    Values::Form("addresses as in `redis`, separated by commas"),
    |_, text| urls::several_redis(text),
    "The Redis servers that hold the vendors' limits; each vendor is on one of them. All processes need the same value, and so \
     do all cells whose pools share vendors' accounts.",
)
.optional("redis://limits-a:6379, redis://limits-b:6379", "the server of `redis`");

const PASSWORD: Setting<SecretRef> = Setting::secret("redis_password", "The password of all Redis servers.")
    .optional("file:/run/secrets/redis_password", "no password");

const CERTIFICATES: CertificateSettings = CertificateSettings {
    root: root_setting(
        "redis_root_certificates",
        "A PEM file with the authority of the servers' certificates.",
    )
    .optional("/etc/podium/redis-ca.pem", "the system's authorities"),
    certificate: certificate_setting("redis_client_certificate")
        .optional("/etc/podium/redis-client.pem", "no certificate"),
    key: key_setting("redis_client_key").optional("/etc/podium/redis-client.key", "no key"),
};

const AWAY: Setting<Away> = Setting::parsed(
    "redis_away",
    Values::Form("local, local:SHARE with a share above 0 and at most 1, or hold"),
    away,
    "The limits while Redis is unreachable. local: each process keeps to its part of every limit, which is one divided by the \
     number of processes that Redis last knew. local:SHARE: each process keeps to this part. hold: no model is called.",
)
.default("local");

/// The limits and the step cache.
pub(super) const REDIS: Group = Group {
    title: "Redis",
    keys: &[
        SERVER.key,
        LIMITS.key,
        PASSWORD.key,
        CERTIFICATES.root.key,
        CERTIFICATES.certificate.key,
        CERTIFICATES.key.key,
        AWAY.key,
    ],
};

/// The connections to Redis.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// The server of the step cache, and of the limits unless `limits` names others. Without a password.
    pub url: String,
    /// The servers of the limits, each vendor on one of them. At least one.
    pub limits: Vec<String>,
    /// The place of the password, if one is needed.
    pub password: Option<SecretRef>,
    /// The certificates of both sides.
    pub certificates: Certificates,
    /// The limits while Redis is unreachable.
    pub away: Away,
}

/// Limits while Redis is unreachable. There is no setting without limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Away {
    /// No worker is called.
    Hold,
    /// Each process keeps to a share of every limit: a fixed one, above 0 and at most 1; or, with `None`, one divided by the
    /// number of processes that Redis last knew.
    Local(Option<f64>),
}

impl RedisSettings {
    pub(super) fn read(checker: &mut Checker) -> Option<Self> {
        let server = checker.read(&SERVER);
        let limits = checker.read_if_given(&LIMITS);
        let password = checker.read_if_given(&PASSWORD);
        let certificates = Certificates::read(checker, &CERTIFICATES);
        let away = checker.read(&AWAY);
        let (server, certificates) = (server?, certificates?);
        if certificates.are_given() {
            let plain = |url: &RedisUrl| !url.is_encrypted;
            let is_plain = [(SERVER.key, plain(&server)), (LIMITS.key, limits.iter().flatten().any(plain))];
            if let Some((key, _)) = is_plain.into_iter().find(|(_, is_plain)| *is_plain) {
                let what = "is redis://, but certificates are set; rediss:// encrypts the connection";
                checker.problem(key.name, what);
            }
        }
        let urls = limits.map(|servers| servers.into_iter().map(|server| server.url).collect());
        Some(Self {
            limits: urls.unwrap_or_else(|| vec![server.url.clone()]),
            url: server.url,
            password,
            certificates,
            away: away?,
        })
    }
}

fn away(key: &Key, text: &str) -> Result<Away, String> {
    match text.split_once(':') {
        None if text == "hold" => Ok(Away::Hold),
        None if text == "local" => Ok(Away::Local(None)),
        Some(("local", share)) => {
            let share = share.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
            share.map(|share| Away::Local(Some(share))).ok_or_else(|| key.must_be(text))
        }
        _ => Err(key.must_be(text)),
    }
}
