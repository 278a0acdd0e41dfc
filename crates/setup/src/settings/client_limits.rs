//! The limits of a server's clients, for every program that serves clients.

use std::ops::RangeInclusive;
use std::time::Duration;

use podium_ports::server::ServerLimits;

use super::{Checker, Group, Setting, Values};

/// From a millisecond to an hour.
const WAIT_MS: RangeInclusive<u64> = 1..=3_600_000;
const HOSTS_MAX: usize = 64;

const CONNECTIONS_MAX: Setting<usize> = Setting::count(
    "connections_max",
    &(1..=1_000_000),
    "Most connections of HTTP and gRPC clients together. A new one replaces the one that has been idle for longest.",
)
.unit("connections")
.optional("16384", "half of the files that the process may have open, at most 16384");

const HEADER_BYTES_MAX: Setting<usize> = Setting::count(
    "header_bytes_max",
    &((8 << 10)..=(1 << 20)),
    "Most bytes of a request's head. A longer one is refused with status 431.",
)
.unit("bytes")
.default("32768");

const CONNECTION_STREAMS_MAX: Setting<usize> = Setting::count(
    "connection_streams_max",
    &(1..=100_000),
    "Most requests of one HTTP/2 connection at the same time. A further one is refused by HTTP/2.",
)
.unit("requests")
.default("1024");

const TENANT_STREAMS_MAX: Setting<usize> = Setting::count(
    "tenant_streams_max",
    &(1..=1_000_000),
    "Most streams that one tenant has open at this server. A further one is refused with status 429.",
)
.unit("streams")
.default("10000");

const REQUESTS_IN_FLIGHT_MAX: Setting<usize> = Setting::count(
    "requests_in_flight_max",
    &(1..=1_000_000),
    "Most requests of all clients that this server answers at the same time. A further one is refused with status 503.",
)
.unit("requests")
.default("20000");

const WEBSOCKETS_MAX: Setting<usize> = Setting::count(
    "websockets_max",
    &(1..=1_000_000),
    "Most open WebSockets of all clients at this server. A further one is refused with status 503.",
)
.unit("WebSockets")
.default("4096");

const REQUEST_HEAD: Setting<Duration> = Setting::milliseconds(
    "request_head_ms",
    &WAIT_MS,
    "Time within which the head of a connection's first request must arrive, with the TLS handshake before it.",
)
.default("10000");

const REQUEST_BODY: Setting<Duration> = Setting::milliseconds(
    "request_body_ms",
    &WAIT_MS,
    "Time within which the body of a request must arrive.",
)
.default("30000");

const CONNECTION_IDLE: Setting<Duration> = Setting::milliseconds(
    "connection_idle_ms",
    &WAIT_MS,
    "Time after which the server closes a connection without a request under way.",
)
.default("75000");

const CONNECTION_AGE_MAX: Setting<Duration> = Setting::milliseconds(
    "connection_age_max_ms",
    &(1..=86_400_000),
    "Age after which a connection takes no further requests, so that its client connects again, perhaps to a new server. Open \
     requests go on. Each connection varies it by up to a tenth.",
)
.optional("600000", "any age");

const CONNECTION_AGE_GRACE: Setting<Duration> = Setting::milliseconds(
    "connection_age_grace_ms",
    &(0..=86_400_000),
    "Time after which the open requests of an HTTP/2 connection that is too old are cut.",
)
.optional("3600000", "they may go on");

const ANSWER_STALL: Setting<Duration> = Setting::milliseconds(
    "answer_stall_ms",
    &WAIT_MS,
    "Time after which the server gives up a response of which its client reads nothing.",
)
.default("30000");

const UNREAD_BYTES_MAX: Setting<usize> = Setting::count(
    "unread_bytes_max",
    &((16 << 20)..=(1 << 40)),
    "Most bytes of responses that the server holds until clients read them.",
)
.unit("bytes")
.default("268435456");

const HOSTS_ALLOWED: Setting<Vec<String>> = Setting::parsed(
    "hosts_allowed",
    Values::Form("host names, separated by commas"),
    |_, text| hosts(text),
    "Host names that requests and web pages may use while no key is required. localhost is always allowed.",
)
.optional("podium.internal", "no other names");

const CORS_ORIGINS: Setting<Vec<String>> = Setting::parsed(
    "cors_origins",
    Values::Form("origins, separated by commas"),
    |_, text| origins(text),
    "Origins of web pages that may use the HTTP API from a browser (CORS).",
)
.optional("https://app.example.com", "none");

/// The limits of a server's clients.
pub const CLIENT_LIMITS: Group = Group {
    title: "Client limits",
    keys: &[
        CONNECTIONS_MAX.key,
        HEADER_BYTES_MAX.key,
        CONNECTION_STREAMS_MAX.key,
        TENANT_STREAMS_MAX.key,
        REQUESTS_IN_FLIGHT_MAX.key,
        WEBSOCKETS_MAX.key,
        REQUEST_HEAD.key,
        REQUEST_BODY.key,
        CONNECTION_IDLE.key,
        CONNECTION_AGE_MAX.key,
        CONNECTION_AGE_GRACE.key,
        ANSWER_STALL.key,
        UNREAD_BYTES_MAX.key,
        HOSTS_ALLOWED.key,
        CORS_ORIGINS.key,
    ],
};

/// Reads these settings. Problems are added to the checker.
pub fn client_limits(checker: &mut Checker) -> Option<ServerLimits> {
    let connections_max = checker.read_if_given(&CONNECTIONS_MAX);
    let [header_bytes_max, connection_streams_max, tenant_streams_max] =
        [&HEADER_BYTES_MAX, &CONNECTION_STREAMS_MAX, &TENANT_STREAMS_MAX]
            .map(|setting| checker.read(setting));
    let [requests_in_flight_max, websockets_max] =
        [&REQUESTS_IN_FLIGHT_MAX, &WEBSOCKETS_MAX].map(|setting| checker.read(setting));
    let [head, body] = [&REQUEST_HEAD, &REQUEST_BODY].map(|setting| checker.read(setting));
    let [idle, stall] = [&CONNECTION_IDLE, &ANSWER_STALL].map(|setting| checker.read(setting));
    let [age, age_grace] =
        [&CONNECTION_AGE_MAX, &CONNECTION_AGE_GRACE].map(|setting| checker.read_if_given(setting));
    let unread_bytes_max = checker.read(&UNREAD_BYTES_MAX);
    let hosts_allowed = checker.read_if_given(&HOSTS_ALLOWED).unwrap_or_default();
    let cors_origins = checker.read_if_given(&CORS_ORIGINS).unwrap_or_default();
    Some(ServerLimits {
        connections_max,
        header_bytes_max: header_bytes_max?,
        connection_streams_max: connection_streams_max?,
        tenant_streams_max: tenant_streams_max?,
        requests_in_flight_max: requests_in_flight_max?,
        websockets_max: websockets_max?,
        head: head?,
        body: body?,
        idle: idle?,
        age,
        age_grace,
        stall: stall?,
        unread_bytes_max: unread_bytes_max?,
        hosts_allowed,
        cors_origins,
    })
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
    use crate::settings::{ProgramKeys, Sources};

    fn read(flags: &[(&'static str, &str)]) -> Result<ServerLimits, Vec<String>> {
        let mut sources = Sources::new(&ProgramKeys::new("server", &[CLIENT_LIMITS]));
        for (key, value) in flags {
            sources.flag(key, Some(value));
        }
        let mut checker = sources.into_checker();
        let read = client_limits(&mut checker);
        checker.finish(read).map_err(|e| e.0)
    }

    #[test]
    fn the_defaults_are_those_of_the_limits() {
        assert_eq!(read(&[]), Ok(ServerLimits::default()));
    }

    #[test]
    fn every_limit_can_be_set_within_its_bounds() {
        let limits = read(&[
            ("connections_max", "7"),
            ("request_head_ms", "1"),
            ("header_bytes_max", "8192"),
            ("connection_streams_max", "3"),
            ("tenant_streams_max", "5"),
            ("requests_in_flight_max", "6"),
            ("websockets_max", "2"),
            ("unread_bytes_max", "16777216"),
            ("connection_age_max_ms", "60000"),
            ("connection_age_grace_ms", "0"),
            ("hosts_allowed", "Podium.internal, gateway"),
            ("cors_origins", "https://App.example, http://[::1]:3000, tauri://localhost"),
        ])
        .unwrap();
        assert_eq!((limits.connections_max, limits.head), (Some(7), Duration::from_millis(1)));
        assert_eq!(limits.unread_bytes_max, 16 << 20);
        assert_eq!((limits.header_bytes_max, limits.connection_streams_max), (8192, 3));
        assert_eq!(limits.tenant_streams_max, 5);
        assert_eq!((limits.age, limits.age_grace), (Some(Duration::from_mins(1)), Some(Duration::ZERO)));
        assert_eq!((limits.requests_in_flight_max, limits.websockets_max), (6, 2));
        assert_eq!(limits.hosts_allowed, ["podium.internal", "gateway"]);
        let origins = ["https://app.example", "http://[::1]:3000", "tauri://localhost"];
        assert_eq!(limits.cors_origins, origins);
        let wrong = [
            ("connections_max", "0"),
            ("request_head_ms", "0"),
            ("header_bytes_max", "100"),
            ("connection_streams_max", "0"),
            ("tenant_streams_max", "0"),
            ("request_body_ms", "x"),
            ("connection_idle_ms", "3600001"),
            ("answer_stall_ms", ""),
            ("connection_age_max_ms", "0"),
            ("connection_age_grace_ms", "soon"),
            ("unread_bytes_max", "1"),
            ("hosts_allowed", "http://a"),
        ];
        assert_eq!(read(&wrong).unwrap_err().len(), wrong.len());
        for origin in ["*", "null", "", "app.example", "https://app.example/", "https://", "https://a b"] {
            assert_eq!(read(&[("cors_origins", origin)]).unwrap_err().len(), 1, "{origin}");
        }
    }
}
