//! Writes log lines to standard error; standard output is for answers.

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;
use std::sync::OnceLock;

use tracing::{Event, Subscriber, info};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

/// The NATS client logs each connection at `info` by its port only; the queue logs the same with more detail.
const NATS_CLIENT: &str = "async_nats";

/// Replaces the filter of the log, once it was started.
static REPLACE: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The process that logs. Each JSON line carries it; in text, the first line does.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The program.
    pub service: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Distinguishes this process from others of the same program.
    pub instance: &'a str,
}

/// Gets each log line of the process in addition to standard error.
pub type LogSink = Box<dyn Layer<Registry> + Send + Sync>;

/// Where log lines go in addition to standard error. The log starts before the parts of a process that can deliver its lines.
static SINK: OnceLock<LogSink> = OnceLock::new();

/// Passes log lines on to the sink, once there is one.
struct ToSink;

impl Layer<Registry> for ToSink {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, Registry>) {
        if let Some(sink) = SINK.get() {
            sink.on_event(event, context);
        }
    }
}

/// Sends the log lines from now on to `sink`, too. Only the first call in a process has an effect.
pub fn add_log_sink(sink: LogSink) {
    let _already_set = SINK.set(sink);
}

/// Starts logging with a filter: a level, or a list such as `info,podium_engine=debug`. From then on panics are logged, too.
pub fn start_log(filter: &str, format: LogFormat, identity: &Identity<'_>) {
    let filter = EnvFilter::new(with_quiet_nats(filter));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let (filter, handle) = reload::Layer::new(filter);
    // The filter holds for the sink, too.
    let log = tracing_subscriber::registry().with(ToSink).with(filter);
    // A second start (two commands in one test process) has no effect.
    let started = match format {
        LogFormat::Text => log.with(lines.with_ansi(std::io::stderr().is_terminal())).try_init(),
        LogFormat::Json => {
            let members = members(identity);
            log.with(lines.json().map_event_format(|inner| Identified { inner, members })).try_init()
        }
    };
    if started.is_err() {
        return;
    }
    keep(handle);
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a task panicked")));
    if format == LogFormat::Text {
        let Identity { service, version, instance } = identity;
        info!(service, version, instance, "starting");
    }
}

fn keep<S: 'static>(handle: Handle<EnvFilter, S>) {
    // The log is started once. Replacing the filter fails only after the log has ended.
    drop(REPLACE.set(Box::new(move |filter| drop(handle.reload(filter)))));
}

/// Replaces the filter of the log. Without effect before [`start_log`].
pub(crate) fn set_log_filter(filter: &str) {
    if let Some(replace) = REPLACE.get() {
        replace(EnvFilter::new(with_quiet_nats(filter)));
    }
}

/// The filter, with the NATS client at `warn` unless the filter names it or is stricter.
fn with_quiet_nats(filter: &str) -> String {
    let mut levels = filter.split(',').filter_map(|part| part.trim().parse::<LevelFilter>().ok());
    if filter.contains(NATS_CLIENT) || !levels.any(|level| level > LevelFilter::WARN) {
        return filter.to_owned();
    }
    format!("{filter},{NATS_CLIENT}=warn")
}

/// The identity as members of a JSON object.
fn members(identity: &Identity<'_>) -> String {
    let Identity { service, version, instance } = identity;
    [("service", service), ("version", version), ("instance", instance)]
        .map(|(name, value)| format!("\"{name}\":{}", json_string(value)))
        .join(",")
}

fn json_string(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // Writing to a string cannot fail.
            c if c.is_control() => drop(write!(quoted, "\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Formats events as JSON objects that begin with the identity.
struct Identified<F> {
    inner: F,
    members: String,
}

impl<S, N, F> FormatEvent<S, N> for Identified<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        match line.strip_prefix('{') {
            Some(rest) => write!(writer, "{{{},{rest}", self.members),
            None => writer.write_str(&line),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_json_line_names_service_version_and_instance() {
        let written = Written::default();
        let identity = Identity { service: "podium-gateway", version: "1.2.3", instance: "host\"-7" };
        let lines = {
            let written = written.clone();
            tracing_subscriber::fmt().with_writer(move || written.clone()).json()
        };
        let members = members(&identity);
        let subscriber = lines.map_event_format(|inner| Identified { inner, members }).finish();
        tracing::subscriber::with_default(subscriber, || info!(run = 1, "listening"));
        let line = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let start = r#"{"service":"podium-gateway","version":"1.2.3","instance":"host\"-7","timestamp":"#;
        assert!(line.starts_with(start) && line.ends_with("}\n"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn the_nats_client_is_quiet_unless_the_filter_names_it() {
        assert_eq!(with_quiet_nats("info"), "info,async_nats=warn");
        assert_eq!(with_quiet_nats("debug,podium_engine=trace"), "debug,podium_engine=trace,async_nats=warn");
        assert_eq!(with_quiet_nats("debug,async_nats=debug"), "debug,async_nats=debug");
        assert_eq!(with_quiet_nats("error"), "error");
    }
}
