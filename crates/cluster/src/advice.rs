//! Which setting may be wrong when a server is not to be had.

use std::error::Error;

/// A server, by the name that its settings begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// The store's.
    Postgres,
    /// The limits' and the step cache's.
    Redis,
}

/// What is said of a certificate or of who signs in, by TLS and by the servers, and the advice for each of them.
const SIGNS: [(&[&str], [&str; 2]); 5] = [
    (
        // The second: of somebody else of the same name.
        &["UnknownIssuer", "BadSignature"],
        [
            "; postgres_root_certificates names who may have signed its certificate",
            "; redis_root_certificates names who may have signed its certificate",
        ],
    ),
    (
        &["not valid for name"],
        [
            "; its certificate is of another host than `postgres` names",
            "; its certificate is of another host than `redis` names",
        ],
    ),
    (
        &["CertificateRequired", "certificate authentication failed", "requires a valid client certificate"],
        [
            "; postgres_client_certificate and postgres_client_key are missing or not accepted",
            "; redis_client_certificate and redis_client_key are missing or not accepted",
        ],
    ),
    (
        &[
            "authentication failed",
            "WRONGPASS",
            "NOAUTH",
            "AuthenticationFailed",
            "no password",
            "empty password",
        ],
        [
            "; postgres_password, or the user in `postgres`, is wrong or missing",
            "; redis_password, or the user in `redis`, is wrong or missing",
        ],
    ),
    (
        &["does not support TLS", "no encryption", "InvalidContentType", "corrupt message"],
        [
            "; only one side of the connection encrypts it: see the sslmode in `postgres`",
            "; only one side of the connection encrypts it: redis:// does not, rediss:// does",
        ],
    ),
];

/// The advice for an error and its causes; nothing where none is known.
pub(crate) fn advice(server: Server, error: &(dyn Error + 'static)) -> &'static str {
    let mut said = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push(error.to_string());
        cause = error.source();
    }
    let is_said = |sign: &&str| said.iter().any(|said| said.contains(*sign));
    let found = SIGNS.iter().find(|(signs, _)| signs.iter().any(is_said));
    found.map_or("", |(_, [postgres, redis])| match server {
        Server::Postgres => postgres,
        Server::Redis => redis,
    })
}
