//! Where the spans of ended runs go.

use std::fmt;

use podium_domain::pool::Pool;
use podium_domain::run::Run;

/// Records ended runs as traces.
pub trait RunTraces: fmt::Debug + Send + Sync {
    /// Records a run that has just ended. Called once by the process that committed the end, or never if that process died. It must
    /// not wait.
    fn ended(&self, run: &Run, pool: &Pool);

    /// Whether the trace of a run under way will be kept even if the run neither fails nor is slow.
    fn is_sampled(&self, run: &Run) -> bool;
}
