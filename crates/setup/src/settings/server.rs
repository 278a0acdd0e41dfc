//! The keys of a server's limits, for every program that serves clients.

use std::net::SocketAddr;
use std::time::Duration;

use podium_ports::server::ServerLimits;

use super::values::number;
use super::{Checker, Key};

/// An hour.
const WAIT_MS_MAX: u64 = 3_600_000;
const CONNECTIONS_MAX: u64 = 1_000_000;
const UNREAD_BYTES_MIN: u64 = 16 << 20;
const UNREAD_BYTES_MAX: u64 = 1 << 40;
const HOSTS_MAX: usize = 64;

/// The keys and their defaults.
pub const SERVER_KEYS: [Key; 8] = [
    Key::optional(
        "connections_max",
        "16384",
        "Most connections of HTTP and gRPC clients together. A new one takes the place of the one that has been idle for \
         longest. Unset: half of the files that the process may have open, at most 16384.",
    ),
    Key::new(
        "request_head_ms",
        "10000",
        "Milliseconds until the head of a connection's first request must have arrived, 1 to an hour.",
    ),
    Key::new(
        "request_body_ms",
        "30000",
        "Milliseconds until the body of a request must have arrived, 1 to an hour.",
    ),
    Key::new(
        "connection_idle_ms",
        "75000",
        "Milliseconds after which a connection without a request under way is closed, 1 to an hour.",
    ),
    Key::new(
        "answer_stall_ms",
        "30000",
        "Milliseconds after which an answer is given up if its client reads nothing of it, 1 to an hour.",
    ),
    Key::new(
        "unread_bytes_max",
        "268435456",
        "Most bytes of answers that are held until clients have read them.",
    ),
    Key::optional(
        "hosts_allowed",
        "podium.internal",
        "Host names, separated by commas, that requests and web pages may name while no key is required; localhost is \
         always allowed.",
    ),
    Key::optional(
        "cors_origins",
        "https://app.example.com",
        "Origins of web pages, separated by commas, that may use the HTTP API from a browser (CORS). Unset: none.",
    ),
];

/// Reads these keys. Problems are added to the checker.
pub fn server_limits(checker: &mut Checker) -> Option<ServerLimits> {
    let given = checker.written("connections_max").is_some();
    let connections_max = checker.read_if_given("connections_max", |text| number(text, 1, CONNECTIONS_MAX));
    let mut wait = |key| checker.read(key, |text| number(text, 1, WAIT_MS_MAX)).map(Duration::from_millis);
    let [head, body] = [wait("request_head_ms"), wait("request_body_ms")];
    let [idle, stall] = [wait("connection_idle_ms"), wait("answer_stall_ms")];
    let unread_bytes =
        checker.read("unread_bytes_max", |text| number(text, UNREAD_BYTES_MIN, UNREAD_BYTES_MAX));
    let hosts_given = checker.written("hosts_allowed").is_some();
    let hosts = checker.read_if_given("hosts_allowed", hosts);
    let origins_given = checker.written("cors_origins").is_some();
    let origins = checker.read_if_given("cors_origins", origins);
    Some(ServerLimits {
        connections_max: if given { Some(usize::try_from(connections_max?).ok()?) } else { None },
        head: head?,
        body: body?,
        idle: idle?,
        stall: stall?,
        unread_bytes_max: usize::try_from(unread_bytes?).ok()?,
        hosts_allowed: if hosts_given { hosts? } else { Vec::new() },
        cors_origins: if origins_given { origins? } else { Vec::new() },
    })
}

/// A warning if other machines can reach a server at one of these addresses and need no key.
pub fn keyless_warning(addresses: [SocketAddr; 2], keys_required: bool) -> Option<&'static str> {
    let is_reachable = addresses.iter().any(|address| !address.ip().is_loopback());
    (is_reachable && !keys_required).then_some(
        "other machines can reach this server and need no key; keys_required = true refuses requests without one",
    )
}

fn hosts(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<_> = text.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    let is_name = |name: &String| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    if names.len() > HOSTS_MAX || !names.iter().all(is_name) {
        return Err(format!(
            "is `{text}`, it must be at most {HOSTS_MAX} host names without ports, separated by commas"
        ));
    }
    Ok(names)
}

fn origins(text: &str) -> Result<Vec<String>, String> {
    let origins: Vec<_> = text.split(',').map(|origin| origin.trim().to_ascii_lowercase()).collect();
    if origins.len() > HOSTS_MAX || !origins.iter().all(|origin| is_origin(origin)) {
        return Err(format!(
            "is `{text}`, it must be at most {HOSTS_MAX} origins such as https://app.example.com, without a path, \
             separated by commas; `*` is not allowed"
        ));
    }
    Ok(origins)
}

/// `SCHEME://HOST` or `SCHEME://HOST:PORT`, as browsers send it.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let is_fine = |part: &str, others: &[char]| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(&c))
    };
    is_fine(scheme, &['+', '-', '.']) && is_fine(host, &['.', '-', '_', ':', '[', ']'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Sources;

    fn read(flags: &[(&'static str, &str)]) -> Result<ServerLimits, Vec<String>> {
        let mut sources = Sources::new(&SERVER_KEYS);
        for (key, value) in flags {
            sources.flag(key, Some(value));
        }
        let mut checker = sources.into_checker();
        let read = server_limits(&mut checker);
        checker.finish(read).map_err(|e| e.0)
    }

    #[test]
    fn the_defaults_are_those_of_the_limits() {
        assert_eq!(read(&[]), Ok(ServerLimits::default()));
    }

    #[test]
    fn a_server_that_others_reach_without_a_key_is_warned_about() {
        let [here, everywhere] = ["127.0.0.1:1", "0.0.0.0:2"].map(|address| address.parse().unwrap());
        for (addresses, keys_required, warns) in [
            ([here, here], false, false),
            ([here, everywhere], false, true),
            ([everywhere, here], false, true),
            ([everywhere, everywhere], true, false),
        ] {
            assert_eq!(keyless_warning(addresses, keys_required).is_some(), warns, "{addresses:?}");
        }
    }

    #[test]
    fn every_limit_can_be_set_within_its_bounds() {
        let limits = read(&[
            ("connections_max", "7"),
            ("request_head_ms", "1"),
            ("unread_bytes_max", "16777216"),
            ("hosts_allowed", "Podium.internal, gateway"),
            ("cors_origins", "https://App.example, http://[::1]:3000, tauri://localhost"),
        ])
        .unwrap();
        assert_eq!((limits.connections_max, limits.head), (Some(7), Duration::from_millis(1)));
        assert_eq!(limits.unread_bytes_max, 16 << 20);
        assert_eq!(limits.hosts_allowed, ["podium.internal", "gateway"]);
        let origins = ["https://app.example", "http://[::1]:3000", "tauri://localhost"];
        assert_eq!(limits.cors_origins, origins);
        let wrong = [
            ("connections_max", "0"),
            ("request_head_ms", "0"),
            ("request_body_ms", "x"),
            ("connection_idle_ms", "3600001"),
            ("answer_stall_ms", ""),
            ("unread_bytes_max", "1"),
            ("hosts_allowed", "http://a"),
        ];
        assert_eq!(read(&wrong).unwrap_err().len(), wrong.len());
        for origin in ["*", "null", "", "app.example", "https://app.example/", "https://", "https://a b"] {
            assert_eq!(read(&[("cors_origins", origin)]).unwrap_err().len(), 1, "{origin}");
        }
    }
}
