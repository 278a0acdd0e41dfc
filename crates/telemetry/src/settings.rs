//! Settings of the telemetry.

use std::time::Duration;

use podium_setup::settings::{Checker, values};
use tonic::transport::Uri;

/// Valid range of the milliseconds between two deliveries.
const EVERY_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;
/// The standard variables with the collector's address; the first one takes precedence.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// How metrics are exported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// The collector's address; `None` for the one of the standard variables, if set.
    pub otlp_endpoint: Option<String>,
    /// Time between two deliveries; `None` for the standard variable's value, or else a minute.
    pub every: Option<Duration>,
}

impl TelemetrySettings {
    /// Reads the keys `otlp_endpoint` and `otlp_every_ms`. Problems are added to the checker.
    pub fn read(checker: &mut Checker) -> Self {
        let otlp_endpoint = checker.read_if_given("otlp_endpoint", endpoint);
        let every_ms = |text: &str| values::number(text, *EVERY_MS.start(), *EVERY_MS.end());
        let every = checker.read_if_given("otlp_every_ms", every_ms).map(Duration::from_millis);
        Self { otlp_endpoint, every }
    }

    /// The address that metrics are delivered to, if any.
    pub(crate) fn endpoint(&self) -> Option<String> {
        self.otlp_endpoint.clone().or_else(|| {
            let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
            ENDPOINTS.into_iter().find_map(variable)
        })
    }
}

/// Parses a collector's address. It must not contain a password, because settings may be printed.
fn endpoint(text: &str) -> Result<String, String> {
    // An invalid value may contain a password, so it is not repeated.
    let uri = text.parse::<Uri>().ok();
    let authority = uri.as_ref().and_then(|uri| {
        let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        uri.authority().filter(|_| has_scheme)
    });
    match authority {
        None => {
            Err("must be a URL that begins with http:// or https://, such as http://127.0.0.1:4317"
                .to_owned())
        }
        Some(authority) if authority.as_str().contains('@') => {
            Err("must not contain a password; put credentials into the variable OTEL_EXPORTER_OTLP_HEADERS"
                .to_owned())
        }
        Some(_) => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use podium_setup::settings::{Key, Sources};

    use super::*;

    fn read(flags: &[(&'static str, &str)]) -> Result<TelemetrySettings, Vec<String>> {
        let mut sources =
            Sources::new(&[Key::optional("otlp_endpoint", "", ""), Key::optional("otlp_every_ms", "", "")]);
        for (key, value) in flags {
            sources.flag(key, Some(value));
        }
        let mut checker = sources.into_checker();
        let settings = TelemetrySettings::read(&mut checker);
        checker.finish(Some(settings)).map_err(|error| error.0)
    }

    #[test]
    fn nothing_is_delivered_without_an_endpoint() {
        assert_eq!(read(&[]).unwrap(), TelemetrySettings::default());
        let set = read(&[("otlp_endpoint", "https://collector:4317"), ("otlp_every_ms", "15000")]).unwrap();
        assert_eq!(set.otlp_endpoint.as_deref(), Some("https://collector:4317"));
        assert_eq!(set.every, Some(Duration::from_secs(15)));
    }

    #[test]
    fn invalid_settings_are_listed_without_secrets() {
        for wrong in ["collector:4317", "grpc://collector", "http://", "", "http://me:hunter2@collector:4317"]
        {
            let problems = read(&[("otlp_endpoint", wrong), ("otlp_every_ms", "5")]).unwrap_err();
            assert_eq!(problems.len(), 2, "{wrong}: {problems:?}");
            assert!(!problems.concat().contains("hunter2"), "{problems:?}");
        }
    }
}
