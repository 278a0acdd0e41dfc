//! The loops that run workflows: accept, plan, execute, advance, sweep. They know ports only: the same loops run embedded in
//! one process and spread over a cluster.
//!
//! The run protocol in short. The store is the only truth; a ready task in it is its own message-to-be, and whoever commits
//! it publishes it afterwards. The queue may lose or repeat anything: the sweeper publishes again what is overdue, and a
//! claim that is committed before any call keeps repeated messages from being paid twice. The first finished, paid result
//! wins, whatever its claim; errors are fenced by the claim.
#![deny(missing_docs)]

mod claims;
mod commit;
mod cost_bounds;
mod engine;
mod executor;
mod front;
mod lanes;
mod metrics;
mod options;
mod planner;
mod upkeep;

pub use commit::CommandError;
pub use engine::{Engine, WatchError};
pub use front::answer::{AnswerError, AnswerPart};
pub use front::estimate::{Estimate, Typical};
pub use front::ratings::{OutcomePage, RateError, RatedOutcome};
pub use front::readiness::{NotReady, PartState, Readiness};
pub use front::submit::{Submit, SubmitError, Submitted};
pub use front::wait_for_end::Ending;
pub use front::watch::Update;
pub use metrics::cache_counts::CacheCounts;
pub use options::{Options, Parts, Roles};
pub use upkeep::supervision::LoopEnded;
