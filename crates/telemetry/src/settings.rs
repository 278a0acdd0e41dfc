//! Settings of the telemetry.

use std::time::Duration;

use podium_domain::ids::TenantId;
use podium_domain::share::Share;
use podium_setup::settings::{Checker, Group, Setting, Values};
use tonic::transport::Uri;

use crate::content::{ContentCapture, ContentOf};
use crate::traces::Sampling;

const OTLP_ENDPOINT: Setting<String> = Setting::parsed(
    "otlp_endpoint",
    Values::Form("http://HOST:PORT or https://HOST:PORT"),
    |_, text| endpoint(text),
    "The OpenTelemetry collector that gets metrics and traces.",
)
.optional("http://127.0.0.1:4317", "that of OTEL_EXPORTER_OTLP_ENDPOINT, or none");

const OTLP_EVERY: Setting<Duration> =
    Setting::milliseconds("otlp_every_ms", &(1_000..=3_600_000), "Time between two deliveries of metrics.")
        .optional("60000", "OTEL_METRIC_EXPORT_INTERVAL, or 60000");

const TRACE_SHARE: Setting<Share> = Setting::parsed(
    "trace_share",
    Values::Form("0 to 1"),
    |key, text| {
        let share = text.parse::<f64>().ok().and_then(|share| Share::new(share).ok());
        share.ok_or_else(|| key.must_be(text))
    },
    "Share of the runs whose traces are delivered, among those whose clients did not decide with `traceparent`. Traces of failed and \
     slow runs are always delivered.",
)
.default("1");

const TRACE_SLOW: Setting<Duration> = Setting::milliseconds(
    "trace_slow_ms",
    &(0..=86_400_000),
    "A run that took at least as long is slow: its trace is always delivered.",
)
.default("60000");

const TRACE_CONTENT: Setting<ContentOf> = Setting::parsed(
    "trace_content",
    Values::Form("* or names of tenants, separated by commas"),
    |_, text| content_of(text),
    "The tenants whose traces have content: questions, plans, outputs, tool calls and answers. `*` means all of them.",
)
.optional("acme,example", "none");

const TRACE_TEXT_BYTES_MAX: Setting<usize> = Setting::count(
    "trace_text_bytes_max",
    &(64..=1_000_000),
    "Most bytes of one text in a trace with content. A longer text is cut.",
)
.unit("bytes")
.default("8192");

/// Where metrics and traces are delivered.
pub const TELEMETRY: Group = Group {
    title: "Metrics and traces",
    keys: &[
        OTLP_ENDPOINT.key,
        OTLP_EVERY.key,
        TRACE_SHARE.key,
        TRACE_SLOW.key,
        TRACE_CONTENT.key,
        TRACE_TEXT_BYTES_MAX.key,
    ],
};

/// How metrics and traces are exported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// The collector's address; `None` for the one of the standard variables, if set.
    pub otlp_endpoint: Option<String>,
    /// Time between two deliveries; `None` for the standard variable's value, or else a minute.
    pub every: Option<Duration>,
    /// The runs whose traces are delivered; `None` delivers no traces.
    pub sampling: Option<Sampling>,
    /// The content of traces; `None` if they have none.
    pub content: Option<ContentCapture>,
}

impl TelemetrySettings {
    /// Reads these settings. Problems are added to the checker.
    pub fn read(checker: &mut Checker) -> Self {
        let otlp_endpoint = checker.read_if_given(&OTLP_ENDPOINT);
        let every = checker.read_if_given(&OTLP_EVERY);
        let (share, slow) = (checker.read(&TRACE_SHARE), checker.read(&TRACE_SLOW));
        let sampling = share.zip(slow).map(|(share, slow)| Sampling { share, slow });
        let (of, text_bytes_max) =
            (checker.read_if_given(&TRACE_CONTENT), checker.read(&TRACE_TEXT_BYTES_MAX));
        let content =
            of.zip(text_bytes_max).map(|(of, text_bytes_max)| ContentCapture { of, text_bytes_max });
        Self { otlp_endpoint, every, sampling, content }
    }
}

fn content_of(text: &str) -> Result<ContentOf, String> {
    if text.trim() == "*" {
        return Ok(ContentOf::AllTenants);
    }
    let tenant = |name: &str| {
        TenantId::new(name.trim())
            .map_err(|e| format!("has `{}`, which is not the name of a tenant: {e}", name.trim()))
    };
    text.split(',').map(tenant).collect::<Result<_, _>>().map(ContentOf::Tenants)
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
    use podium_setup::settings::{ProgramKeys, Sources};

    use super::*;

    fn read(flags: &[(&'static str, &str)]) -> Result<TelemetrySettings, Vec<String>> {
        let mut sources = Sources::new(&ProgramKeys::new("server", &[TELEMETRY]));
        for (key, value) in flags {
            sources.flag(key, Some(value));
        }
        let mut checker = sources.into_checker();
        let settings = TelemetrySettings::read(&mut checker);
        checker.finish(Some(settings)).map_err(|error| error.0)
    }

    #[test]
    fn nothing_is_delivered_without_an_endpoint() {
        let unset = read(&[]).unwrap();
        assert_eq!((unset.otlp_endpoint, unset.every), (None, None));
        let all = Sampling { share: Share::new(1.0).unwrap(), slow: Duration::from_mins(1) };
        assert_eq!(unset.sampling, Some(all));
        let set = read(&[("otlp_endpoint", "https://collector:4317"), ("otlp_every_ms", "15000")]).unwrap();
        assert_eq!(set.otlp_endpoint.as_deref(), Some("https://collector:4317"));
        assert_eq!(set.every, Some(Duration::from_secs(15)));
    }

    #[test]
    fn content_is_captured_of_the_named_tenants_only() {
        assert_eq!(read(&[]).unwrap().content, None);
        let some =
            read(&[("trace_content", "acme, b"), ("trace_text_bytes_max", "100")]).unwrap().content.unwrap();
        let tenant = |name| TenantId::new(name).unwrap();
        let of = ContentOf::Tenants([tenant("acme"), tenant("b")].into());
        assert_eq!(some, ContentCapture { of, text_bytes_max: 100 });
        assert_eq!(read(&[("trace_content", "*")]).unwrap().content.unwrap().of, ContentOf::AllTenants);
        for wrong in ["acme,", "", "a b"] {
            let problems = read(&[("trace_content", wrong)]).unwrap_err();
            assert!(problems[0].contains("tenant"), "{wrong}: {problems:?}");
        }
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
