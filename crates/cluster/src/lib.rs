//! The processes of a cluster: how they are set up, what they stand on (Postgres, NATS, Redis), how they end.
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
pub use process::{first_signal, main, main_with_inspection, stop_or_second_signal};
pub use settings::{
    Away, Certificates, ClientCertificate, ClusterSettings, HEALTH_KEYS, KEYS, NatsSettings, NatsUser,
    Pooler, PostgresSettings, RedisSettings,
};
pub use work::{Work, WorkSettings, broke_down, check_work, work_keys, work_until_signal};
