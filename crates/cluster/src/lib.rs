//! The common parts of a cluster's processes: settings, command line, connections (Postgres, NATS, Redis), shutdown.
//!
//! A service connects with [`Connections::open`], builds its engine on them, and runs it: with [`Process`] if it has no API of its
//! own, and otherwise with its own listeners.
#![deny(missing_docs)]

mod command_line;
mod connection_hints;
mod connections;
mod doctor;
mod error;
mod health;
mod limiter_state;
mod monitor;
mod open_store;
mod pool_change;
mod process;
mod redis_diagnostics;
mod server_urls;
mod settings;
mod shutdown;

pub use command_line::{HasCluster, Program, main, main_with_inspection};
pub use connections::{Connections, Role, instance, options};
pub use error::ClusterError;
pub use pool_change::apply_pool;
pub use process::{Process, ProcessSettings};
pub use settings::{
    Away, Certificates, ClientCertificate, ClusterSettings, EXECUTOR, EXECUTOR_GROUPS, GATEWAY,
    GATEWAY_GROUPS, NatsSettings, NatsUser, PLANNER, PLANNER_GROUPS, Pooler, PostgresSettings, RedisSettings,
    program_keys,
};
pub use shutdown::{engine_failure, first_signal, stop_or_second_signal};
