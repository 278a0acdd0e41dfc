//! The keys of `podium` and their defaults.

use podium_setup::settings::{Key, SERVER_KEYS};

/// The keys and their defaults.
pub(crate) const KEYS: &[Key] = &[
    Key::new("listen", "127.0.0.1:8080", "The address of the OpenAI-compatible HTTP API, as HOST:PORT."),
    Key::new("grpc_listen", "127.0.0.1:8081", "The address of the gRPC API, as HOST:PORT."),
    Key::optional(
        "metrics_listen",
        "127.0.0.1:9464",
        "The address where Prometheus reads metrics, at /metrics; they are of all tenants. Unset: nowhere.",
    ),
    Key::new(
        "allow_remote",
        "false",
        "Whether these addresses may be ones that other machines can reach; set keys_required as well then.",
    ),
    Key::new(
        "keys_required",
        "false",
        "Whether requests without a key are refused. If not, they are of the tenant `local`.",
    ),
    SERVER_KEYS[0],
    SERVER_KEYS[1],
    SERVER_KEYS[2],
    SERVER_KEYS[3],
    SERVER_KEYS[4],
    SERVER_KEYS[5],
    SERVER_KEYS[6],
    SERVER_KEYS[7],
    Key::optional(
        "data",
        "/var/lib/podium",
        "The folder that keeps the runs, keys and budgets. Unset: podium in XDG_DATA_HOME, which is ~/.local/share unless set.",
    ),
    Key::new("pool", "demo", "The workers: a pool file, or demo for the simulated ones."),
    Key::new(
        "conductor",
        "auto",
        "What plans: auto, llama:FOLDER, worker:WORKER, model:FILE#WORKER, remote:URL#MODEL, fixed:FILE, direct or \
         direct:WORKER. auto is the demonstration's own model where it fits, else no planning.",
    ),
    Key::optional(
        "conductor_next",
        "fixed:workflow.yaml",
        "A conductor that is to replace `conductor`, in the same forms except auto. Both are loaded.",
    ),
    Key::new(
        "conductor_next_share",
        "0",
        "The share of runs that conductor_next plans, 0 to 1, among those that name no conductor.",
    ),
    Key::new(
        "runs_kept",
        "30d",
        "How long runs are kept after their end: days or hours such as 30d or 12h, or forever.",
    ),
    Key::optional(
        "plan_slots",
        "256",
        "Plans made at the same time for each tier, 1 to 65536. Unset: plan_sequences for a model in this process, else 256.",
    ),
    Key::optional(
        "step_slots",
        "1024",
        "Steps run at the same time for each vendor and tier, 1 to 65536. Unset: 1024, or the largest in_flight_max of the \
         pool if that is more. The pool's in_flight_max is what protects a vendor.",
    ),
    Key::new(
        "plan_sequences",
        "8",
        "Plans that a model in this process writes at the same time, in one batch: 1 to 64. Its memory for text grows with \
         them.",
    ),
    Key::new(
        "plans_waiting_max",
        "256",
        "Most plans that wait while the conductor's model is busy; further ones are refused and tried again.",
    ),
    Key::new(
        "gpu_layers",
        "0",
        "Layers of a model in this process that GPUs compute: all, or a number; the processor computes the rest.",
    ),
    Key::new("gpus", "all", "The GPUs to use: all, or numbers such as 0,1."),
    Key::new(
        "gpu_split",
        "layer",
        "How the model is spread over several GPUs: layer, row, or none (the first one has all).",
    ),
    Key::optional(
        "gpu_required",
        "false",
        "Whether a missing GPU is an error. Unset: yes, if gpu_layers is not 0; false lets the processor compute.",
    ),
    Key::new("kv_cache", "f16", "The number format of the model's memory for text: f16, bf16, q8_0 or q4_0."),
    Key::new(
        "step_cache",
        "off",
        "Reuse cached answers for identical deterministic step requests (temperature 0 or a seed) of the same tenant: off or \
         exact.",
    ),
    Key::new(
        "step_cache_ttl_ms",
        "3600000",
        "Milliseconds that the step cache keeps an output, at most a day.",
    ),
    Key::new(
        "step_cache_entries_max",
        "4096",
        "Most outputs in the step cache; beyond that the oldest is removed.",
    ),
    Key::new("step_cache_entry_bytes_max", "65536", "Most bytes of an output that the step cache keeps."),
    Key::new(
        "drain_ms",
        "10000",
        "Milliseconds that requests and calls under way may still take once the server is told to stop.",
    ),
    Key::optional(
        "otlp_endpoint",
        "http://127.0.0.1:4317",
        "The OpenTelemetry collector that gets metrics over gRPC: http://HOST:PORT, or https:// with TLS. Unset: that of \
         OTEL_EXPORTER_OTLP_ENDPOINT, else none.",
    ),
    Key::optional(
        "otlp_every_ms",
        "60000",
        "Milliseconds between two deliveries of metrics. Unset: OTEL_METRIC_EXPORT_INTERVAL, else 60000.",
    ),
    Key::optional(
        "log",
        "info",
        "What is logged: a level, or a list such as info,podium_engine=debug. Unset: info for a server, warn for other \
         commands.",
    ),
    Key::new("log_format", "text", "How log lines look: text or json."),
];
