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
    Away, Certificates, ClientCertificate, ClusterSettings, EXECUTOR, EXECUTOR_GROUPS, GATEWAY,
    GATEWAY_GROUPS, NatsSettings, NatsUser, PLANNER, PLANNER_GROUPS, Pooler, PostgresSettings, RedisSettings,
    program_keys,
};
pub use work::{Work, WorkSettings, broke_down, check_work, executor_keys, planner_keys, work_until_signal};
