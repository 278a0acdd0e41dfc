//! How this process is set up.

mod check;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use podium_ports::cache::CacheOptions;
use podium_ports::conductor::LocalLimits;
use podium_ports::server::ServerLimits;
use podium_setup::LogFormat;
use podium_setup::conductor::ConductorChoices;
use podium_setup::settings::Key;
use podium_telemetry::TelemetrySettings;

pub(crate) use check::check;

/// The keys and their defaults.
pub(crate) const KEYS: &[Key] = &[
    // Where the OpenAI-compatible HTTP door listens.
    ("listen", Some("127.0.0.1:8080")),
    // Where the gRPC door listens.
    ("grpc_listen", Some("127.0.0.1:8081")),
    // Where Prometheus reads metrics, at `/metrics`; they are of all tenants. Default: nowhere.
    ("metrics_listen", None),
    // Whether the doors may listen where other machines reach them.
    ("allow_remote", Some("false")),
    // Whether who asks must show a key; else who shows none is the tenant `local`.
    ("keys_required", Some("false")),
    // Most connections of HTTP and gRPC clients together. A new one takes the place of the one that is idle for longest. Default:
    // half of the files that the process may have open, at most 16384.
    ("connections_max", None),
    // Milliseconds until the head of a connection's first request must have arrived.
    ("request_head_ms", Some("10000")),
    // Milliseconds until the body of a request must have arrived.
    ("request_body_ms", Some("30000")),
    // Milliseconds after which a connection without a request under way is closed.
    ("connection_idle_ms", Some("75000")),
    // Milliseconds after which an answer is given up whose client takes nothing of it.
    ("answer_stall_ms", Some("30000")),
    // Most bytes of answers that are held until clients have read them.
    ("unread_bytes_max", Some("268435456")),
    // Host names, separated by commas, that requests and web pages may come by while no key is required; `localhost` may always.
    ("hosts_allowed", None),
    // The folder that keeps the runs. Default: in the user's data folder.
    ("data", None),
    // `demo`, or a pool file.
    ("pool", Some("demo")),
    // `auto`, `llama:FOLDER`, `worker:WORKER`, `model:FILE#WORKER`, `remote:URL#MODEL`, `fixed:FILE`, `direct` or `direct:WORKER`.
    ("conductor", Some("auto")),
    // Who is to follow, as `conductor`, and its share of the runs that name no conductor, 0 to 1. Both are loaded.
    ("conductor_next", None),
    ("conductor_next_share", Some("0")),
    // How long runs are kept after their end: days or hours such as `30d` or `12h`, or `forever`.
    ("runs_kept", Some("30d")),
    // Plans that a model in this process writes at the same time, in one batch: 1 to 64. Its memory for text grows with them.
    ("plan_sequences", Some("8")),
    // Plans that may wait while the conductor's model has as many as it takes.
    ("plans_waiting_max", Some("256")),
    // Layers of a model in this process that GPUs compute: `all`, or a number; the processor computes the rest.
    ("gpu_layers", Some("0")),
    // Which GPUs: `all`, or numbers such as `0,1`; and how it is spread over them: `layer`, `row`, or `none` (the first has all).
    ("gpus", Some("all")),
    ("gpu_split", Some("layer")),
    // Whether a promised GPU that is not there is an error, which is the default; else the processor computes instead.
    ("gpu_required", None),
    // How it keeps the text so far: `f16`, `bf16`, `q8_0` or `q4_0`.
    ("kv_cache", Some("f16")),
    // Whether steps may be answered with what the same request got before (temperature 0 or a seed, same tenant): `off` or `exact`.
    ("step_cache", Some("off")),
    // Milliseconds that an output is kept for it.
    ("step_cache_ttl_ms", Some("3600000")),
    // Outputs that are kept; beyond, the oldest goes.
    ("step_cache_entries_max", Some("4096")),
    // Bytes of an output that is kept.
    ("step_cache_entry_bytes_max", Some("65536")),
    // Milliseconds that requests and calls under way may still take once the server is told to stop.
    ("drain_ms", Some("10000")),
    // The OpenTelemetry collector that metrics are delivered to over gRPC: http://HOST:PORT, https:// with TLS. Default: what
    // OTEL_EXPORTER_OTLP_ENDPOINT names, else none.
    ("otlp_endpoint", None),
    // Milliseconds between two deliveries. Default: OTEL_METRIC_EXPORT_INTERVAL, else a minute.
    ("otlp_every_ms", None),
    // What is logged: a level, or a list such as `info,podium_engine=debug`. Default: `info` for a server, else `warn`.
    ("log", None),
    // `text` or `json`.
    ("log_format", Some("text")),
];

/// A checked setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Where the HTTP door listens.
    pub(crate) listen: SocketAddr,
    /// Where the gRPC door listens.
    pub(crate) grpc_listen: SocketAddr,
    /// Where metrics are shown; none: nowhere.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Whether who asks must show a key.
    pub(crate) keys_required: bool,
    /// What clients may take of the server.
    pub(crate) limits: ServerLimits,
    /// The folder that keeps the runs.
    pub(crate) data: PathBuf,
    /// The workers.
    pub(crate) pool: PoolChoice,
    /// Who plans.
    pub(crate) conductors: ConductorChoices,
    /// How long runs are kept after their end; none: for ever.
    pub(crate) runs_kept: Option<Duration>,
    /// How much the step cache remembers; none: there is none.
    pub(crate) step_cache: Option<CacheOptions>,
    /// What a model in this process may take.
    pub(crate) local: LocalLimits,
    /// How long work under way may still take at the end.
    pub(crate) drain: Duration,
    /// Where metrics are delivered.
    pub(crate) telemetry: TelemetrySettings,
    /// What is logged; the command knows the default.
    pub(crate) log: Option<String>,
    /// How it is logged.
    pub(crate) log_format: LogFormat,
}

impl Settings {
    /// Starts logging. `level` is what is logged where the settings do not say.
    pub(crate) fn start_log(&self, level: &str) {
        podium_setup::start_log(self.log.as_deref().unwrap_or(level), self.log_format);
    }
}

/// Which workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolChoice {
    /// Those of the demo: small programs in this process that play models.
    Demo,
    /// Those of a file.
    File(PathBuf),
}

#[cfg(test)]
mod tests;
