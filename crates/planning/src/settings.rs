//! The settings of planning.

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;

use podium_bundle::{LocalLimits, SEQUENCES_MAX, WAITING_MAX};
use podium_domain::ids::WorkerId;
use podium_domain::share::Share;
use podium_setup::settings::engine::SLOTS_MAX;
use podium_setup::settings::{Checker, Group, Key, Setting, Values, values};

use crate::ConductorChoice;
use crate::hardware::hardware;

/// Concurrent plans if no local model writes them: large enough that the model's own limits decide.
const PLAN_SLOTS_DEFAULT: usize = 256;

const NAMED: Values = Values::Form(
    "llama:FOLDER, worker:WORKER, model:FILE#WORKER, remote:URL#MODEL, fixed:FILE, direct or direct:WORKER",
);

/// The conductor of one process, which may choose it by what it finds.
pub const CONDUCTOR: Setting<ConductorChoice> = Setting::parsed(
    "conductor",
    Values::Form(
        "auto, llama:FOLDER, worker:WORKER, model:FILE#WORKER, remote:URL#MODEL, fixed:FILE, direct or direct:WORKER",
    ),
    conductor,
    "The conductor, which plans the runs. It is a bundle under llama.cpp, a worker of the pool, a model of another pool file, a \
     model behind an OpenAI-compatible API, or a workflow file; direct does not plan. auto is the demonstration's own model if it \
     fits the pool, and otherwise direct.",
)
.default("auto");

/// The conductor of a cluster. Its processes might find different things, so it is named.
pub const NAMED_CONDUCTOR: Setting<ConductorChoice> = Setting::parsed(
    "conductor",
    NAMED,
    named_conductor,
    "The conductor, which plans the runs. It is a bundle under llama.cpp, a worker of the pool, a model of another pool file, a \
     model behind an OpenAI-compatible API, or a workflow file; direct does not plan. All processes need the same value; gateways \
     and executors only read the conductor's name and abilities.",
)
.required("worker:gpt-5");

/// The successor of the conductor.
pub(crate) const CONDUCTOR_NEXT: Setting<ConductorChoice> = Setting::parsed(
    "conductor_next",
    NAMED,
    named_conductor,
    "A second conductor, for a gradual rollout. Planning processes load both, and each run uses one.",
)
.optional("fixed:/etc/podium/workflow.yaml", "there is one conductor");

/// The successor's share.
pub(crate) const CONDUCTOR_NEXT_SHARE: Setting<Share> = Setting::parsed(
    "conductor_next_share",
    Values::Form("0 to 1"),
    |key, text| {
        let share = text.parse::<f64>().ok().and_then(|share| Share::new(share).ok());
        share.ok_or_else(|| key.must_be(text))
    },
    "Share of the runs that conductor_next plans, among those that name no conductor.",
)
.default("0");

/// The workflows of `podium-max`.
pub(crate) const CONDUCTOR_MAX: Setting<PathBuf> = Setting::path(
    "conductor_max",
    "FILE",
    "A file that lists workflows and names the head that chooses among them. With it, `podium-max` is offered. All processes need the \
     same value.",
)
.optional("/etc/podium/max.yaml", "podium-max is not offered");

/// Concurrent plans of one process, per tier.
pub const PLAN_SLOTS: Setting<usize> = Setting::count(
    "plan_slots",
    &(1..=SLOTS_MAX),
    "Most plans that one process makes concurrently for each tier.",
)
.unit("plans")
.optional("256", "plan_sequences if the model runs in this process, and 256 otherwise");

const PLAN_SEQUENCES: Setting<NonZeroU16> = Setting::parsed(
    "plan_sequences",
    Values::Number { min: 1, max: SEQUENCES_MAX as u64 },
    |key, text| {
        let sequences = u16::try_from(values::number(key, text)?).ok().and_then(NonZeroU16::new);
        sequences.ok_or_else(|| key.must_be(text))
    },
    "Most plans that a model in this process writes concurrently, in one batch. Its memory for text grows with this number.",
)
.unit("plans")
.default("8");

const PLANS_WAITING_MAX: Setting<NonZeroUsize> = Setting::parsed(
    "plans_waiting_max",
    Values::Number { min: 1, max: WAITING_MAX as u64 },
    |key, text| {
        let waiting = usize::try_from(values::number(key, text)?).ok().and_then(NonZeroUsize::new);
        waiting.ok_or_else(|| key.must_be(text))
    },
    "Most plans that wait while the conductor's model is busy. Beyond that, a plan is refused and tried again later.",
)
.unit("plans")
.default("256");

/// Which conductor plans.
pub const CONDUCTORS: Group = Group {
    title: "Conductor",
    keys: &[CONDUCTOR.key, CONDUCTOR_NEXT.key, CONDUCTOR_NEXT_SHARE.key, CONDUCTOR_MAX.key],
};

/// How much a planning process does at once.
pub const LOCAL_MODEL: Group =
    Group { title: "Planning", keys: &[PLAN_SLOTS.key, PLAN_SEQUENCES.key, PLANS_WAITING_MAX.key] };

/// Reads the bounds of a model in this process. Problems are added to the checker.
pub fn local_limits(checker: &mut Checker) -> Option<LocalLimits> {
    let sequences_max = checker.read(&PLAN_SEQUENCES);
    let waiting_max = checker.read(&PLANS_WAITING_MAX);
    let hardware = hardware(checker);
    Some(LocalLimits { sequences_max: sequences_max?, waiting_max: waiting_max?, hardware: hardware? })
}

/// Concurrent plans if the settings name no number: the sequences of the model in this process, if there is one.
pub fn plan_slots_for(sequences: Option<NonZeroU16>) -> usize {
    sequences.map_or(PLAN_SLOTS_DEFAULT, |sequences| sequences.get().into())
}

fn named_conductor(key: &Key, text: &str) -> Result<ConductorChoice, String> {
    match conductor(key, text)? {
        ConductorChoice::Auto => Err(key.must_be(text)),
        choice => Ok(choice),
    }
}

fn conductor(key: &Key, text: &str) -> Result<ConductorChoice, String> {
    let wrong = || key.must_be(text);
    match text.split_once(':') {
        None if text == "auto" => Ok(ConductorChoice::Auto),
        None if text == "direct" => Ok(ConductorChoice::Direct(None)),
        Some(("llama", path)) if !path.is_empty() => Ok(ConductorChoice::Llama(path.into())),
        Some(("fixed", path)) if !path.is_empty() => Ok(ConductorChoice::Fixed(path.into())),
        Some(("direct", worker)) => worker_id(worker).map(|id| ConductorChoice::Direct(Some(id))),
        Some(("worker", worker)) => worker_id(worker).map(ConductorChoice::Worker),
        Some(("model", rest)) => match rest.rsplit_once('#') {
            Some((file, worker)) if !file.is_empty() => {
                worker_id(worker).map(|worker| ConductorChoice::Model { file: file.into(), worker })
            }
            _ => Err(wrong()),
        },
        Some(("remote", rest)) => match rest.rsplit_once('#') {
            Some((url, model)) if url.starts_with("http") && !model.is_empty() => {
                Ok(ConductorChoice::Remote { url: url.to_owned(), model: model.to_owned() })
            }
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

fn worker_id(name: &str) -> Result<WorkerId, String> {
    WorkerId::new(name).map_err(|e| format!("names a worker: {e}"))
}
