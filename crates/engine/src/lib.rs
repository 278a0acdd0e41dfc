//! The engine accepts, plans, executes, sweeps and serves runs. It depends only on ports, so the same loops run embedded in one
//! process and spread over a cluster.
//!
//! The run protocol in short: the store is the only authoritative state. The process that commits a ready task publishes its message
//! afterwards. The queue may lose or repeat messages: the sweeper publishes overdue tasks again, and a claim is committed before any
//! call, so a repeated message does not cause a second paid call. The first finished, paid result wins, whatever its claim; errors
//! are fenced by the claim.
//!
//! The layers, from the bottom: [`commit`], [`lanes`] and [`claims`] form the [`context`]; [`front`], [`planner`], [`executor`] and
//! [`upkeep`] use it; [`loops`] starts them, and [`engine`] is the API.
#![deny(missing_docs)]

mod claims;
mod commit;
mod context;
mod cost_bounds;
mod engine;
mod executor;
mod front;
mod lanes;
mod live_text;
mod loops;
mod metrics;
mod options;
mod parts;
mod planner;
mod token_estimates;
mod upkeep;

pub use commit::CommandError;
pub use engine::{Engine, OtherConductors};
pub use front::answer::{AnswerError, AnswerPart};
pub use front::estimate::{Estimate, Typical};
pub use front::ratings::{OutcomePage, RateError, RatedOutcome};
pub use front::readiness::{NotReady, PartState, Readiness};
pub use front::submit::{Submit, SubmitError, Submitted};
pub use front::wait_for_end::Ending;
pub use front::watch::{ToolCallPiece, Update, WatchError};
pub use metrics::cache_counts::CacheCounts;
pub use options::Options;
pub use parts::{CallParts, Parts, Work};
pub use upkeep::supervision::LoopEnded;
