//! The settings of the connection to Postgres.

use podium_setup::settings::{Checker, Group, SecretRef, Setting, Values, values};
use podium_store_postgres::Migrate;

use super::certificates::{
    CertificateSettings, Certificates, certificate_setting, key_setting, root_setting,
};
use super::urls::{self, PostgresUrl};

const URL: Setting<PostgresUrl> = Setting::parsed(
    "postgres",
    Values::Form("postgres://USER@HOST:PORT/DATABASE"),
    |_, text| urls::postgres(text),
    "The database, without a password. Separate several HOST:PORT by commas; the server that accepts writes is used. \
     `?sslmode=verify-full` checks the server's certificate.",
)
.required("postgres://podium@127.0.0.1:5432/podium");

const PASSWORD: Setting<SecretRef> =
    Setting::secret("postgres_password", "The password of the user in `postgres`.")
        .optional("file:/run/secrets/postgres_password", "no password");

const CERTIFICATES: CertificateSettings = CertificateSettings {
    root: root_setting(
        "postgres_root_certificates",
        "A PEM file with the authority of the server's certificate. If it is set, sslmode is verify-full unless the URL has one.",
    )
    .optional("/etc/podium/postgres-ca.pem", "the system's authorities"),
    certificate: certificate_setting("postgres_client_certificate")
        .optional("/etc/podium/postgres-client.pem", "no certificate"),
    key: key_setting("postgres_client_key").optional("/etc/podium/postgres-client.key", "no key"),
};

const POOLER: Setting<Pooler> = Setting::words(
    "postgres_pooler",
    &["none", "transaction"],
    |key, word| match word {
        "none" => Ok(Pooler::None),
        "transaction" => Ok(Pooler::Transaction),
        _ => Err(key.must_be(word)),
    },
    "The pooler between this process and Postgres: none, or one that lends a session for one transaction at a time, such as \
     PgBouncer 1.21 or newer.",
)
.default("none");

const CONNECTIONS: Setting<u32> = Setting::parsed(
    "postgres_connections",
    Values::Number { min: 2, max: 1000 },
    |key, text| u32::try_from(values::number(key, text)?).map_err(|_| key.must_be(text)),
    "Most connections of this process to Postgres. The sum over all processes must stay below Postgres' max_connections (100 by \
     default: twelve processes with 8 each).",
)
.unit("connections")
.default("8");

const MIGRATE: Setting<Migrate> = Setting::words(
    "postgres_migrate",
    &["auto", "never"],
    |key, word| match word {
        "auto" => Ok(Migrate::Auto),
        "never" => Ok(Migrate::Never),
        _ => Err(key.must_be(word)),
    },
    "Whether this process applies pending migrations when it starts. Set never if `podium migrate` applies them and this \
     process' role may not create tables.",
)
.default("auto");

/// The store.
pub(super) const POSTGRES: Group = Group {
    title: "Postgres",
    keys: &[
        URL.key,
        PASSWORD.key,
        CERTIFICATES.root.key,
        CERTIFICATES.certificate.key,
        CERTIFICATES.key.key,
        POOLER.key,
        CONNECTIONS.key,
        MIGRATE.key,
    ],
};

/// The connection to Postgres.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// The address without a password; it may name several hosts.
    pub url: String,
    /// The place of the password, if one is needed.
    pub password: Option<SecretRef>,
    /// The certificates of both sides.
    pub certificates: Certificates,
    /// The pooler in between.
    pub pooler: Pooler,
    /// Most connections of this process.
    pub connections: u32,
    /// Whether this process applies pending migrations.
    pub migrate: Migrate,
}

/// The pooler between a process and Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooler {
    /// A connection is a session.
    None,
    /// A session is lent for one transaction at a time.
    Transaction,
}

impl PostgresSettings {
    pub(super) fn read(checker: &mut Checker) -> Option<Self> {
        let url = checker.read(&URL);
        let password = checker.read_if_given(&PASSWORD);
        let certificates = Certificates::read(checker, &CERTIFICATES);
        let pooler = checker.read(&POOLER);
        let connections = checker.read(&CONNECTIONS);
        let migrate = checker.read(&MIGRATE);
        let (PostgresUrl { url, checks_server }, certificates) = (url?, certificates?);
        if certificates.root.is_some() && checks_server == Some(false) {
            let what = "is set, but the sslmode in `postgres` does not check the server's certificate; use verify-full";
            checker.problem(CERTIFICATES.root.key.name, what);
        }
        Some(Self {
            url,
            password,
            certificates,
            pooler: pooler?,
            connections: connections?,
            migrate: migrate?,
        })
    }
}
