//! A conductor's profile, for processes that may not run the conductor themselves.

use std::sync::Arc;

use podium_domain::money::Cost;
use podium_domain::share::Rollout;

use crate::conductor::{Abilities, Conductor, Conductors, PlanOutcome, PlanRequest};

/// The profiles of the current conductor and of the next one during a rollout. Cheap to clone.
pub type ConductorProfiles = Rollout<ConductorProfile>;

/// A conductor's id and abilities, and the conductor itself if it is in this process.
#[derive(Clone)]
pub struct ConductorProfile {
    id: String,
    abilities: Abilities,
    here: Option<Arc<dyn Conductor>>,
}

impl ConductorProfile {
    /// The profile of a conductor in another process.
    pub const fn new(id: String, abilities: Abilities) -> Self {
        Self { id, abilities, here: None }
    }

    /// The profile of a conductor in this process.
    pub fn of(conductor: Arc<dyn Conductor>) -> Self {
        Self { id: conductor.id().to_owned(), abilities: conductor.abilities(), here: Some(conductor) }
    }

    /// The profiles of the conductors in this process.
    pub fn of_all(conductors: &Conductors) -> ConductorProfiles {
        conductors.clone().map(Self::of)
    }

    /// The profile for a process that never plans.
    #[must_use]
    pub fn without_plans(self) -> Self {
        Self { here: None, ..self }
    }

    /// Name and version, as runs record them.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The upper bounds of what the conductor supports.
    pub const fn abilities(&self) -> Abilities {
        self.abilities
    }

    /// The result of [`Conductor::plan_at_once`]; `None` if the conductor is in another process.
    pub fn plan_at_once(&self, request: &PlanRequest) -> Option<PlanOutcome> {
        self.here.as_ref()?.plan_at_once(request)
    }

    /// The result of [`Conductor::plan_cost_max`]; zero if the conductor is in another process.
    pub fn plan_cost_max(&self, request: &PlanRequest) -> Cost {
        self.here.as_ref().map_or(Cost::ZERO, |conductor| conductor.plan_cost_max(request))
    }
}
