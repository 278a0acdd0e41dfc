//! The ports that the engine is built from: those of every process, and those of a process that plans or calls workers.

use std::sync::Arc;

use podium_domain::pool::Pool;
use podium_ports::cache::StepCache;
use podium_ports::clock::{Clock, Ids};
use podium_ports::conductor::Conductors;
use podium_ports::conductor_profile::{ConductorProfile, ConductorProfiles};
use podium_ports::limiter::Limiter;
use podium_ports::live::LiveStream;
use podium_ports::queue::StepQueue;
use podium_ports::run_traces::RunTraces;
use podium_ports::store::RunStore;
use podium_ports::vendor::Vendors;

/// The ports of every process. They suffice to accept, watch, read and cancel runs.
#[derive(Clone)]
pub struct Parts {
    /// The runs.
    pub store: Arc<dyn RunStore>,
    /// The lanes with the messages of ready tasks.
    pub queue: Arc<dyn StepQueue>,
    /// Live text and signals.
    pub live: Arc<dyn LiveStream>,
    /// The ids and abilities of all conductors, including those that plan in other processes.
    pub conductors: ConductorProfiles,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn Ids>,
    /// The workers.
    pub pool: Arc<Pool>,
    /// Where traces of ended runs go, if anywhere.
    pub traces: Option<Arc<dyn RunTraces>>,
}

impl Parts {
    /// The conductor with that name and version.
    pub(crate) fn conductor(&self, id: &str) -> Option<&ConductorProfile> {
        self.conductors.all().find(|conductor| conductor.id() == id)
    }
}

/// The ports of a process that calls workers.
#[derive(Clone)]
pub struct CallParts {
    /// Permits for calls.
    pub limiter: Arc<dyn Limiter>,
    /// Outputs of earlier calls, if they may be reused.
    pub cache: Option<Arc<dyn StepCache>>,
    /// The vendors of the workers.
    pub vendors: Arc<dyn Vendors>,
}

/// The work of a process. By default it does upkeep only, as a gateway does.
#[derive(Clone, Default)]
pub struct Work {
    /// Plans with these conductors.
    pub plan: Option<Conductors>,
    /// Calls workers.
    pub execute: Option<CallParts>,
}

impl Work {
    /// Whether the process takes tasks from lanes.
    pub(crate) const fn takes_tasks(&self) -> bool {
        self.plan.is_some() || self.execute.is_some()
    }
}
