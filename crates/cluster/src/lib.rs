//! The common parts of a cluster's processes: settings, command line, connections (Postgres, NATS, Redis), shutdown.
#![deny(missing_docs)]

mod address;
mod advice;
mod backbone;
mod contact;
mod error;
mod health;
mod limiter_state;
mod postgres;
mod process;
mod settings;
mod watch;
mod work;

pub use backbone::{Backbone, instance};
pub use error::ClusterError;
pub use podium_engine::Parts;
pub use process::{Program, first_signal, main, main_with_inspection, stop_or_second_signal};
pub use settings::{
    Away, Certificates, ClientCertificate, ClusterSettings, EXECUTOR, GATEWAY, KEYS, NatsSettings, NatsUser,
    PLANNER, Pooler, PostgresSettings, RedisSettings, executor_keys, planner_keys,
};
pub use work::{Work, WorkSettings, broke_down, check_work, work_until_signal};
