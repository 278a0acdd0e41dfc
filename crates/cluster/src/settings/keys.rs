//! The keys that the processes of a cluster share. A service may add its own.

use podium_setup::settings::Key;

/// The gateway's name as a program.
pub const GATEWAY: &str = "podium-gateway";
/// The planner's name as a program.
pub const PLANNER: &str = "podium-planner";
/// The executor's name as a program.
pub const EXECUTOR: &str = "podium-executor";

const GATEWAYS: &[&str] = &[GATEWAY];
const PLANNERS: &[&str] = &[PLANNER];
const EXECUTORS: &[&str] = &[EXECUTOR];
/// The processes that call models.
const CALLERS: &[&str] = &[PLANNER, EXECUTOR];

/// The keys that every process of a cluster accepts.
pub const KEYS: &[Key] = &[
    Key::required(
        "postgres",
        "postgres://podium@127.0.0.1:5432/podium",
        "The database: postgres://USER@HOST:PORT/DATABASE, without a password. Several HOST:PORT may be given with commas \
         between; the one that accepts writes is used. `?sslmode=verify-full` checks the server's certificate.",
    ),
    Key::optional("postgres_password", "file:/run/secrets/postgres_password", "The user's password: env:NAME or file:PATH."),
    Key::optional(
        "postgres_root_certificates",
        "/etc/podium/postgres-ca.pem",
        "A PEM file with the authority of the server's certificate. If it is set, sslmode is verify-full unless the URL has \
         one.",
    ),
    Key::optional(
        "postgres_client_certificate",
        "/etc/podium/postgres-client.pem",
        "A PEM file with this client's certificate, for servers that ask for one.",
    ),
    Key::optional("postgres_client_key", "/etc/podium/postgres-client.key", "A PEM file with that certificate's key."),
    Key::new(
        "postgres_pooler",
        "none",
        "What is between this process and Postgres: none, or transaction for a pooler that lends a session for one \
         transaction at a time, such as PgBouncer 1.21 or newer.",
    ),
    Key::new(
        "postgres_connections",
        "8",
        "Most connections to Postgres that this process holds, 2 to 1000. The sum over all processes must stay below \
         Postgres' max_connections (100 by default: twelve processes with 8 each).",
    ),
    Key::new(
        "postgres_migrate",
        "auto",
        "Whether this process applies pending migrations as it starts: auto, or never where `podium migrate` applies them and \
         this process' role may not create tables.",
    ),
    Key::new(
        "nats",
        "nats://127.0.0.1:4222",
        "The NATS servers: nats://HOST:PORT, or tls://HOST:PORT encrypted; several with commas. With a user that has a \
         password: nats://USER@HOST:PORT.",
    ),
    Key::optional("nats_password", "file:/run/secrets/nats_password", "The NATS user's password: env:NAME or file:PATH."),
    Key::optional("nats_token", "env:NATS_TOKEN", "A NATS token in place of a user: env:NAME or file:PATH."),
    Key::optional("nats_nkey", "env:NATS_NKEY", "The seed of a NATS nkey in place of a user: env:NAME or file:PATH."),
    Key::optional("nats_credentials", "/etc/podium/nats.creds", "A NATS credentials file (.creds) in place of a user."),
    Key::optional(
        "nats_root_certificates",
        "/etc/podium/nats-ca.pem",
        "A PEM file with the authority of the servers' certificates. Unset: the system's authorities.",
    ),
    Key::optional(
        "nats_client_certificate",
        "/etc/podium/nats-client.pem",
        "A PEM file with this client's certificate, for servers that ask for one.",
    ),
    Key::optional("nats_client_key", "/etc/podium/nats-client.key", "A PEM file with that certificate's key."),
    Key::new("nats_replicas", "1", "Copies of each JetStream stream: 1, 3 or 5. More than 1 needs a cluster of NATS servers."),
    Key::new(
        "nats_storage",
        "file",
        "Where NATS keeps the messages: file or memory. Memory needs no disk, which could fill up; after a restart of NATS the \
         sweepers publish the messages again, from Postgres. The same in all processes.",
    ),
    Key::new(
        "lane_messages_max",
        "256",
        "Most waiting tasks that NATS holds for each lane (vendor and tier), 1 to 100000; the rest waits in Postgres. Calls \
         under way do not count.",
    ),
    Key::new(
        "redis",
        "redis://127.0.0.1:6379",
        "Redis, which holds the vendors' limits and the step cache: redis://HOST:PORT, redis://USER@HOST:PORT, or rediss:// \
         with TLS.",
    )
    .used_by(CALLERS),
    Key::optional(
        "redis_limits",
        "redis://limits-a:6379, redis://limits-b:6379",
        "The Redis servers that hold the vendors' limits, in the form of `redis`, with commas: each vendor is on one of them. The \
         same in all processes, and in all cells whose pools share vendors' accounts. Unset: the server of `redis`.",
    )
    .used_by(CALLERS),
    Key::optional("redis_password", "file:/run/secrets/redis_password", "The password of all Redis servers: env:NAME or file:PATH.")
        .used_by(CALLERS),
    Key::optional(
        "redis_root_certificates",
        "/etc/podium/redis-ca.pem",
        "A PEM file with the authority of the server's certificate. Unset: the system's authorities.",
    )
    .used_by(CALLERS),
    Key::optional(
        "redis_client_certificate",
        "/etc/podium/redis-client.pem",
        "A PEM file with this client's certificate, for servers that ask for one.",
    )
    .used_by(CALLERS),
    Key::optional("redis_client_key", "/etc/podium/redis-client.key", "A PEM file with that certificate's key.")
        .used_by(CALLERS),
    Key::new(
        "redis_away",
        "local",
        "What applies while Redis is unreachable: local (each process goes on with its part of every limit, one divided by the \
         number of processes that Redis last knew of), local:SHARE (a fixed part, above 0, at most 1), or hold (no model is \
         called).",
    )
    .used_by(CALLERS),
    Key::required("pool", "/etc/podium/pool.toml", "The pool file, which lists vendors and workers. The same in all processes."),
    Key::required(
        "conductor",
        "worker:gpt-5",
        "What plans: llama:FOLDER, worker:WORKER, model:FILE#WORKER, remote:URL#MODEL, fixed:FILE, direct or direct:WORKER. The \
         same in all processes; gateways and executors only read its name and abilities.",
    ),
    Key::optional(
        "conductor_next",
        "fixed:/etc/podium/workflow.yaml",
        "A conductor that is to replace `conductor`, in the same forms. Planners load both.",
    ),
    Key::new(
        "conductor_next_share",
        "0",
        "The share of runs that conductor_next plans, 0 to 1, among those that name no conductor.",
    ),
    Key::new(
        "plan_at_once",
        "true",
        "Whether gateways plan runs themselves where no model is needed (fixed, direct), or leave them to planners.",
    )
    .used_by(GATEWAYS),
    Key::optional(
        "plan_slots",
        "256",
        "Plans made at the same time for each tier, 1 to 65536. Unset: plan_sequences for a model in the planner, else 256.",
    )
    .used_by(PLANNERS),
    Key::new(
        "plan_sequences",
        "8",
        "Plans that a model in the planner writes at the same time, in one batch: 1 to 64. Its memory for text grows with \
         them.",
    )
    .used_by(PLANNERS),
    Key::new(
        "plans_waiting_max",
        "256",
        "Most plans that wait while the conductor's model is busy; further ones are refused and tried again.",
    )
    .used_by(PLANNERS),
    Key::new(
        "gpu_layers",
        "0",
        "Layers of a model in the planner that GPUs compute: all, or a number; the processor computes the rest.",
    )
    .used_by(PLANNERS),
    Key::new("gpus", "all", "The GPUs to use: all, or numbers such as 0,1.").used_by(PLANNERS),
    Key::new(
        "gpu_split",
        "layer",
        "How the model is spread over several GPUs: layer, row, or none (the first one has all).",
    )
    .used_by(PLANNERS),
    Key::optional(
        "gpu_required",
        "false",
        "Whether a missing GPU keeps the planner unready. Unset: yes, if gpu_layers is not 0; false lets the processor compute.",
    )
    .used_by(PLANNERS),
    Key::new("kv_cache", "f16", "The number format of the model's memory for text: f16, bf16, q8_0 or q4_0.")
        .used_by(PLANNERS),
    Key::new(
        "step_slots",
        "256",
        "Steps that an executor runs at the same time for each vendor and tier, 1 to 65536. The pool's in_flight_max is \
         what protects a vendor.",
    )
    .used_by(EXECUTORS),
    Key::new(
        "step_cache",
        "off",
        "Reuse cached answers for identical deterministic step requests (temperature 0 or a seed) of the same tenant: off or \
         exact.",
    )
    .used_by(EXECUTORS),
    Key::new("step_cache_ttl_ms", "3600000", "Milliseconds that the step cache keeps an output, at most a day.")
        .used_by(EXECUTORS),
    Key::new(
        "step_cache_entries_max",
        "4096",
        "Most outputs in the step cache; beyond that the oldest is removed.",
    )
    .used_by(EXECUTORS),
    Key::new("step_cache_entry_bytes_max", "65536", "Most bytes of an output that the step cache keeps.")
        .used_by(EXECUTORS),
    Key::new(
        "lease_ms",
        "4000",
        "Milliseconds after which a claimed task is given to another process if its process shows no sign of life, 1000 to \
         600000. A process shows one every quarter of it. The same in all processes.",
    ),
    Key::new(
        "clock_skew_ms_max",
        "30000",
        "Milliseconds that the machine's clock may differ from Postgres' clock, 100 to 86400000. Beyond that the process is \
         not ready and takes no work.",
    ),
    Key::new(
        "runs_kept",
        "30d",
        "How long runs are kept after their end: days or hours such as 30d or 12h, or forever. Each process removes older \
         ones, so it must be the same in all.",
    ),
    Key::new(
        "drain_ms",
        "20000",
        "Milliseconds that work under way may still take once the process is told to stop; then it is handed back.",
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
    Key::new(
        "cell",
        "0",
        "The number of this cell, 0 to 4095, which the ids of its runs carry. The same in all gateways on one database; it must \
         never change.",
    )
    .used_by(GATEWAYS),
    Key::optional(
        "cells",
        "/etc/podium/cells.toml",
        "A file that lists all cells with their gateways, and which tenants they serve; the same in all gateways of all cells. \
         Unset: there is one cell.",
    )
    .used_by(GATEWAYS),
    Key::new("log", "info", "What is logged: a level, or a list such as info,podium_engine=debug."),
    Key::new("log_format", "text", "How log lines look: text or json."),
];

const ALLOW_REMOTE: Key =
    Key::new("allow_remote", "false", "Whether `listen` may be an address that other machines can reach.");
const HEALTH: &str = "The address for /healthz, /readyz and /metrics, as HOST:PORT.";

/// The keys of a planner.
pub fn planner_keys() -> Vec<Key> {
    [KEYS, &[Key::new("listen", "127.0.0.1:8082", HEALTH), ALLOW_REMOTE]].concat()
}

/// The keys of an executor.
pub fn executor_keys() -> Vec<Key> {
    [KEYS, &[Key::new("listen", "127.0.0.1:8083", HEALTH), ALLOW_REMOTE]].concat()
}
