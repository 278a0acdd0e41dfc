//! Addresses of servers, as settings have them: without secrets, because settings may be printed.

/// The parameters that a Postgres address may have after `?`. The names are those of Postgres' own clients.
const POSTGRES_PARAMETERS: [&str; 5] =
    ["sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs"];
const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
/// The modes that check the server's certificate.
const CHECKING_SSL_MODES: [&str; 2] = ["verify-ca", "verify-full"];

/// The parts of a URL without a secret.
struct Parts<'t> {
    user: Option<&'t str>,
    hosts: &'t str,
    /// The rest after the hosts, with `/`, `?` or `#`.
    rest: &'t str,
}

/// Splits a URL of one of these schemes. An invalid value may contain a password, so no error repeats it.
fn parts<'t>(text: &'t str, schemes: &[&str]) -> Result<Parts<'t>, String> {
    let after_scheme = schemes.iter().find_map(|scheme| text.strip_prefix(&format!("{scheme}://")));
    let after_scheme = after_scheme.filter(|rest| !rest.is_empty());
    let after_scheme = after_scheme
        .ok_or_else(|| format!("must be a URL that begins with {}://", schemes.join(":// or ")))?;
    let end = after_scheme.find(['/', '?', '#']).unwrap_or(after_scheme.len());
    let (authority, rest) = after_scheme.split_at(end);
    let (user, hosts) = match authority.rsplit_once('@') {
        // A password may contain an `@`, too.
        Some((user, _)) if user.contains([':', '@']) => {
            return Err(
                "must not contain a password; the key that ends with _password names its place".to_owned()
            );
        }
        Some((user, hosts)) => (Some(user).filter(|user| !user.is_empty()), hosts),
        None => (None, authority),
    };
    if rest.contains('@') {
        return Err("has an `@` after its host; a password does not belong into an address".to_owned());
    }
    hosts.split(',').try_for_each(port)?;
    Ok(Parts { user, hosts, rest })
}

/// Checks the port of a host, if it has one.
fn port(host: &str) -> Result<(), String> {
    // An IPv6 address is in brackets.
    let after_address = host.rsplit_once(']').map_or(host, |(_, after)| after);
    let Some((_, port)) = after_address.rsplit_once(':') else { return Ok(()) };
    match port.parse::<u16>() {
        Ok(1..) => Ok(()),
        _ => Err("has an invalid port; a port is 1 to 65535".to_owned()),
    }
}

/// A Postgres address, which may name several hosts.
#[derive(Debug)]
pub(super) struct PostgresUrl {
    pub(super) url: String,
    /// Whether its `sslmode` checks the server's certificate; `None` if it has no `sslmode`.
    pub(super) checks_server: Option<bool>,
}

pub(super) fn postgres(text: &str) -> Result<PostgresUrl, String> {
    let Parts { hosts, rest, .. } = parts(text, &["postgres", "postgresql"])?;
    if hosts.split(',').any(str::is_empty) {
        return Err("must name a host, or several separated by commas".to_owned());
    }
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let mut checks_server = None;
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if !POSTGRES_PARAMETERS.contains(&name) {
            return Err(format!(
                "has an unknown parameter; the known ones are {}",
                POSTGRES_PARAMETERS.join(", ")
            ));
        }
        if name == "sslmode" {
            if !SSL_MODES.contains(&value) {
                return Err(format!("has an unknown sslmode; the known ones are {}", SSL_MODES.join(", ")));
            }
            checks_server = Some(CHECKING_SSL_MODES.contains(&value));
        }
        if name == "target_session_attrs" && !["read-write", "primary"].contains(&value) {
            return Err(
                "has an unsupported target_session_attrs; leave it out, because read-write always applies"
                    .to_owned(),
            );
        }
    }
    Ok(PostgresUrl { url: text.to_owned(), checks_server })
}

/// The servers of one NATS cluster.
#[derive(Debug)]
pub(super) struct NatsServers {
    /// Their addresses without the user.
    pub(super) urls: Vec<String>,
    /// The user, the same for all servers.
    pub(super) user: Option<String>,
}

pub(super) fn nats(text: &str) -> Result<NatsServers, String> {
    let mut urls = Vec::new();
    let mut users = Vec::new();
    for server in text.split(',').map(str::trim) {
        let Parts { user, hosts, rest } = parts(server, &["nats", "tls"])?;
        if hosts.is_empty() || !["", "/"].contains(&rest) {
            return Err("must be a host and a port, with nothing after them".to_owned());
        }
        let scheme = server.split_once("://").map_or("nats", |(scheme, _)| scheme);
        urls.push(format!("{scheme}://{hosts}"));
        users.push(user.map(str::to_owned));
    }
    if users.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err("names several users; all servers need the same one".to_owned());
    }
    Ok(NatsServers { urls, user: users.into_iter().next().flatten() })
}

/// A Redis address.
#[derive(Debug)]
pub(super) struct RedisUrl {
    pub(super) url: String,
    pub(super) is_encrypted: bool,
}

pub(super) fn redis(text: &str) -> Result<RedisUrl, String> {
    let Parts { hosts, rest, .. } = parts(text, &["redis", "rediss"])?;
    let database = rest.strip_prefix('/').unwrap_or(rest);
    if hosts.is_empty() || !database.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("must be a host and a port, with at most the number of a database after them".to_owned());
    }
    Ok(RedisUrl { url: text.to_owned(), is_encrypted: text.starts_with("rediss://") })
}

/// Addresses of different servers.
pub(super) fn several_redis(text: &str) -> Result<Vec<RedisUrl>, String> {
    let servers: Vec<_> = text.split(',').map(|server| redis(server.trim())).collect::<Result<_, _>>()?;
    for (index, server) in servers.iter().enumerate() {
        if servers[..index].iter().any(|other| redis_name(&other.url) == redis_name(&server.url)) {
            return Err("names a server twice".to_owned());
        }
    }
    Ok(servers)
}

/// The host, port and database of a Redis address, which identify the server.
pub(crate) fn redis_name(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.rsplit_once('@').map_or(rest, |(_, place)| place).trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_checked_in_every_address() {
        for right in
            ["postgres://db/podium", "postgres://a:5432,b:6432/podium", "postgres://[::1]:5432/podium"]
        {
            assert!(postgres(right).is_ok(), "{right}");
        }
        for wrong in ["postgres://db:99999/podium", "postgres://a:5432,b:0/podium", "postgres://db:x/podium"]
        {
            assert!(postgres(wrong).unwrap_err().contains("port"), "{wrong}");
        }
        assert!(nats("nats://a:4222, nats://b:99999").unwrap_err().contains("port"));
        assert!(redis("redis://cache:99999").unwrap_err().contains("port"));
        assert!(redis("redis://[::1]").is_ok());
    }

    #[test]
    fn several_redis_servers_are_told_apart_by_host_port_and_database() {
        let servers = several_redis("redis://a:6379, rediss://user@b:6379/1,redis://b:6379").unwrap();
        let names: Vec<_> = servers.iter().map(|server| redis_name(&server.url)).collect();
        assert_eq!(names, ["a:6379", "b:6379/1", "b:6379"]);
        for twice in ["redis://a:6379,redis://a:6379", "redis://a:6379, rediss://user@a:6379/"] {
            assert!(several_redis(twice).unwrap_err().contains("twice"), "{twice}");
        }
        assert!(several_redis("redis://a:6379,").is_err());
        assert!(several_redis("redis://:hunter2@a:6379").is_err_and(|error| !error.contains("hunter2")));
    }
}
