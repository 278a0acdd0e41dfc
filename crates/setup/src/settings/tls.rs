//! TLS of the listeners that serve clients.

use std::path::PathBuf;
use std::time::Duration;

use podium_ports::server::{TlsFiles, TlsVersion};

use super::{Checker, Group, Key, Setting};

/// The server's certificate.
pub const TLS_CERTIFICATE: Setting<PathBuf> = Setting::path(
    "tls_certificate",
    "FILE",
    "A PEM file with the server's certificate, then those of its authorities. With it, HTTP and gRPC clients must use TLS.",
)
.optional("/etc/podium/tls/tls.crt", "no TLS");

/// The key of the server's certificate.
pub const TLS_KEY: Setting<PathBuf> =
    Setting::path("tls_key", "FILE", "A PEM file with the private key of tls_certificate.")
        .optional("/etc/podium/tls/tls.key", "no TLS");

/// The authorities of clients' certificates.
pub const TLS_CLIENT_CERTIFICATES: Setting<PathBuf> = Setting::path(
    "tls_client_root_certificates",
    "FILE",
    "A PEM file with the authorities of clients' certificates. With it, clients without such a certificate are refused (mTLS).",
)
.optional("/etc/podium/tls/ca.crt", "clients need no certificate");

const TLS_VERSION_MIN: Setting<TlsVersion> = Setting::words(
    "tls_version_min",
    &["1.2", "1.3"],
    |_, text| Ok(if text == "1.3" { TlsVersion::V1_3 } else { TlsVersion::V1_2 }),
    "The oldest version of TLS that clients may use.",
)
.default("1.2");

const TLS_RELOAD: Setting<Duration> = Setting::milliseconds(
    "tls_reload_ms",
    &(100..=3_600_000),
    "How often the files of TLS are read again, so that renewed certificates need no restart. New connections use them.",
)
.default("10000");

/// TLS of the listeners that serve clients.
pub const TLS: Group = Group {
    title: "TLS for clients",
    keys: &[
        TLS_CERTIFICATE.key,
        TLS_KEY.key,
        TLS_CLIENT_CERTIFICATES.key,
        TLS_VERSION_MIN.key,
        TLS_RELOAD.key,
    ],
};

/// Reads these settings; `None` without TLS. The files themselves are not read. Problems are added to the checker.
pub fn tls_files(checker: &mut Checker) -> Option<TlsFiles> {
    let certificate = checker.read_if_given(&TLS_CERTIFICATE);
    let key = checker.read_if_given(&TLS_KEY);
    let client_authorities = checker.read_if_given(&TLS_CLIENT_CERTIFICATES);
    let (oldest, reload_every) = (checker.read(&TLS_VERSION_MIN), checker.read(&TLS_RELOAD));
    let given = [
        (TLS_CERTIFICATE.key, checker.has_value(&TLS_CERTIFICATE)),
        (TLS_KEY.key, checker.has_value(&TLS_KEY)),
        (TLS_CLIENT_CERTIFICATES.key, checker.has_value(&TLS_CLIENT_CERTIFICATES)),
    ];
    if let Some((one, _)) = given.iter().find(|(_, is_given)| *is_given) {
        given[..2].iter().filter(|(_, is_given)| !is_given).for_each(|(other, _)| lacks(checker, one, other));
    }
    Some(TlsFiles {
        certificate: certificate?,
        key: key?,
        client_authorities,
        oldest: oldest?,
        reload_every: reload_every?,
    })
}

fn lacks(checker: &mut Checker, given: &Key, missing: &Key) {
    checker.problem(given.name, &format!("is set, but {} is not; TLS needs both", missing.name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{ProgramKeys, Sources};

    fn read(flags: &[(&'static str, &str)]) -> Result<Option<TlsFiles>, Vec<String>> {
        let mut sources = Sources::new(&ProgramKeys::new("server", &[TLS]));
        for (key, value) in flags {
            sources.flag(key, Some(value));
        }
        let mut checker = sources.into_checker();
        let read = tls_files(&mut checker);
        checker.finish(Some(read)).map_err(|e| e.0)
    }

    #[test]
    fn a_certificate_and_its_key_turn_tls_on() {
        assert_eq!(read(&[]), Ok(None));
        let files = read(&[("tls_certificate", "a.pem"), ("tls_key", "b.pem")]).unwrap().unwrap();
        assert_eq!((files.certificate, files.key), ("a.pem".into(), "b.pem".into()));
        assert_eq!((files.client_authorities, files.oldest), (None, TlsVersion::V1_2));
        assert_eq!(files.reload_every, Duration::from_secs(10));
    }

    #[test]
    fn settings_of_tls_that_cannot_work_are_named() {
        for (flags, words) in [
            (
                &[("tls_certificate", "a.pem")][..],
                "tls_certificate (from --tls-certificate) is set, but tls_key",
            ),
            (&[("tls_key", "a.pem")], "tls_key (from --tls-key) is set, but tls_certificate is not"),
            (&[("tls_client_root_certificates", "a.pem")], "is set, but tls_certificate is not"),
            (&[("tls_certificate", "")], "is empty"),
            (&[("tls_version_min", "1.1")], "is `1.1`, it must be 1.2 or 1.3"),
            (&[("tls_reload_ms", "1")], "it must be 100 to 3600000 ms"),
        ] {
            let problems = read(flags).unwrap_err();
            assert!(problems.iter().any(|problem| problem.contains(words)), "{problems:?}");
        }
    }
}
