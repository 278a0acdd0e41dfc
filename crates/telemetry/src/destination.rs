//! Where each kind of telemetry is delivered, by the settings and the standard variables of OpenTelemetry.

use std::sync::Arc;

use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, MetricExporter, Protocol, RetryPolicy, SpanExporter, WithExportConfig,
    WithHttpConfig, WithTonicConfig,
};
use tonic::transport::ClientTlsConfig;

use crate::http_client::CollectorClient;

/// A kind of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Metrics,
    Traces,
    Logs,
}

/// A standard variable has an unknown value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is `{value}`, it must be {expected}")]
pub struct InvalidVariable {
    variable: String,
    value: String,
    expected: &'static str,
}

/// The collector of a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    protocol: Protocol,
    /// For HTTP, with the signal's path.
    endpoint: String,
}

/// Reads a variable. An empty one counts as unset, as OpenTelemetry requires.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The variables of this process.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Signal {
    const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "METRICS",
            Self::Traces => "TRACES",
            Self::Logs => "LOGS",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "v1/metrics",
            Self::Traces => "v1/traces",
            Self::Logs => "v1/logs",
        }
    }

    /// Whether the signal is delivered if there is an endpoint: metrics and traces unless `OTEL_*_EXPORTER` is `none`, logs only if it
    /// is `otlp`, because logs also go to standard error, where most clusters collect them.
    fn is_wanted(self, variables: Variables<'_>) -> Result<bool, InvalidVariable> {
        if variables("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(false);
        }
        let variable = format!("OTEL_{}_EXPORTER", self.name());
        match variables(&variable).as_deref() {
            None => Ok(self != Self::Logs),
            Some("otlp") => Ok(true),
            Some("none") => Ok(false),
            Some(value) => {
                Err(InvalidVariable { variable, value: value.to_owned(), expected: "otlp or none" })
            }
        }
    }

    /// The protocol, gRPC by default.
    fn protocol(self, variables: Variables<'_>) -> Result<Protocol, InvalidVariable> {
        let of_signal = format!("OTEL_EXPORTER_OTLP_{}_PROTOCOL", self.name());
        let mut names = [of_signal, "OTEL_EXPORTER_OTLP_PROTOCOL".to_owned()].into_iter();
        let Some((variable, value)) = names.find_map(|name| variables(&name).map(|value| (name, value)))
        else {
            return Ok(Protocol::Grpc);
        };
        match value.as_str() {
            "grpc" => Ok(Protocol::Grpc),
            "http/protobuf" => Ok(Protocol::HttpBinary),
            _ => Err(InvalidVariable { variable, value, expected: "grpc or http/protobuf" }),
        }
    }
}

impl Destination {
    /// Where a signal goes, if anywhere: to the address in the settings, or else to that of a standard variable. The variable of the
    /// signal precedes the common one and has the whole URL; the others are completed with the signal's path for HTTP.
    pub(crate) fn of(
        signal: Signal,
        settings: Option<&str>,
        variables: Variables<'_>,
    ) -> Result<Option<Self>, InvalidVariable> {
        let base = |address: &str, protocol| match protocol {
            Protocol::HttpBinary => format!("{}/{}", address.trim_end_matches('/'), signal.path()),
            _ => address.to_owned(),
        };
        let of_signal = || variables(&format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.name()));
        let common = || variables("OTEL_EXPORTER_OTLP_ENDPOINT");
        if !signal.is_wanted(variables)? {
            return Ok(None);
        }
        let protocol = signal.protocol(variables)?;
        let endpoint = match (settings, of_signal()) {
            (Some(address), _) => Some(base(address, protocol)),
            (None, Some(address)) => Some(address),
            (None, None) => common().map(|address| base(&address, protocol)),
        };
        Ok(endpoint.map(|endpoint| Self { protocol, endpoint }))
    }

    /// Options that are not set here (headers, timeout) come from the standard variables.
    pub(crate) fn metrics(&self) -> Result<MetricExporter, ExporterBuildError> {
        // No retries: the next delivery includes these values.
        let retries = RetryPolicy::disabled();
        match self.protocol {
            Protocol::HttpBinary => {
                self.over_http(MetricExporter::builder().with_http()).with_retry_policy(retries).build()
            }
            _ => self.over_grpc(MetricExporter::builder().with_tonic()).with_retry_policy(retries).build(),
        }
    }

    pub(crate) fn spans(&self) -> Result<SpanExporter, ExporterBuildError> {
        match self.protocol {
            Protocol::HttpBinary => self.over_http(SpanExporter::builder().with_http()).build(),
            _ => self.over_grpc(SpanExporter::builder().with_tonic()).build(),
        }
    }

    pub(crate) fn logs(&self) -> Result<LogExporter, ExporterBuildError> {
        match self.protocol {
            Protocol::HttpBinary => self.over_http(LogExporter::builder().with_http()).build(),
            _ => self.over_grpc(LogExporter::builder().with_tonic()).build(),
        }
    }

    fn over_grpc<B: WithExportConfig + WithTonicConfig>(&self, builder: B) -> B {
        let builder = builder.with_endpoint(&self.endpoint);
        if self.endpoint.starts_with("http://") {
            return builder;
        }
        builder.with_tls_config(ClientTlsConfig::new().with_native_roots())
    }

    fn over_http<B: WithExportConfig + WithHttpConfig>(&self, builder: B) -> B {
        builder
            .with_endpoint(&self.endpoint)
            .with_protocol(self.protocol)
            .with_shared_http_client(Arc::new(CollectorClient::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(
        signal: Signal,
        settings: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Result<Option<(Protocol, String)>, String> {
        let read = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let destination = Destination::of(signal, settings, &read).map_err(|error| error.to_string())?;
        Ok(destination.map(|found| (found.protocol, found.endpoint)))
    }

    #[test]
    fn the_settings_precede_the_variable_of_the_signal_and_that_the_common_one() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://common"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces/mine"),
        ];
        let grpc = |address: &str| Ok(Some((Protocol::Grpc, address.to_owned())));
        assert_eq!(destination(Signal::Traces, Some("http://key"), &variables), grpc("http://key"));
        assert_eq!(destination(Signal::Traces, None, &variables), grpc("http://traces/mine"));
        assert_eq!(destination(Signal::Metrics, None, &variables), grpc("http://common"));
        assert_eq!(destination(Signal::Metrics, None, &[]), Ok(None));
    }

    #[test]
    fn http_adds_the_path_of_the_signal_to_common_addresses() {
        let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
        let http = |address: &str| Ok(Some((Protocol::HttpBinary, address.to_owned())));
        let key = Some("http://c:4318/");
        assert_eq!(destination(Signal::Metrics, key, &[protocol]), http("http://c:4318/v1/metrics"));
        let common = [protocol, ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/otlp")];
        assert_eq!(destination(Signal::Traces, None, &common), http("http://c:4318/otlp/v1/traces"));
        let own = [protocol, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/all")];
        assert_eq!(destination(Signal::Traces, None, &own), http("http://c/all"));
        let mixed = [protocol, ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc")];
        let grpc = Ok(Some((Protocol::Grpc, "http://c:4318/".to_owned())));
        assert_eq!(destination(Signal::Metrics, key, &mixed), grpc);
    }

    #[test]
    fn logs_are_delivered_on_request_and_everything_can_be_turned_off() {
        let key = Some("http://c:4317");
        assert_eq!(destination(Signal::Logs, key, &[]), Ok(None));
        assert!(destination(Signal::Logs, key, &[("OTEL_LOGS_EXPORTER", "otlp")]).unwrap().is_some());
        assert_eq!(destination(Signal::Traces, key, &[("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
        assert_eq!(destination(Signal::Metrics, key, &[("OTEL_SDK_DISABLED", "true")]), Ok(None));
    }

    #[test]
    fn an_unknown_value_is_reported_with_its_variable() {
        let key = Some("http://c:4317");
        assert_eq!(
            destination(Signal::Metrics, key, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]).unwrap_err(),
            "OTEL_EXPORTER_OTLP_PROTOCOL is `http/json`, it must be grpc or http/protobuf"
        );
        assert_eq!(
            destination(Signal::Logs, key, &[("OTEL_LOGS_EXPORTER", "console")]).unwrap_err(),
            "OTEL_LOGS_EXPORTER is `console`, it must be otlp or none"
        );
    }
}
