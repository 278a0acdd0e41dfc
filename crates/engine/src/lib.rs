//! The loops that run workflows: accept, plan, execute, advance, sweep. They know ports only: the same loops run embedded in
//! one process and spread over a cluster.
//!
//! The run protocol in short. The store is the only truth; a ready task in it is its own message-to-be, and whoever commits
//! it publishes it afterwards. The queue may lose or repeat anything: the sweeper publishes again what is overdue, and a
//! claim that is committed before any call keeps repeated messages from being paid twice. The first finished, paid result
//! wins, whatever its claim; errors are fenced by the claim.
#![deny(missing_docs)]

mod answer;
mod cache_counts;
mod commands;
mod dispatch;
mod dispatcher;
mod ending;
mod engine;
mod estimate;
mod executor;
mod gather;
mod history;
mod holds;
mod known;
mod metrics;
mod parts;
mod planner;
mod ratings;
mod readiness;
mod remover;
mod retry;
mod retry_budget;
mod settler;
mod submit;
mod supervision;
mod sweeper;
mod task;
mod unreadable;
mod watch;
mod worth;

pub use answer::{AnswerError, AnswerPart};
pub use cache_counts::CacheCounts;
pub use commands::CommandError;
pub use ending::Ending;
pub use engine::{Engine, WatchError};
pub use estimate::{Estimate, Typical};
pub use parts::{Options, Parts, Roles};
pub use ratings::{OutcomePage, RateError, RatedOutcome};
pub use readiness::{NotReady, PartState, Readiness};
pub use retry_budget::RetryLimits;
pub use submit::{Submit, SubmitError, Submitted};
pub use supervision::LoopEnded;
pub use watch::Update;
