//! Private Postgres, NATS and Redis servers for tests, alone or with standbys, with or without TLS; proxies that lose answers or
//! hold bytes; and our own programs.
//!
//! Each value is a separate server, on a free port of the loopback interface, with its files in a temporary folder. Dropping the
//! value ends the server and removes its files. The same happens when the test's process is killed: a small shell next to each
//! server waits for the end of a pipe that the process holds.
//!
//! Programs are searched in `PATH` and in Debian's folders. `PODIUM_TEST_POSTGRES_BIN` (a folder), `PODIUM_TEST_NATS_SERVER` and
//! `PODIUM_TEST_REDIS_SERVER` name others, so that several versions can be tested.
#![deny(missing_docs)]

mod certificates;
mod disk;
mod nats;
mod port;
mod postgres;
mod program;
mod proxy;
mod redis;
mod server;
mod service;
mod template;
mod wait;
mod wire;

pub use certificates::{Authority, Identity};
pub use disk::small_disks;
pub use nats::{Nats, nats_cluster};
pub use postgres::archive::Archive;
pub use postgres::{Fsync, Postgres, Secured};
pub use proxy::Proxy;
pub use redis::Redis;
pub use service::Service;
pub use wire::Wire;
