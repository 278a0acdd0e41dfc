//! The settings of planning, and the conductor that they name. Programs that only talk to it read its name and abilities.
#![deny(missing_docs)]

mod choice;
mod hardware;
mod prepared;
mod settings;

pub use choice::{
    Callees, ChooseError, Chosen, ChosenAll, ConductorChoice, ConductorChoices, OpenBundle, Place, choose,
    choose_all, choose_all_again, demo_bundle, describe_all,
};
pub use hardware::HARDWARE;
pub use podium_conductor::WorkflowSet;
pub use settings::{
    CONDUCTOR, CONDUCTORS, LOCAL_MODEL, NAMED_CONDUCTOR, PLAN_SLOTS, local_limits, plan_slots_for,
};
