//! Commits: turns commands into events, in batches, and groups creations and loads of runs for the store.

mod batch;
mod command_loop;
mod decide;
mod follow_up;
mod refused_runs;
mod request;
mod run_cache;
mod store_batching;
mod unreadable;
mod waiting;

pub(crate) use batch::WriterParts;
pub(crate) use command_loop::Commands;
pub(crate) use decide::rehearse;
pub use request::CommandError;
pub(crate) use request::{Bounds, Order};
pub(crate) use run_cache::{Bounds as RunCacheBounds, Kept, RunCache};
pub(crate) use store_batching::{Gathering, serve as serve_batches};
pub(crate) use unreadable::UnreadableRuns;
