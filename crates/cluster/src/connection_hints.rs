//! Hints which setting may be wrong if a server refuses a connection.

use std::error::Error;

use podium_ports::causes::with_causes;

/// A server. Its settings begin with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// The server of the store.
    Postgres,
    /// The server of the limits and of the step cache.
    Redis,
}

/// Parts of the errors about certificates and users, by TLS and by the servers, with the hint for each server.
const SIGNS: [(&[&str], [&str; 2]); 5] = [
    (
        // The second: another authority has the same name.
        &["UnknownIssuer", "BadSignature"],
        [
            "; postgres_root_certificates must name the authority of the server's certificate",
            "; redis_root_certificates must name the authority of the server's certificate",
        ],
    ),
    (
        &["not valid for name"],
        [
            "; the server's certificate is for another host than the one in `postgres`",
            "; the server's certificate is for another host than the one in `redis`",
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

/// The hint for an error and its causes, after `; `; empty if none is known.
pub(crate) fn hint(server: Server, error: &(dyn Error + 'static)) -> &'static str {
    let text = with_causes(error);
    let is_sign = |sign: &&str| text.contains(*sign);
    let found = SIGNS.iter().find(|(signs, _)| signs.iter().any(is_sign));
    found.map_or("", |(_, [postgres, redis])| match server {
        Server::Postgres => postgres,
        Server::Redis => redis,
    })
}
