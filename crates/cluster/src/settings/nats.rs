//! The settings of the connection to NATS.

use std::path::PathBuf;

use podium_queue_nats::Storage;
use podium_setup::settings::{Checker, Group, SecretRef, Setting, Values, values};

use super::certificates::{
    CertificateSettings, Certificates, certificate_setting, key_setting, root_setting,
};
use super::urls::{self, NatsServers};

const SERVERS: Setting<NatsServers> = Setting::parsed(
    "nats",
    Values::Form("nats://HOST:PORT or tls://HOST:PORT"),
    |_, text| urls::nats(text),
    "The NATS servers, separated by commas; tls:// encrypts. A user that has a password is part of the address: \
     nats://USER@HOST:PORT.",
)
.default("nats://127.0.0.1:4222");

const PASSWORD: Setting<SecretRef> = Setting::secret("nats_password", "The password of the user in `nats`.")
    .optional("file:/run/secrets/nats_password", "no password");

const TOKEN: Setting<SecretRef> =
    Setting::secret("nats_token", "A NATS token instead of a user.").optional("env:NATS_TOKEN", "no token");

const NKEY: Setting<SecretRef> = Setting::secret("nats_nkey", "The seed of a NATS nkey instead of a user.")
    .optional("env:NATS_NKEY", "no nkey");

const CREDENTIALS: Setting<PathBuf> = Setting::parsed(
    "nats_credentials",
    Values::Form("FILE"),
    |_, text| credentials(text),
    "A NATS credentials file (.creds) instead of a user.",
)
.optional("/etc/podium/nats.creds", "no credentials");

const CERTIFICATES: CertificateSettings = CertificateSettings {
    root: root_setting(
        "nats_root_certificates",
        "A PEM file with the authority of the servers' certificates.",
    )
    .optional("/etc/podium/nats-ca.pem", "the system's authorities"),
    certificate: certificate_setting("nats_client_certificate")
        .optional("/etc/podium/nats-client.pem", "no certificate"),
    key: key_setting("nats_client_key").optional("/etc/podium/nats-client.key", "no key"),
};

const REPLICAS: Setting<usize> = Setting::words(
    "nats_replicas",
    &["1", "3", "5"],
    |key, word| word.parse().map_err(|_| key.must_be(word)),
    "Copies of each JetStream stream. More than 1 needs a cluster of NATS servers.",
)
.default("1");

const STORAGE: Setting<Storage> = Setting::words(
    "nats_storage",
    &["file", "memory"],
    |key, word| match word {
        "file" => Ok(Storage::File),
        "memory" => Ok(Storage::Memory),
        _ => Err(key.must_be(word)),
    },
    "Where NATS keeps the messages. Memory needs no disk, which could fill up; after a restart of NATS the sweepers publish the \
     messages again, from Postgres. All processes need the same value.",
)
.default("file");

const LANE_MESSAGES_MAX: Setting<usize> = Setting::count(
    "lane_messages_max",
    &(1..=100_000),
    "Most waiting tasks that NATS holds for each lane (vendor and tier). The others wait in Postgres; calls under way do not \
     count.",
)
.unit("tasks")
.default("256");

/// The queue and the live stream.
pub(super) const NATS: Group = Group {
    title: "NATS",
    keys: &[
        SERVERS.key,
        PASSWORD.key,
        TOKEN.key,
        NKEY.key,
        CREDENTIALS.key,
        CERTIFICATES.root.key,
        CERTIFICATES.certificate.key,
        CERTIFICATES.key.key,
        REPLICAS.key,
        STORAGE.key,
        LANE_MESSAGES_MAX.key,
    ],
};

/// The connection to NATS.
#[derive(Clone, Debug)]
pub struct NatsSettings {
    /// Servers of one cluster, without users.
    pub servers: Vec<String>,
    /// How this process signs in.
    pub user: NatsUser,
    /// The certificates of both sides.
    pub certificates: Certificates,
    /// Copies of each stream.
    pub replicas: usize,
    /// Where NATS keeps the messages.
    pub storage: Storage,
    /// Most waiting messages of a lane.
    pub lane_messages_max: usize,
}

/// How a process signs in to NATS.
#[derive(Clone, Debug)]
pub enum NatsUser {
    /// Without a user, or as the one that its certificate names.
    Anybody,
    /// As a user with a password.
    Password {
        /// Its name.
        user: String,
        /// The place of its password.
        password: SecretRef,
    },
    /// With a token.
    Token(SecretRef),
    /// With the seed of a key.
    NKey(SecretRef),
    /// As the user of a credentials file.
    Credentials(PathBuf),
}

impl NatsSettings {
    pub(super) fn read(checker: &mut Checker) -> Option<Self> {
        let servers = checker.read(&SERVERS);
        let user = servers.as_ref().and_then(|servers| NatsUser::read(checker, servers.user.as_deref()));
        let certificates = Certificates::read(checker, &CERTIFICATES);
        let replicas = checker.read(&REPLICAS);
        let storage = checker.read(&STORAGE);
        let lane_messages_max = checker.read(&LANE_MESSAGES_MAX);
        Some(Self {
            servers: servers?.urls,
            user: user?,
            certificates: certificates?,
            replicas: replicas?,
            storage: storage?,
            lane_messages_max: lane_messages_max?,
        })
    }
}

impl NatsUser {
    /// The user, whose name the address may have. At most one secret may be set.
    fn read(checker: &mut Checker, name: Option<&str>) -> Option<Self> {
        let [password, token, nkey] = [&PASSWORD, &TOKEN, &NKEY].map(|setting| checker.has_value(setting));
        let credentials = checker.has_value(&CREDENTIALS);
        let keys =
            [(PASSWORD.key, password), (TOKEN.key, token), (NKEY.key, nkey), (CREDENTIALS.key, credentials)];
        let set: Vec<_> = keys.iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key.name).collect();
        if let [first, second, ..] = set[..] {
            checker
                .problem(first, &format!("and {second} are both set; a process signs in with one of them"));
            return None;
        }
        match name {
            Some(user) if password => {
                let password = checker.read(&PASSWORD)?;
                Some(Self::Password { user: user.to_owned(), password })
            }
            Some(_) => {
                // The name may be a token, so it is not repeated.
                checker.problem(
                    SERVERS.key.name,
                    "names a user without nats_password; put a token into nats_token",
                );
                None
            }
            None if password => {
                checker.problem(
                    PASSWORD.key.name,
                    "is set, but `nats` names no user; write nats://USER@HOST:PORT",
                );
                None
            }
            None if token => checker.read(&TOKEN).map(Self::Token),
            None if nkey => checker.read(&NKEY).map(Self::NKey),
            None if credentials => checker.read(&CREDENTIALS).map(Self::Credentials),
            None => Some(Self::Anybody),
        }
    }
}

fn credentials(text: &str) -> Result<PathBuf, String> {
    let path = values::path(text)?;
    let read = std::fs::File::open(&path);
    // The error does not repeat the value, because it may be the credentials themselves.
    read.map_err(|error| format!("names a file that cannot be read: {error}"))?;
    Ok(path)
}
